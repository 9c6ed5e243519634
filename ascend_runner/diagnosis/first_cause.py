"""Who of several that failed at once is named, and whom those point at who only complain of others.

What was seen earlier always goes first: that order is the state machine's. These rules are for deaths that were seen in
one and the same wake-up. Even where the kernel tells their order, whoever complains of a peer gives way: a process that
dies closes its connections first, and takes a while to be gone.
"""

from __future__ import annotations

import enum
from signal import SIGHUP, SIGKILL, SIGTERM

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple

from .codes import Kind
from .endings import signal_behind
from .finding import Accused
from .log_evidence import Evidence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascend_runner.supervision.events import Ending

    from .finding import Peer

FROM_OUTSIDE: Final = frozenset({SIGTERM, SIGKILL, SIGHUP})


class Suspicion(enum.IntEnum):
    """How likely it is that all began with a rank, the likeliest first."""

    FAILED_BY_ITSELF = 0
    ENDED_FROM_OUTSIDE = 1
    ITSELF_OR_A_PEER = 2
    COMPLAINS_OF_A_PEER = 3


class Death(NamedTuple):
    """A rank that ended otherwise than with exit status 0, and what is known of it."""

    rank_id: int
    ending: Ending
    evidence: Evidence = Evidence()
    is_out_of_memory: bool = False


class Place(NamedTuple):
    """Where a rank runs, as the rank table says."""

    server_id: str
    device_id: int


def suspicion(death: Death) -> Suspicion:
    """Judge one death by itself.

    A rank killed for lack of memory failed by itself. One that was ended otherwise goes before those that complain, for
    they complain because it is gone, or were ended by the same hand.
    """
    if signal_behind(death.ending) in FROM_OUTSIDE and not death.is_out_of_memory:
        return Suspicion.ENDED_FROM_OUTSIDE
    return {
        Kind.ROOT: Suspicion.FAILED_BY_ITSELF,
        Kind.EITHER: Suspicion.ITSELF_OR_A_PEER,
        Kind.SECONDARY: Suspicion.COMPLAINS_OF_A_PEER,
    }[death.evidence.kind]


def by_suspicion(deaths: Sequence[Death], *, is_ordered: bool = False) -> tuple[Death, ...]:
    """Order deaths of one wake-up, the likeliest first cause first; equally likely ones keep their order.

    With `is_ordered`, they are in the order in which the kernel saw them: it decides between all who do not complain.
    """
    least = Suspicion.ENDED_FROM_OUTSIDE if is_ordered else Suspicion.FAILED_BY_ITSELF
    return tuple(sorted(deaths, key=lambda death: max(least, suspicion(death))))


def accused(deaths: Sequence[Death], places: Mapping[int, Place]) -> Accused | None:
    """Say whom the failed ranks point at, where all of them only complain of peers. None otherwise, or with no name.

    Complaints form chains (4 waits for 3, which waits for 2, which has died), so the accused who complains of nobody
    goes first, then the one with the most accusers. `places` holds as many of the job's ranks as are known.
    """
    if not deaths or any(suspicion(death) is not Suspicion.COMPLAINS_OF_A_PEER for death in deaths):
        return None

    accusers: dict[Peer, list[int]] = {}
    for death in deaths:
        for peer in {located(peer, places)._replace(device_ip=""): None for peer in death.evidence.peers}:
            if peer.rank_id != death.rank_id:
                accusers.setdefault(peer, []).append(death.rank_id)
    if not accusers:
        return None

    complaining = {death.rank_id for death in deaths}
    likeliest = min(accusers, key=lambda peer: (peer.rank_id in complaining, -len(accusers[peer])))
    return Accused(likeliest.rank_id, likeliest.server_id, likeliest.device_id, tuple(accusers[likeliest]))


def located(peer: Peer, places: Mapping[int, Place]) -> Peer:
    """Complete what a message says by the rank table: server and device give the rank, a rank gives both."""
    if peer.server_id and peer.device_id is not None:
        place = Place(peer.server_id, peer.device_id)
        rank_id = next((rank_id for rank_id, known in places.items() if known == place), peer.rank_id)
        return peer._replace(rank_id=rank_id)
    if peer.rank_id is not None and peer.rank_id in places:
        known = places[peer.rank_id]
        return peer._replace(server_id=known.server_id, device_id=known.device_id)

    return peer
