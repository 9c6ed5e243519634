"""What crosses the link, and what the runner and its link process say to each other. Pure.

A runner replaces what it has said of its node (`Local`) whenever that changes; the rules in `protocol` decide what the
other nodes learn, and answer with news. Both are JSON objects of at most `LARGEST_MESSAGE` bytes, and facts only: no
command, no path to run, no pickle ever crosses the link.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, Union, get_args

import attrs

from ascend_runner.record.nodes import JobVerdict, NodeRecord
from ascend_runner.text import node_list

PROTOCOL: Final = 1  # raised when a node of the older one could misunderstand the newer one
LARGEST_MESSAGE: Final = 16 * 1024  # bytes; a longer one is dropped
MOST_NAMED: Final = 256  # nodes that a message names
NOT_REACHED: Final = "not reached"  # the result of a request on a node that is unreachable, or has not joined
VARIABLES: Final = ("HCCL_", "ASCEND_")  # how the names of variables begin that are compared between the nodes


class FailureClass(enum.Enum):
    """How much of a cause a node's own failure can be, the most first."""

    OWN = "own"  # a rank reports an error of its own
    UNKNOWN = "unknown"
    PEER = "peer"  # all of its failed ranks only report a lost peer


class Stage(enum.Enum):
    """How far a node has come in an attempt."""

    PREPARING = "preparing"  # the rank table is awaited, the plan made
    READY = "ready"  # could start its ranks
    RUNNING = "running"
    STOPPING = "stopping"  # its ranks are being stopped
    DEAD = "dead"  # nothing of the attempt is alive, but for the `survivors`
    LEFT = "left"  # the runner is about to exit
    GONE = "gone"  # the runner has died; only its link process speaks


@attrs.frozen(kw_only=True)
class Failure:
    """The first failure of a node in an attempt; sent at once, before it is diagnosed."""

    rank_id: int | None = None
    ending: str = ""  # such as "exit status 1"
    status: int = 1  # the exit status that the node would have
    kind: FailureClass = FailureClass.UNKNOWN
    at: float = 0.0  # seconds of the node's monotonic clock; on the wire, its age when the message is sent


@attrs.frozen(kw_only=True)
class Diagnosed:
    """The diagnosis of a node after a failure, made when its ranks have ended."""

    rank_id: int | None = None
    sentence: str = ""
    kind: FailureClass = FailureClass.UNKNOWN
    certainty: str = ""  # as in the report
    status: int = 1
    lines: tuple[str, ...] = ()  # the last 20 of the rank's output, masked
    log: str = ""
    means: str = ""  # what the error means, and what to do about it
    next: str = ""
    restart: str = ""  # the value of a `Restart`
    fingerprint: str = ""
    has_progressed: bool | None = None


@attrs.frozen(kw_only=True)
class Local:
    """Everything that a runner says of its node; the next one replaces it."""

    attempt: int = 0  # the generation
    stage: Stage = Stage.PREPARING
    state: str = ""  # the job's state as people see it
    table: str = ""  # of the rank table, its hash and, for people, what it is: "1f3c.. /table.json (2 servers)"; or ""
    alive: int = 0  # ranks with a living first process
    step: int | None = None
    failure: Failure | None = None
    diagnosed: Diagnosed | None = None
    survivors: tuple[str, ...] = ()  # processes that survive SIGKILL
    is_stopped: bool = False  # the runner has stopped all of its ranks but the one that is `diagnosed`
    status: int | None = None  # the exit status, once the runner leaves
    signum: int = 0  # the stop signal that the runner has received
    lost: tuple[int, ...] = ()  # nodes with a rank that HCCL reports as LOST
    silent_from: float | None = None  # when the next becomes true, on the node's monotonic clock; not on the wire
    is_silent: bool = False  # no rank has been active for the hang limit, or for 10 minutes where that is longer
    answered: str = ""  # the `request_id` of the last request that is done on this node
    answer: str = ""  # its result, such as "saved"
    # What is compared between the nodes: names and values, masked; "" for software that is not installed. A variable
    # that is missing is not set, anything else is unknown. (): not known yet. The link process puts it in `Identity`.
    versions: tuple[tuple[str, str], ...] = ()


@attrs.frozen(kw_only=True)
class Identity:
    """What does not change while a runner lives; a part of the first message, and again once `versions` are known."""

    node: int
    nodes: int  # how many the job has
    incarnation: str  # a random text of this runner
    host: str = ""
    pod: str = ""
    address: str = ""
    ranks: int = 0
    max_restarts: int = 0
    grace: float = 15.0  # seconds between the request to stop and SIGKILL
    link_timeout: float = 600.0  # seconds to wait for nodes that are missing
    versions: tuple[tuple[str, str], ...] = ()  # as in `Local`

    @property
    def place(self) -> str:
        """The name of its machine, as shown to users."""
        return self.pod or self.host or self.address or "another machine"


def named(nodes: Sequence[int]) -> str:
    """Name nodes in a sentence: "node 3", "nodes 0-2, 5"."""
    return node_list(nodes[:MOST_NAMED])


def already_running(first: Identity, second: Identity) -> str:
    """Return the error message about two runners of one node."""
    return f"node {first.node} is already running on {first.place}, and was started again on {second.place}"


# --- News: what the rules tell the runner -----------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Joined:
    """All nodes have joined, or (`missing`) not all of them yet."""

    missing: tuple[int, ...] = ()  # at most `messages.MOST_NAMED` of them
    attempt: int = 0  # that this node has to prepare: it is behind the others, and there is no verdict to say so


@attrs.frozen(kw_only=True)
class StopAll:
    """A rank of another node has failed, or a node leaves: the ranks of this node are to stop."""

    attempt: int
    node: int | None = None  # None: no node has failed, and `ending` says why
    rank_id: int | None = None
    ending: str = ""
    signum: int = 0  # instead of a failure: the signal that stops the job everywhere
    status: int = 1  # the exit status of a node that learns no verdict


@attrs.frozen
class VerdictReached:
    """The verdict on an attempt."""

    verdict: JobVerdict


@attrs.frozen(kw_only=True)
class StartAll:
    """Every node is ready: this attempt may start."""

    attempt: int


@attrs.frozen(kw_only=True)
class Refused:
    """This node cannot take part: `sentence` says what differs, with both values. The runner ends with 125."""

    sentence: str


@attrs.frozen(kw_only=True)
class Waiting:
    """The node waits for others, as `sentence` explains; repeated once a minute. An empty one ends it."""

    sentence: str
    rereads_table: bool = False  # the rank tables of the nodes differ: it is to be read again


@attrs.frozen(kw_only=True)
class Warned:
    """Something that people should know, once: a node is unreachable, or back; versions differ."""

    sentence: str


@attrs.frozen(kw_only=True)
class Asked:
    """Something is asked for the whole job: "checkpoint", "limit" or "stop", each answered by `Answered`.

    A runner asks its link process with the same record. "nodes" is answered by `NodesKnown`: on node 0 with all nodes,
    elsewhere with node 0 and the node itself.
    """

    request: str
    argument: str = ""
    request_id: str = ""  # given by the link


@attrs.frozen(kw_only=True)
class Answered:
    """Every reachable node has answered the request of this node, or the time for that is over."""

    request: str
    # Nodes, such as "0-2, 5", and their result; "" means no answer. None at all: node 0 is not reached.
    results: tuple[tuple[str, str], ...] = ()


@attrs.frozen(kw_only=True)
class NodesKnown:
    """Some nodes of the job, as asked for by "nodes". The last part is marked."""

    nodes: tuple[NodeRecord, ...] = ()
    is_last: bool = True


News = Union[Joined, StopAll, VerdictReached, StartAll, Refused, Waiting, Warned, Asked, Answered, NodesKnown]
NEWS: Final[tuple[type[News], ...]] = get_args(News)
