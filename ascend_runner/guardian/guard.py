"""The first process: it outlives the runner and kills what the runner leaves behind, even if that dies of SIGKILL.

It forks the runner before anything heavy is imported, forwards signals to it, and waits. As a child subreaper it
inherits every process of the runner; as PID 1 of a container it reaps all orphans. It has no notion of ranks.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Final, NoReturn

from ascend_runner.errors import RUNNER_FAILED
from ascend_runner.guardian import process_tree
from ascend_runner.guardian.signal_sets import STOP_SIGNALS, WATCHED

if TYPE_CHECKING:
    from collections.abc import Callable

# timeout(1) signals its child and then its process group, microseconds apart. Counted as two signals, the second one
# would mean SIGKILL now and cost the ranks their grace.
ONE_SIGNAL: Final = 0.02  # seconds between two equal signals of one sender that count as one

SWEEP_LIMIT: Final = 5.0  # seconds; what survives SIGKILL for longer is stuck in the kernel
LAST_LOOK: Final = 1.0  # seconds; the same if the runner has exited by itself, since it has waited for 5 s already
EXIT_LIMIT: Final = 2.0  # seconds from the runner's exit status to its end: milliseconds, unless a disk hangs
MANY_DESCRIPTORS: Final = 65536


def guard(run: Callable[[], int], tell: Callable[[str], None], parent: int = 0) -> int:
    """Call `run` in a forked child; return the exit status: its result, or 128 + the signal that killed the child.

    When this returns, no descendant is alive, except children that existed before: those of a script that has called
    `exec ascend-runner`, and readers of its output (`ascend-runner ... > >(tee log)`). With `parent`, the pid of the
    parent process, the death of the parent stops everything. `tell` is called with a sentence about processes that
    survive SIGKILL, unless the runner has reported them.

    Raises:
        OSError: No process can be forked.
    """
    watched = _prepare()
    if parent:
        _follow_to_death(parent)
    guardian = os.getpid()
    strangers = frozenset(process_tree.children(guardian))
    last_word, status_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    runner = os.fork()
    if runner == 0:
        os.close(last_word)
        _run_and_exit(run, guardian, status_fd)

    os.close(status_fd)
    status = _forward_until_end(runner, watched, last_word)
    os.close(last_word)
    was_killed = os.WIFSIGNALED(status)
    survivors = _sweep(strangers, SWEEP_LIMIT if was_killed else LAST_LOOK)
    stuck = process_tree.look(runner) if runner in process_tree.children(guardian) else None
    if stuck and stuck not in survivors:
        survivors.append(stuck)  # one of its threads is left
    if survivors and (
        stuck or was_killed or os.WEXITSTATUS(status) == RUNNER_FAILED
    ):  # otherwise the runner has reported it
        tell(f"still alive after SIGKILL: {', '.join(map(process_tree.describe, survivors))}")
    return 128 + os.WTERMSIG(status) if was_killed else os.WEXITSTATUS(status)


def _prepare() -> frozenset[int]:
    """Set up descriptors, reaping and signals of this process; return the signals that it waits for."""
    _open_missing_standard_files()
    _close_others_on_exec()
    process_tree.become_subreaper()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it were ignored, the kernel would discard every exit status
    watched: frozenset[int] = WATCHED
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        watched -= {signal.SIGHUP}  # nohup(1); a blocked signal would arrive although it is ignored
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    return watched


def _run_and_exit(run: Callable[[], int], guardian: int, status_fd: int) -> NoReturn:
    status = RUNNER_FAILED
    try:
        os.setpgid(0, 0)  # so that Ctrl-C reaches the runner once, through the guardian
        process_tree.become_subreaper()
        _follow_to_death(guardian)
        status = run()
    except BaseException:  # noqa: BLE001  show any error; the child must never return into the guardian's code
        may_write_from_the_background()
        sys.excepthook(*sys.exc_info())
    finally:
        # A thread that is stuck in a write to a hanging disk can keep this process from ending.
        try:
            os.write(status_fd, bytes([status]))
            os.kill(os.getppid(), signal.SIGCHLD)
        finally:
            os._exit(status)


def may_write_from_the_background() -> None:
    """Let this thread write to the terminal even after `stty tostop`, although it is not in the foreground.

    For last words only: processes started later would inherit the blocked signal.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})


def _follow_to_death(parent: int) -> None:
    """Get SIGTERM when the parent dies, or rather its thread that forked, which here always waits."""
    process_tree.ask_for_signal_at_parent_death(signal.SIGTERM)
    if os.getppid() != parent:  # it has died before the request
        os.kill(os.getpid(), signal.SIGTERM)


def _forward_until_end(runner: int, watched: frozenset[int], last_word: int) -> int:
    """Forward signals until the runner ends, or hangs for `EXIT_LIMIT` after its last word; return its wait status."""
    last, last_time = (0, 0), 0.0
    status_byte, deadline = b"", 0.0
    while True:
        info = (
            signal.sigtimedwait(watched, max(0.0, deadline - time.monotonic()))
            if status_byte
            else signal.sigwaitinfo(watched)
        )
        if info is None:
            return status_byte[0] << 8
        if info.si_signo == signal.SIGCHLD:
            status = _reap(runner)
            if status is not None:
                return status
            if not status_byte:
                status_byte, deadline = _read_if_there(last_word), time.monotonic() + EXIT_LIMIT
            continue

        received, now = (info.si_signo, info.si_pid), time.monotonic()
        if received == last and now - last_time < ONE_SIGNAL and info.si_signo in STOP_SIGNALS:
            continue
        last, last_time = received, now
        os.kill(runner, info.si_signo)  # not reaped yet, so its pid is not reused
        if info.si_signo == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)  # what Ctrl-Z would do if the signal were not blocked


def _read_if_there(fd: int) -> bytes:
    try:
        return os.read(fd, 1)
    except BlockingIOError:
        return b""


def _reap(runner: int) -> int | None:
    """Reap every child that has ended; return the runner's wait status if it is among them."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == 0:
            return None
        if pid == runner:
            return status


def _sweep(strangers: frozenset[int], seconds: float) -> list[process_tree.Descendant]:
    """Kill and reap every descendant that the runner has left; return those still alive after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        killed = process_tree.kill_all(keep=strangers)
        process_tree.reap_adopted(keep=strangers)
        left = deadline - time.monotonic()
        if strangers.issuperset(process_tree.children(os.getpid())):
            return []
        if left <= 0:
            return killed
        signal.sigtimedwait({signal.SIGCHLD}, left)


def _open_missing_standard_files() -> None:
    """Open /dev/null for a closed stdin, stdout or stderr, so that no log file gets its descriptor."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _close_others_on_exec() -> None:
    """Keep inherited descriptors other than stdin, stdout and stderr from the ranks."""
    try:
        fds = list(map(int, os.listdir("/proc/self/fd")))
    except OSError:  # no /proc, or that of another PID namespace
        fds = list(range(min(os.sysconf("SC_OPEN_MAX"), MANY_DESCRIPTORS)))
    for fd in fds:
        try:
            if fd > 2:  # noqa: PLR2004  stderr
                os.set_inheritable(fd, False)
        except OSError:
            continue  # not open, or closed meanwhile
