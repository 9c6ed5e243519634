"""Judges each failed rank by itself, orders those that failed together, and finds the peer that they suspect.

Even if the kernel's order is known, a rank that reports a peer gives way: a dying process closes its connections first
and takes a while to exit. `root_cause` decides which rank is named.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from signal import SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGSEGV, SIGTERM
from typing import Final

import attrs

from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.endings import signal_behind
from ascend_runner.diagnosis.finding import Finding, Peer
from ascend_runner.rank_table.model import RankTable
from ascend_runner.supervision.events import Ending

FAULTS: Final = frozenset({SIGSEGV, SIGBUS, SIGILL, SIGFPE})
FROM_OUTSIDE: Final = frozenset({SIGTERM, SIGINT, SIGKILL, SIGHUP})
INTERRUPTIONS: Final = frozenset({"KeyboardInterrupt", "SignalException"})  # what Python raises after a signal


class Suspicion(enum.IntEnum):
    """The likelihood that a rank is the first cause, most likely first."""

    FAILED_BY_ITSELF = 0
    ENDED_FROM_OUTSIDE = 1
    ENDED_SILENTLY = 2
    ITSELF_OR_A_PEER = 3
    REPORTS_A_PEER = 4
    STOPPED = 5  # by the runner, without any sign of a failure


@attrs.frozen(kw_only=True)
class Death:
    """A rank that did not exit with status 0, and the evidence about it.

    With `is_stopped`, the runner asked it to stop; the evidence is then from before that moment.
    """

    rank_id: int
    ending: Ending
    evidence: Finding = attrs.field(factory=Finding)
    is_stopped: bool = False

    @property
    def summary(self) -> str:
        """Why it ended, in one line."""
        return self.evidence.summary or str(self.ending)


@attrs.frozen
class Place:
    """The server and device of a rank, from the rank table."""

    server_id: str
    device_id: int


def places(table: RankTable) -> dict[int, Place]:
    """Return the places of all ranks of a table."""
    return {
        device.rank_id: Place(server.server_id, device.device_id)
        for server in table.servers
        for device in server.devices
    }


def suspicion(death: Death) -> Suspicion:
    """Judge one rank by itself.

    A rank that ran out of memory failed by itself. A rank that was ended or interrupted from outside precedes those
    that report a peer: they report it because it is gone, or were ended by the same sender. A stopped rank that died of
    a fault may have had it before: a process ends only when the kernel has written its core dump.
    """
    signum, evidence = signal_behind(death.ending), death.evidence
    if death.is_stopped and not evidence.summary:
        return Suspicion.ITSELF_OR_A_PEER if death.ending.signum in FAULTS else Suspicion.STOPPED
    is_interrupted = evidence.code in INTERRUPTIONS
    if death.is_stopped and not is_interrupted:
        return _SUSPICIONS[evidence.kind]
    if is_interrupted or (signum in FROM_OUTSIDE and not evidence.is_out_of_memory):
        return Suspicion.ENDED_FROM_OUTSIDE
    if not (evidence.summary or signum):
        return Suspicion.ENDED_SILENTLY
    return _SUSPICIONS[evidence.kind]


_SUSPICIONS: Final[Mapping[Kind, Suspicion]] = {
    Kind.ROOT: Suspicion.FAILED_BY_ITSELF,
    Kind.EITHER: Suspicion.ITSELF_OR_A_PEER,
    Kind.SECONDARY: Suspicion.REPORTS_A_PEER,
}


def by_suspicion(deaths: Iterable[Death], *, is_ordered: bool = False) -> tuple[Death, ...]:
    """Sort the ranks of one wake-up, most likely first cause first; the sort is stable.

    With `is_ordered` they are in the order in which the kernel saw them end, and that order decides between all ranks
    that do not report a peer.
    """
    least = Suspicion.ENDED_FROM_OUTSIDE if is_ordered else Suspicion.FAILED_BY_ITSELF
    return tuple(sorted(deaths, key=lambda death: max(least, suspicion(death))))


def suspected_peer(deaths: Sequence[Death], places: Mapping[int, Place]) -> Peer | None:
    """Return the peer that the failed ranks report, or None unless all of them only report peers.

    Such reports form chains (4 waits for 3, which waits for 2, which has died), so a peer that reports no other
    precedes, then the one that most ranks report. `places` holds those of the job's ranks that are known.
    """
    deaths = [death for death in deaths if suspicion(death) is not Suspicion.STOPPED]
    if not deaths or any(suspicion(death) is not Suspicion.REPORTS_A_PEER for death in deaths):
        return None

    reporters: dict[Peer, list[int]] = {}
    for death in deaths:
        for peer in {attrs.evolve(located(peer, places), device_ip=""): None for peer in death.evidence.points_at}:
            if peer.rank_id != death.rank_id:
                reporters.setdefault(peer, []).append(death.rank_id)
    if not reporters:
        return None

    failed = {death.rank_id for death in deaths}
    likeliest = min(reporters, key=lambda peer: (peer.rank_id in failed, -len(reporters[peer])))
    return attrs.evolve(likeliest, reported_by=tuple(reporters[likeliest]))


def located(peer: Peer, places: Mapping[int, Place]) -> Peer:
    """Complete a peer from the rank table: server and device determine the rank, and a rank determines both."""
    if peer.server_id and peer.device_id is not None:
        place = Place(peer.server_id, peer.device_id)
        rank_id = next((rank_id for rank_id, known in places.items() if known == place), peer.rank_id)
        return attrs.evolve(peer, rank_id=rank_id)
    if peer.rank_id is not None and peer.rank_id in places:
        known = places[peer.rank_id]
        return attrs.evolve(peer, server_id=known.server_id, device_id=known.device_id)

    return peer
