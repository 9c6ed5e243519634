"""The first process: it outlives the runner and sweeps what the runner leaves, so that even SIGKILL is harmless.

It forks the runner before anything heavy is imported, forwards signals to it, and waits. As a child subreaper it
inherits whatever the runner had started; as PID 1 of a container it reaps all orphans. It must know nothing of ranks.
"""

from __future__ import annotations

import os
import sys
import time

from ascend_runner import plain_signal as signal
from ascend_runner.annotations import TYPE_CHECKING, Final, NoReturn
from ascend_runner.errors import RUNNER_FAILED

from . import descendants

if TYPE_CHECKING:
    from collections.abc import Callable

STOPPING: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
FORWARDED: Final = STOPPING | frozenset({signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT})

# timeout(1) signals its child and then its group, microseconds apart: the same sender, one intention. Taken as two,
# the second would mean "kill now" and cost the ranks their grace.
ONE_INTENTION: Final = 0.02  # seconds

# Seconds; what SIGKILL has not ended by then sits in the kernel, and waiting does not help.
SWEEP_LIMIT: Final = 5.0
EXIT_LIMIT: Final = 2.0  # from the runner's last word to its end: milliseconds, but for a disk that hangs
MANY_DESCRIPTORS: Final = 65536
LAST_LOOK: Final = 1.0  # after a runner that has ended by itself: it has waited its own five seconds


def guard(run: Callable[[], int], tell: Callable[[str], None], parent: int = 0) -> int:
    """Run `run` in a forked child and return the status to exit with: what `run` returned, or 128 + its signal.

    Every descendant is gone when this returns, but for children that were there before: those of a script that called
    `exec ascend-runner`, or that reads its output (`ascend-runner ... > >(tee log)`). With `parent`, the pid of a
    process that waits for this one, all is torn down when that dies. Whom not even SIGKILL ends is named to `tell`,
    where the runner could not.
    Errors: OSError where no process can be forked.
    """
    _open_missing_standard_files()
    _close_others_on_exec()
    descendants.become_subreaper()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # inherited as ignored, the kernel would throw away every exit status
    watched = FORWARDED | {signal.SIGCHLD}
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        watched -= {signal.SIGHUP}  # nohup(1); a blocked signal would arrive although it is ignored
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    if parent:
        _follow_to_death(parent)

    guardian = os.getpid()
    strangers = frozenset(descendants.children(guardian))
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
    stuck = descendants.look(runner) if runner in descendants.children(guardian) else None
    if stuck and stuck not in survivors:
        survivors.append(stuck)  # a thread of it is left
    if survivors and (stuck or was_killed or os.WEXITSTATUS(status) == RUNNER_FAILED):  # else the runner has named them
        tell(f"not even SIGKILL has ended {', '.join(map(descendants.describe, survivors))}")
    return 128 + os.WTERMSIG(status) if was_killed else os.WEXITSTATUS(status)


def _run_and_exit(run: Callable[[], int], guardian: int, status_fd: int) -> NoReturn:
    status = RUNNER_FAILED
    try:
        os.setpgid(0, 0)  # a terminal's Ctrl-C then reaches the runner once, through the guardian
        descendants.become_subreaper()
        _follow_to_death(guardian)
        status = run()
    except BaseException:  # noqa: BLE001  whatever it is, it must be shown, and must not return into a second life
        may_write_from_the_background()
        sys.excepthook(*sys.exc_info())
    finally:
        # A thread that waits for a disk that hangs keeps this process from ending: the status must be known before.
        try:
            os.write(status_fd, bytes([status]))
            os.kill(os.getppid(), signal.SIGCHLD)
        finally:
            os._exit(status)


def may_write_from_the_background() -> None:
    """Let this thread write to a terminal after `stty tostop`, too: the runner's process group is not in front there.

    For last words only. Whatever is started later would have the signal blocked as well.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})


def _follow_to_death(parent: int) -> None:
    """Get SIGTERM when the parent dies. The kernel looks at the thread that forked: here always one that waits."""
    descendants.ask_for_signal_at_parent_death(signal.SIGTERM)
    if os.getppid() != parent:  # it died before it could be asked for
        os.kill(os.getpid(), signal.SIGTERM)


def _forward_until_end(runner: int, watched: frozenset[int], last_word: int) -> int:
    """Forward signals until the runner has ended, or does not although it has said its last word; its wait status."""
    last, last_time = (0, 0), 0.0
    said, deadline = b"", 0.0
    while True:
        info = (
            signal.sigtimedwait(watched, max(0.0, deadline - time.monotonic())) if said else signal.sigwaitinfo(watched)
        )
        if info is None:
            return said[0] << 8
        if info.si_signo == signal.SIGCHLD:
            status = _reap(runner)
            if status is not None:
                return status
            if not said:
                said, deadline = _read_if_there(last_word), time.monotonic() + EXIT_LIMIT
            continue

        intention, now = (info.si_signo, info.si_pid), time.monotonic()
        if intention == last and now - last_time < ONE_INTENTION and info.si_signo in STOPPING:
            continue
        last, last_time = intention, now
        os.kill(runner, info.si_signo)  # not reaped yet, so the number is still the runner's
        if info.si_signo == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)  # what Ctrl-Z would have done, had the signal not been awaited


def _read_if_there(fd: int) -> bytes:
    try:
        return os.read(fd, 1)
    except BlockingIOError:
        return b""


def _reap(runner: int) -> int | None:
    """Reap all that has ended; the runner's wait status, once it is among them."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == 0:
            return None
        if pid == runner:
            return status


def _sweep(strangers: frozenset[int], seconds: float) -> list[descendants.Descendant]:
    """End and reap every descendant that the runner has left; who is still there after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        killed = descendants.kill_all(keep=strangers)
        descendants.reap_adopted(keep=strangers)
        left = deadline - time.monotonic()
        if strangers.issuperset(descendants.children(os.getpid())):
            return []
        if left <= 0:
            return killed
        signal.sigtimedwait({signal.SIGCHLD}, left)


def _open_missing_standard_files() -> None:
    """Put /dev/null where stdin, stdout or stderr was closed, or a log file would be opened under its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _close_others_on_exec() -> None:
    """Keep from the ranks what this process has inherited beside stdin, stdout and stderr."""
    try:
        fds = list(map(int, os.listdir("/proc/self/fd")))
    except OSError:  # no /proc, or another PID namespace's
        fds = list(range(min(os.sysconf("SC_OPEN_MAX"), MANY_DESCRIPTORS)))
    for fd in fds:
        try:
            if fd > 2:  # noqa: PLR2004  stderr
                os.set_inheritable(fd, False)
        except OSError:
            continue  # not open, or no more
