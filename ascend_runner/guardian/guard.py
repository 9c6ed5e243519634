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
from ascend_runner.guardian.signal_sets import IMPATIENT_SIGNALS, STOP_SIGNALS, WATCHED, Copies, ignored

if TYPE_CHECKING:
    from collections.abc import Callable

SWEEP_LIMIT: Final = 5.0  # seconds; what survives SIGKILL for longer is stuck in the kernel
LAST_LOOK: Final = 1.0  # seconds; the same if the runner has exited by itself, since it has waited for 5 s already
# Seconds for the runner to take note of a second stop signal: milliseconds, unless its main thread hangs at a disk.
ANSWER_LIMIT: Final = 1.0
BUSY_LIMIT: Final = 10.0  # seconds for one whose main thread is running: it does not hang, but the machine is too slow
KILL_LIMIT: Final = 0.5  # seconds for a runner that gives no answer to die of SIGKILL
MANY_DESCRIPTORS: Final = 65536

ANSWER: Final = b"a"  # what the runner writes when it has taken note of a stop signal
LAST_WORD: Final = b"e"  # and at its end, before its exit status and the pids of the guardian's other children


def guard(run: Callable[[Callable[[], None]], int], tell: Callable[[str], None], parent: int = 0) -> int:
    """Call `run` in a forked child; return the exit status: its result, or 128 + the signal that killed the child.

    `run` gets a function to call whenever it has taken note of a stop signal: a child that takes no note of the second
    one is killed, and the status is 128 + the first of them.

    When this returns, no descendant is alive, except children that this process had otherwise: those of a script that
    has called `exec ascend-runner`, and readers of its output (`ascend-runner ... > >(tee log)`). With `parent`, the
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
    stuck = pid if runner.is_stuck else 0
    survivors = _sweep(frozenset(strangers), SWEEP_LIMIT if runner.was_killed else LAST_LOOK, stuck)
    if runner.was_killed:
        tell(f"{runner.end}; its ranks were killed as well")
    if survivors and (
        runner.was_killed or runner.status == RUNNER_FAILED or pid in [found.pid for found in survivors]
    ):  # otherwise the runner has reported them
        tell(f"still alive after SIGKILL: {', '.join(map(process_tree.describe, survivors))}")
    return runner.status


class Runner:
    """The runner as the guardian sees it. `strangers` are other children of the guardian, kept up to date."""

    def __init__(self, pid: int, reader: int, strangers: set[int]) -> None:
        self.pid = pid
        self.status = RUNNER_FAILED
        self.was_killed = False
        self.is_stuck = False  # whether it has survived SIGKILL
        self.end = ""  # how it was killed, as the beginning of a sentence
        self._reader = reader
        self._strangers = strangers
        self._has_ended = False
        self._has_answered = False
        self._stops: list[int] = []  # stop signals that were forwarded
        self._deadline = 0.0  # for the answer, or for the end after SIGKILL; 0: there is none
        self._patience_ends = 0.0  # with a runner that is busy

    def forward_until_end(self, watched: frozenset[int]) -> None:
        """Forward signals until the runner has ended, has said its last word, or was given up."""
        urgent, copies = watched & (STOP_SIGNALS | {signal.SIGCHLD}), Copies()
        while not self._has_ended:
            # The kernel gives the lowest number first, which a flood of SIGUSR1 has before SIGTERM.
            info = signal.sigtimedwait(urgent, 0)
            if info is None and self._deadline:
                info = signal.sigtimedwait(watched, max(0.0, self._deadline - time.monotonic()))
            elif info is None:
                info = signal.sigwaitinfo(watched)

            if info is None:
                self._give_up()
            elif info.si_signo == signal.SIGCHLD:
                self._look()
            elif not copies.has(info.si_signo):
                self._forward(info.si_signo)

    def _forward(self, signum: int) -> None:
        is_stop = signum in STOP_SIGNALS
        if is_stop:
            is_impatient = bool(self._stops) and signum in IMPATIENT_SIGNALS
            self._stops.append(signum)
            if is_impatient and not self._deadline:
                self._read()
                self._has_answered = False
                self._deadline = time.monotonic() + ANSWER_LIMIT
                self._patience_ends = time.monotonic() + BUSY_LIMIT
        os.kill(self.pid, signum)  # not reaped yet, so its pid is not reused
        if is_stop and self._is_stopped():
            os.kill(self.pid, signal.SIGCONT)
        if signum == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)  # what Ctrl-Z would do if the signal were not blocked

    def _is_stopped(self) -> bool:
        try:
            return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return False  # it has ended

    def _give_up(self) -> None:
        """Kill a runner that has not answered in time; one that cannot be killed is left to the sweep."""
        self._read()
        if self.was_killed:
            self._has_ended = self.is_stuck = True
        elif self._has_answered:
            self._deadline = 0.0
        elif self._is_busy():
            self._deadline = time.monotonic() + ANSWER_LIMIT
        elif not self._has_ended:
            self.was_killed, self.status = True, 128 + self._stops[0]
            self.end = "the runner did not respond and was killed"
            os.kill(self.pid, signal.SIGKILL)
            self._deadline = time.monotonic() + KILL_LIMIT

    def _is_busy(self) -> bool:
        found = process_tree.look(self.pid)
        return found is not None and found.state == "R" and time.monotonic() < self._patience_ends

    def _look(self) -> None:
        """Reap every child that has ended, take note of new ones, and of the runner's end."""
        found = process_tree.children(os.getpid())
        ended = _reap()
        self._read()
        if self.pid not in ended:  # after its end they could as well be its own
            self._strangers.update(found)
            self._strangers.discard(self.pid)
        self._strangers.difference_update(ended)  # their numbers may be used again
        if self.pid in ended and not (self._has_ended or self.was_killed):
            status = ended[self.pid]
            self.was_killed = os.WIFSIGNALED(status)
            self.status = 128 + os.WTERMSIG(status) if self.was_killed else os.WEXITSTATUS(status)
            if self.was_killed:
                self.end = f"the runner was killed by {_name(os.WTERMSIG(status))}"
        self._has_ended |= self.pid in ended

    def _read(self) -> None:
        """Read what the runner has written to the guardian."""
        pieces = []
        try:
            while piece := os.read(self._reader, 65536):
                pieces.append(piece)
        except BlockingIOError:
            pass
        answers, last_word, text = b"".join(pieces).partition(LAST_WORD)
        self._has_answered |= bool(answers)
        if last_word:
            self._has_ended = True
            self.status, *pids = map(int, text.split())
            self._strangers.update(pids)


def _name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def _prepare() -> frozenset[int]:
    """Set up descriptors, reaping and signals of this process; return the signals that it waits for."""
    _open_missing_standard_files()
    _close_others_on_exec()
    process_tree.become_subreaper()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it were ignored, the kernel would discard every exit status
    watched = WATCHED - ignored()  # a blocked signal would arrive although it is ignored
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    return watched


def _run_and_exit(run: Callable[[Callable[[], None]], int], guardian: int, writer: int) -> NoReturn:
    def answer() -> None:
        try:
            os.write(writer, ANSWER)
        except OSError:
            return  # the guardian is stopped, and the pipe full, or it was killed

    status = RUNNER_FAILED
    try:
        os.setpgid(0, 0)  # so that Ctrl-C reaches the runner once, through the guardian
        process_tree.become_subreaper()
        _follow_to_death(guardian)
        status = run(answer)
    except BaseException:  # noqa: BLE001  show any error; the child must never return into the guardian's code
        may_write_from_the_background()
        sys.excepthook(*sys.exc_info())
    finally:
        # A thread that is stuck in a write to a hanging disk can keep this process from ending.
        try:
            others = [pid for pid in process_tree.children(guardian) if pid != os.getpid()]
            os.write(writer, LAST_WORD + " ".join(map(str, (status, *others))).encode())
            if os.getppid() == guardian:
                os.kill(guardian, signal.SIGCHLD)
                os.kill(guardian, signal.SIGCONT)  # it may have been stopped
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


def _reap() -> dict[int, int]:
    """Reap every child that has ended; return the wait statuses by pid."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def _sweep(strangers: frozenset[int], seconds: float, stuck: int = 0) -> list[process_tree.Descendant]:
    """Kill and reap every descendant that the runner has left; return those still alive after `seconds`.

    The process `stuck` is not waited for, and neither is one of another user.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = process_tree.kill_all(keep=strangers)
        left = deadline - time.monotonic()
        if not process_tree.reap_adopted(keep=strangers):
            return []
        to_wait_for = [process for process in found if process.pid != stuck and process_tree.may_signal(process)]
        if left <= 0 or (found and not to_wait_for):
            return found
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
