"""The runner as the guardian sees it: signals go to it, acknowledgements and its final report come back."""

from __future__ import annotations

import os
import signal
import time
from select import PIPE_BUF
from typing import Final

from ascend_runner.errors import RUNNER_FAILED
from ascend_runner.guardian import process_tree
from ascend_runner.guardian.signal_sets import IMPATIENT_SIGNALS, QUESTION, STOP_SIGNALS, Copies
from ascend_runner.text import signal_name

# Seconds for the runner to acknowledge a second stop signal or a question: milliseconds, unless its main thread hangs.
ANSWER_LIMIT: Final = 1.0
BUSY_LIMIT: Final = 10.0  # seconds for one whose main thread is running: it does not hang, but the machine is too slow
SOON: Final = 0.001  # seconds; 0 would disarm a timer

# Seconds beyond the grace for the last word of the link process. On node 0 it makes the verdict once the other nodes
# have ended; elsewhere it takes half a second.
LINK_LIMIT: Final = 4.0
LINK_INTERVAL: Final = 0.1  # seconds between two checks whether it has ended

# The first words of the lines that the runner writes.
ANSWER: Final = "answer"  # it has noticed a stop signal, or the question whether it responds
BEGIN: Final = "begin"  # it starts ranks: how many seconds they have to exit when they are stopped
END: Final = "end"  # the exit status, as far as it is known; what is left is to stop the ranks and to report
LINK: Final = "link"  # the pid of its link process, and its descriptor of the pipe on which that awaits `end_link`
FINAL_REPORT: Final = "final"  # at its very end: its exit status, and the pids of the guardian's other children


class Runner:
    """The runner as the guardian sees it. `strangers` are other children of the guardian, kept up to date."""

    def __init__(self, pid: int, reader: int, strangers: set[int]) -> None:
        self.pid = pid
        self.status = RUNNER_FAILED
        self.was_killed = False
        self.is_given_up = False  # whether it is to be killed because it does not respond
        self.end = ""  # how it was killed, as the beginning of a sentence
        self._reader = reader
        self._strangers = strangers
        self._has_ended = False
        self._has_answered = False
        self._stops: list[int] = []  # stop signals that were forwarded
        self._grace = 0.0  # seconds
        self._next_status: int | None = None  # the status that it has announced
        self._is_asked = False  # whether an answer is due
        self._deadline = 0.0  # when to ask, or when the answer is due; 0: never
        self._patience_ends = 0.0  # when to stop waiting for a busy runner
        self._spare_checks = 0  # further checks of a runner that does not seem to run
        self._schedule: str | None = None  # the state of its main thread at the last check
        self._link: process_tree.Descendant | None = None  # the link process
        self._farewell = -1  # the pipe to it

    def forward_until_end(self, watched: frozenset[int]) -> None:
        """Forward signals until the runner has ended, has written its final report, or was given up."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        copies = Copies()
        while not self._has_ended:
            signum = self._next_signal(watched)
            if signum == signal.SIGALRM:
                if self._deadline and time.monotonic() >= self._deadline:
                    (self._give_up if self._is_asked else self._ask)()
            elif signum == signal.SIGCHLD:
                self._look()
            elif not copies.has(signum):
                self._forward(signum)

    def _next_signal(self, watched: frozenset[int]) -> int:
        """Wait for a signal; SIGALRM comes at the deadline.

        sigtimedwait() has a limit of its own, but returns arbitrary data if SIGSTOP comes before it and SIGCONT after.
        """
        # The kernel gives the lowest number first, which a flood of SIGUSR1 has before SIGTERM.
        info = signal.sigtimedwait(watched & (STOP_SIGNALS | {signal.SIGCHLD}), 0)
        if info is None:
            if self._deadline:
                signal.setitimer(signal.ITIMER_REAL, max(SOON, self._deadline - time.monotonic()))
            info = signal.sigwaitinfo(watched | {signal.SIGALRM})
        return info.si_signo

    def _forward(self, signum: int) -> None:
        is_stop = signum in STOP_SIGNALS
        if is_stop:
            is_impatient = bool(self._stops) and signum in IMPATIENT_SIGNALS
            self._stops.append(signum)
            if is_impatient and not self._is_asked:
                self._expect_answer()
            self._read()
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

    @property
    def _is_ending(self) -> bool:
        """Whether it should end by itself within the grace: it was asked to stop, or its status is known."""
        return bool(self._stops) or self._next_status is not None

    def _ask(self) -> None:
        """Ask a runner that should have ended whether it responds. It may be saving, or run a hook."""
        self._expect_answer(spare_checks=1)  # nobody is impatient, and a lock of the kernel may be busy for a while
        os.kill(self.pid, QUESTION)

    def _expect_answer(self, *, spare_checks: int = 0) -> None:
        self._read()
        self._is_asked, self._has_answered, self._schedule = True, False, None
        self._spare_checks = spare_checks
        self._deadline = time.monotonic() + ANSWER_LIMIT / 2
        self._patience_ends = time.monotonic() + BUSY_LIMIT

    def _give_up(self) -> None:
        """Give up a runner that has not answered in time: the sweep will kill it."""
        self._read()
        if self._has_answered:
            self._is_asked = False
            self._deadline = time.monotonic() + ANSWER_LIMIT if self._is_ending else 0.0
        elif self._is_busy():
            self._deadline = time.monotonic() + ANSWER_LIMIT / 2
        elif self._spare_checks:
            self._spare_checks -= 1
            self._deadline = time.monotonic() + ANSWER_LIMIT / 2
        elif not self._has_ended:
            self._has_ended = self.was_killed = self.is_given_up = True
            found = process_tree.look(self.pid)
            who = process_tree.describe(found) if found else self.pid
            self.end = f"the runner did not respond and was killed: {who}"
            if self._next_status is None:
                self.end += "; the result of the job is unknown"
            self.status = 128 + self._stops[0] if self._next_status is None else self._next_status

    def _is_busy(self) -> bool:
        """Whether its main thread is running, or has run since the last check: then it does not hang."""
        before, self._schedule = self._schedule, _schedule(self.pid)
        return self._schedule != before and time.monotonic() < self._patience_ends

    def _look(self) -> None:
        """Reap every child that has ended, and record new ones and the runner's end."""
        # After its end, new children may be processes that it has left. The kernel passes these on once all its threads
        # are ending, when it cannot be reaped yet if one of them hangs; only /proc tells that.
        found = process_tree.children(os.getpid()) if process_tree.is_proc_ours() and self._is_alive() else []
        if self._is_alive():
            self._strangers.update(found)
            self._strangers.discard(self.pid)
            ended = _reap(-1)
        else:
            ended = _reap(self.pid)  # what it leaves may end faster than it can be reaped, and is left to the sweep
        self._read()
        self._strangers.difference_update(ended)  # their numbers may be used again
        if self.pid in ended and not self._has_ended:
            status = ended[self.pid]
            self.was_killed = os.WIFSIGNALED(status)
            self.status = 128 + os.WTERMSIG(status) if self.was_killed else os.WEXITSTATUS(status)
            if self.was_killed:
                self.end = f"the runner was killed by {signal_name(os.WTERMSIG(status))}"
        self._has_ended |= self.pid in ended

    def _is_alive(self) -> bool:
        found = process_tree.look(self.pid)
        return found is not None and not found.is_ending

    def _read(self) -> None:
        """Read what the runner has written."""
        pieces = []
        try:
            while piece := os.read(self._reader, 65536):
                pieces.append(piece)
        except BlockingIOError:
            pass
        for line in b"".join(pieces).decode().splitlines():
            name, *values = line.split()
            self._has_answered |= name != LINK  # written by another thread than the main one
            if name == BEGIN:
                self._grace, self._next_status = float(values[0]), None
                if not self._stops:  # an earlier attempt has ended, but not the job
                    self._is_asked, self._deadline = False, 0.0
            elif name == END:
                self._next_status = int(values[0])
            elif name == LINK:
                self._note_link(*map(int, values))
            elif name == FINAL_REPORT:
                self._has_ended = True
                self.status, *pids = map(int, values)
                self._strangers.update(pids)
        if self._is_ending and not self._deadline:
            self._deadline = time.monotonic() + max(self._grace, SOON)

    # --- The link process (ascend_runner/link), which outlives the runner to tell other nodes of its end --------------

    def _note_link(self, pid: int, descriptor: int) -> None:
        """Take the pipe to a link process from the runner, which has both ends of it."""
        if self._farewell >= 0:
            os.close(self._farewell)
        self._link, self._farewell = process_tree.look(pid), -1
        try:
            path = f"/proc/{self.pid}/fd/{descriptor}" if process_tree.is_proc_ours() else ""
            self._farewell = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._link = None  # no /proc, or the runner has just died: it is killed like everything else

    @property
    def link_pids(self) -> frozenset[int]:
        """The living link process, which is to be spared until everything else is dead; nothing if there is none."""
        return frozenset({found.pid}) if (found := self._living_link()) else frozenset()

    def _living_link(self) -> process_tree.Descendant | None:
        found = process_tree.look(self._link.pid) if self._link else None
        is_same = found and self._link and not found.is_zombie and found.identity == self._link.identity
        return found if is_same else None

    def end_link(self, survivors: list[str]) -> None:
        """Tell the link process that only these processes are left, and wait until it has passed that on and ended.

        Do not wait if it is suspended, or after a second stop signal.
        """
        try:
            os.write(self._farewell, "\n".join(["dead", *survivors]).encode()[:PIPE_BUF])
        except OSError:
            return  # it does not read
        deadline, stops = time.monotonic() + self._grace + LINK_LIMIT, 0
        while (found := self._living_link()) and found.state != "T" and time.monotonic() < deadline and stops <= 1:
            arrived = signal.sigtimedwait({signal.SIGCHLD, *IMPATIENT_SIGNALS}, LINK_INTERVAL)
            stops += arrived is not None and arrived.si_signo in IMPATIENT_SIGNALS


def _schedule(pid: int) -> str:
    """Return how much the main thread of a process has run, in no particular form, or "" if it is unknown.

    While it is running or waiting for a processor, the result differs from call to call.
    """
    found = process_tree.look(pid)
    if found and found.state == "R":
        return str(time.monotonic_ns())
    try:
        return process_tree.read(pid, "schedstat").decode()
    except OSError:
        return ""


def _reap(which: int) -> dict[int, int]:
    """Reap a child, or each (-1), that has ended; return the wait statuses by pid."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(which, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status
