"""The first process: it outlives the runner and kills the processes that the runner leaves behind, even after SIGKILL.

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
from ascend_runner.guardian import process_tree, sweep
from ascend_runner.guardian.runner import ANSWER, FINAL_REPORT, Runner
from ascend_runner.guardian.signal_sets import WATCHED, ignored

if TYPE_CHECKING:
    from collections.abc import Callable

LAST_SWEEP_LIMIT: Final = 1.0  # seconds; replaces SWEEP_LIMIT if the runner has already waited that long
GIVEN_UP_LIMIT: Final = 0.5  # seconds; likewise if the runner does not respond: others may hang on the same disk
MANY_DESCRIPTORS: Final = 65536


def guard(run: Callable[[Callable[[str], None]], int], tell: Callable[[str], None], parent: int = 0) -> int:
    """Call `run` in a forked child; return the exit status: its result, or 128 + the signal that killed the child.

    `run` gets a function that takes lines for this process, see `runner`: whenever it has noticed a stop signal, and
    on its progress. A child that does not acknowledge the second stop signal is killed, and one that should have ended
    and does not respond. The status is the one that it has announced, else 128 + the first signal.

    When this returns, no descendant is alive, except children that this process already had: of a script that has
    called `exec ascend-runner`, and readers of its output (`ascend-runner ... > >(tee log)`). With `parent`, the
    pid of the parent process, the death of the parent stops everything. `tell` is called with a sentence if the
    runner was killed, and about processes that survive SIGKILL, unless the runner has reported them.

    Raises:
        OSError: No process can be forked.
    """
    watched = _prepare()
    if parent:
        _follow_to_death(parent)
    guardian = os.getpid()
    strangers = set(process_tree.children(guardian))
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _run_and_exit(run, guardian, writer)

    os.close(writer)
    runner = Runner(pid, reader, strangers)
    runner.forward_until_end(watched)
    os.close(reader)
    limit = sweep.SWEEP_LIMIT if runner.was_killed else LAST_SWEEP_LIMIT
    limit = GIVEN_UP_LIMIT if runner.is_given_up else limit
    link = runner.link_pids
    survivors = sweep.sweep(frozenset(strangers) | link, limit)
    still_alive = f"still alive after SIGKILL: {', '.join(map(process_tree.describe, survivors))}"
    if runner.was_killed:
        tell(f"{runner.end}; {still_alive if survivors else 'all of its processes were killed'}")
    elif survivors and (runner.status == RUNNER_FAILED or pid in [found.pid for found in survivors]):
        tell(still_alive)  # otherwise the runner has reported them
    if link:
        runner.end_link(list(map(process_tree.describe, survivors)))
        sweep.sweep(frozenset(strangers).union(found.pid for found in survivors), GIVEN_UP_LIMIT)
    return runner.status


def _prepare() -> frozenset[int]:
    """Set up descriptors, reaping and signals of this process; return the signals that it waits for."""
    _open_missing_standard_files()
    _close_others_on_exec()
    process_tree.become_subreaper()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it were ignored, the kernel would discard every exit status
    watched = WATCHED - ignored()  # a blocked signal would arrive although it is ignored
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    return watched


def _run_and_exit(run: Callable[[Callable[[str], None]], int], guardian: int, writer: int) -> NoReturn:
    def write(line: str) -> None:
        try:
            os.write(writer, f"{line}\n".encode())
        except OSError:
            return  # the guardian is stopped, and the pipe full, or it was killed
        if line != ANSWER and os.getppid() == guardian:
            os.kill(guardian, signal.SIGCHLD)  # so that it reads the line now

    status = RUNNER_FAILED
    try:
        os.setpgid(0, 0)  # so that Ctrl-C reaches the runner once, through the guardian
        process_tree.become_subreaper()
        _follow_to_death(guardian)
        status = run(write)
    except BaseException:  # noqa: BLE001  show any error; the child must never return into the guardian's code
        may_write_from_the_background()
        sys.excepthook(*sys.exc_info())
    finally:
        # A thread that is stuck in a write to a hanging disk can keep this process from ending.
        try:
            if os.getppid() == guardian:
                others = [pid for pid in process_tree.children(guardian) if pid != os.getpid()]
                write(" ".join(map(str, (FINAL_REPORT, status, *others))))
                os.kill(guardian, signal.SIGCONT)  # it may have been stopped
            else:
                _sweep_alone(writer)
        finally:
            os._exit(status)


def _sweep_alone(writer: int) -> None:
    """Kill what is left, because the guardian was killed: an error may have kept the runner from stopping its ranks.

    The error may be a lack of descriptors, so two are freed. Other threads may take them for a moment.
    """
    os.close(0)
    os.close(writer)
    ends = time.monotonic() + LAST_SWEEP_LIMIT
    while time.monotonic() < ends:
        try:
            sweep.sweep(seconds=GIVEN_UP_LIMIT)
        except OSError:
            time.sleep(sweep.KILL_INTERVAL)
        else:
            return


def may_write_from_the_background() -> None:
    """Let this thread write to the terminal even after `stty tostop`, although it is not in the foreground.

    For a final message only: processes started later would inherit the blocked signal.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})


def _follow_to_death(parent: int) -> None:
    """Receive SIGTERM when the parent dies (strictly: when the thread that forked us exits; it waits until the end)."""
    process_tree.ask_for_signal_at_parent_death(signal.SIGTERM)
    if os.getppid() != parent:  # it has died before the request
        os.kill(os.getpid(), signal.SIGTERM)


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
    except OSError:  # no /proc, or the one of another PID namespace
        fds = list(range(min(os.sysconf("SC_OPEN_MAX"), MANY_DESCRIPTORS)))
    for fd in fds:
        try:
            if fd > 2:  # noqa: PLR2004  stderr
                os.set_inheritable(fd, False)
        except OSError:
            continue  # not open, or closed meanwhile
