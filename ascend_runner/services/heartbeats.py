"""Receives the ranks' reports about themselves: that they are alive, where they are, how long they will be silent.

Each rank has a socket of its own, which NOTIFY_SOCKET names. A process that is not of this job is not listened to.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Final, Optional

import attrs

from ascend_runner.errors import AscendRunnerError
from ascend_runner.facts import Beat, Fact
from ascend_runner.guardian import process_tree
from ascend_runner.host import bounded
from ascend_runner.plan.job import JobSpec
from ascend_runner.supervision.events import Spawned
from ascend_runner.training import notifications

VARIABLE: Final = "NOTIFY_SOCKET"
NAP: Final = 0.5  # seconds in which datagrams wait, so that a flood of them costs little; a queue holds at least ten
MOST_AT_ONCE: Final = 64  # datagrams of a rank; its flood waits in the queue, or is refused
CREDENTIALS: Final = struct.Struct("iII")  # pid, uid, gid of the sender (unix(7), SCM_CREDENTIALS)
DEEPEST: Final = 30  # processes between a rank and one that speaks for it


@contextmanager
def listening(job: JobSpec, folder: str, warn: Callable[[str], None]) -> Iterator[tuple[JobSpec, Heartbeats]]:
    """Listen to the ranks while they run; yields the plan in which they know where.

    Without a limit for hangs, or without a directory to share with them, heartbeats are not received.
    """
    heartbeats = Heartbeats()
    with closing(heartbeats):
        if job.hang_timeout is not None and folder:
            try:
                job = heartbeats.start(job, folder)
            except (OSError, AscendRunnerError) as error:
                warn(f"heartbeats of the ranks are not received: {error}")
        yield job, heartbeats


class Heartbeats:
    """The last beat of each rank. An observer of the manager's facts, from which it learns the processes of the job."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.announced_until = 0.0  # the end of the longest pause that a rank has announced
        self._now = now
        self._beats: dict[int, Beat] = {}
        self._sockets: dict[int, tuple[int, socket.socket]] = {}  # by descriptor, with the rank
        self._waker, self._sleeper = socket.socketpair()
        self._leaders: set[int] = set()
        self._poll = select.poll()
        self._closing = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def start(self, job: JobSpec, folder: str) -> JobSpec:
        """Open the sockets and listen; return the plan in which each rank has the address of its own.

        Raises:
            OSError: A socket cannot be made.
            AscendRunnerError: No thread can be started.
        """
        paths = {rank.rank_id: os.path.join(folder, f"notify-{rank.rank_id}") for rank in job.ranks}
        for rank_id, path in paths.items():
            receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            self._sockets[receiver.fileno()] = rank_id, receiver
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            receiver.bind(path)
            self._poll.register(receiver, select.POLLIN)
        self._poll.register(self._sleeper, select.POLLIN)
        self._thread = bounded.start_thread(self._listen)
        ranks = (attrs.evolve(rank, env={**rank.env, VARIABLE: paths[rank.rank_id]}) for rank in job.ranks)
        return attrs.evolve(job, ranks=tuple(ranks))

    def close(self) -> None:
        """Stop listening. May be called twice."""
        self._closing.set()
        self._waker.close()  # ends the wait of the thread
        if self._thread:
            self._thread.join()
        self._sleeper.close()
        for _rank_id, receiver in self._sockets.values():
            receiver.close()

    def observe(self, fact: Fact, _at: float) -> None:
        """Take note of the processes of the job."""
        if isinstance(fact, Spawned):
            self._leaders.add(fact.pid)

    def of(self, rank_ids: Collection[int]) -> Mapping[int, Beat]:
        """Return the last beats of those ranks that have sent any."""
        return {rank_id: beat for rank_id, beat in self._beats.copy().items() if rank_id in rank_ids}

    # --- In the thread ------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        while not self._closing.is_set():
            for fd, _events in self._poll.poll():
                if fd in self._sockets:
                    self._receive(*self._sockets[fd])
            self._closing.wait(NAP)

    def _receive(self, rank_id: int, receiver: socket.socket) -> None:
        """Read the datagrams that wait in the socket of a rank. Of equal datagrams only the last one is read."""
        known = b""
        for _ in range(MOST_AT_ONCE):
            try:
                data, ancillary, _flags, _address = receiver.recvmsg(
                    notifications.LONGEST + 1, socket.CMSG_SPACE(CREDENTIALS.size)
                )
            except BlockingIOError:
                return
            is_known = data == known or self._is_ours(ancillary)
            known = data if is_known else b""
            if is_known:
                self._note(rank_id, notifications.parse(data))

    def _note(self, rank_id: int, told: notifications.Notification) -> None:
        now, before = self._now(), self._beats.get(rank_id)
        if told.extend:
            self.announced_until = max(self.announced_until, now + told.extend)
        if told.is_beat or before:
            before = before or Beat(at=now)
            self._beats[rank_id] = Beat(
                at=now if told.is_beat else before.at,
                step=before.step if told.step is None else told.step,
                section=told.section,
                status=told.status or before.status,
                checkpoint=told.checkpoint or before.checkpoint,
            )

    def _is_ours(self, ancillary: list[tuple[int, int, bytes]]) -> bool:
        """Whether the sender is a process of this job, which cannot be known of one that has ended meanwhile."""
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) == CREDENTIALS.size:
                pid = CREDENTIALS.unpack(data)[0]
                return pid > 0 and (_session(pid) in self._leaders or _is_descendant(pid))
        return False


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
