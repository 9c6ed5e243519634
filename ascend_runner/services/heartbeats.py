"""Receives the ranks' reports about themselves: that they are alive, where they are, and how long they will be silent.

Each rank has a socket of its own, which NOTIFY_SOCKET names. Datagrams from processes outside the job are ignored.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Final

from ascend_runner.errors import AscendRunnerError, reason
from ascend_runner.guardian import process_tree
from ascend_runner.node import bounded
from ascend_runner.record.facts import Beat, Fact, SavedCheckpoint
from ascend_runner.services.run_folder import CREDENTIALS
from ascend_runner.supervision.events import Spawned
from ascend_runner.training import notifications

LONGEST_NAP: Final = 1.0  # seconds in which datagrams wait, so that many of them cost little
FULL: Final = 5  # datagrams: half of a queue (net.unix.max_dgram_qlen). A sender may block when it is full
NAP_PER_WORK: Final = 100.0  # seconds for each second of work: however many datagrams come, they cost 1 % of a core
CLOSE_LIMIT: Final = 2.0  # seconds for the thread to end
MOST_AT_ONCE: Final = 64  # datagrams of a rank; its flood waits in the queue, or is refused
DEEPEST: Final = 30  # processes between a rank and one that reports for it


@contextmanager
def receiving(
    rank_ids: Collection[int],
    folder: str,
    warn: Callable[[str], None],
    *,
    wake: Callable[[], None] = lambda: None,
    show_step: Callable[[float, int], None] = lambda _at, _step: None,
) -> Iterator[tuple[Mapping[int, str], Heartbeats]]:
    """Let the ranks report while they run; yields the path of each rank's socket.

    `wake` is called when a checkpoint was saved, and `show_step` with the time and the number of each step, both in a
    thread. Without a directory to share with the ranks, nothing is received.
    """
    heartbeats = Heartbeats(wake=wake, show_step=show_step)
    paths: Mapping[int, str] = {}
    with closing(heartbeats):
        if folder:
            try:
                paths = heartbeats.open(rank_ids, folder)
            except (OSError, AscendRunnerError) as error:
                warn(f"cannot receive heartbeats from the ranks: {reason(error)}")
        yield paths, heartbeats


class Heartbeats:
    """The last beat of each rank. An observer of the manager's facts, from which it learns the processes of the job."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        wake: Callable[[], None] = lambda: None,
        show_step: Callable[[float, int], None] = lambda _at, _step: None,
        longest_nap: float = LONGEST_NAP,
    ) -> None:
        self._longest_nap = longest_nap
        self.announced_until = 0.0  # the end of the longest pause that a rank has announced
        self._now, self._wake, self._show_step = now, wake, show_step
        self._beats: dict[int, Beat] = {}
        self._sockets: dict[int, tuple[int, socket.socket]] = {}  # rank and socket by descriptor
        self._resources = ExitStack()
        self._has_news = False  # a checkpoint was saved
        self._leaders: set[int] = set()
        self._poll = select.poll()
        self._saved: dict[int, dict[int, SavedCheckpoint]] = {}  # by rank and process
        self._announced: dict[int, set[int]] = {}  # processes that will report checkpoints, by rank
        self._known: set[int] = set()  # processes of the job; they may have ended since
        self._reading = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self, rank_ids: Collection[int], folder: str) -> Mapping[int, str]:
        """Listen from now on; return the path of each rank's socket.

        Raises:
            OSError: A socket cannot be made.
            AscendRunnerError: No thread can be started.
        """
        paths = {rank_id: os.path.join(folder, f"notify-{rank_id}") for rank_id in rank_ids}
        try:
            for rank_id, path in paths.items():
                self._bind(rank_id, path)
            self._start_thread()
        except (OSError, AscendRunnerError):
            self.close()
            raise
        return paths

    def _bind(self, rank_id: int, path: str) -> None:
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._sockets[receiver.fileno()] = rank_id, self._resources.enter_context(receiver)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        receiver.bind(path)
        self._poll.register(receiver, select.POLLIN)

    def _start_thread(self) -> None:
        waker, sleeper = socket.socketpair()
        self._resources.enter_context(sleeper)
        self._resources.callback(self._join)
        self._resources.enter_context(waker)
        # Wakes the thread. Closing is not enough while a child that hangs in execve(2) has a copy.
        self._resources.callback(waker.shutdown, socket.SHUT_WR)
        self._poll.register(sleeper, select.POLLIN)
        self._thread = bounded.start_thread(self._listen)

    def read(self) -> None:
        """Read what was sent before this call."""
        for rank_id, receiver in self._sockets.values():
            self._receive(rank_id, receiver)

    def close(self) -> None:
        """Stop listening. May be called twice."""
        self._closing.set()
        self._resources.close()

    def _join(self) -> None:
        if self._thread:
            self._thread.join(CLOSE_LIMIT)

    def observe(self, fact: Fact, _at: float) -> None:
        """Take note of the processes of the job."""
        if isinstance(fact, Spawned):
            self._leaders.add(fact.pid)
            self._known.add(fact.pid)

    @property
    def saving_ranks(self) -> Collection[int]:
        """The ranks that have announced that they report each requested checkpoint."""
        return self._announced.copy().keys()

    def saved_since(self, moment: float) -> Mapping[int, SavedCheckpoint]:
        """Return the ranks with a report since then of every living process that has announced one."""
        found = {}
        for rank_id, reports in self._saved.copy().items():
            new = {pid: saved for pid, saved in reports.copy().items() if saved.at >= moment}
            expected = self._announced.get(rank_id, set()) - new.keys()
            if new and not any(map(process_tree.is_alive, expected)):
                found[rank_id] = max(new.values(), key=lambda saved: (bool(saved.path), saved.at))
        return found

    def of(self, rank_ids: Collection[int]) -> Mapping[int, Beat]:
        """Return the last beats of the ranks that have sent any; none once they are no longer received."""
        if not (self._thread and self._thread.is_alive()):
            return {}
        return {rank_id: beat for rank_id, beat in self._beats.copy().items() if rank_id in rank_ids}

    # --- In the thread ------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Receive datagrams; sleep in between, shorter the fuller the queues become, as far as that is cheap."""
        nap = self._longest_nap
        while not self._closing.is_set():
            work = time.thread_time()
            most = 0
            with suppress(OSError):  # such as a lack of memory: it may pass
                ready = [fd for fd, _events in self._poll.poll() if fd in self._sockets]
                most = max((self._receive(*self._sockets[fd]) for fd in ready), default=0)
            if self._has_news:
                self._has_news = False
                self._wake()
            work = time.thread_time() - work
            nap = min(self._longest_nap, NAP_PER_WORK * work if most >= FULL else 2 * nap)
            self._closing.wait(nap)

    def _receive(self, rank_id: int, receiver: socket.socket) -> int:
        """Read the datagrams that wait in the socket of a rank; return their number."""
        with self._reading:
            for number in range(MOST_AT_ONCE):
                try:
                    data, ancillary, _flags, _address = receiver.recvmsg(
                        notifications.LONGEST + 1, socket.CMSG_SPACE(CREDENTIALS.size)
                    )
                except OSError:
                    return number
                pid = _sender(ancillary)
                if self._is_ours(pid):
                    self._note(rank_id, pid, notifications.parse(data))
        return MOST_AT_ONCE

    def _note(self, rank_id: int, pid: int, report: notifications.Notification) -> None:
        now, before = self._now(), self._beats.get(rank_id)
        if report.will_save:
            self._announced.setdefault(rank_id, set()).add(pid)
        if report.has_saved:
            saved = SavedCheckpoint(at=now, path=report.checkpoint, step=report.step)
            self._saved.setdefault(rank_id, {})[pid] = saved
            self._has_news = True
        if report.step is not None:
            self._show_step(now, report.step)
        if report.extend:
            self.announced_until = max(self.announced_until, now + report.extend)
        if report.is_beat or before:
            before = before or Beat(at=now)
            self._beats[rank_id] = Beat(
                at=now if report.is_beat else before.at,
                step=before.step if report.step is None else report.step,
                section=report.section,
                status=report.status or before.status,
                checkpoint=report.checkpoint or before.checkpoint,
            )

    def _is_ours(self, pid: int) -> bool:
        """Whether a process is of this job. Of one that has ended meanwhile, that is known if it has sent before."""
        with suppress(OSError):  # such as no free descriptor: the sender stays unknown
            if pid not in self._known and pid > 0 and (_session(pid) in self._leaders or _is_descendant(pid)):
                self._known.add(pid)
        return pid in self._known


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Return the pid of the process that has sent a datagram; 0 if it is unknown."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) == CREDENTIALS.size:
            return int(CREDENTIALS.unpack(data)[0])
    return 0


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def _is_descendant(pid: int) -> bool:
    """Whether a process, of whatever session, descends from this one."""
    for _ in range(DEEPEST):
        found = process_tree.look(pid)
        if found is None or found.parent <= 1:
            return False
        if found.parent == os.getpid():
            return True
        pid = found.parent
    return False
