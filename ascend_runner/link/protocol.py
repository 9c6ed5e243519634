"""The events and actions of the rules of the link: `hub` for node 0, and `spoke` for every node. Pure.

Both are state machines, `transition(state, event) -> (state, actions)`; `process` reads sockets and clocks. All times
are in seconds of this machine's monotonic clock. `epoch` is the time since 1970 at which that clock was 0. Nothing of a
message lets a state grow: there is at most one record for each node of the job.

The laws, each of which a test shows:
 1. Trouble of the link alone stops no rank: neither silence, nor a lost, late, repeated or malformed message. The one
    exception is a lease: where the job may be restarted, a node without contact for `link_timeout` stops its ranks.
 2. An own or unknown failure that the hub hears of stops every node that it hears, at once; a failure that only reports
    a lost peer does so `HOLD` later, unless another one ends that wait.
 3. Every linked node learns one cause and one exit status: of own failures before unknown ones before lost peers, the
    earliest. Failures that the clocks cannot tell apart are tied. A cause is called certain only if every node was
    heard, it is an own failure, and nothing is tied to it.
 4. A verdict waits until every reachable node has ended its ranks and explained its failure, but no longer than
    `AFTER_GRACE` beyond the grace. A node without a verdict `ALONE` beyond its grace ends with its own cause, and with
    the status of the stop that all nodes have heard, if there was one.
 5. An attempt starts only when all nodes are ready for it with one rank table, and when no rank of the attempt before
    can be alive, be it on a node that is unreachable or that was replaced.
 6. An older attempt, an older message or an older runner of a node changes nothing. Of two living runners of one node,
    the second one is refused; it waits while the first one is unreachable.
 7. An unreachable node counts as lost only if HCCL or the silence of all reachable ranks confirms it, or after
    `node_timeout`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Union

import attrs

from ascend_runner.link.messages import Asked, Local, News

BEAT: Final = 1.0  # seconds between two messages of a node
UNREACHABLE: Final = 3.0  # seconds of silence: two lost beats and the time on the way
NO_HUB: Final = 30.0  # seconds in which node 0 may start before a warning
FIRST_WORD: Final = 5.0  # seconds for all nodes to be heard before a first attempt, where there may have been others
HOLD: Final = 0.5  # as within a node, see `supervision.machine`
AFTER_GRACE: Final = 2.0  # seconds for the way and the diagnosis
ALONE: Final = 5.0  # seconds; more than `AFTER_GRACE`, and the time on the way
KILL_WAIT: Final = 5.0  # seconds after SIGKILL, see `supervision.machine`
TABLE_WAIT: Final = 60.0  # seconds in which rank tables may differ before the first start
STOP_SPREAD: Final = 2.0  # seconds in which a platform's stop signal reaches all nodes
ASK_LIMIT: Final = 3.0  # seconds for the nodes to answer a request; `ascend-job` waits for 5
PARTING: Final = 5.0  # seconds for the acknowledgement of the last message
CLOCK_LIMIT: Final = 1.0  # seconds by which clocks may differ
AGAIN: Final = 60.0  # seconds between two lines about a wait

HUB: Final = b"hub"  # the peer of a spoke


@attrs.frozen
class Received:
    """A message has arrived, from the hub or from the connection `peer` of a spoke."""

    peer: bytes
    message: Mapping[str, object]
    at: float


@attrs.frozen
class LocalChanged:
    """The runner of this node has said something new."""

    local: Local
    at: float


@attrs.frozen
class Requested:
    """The runner of this node asks for something for the whole job."""

    asked: Asked
    at: float


@attrs.frozen
class Tick:
    """Time has passed."""

    at: float


@attrs.frozen
class RunnerGone:
    """The runner of this node has ended."""

    at: float


@attrs.frozen
class AllDead:
    """After the runner has died, nothing of its ranks is left on this node but `survivors` of SIGKILL."""

    survivors: tuple[str, ...]
    at: float


@attrs.frozen
class Send:
    """Send a message. It may get lost; later ones repeat what matters."""

    peer: bytes
    message: Mapping[str, object]


@attrs.frozen
class Tell:
    """Tell the runner of this node."""

    news: News


@attrs.frozen
class Wake:
    """A `Tick` is due at this time; it replaces the one before."""

    at: float


Event = Union[Received, LocalChanged, Requested, Tick, RunnerGone, AllDead]
Action = Union[Send, Tell, Wake]
