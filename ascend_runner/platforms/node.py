"""The record of a node's place in a job, and what a user may say of it in the platform's stead."""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

# The flag that says a fact.
FLAGS: Final[Mapping[str, str]] = {
    "nnodes": "--nnodes",
    "node_rank": "--node-rank",
    "master_addr": "--master-addr",
    "master_port": "--master-port",
    "devices_per_node": "--nproc-per-node",
}
LOCALHOST: Final = "127.0.0.1"
MASTER_PORT: Final = 29500  # torch's default; outside of HCCL's ports


class Node(NamedTuple):
    """A node's place in a job, as far as variables tell it.

    `master_addr` is where node 0 is ("": nobody says), `hosts` are all nodes in the order of their numbers (empty:
    nobody says), `address` is this node's own as its platform knows it, and `log_dirs` are the platform's log folders,
    of which the first that exists is meant. `sources` names, for each fact told, the flag or variable that told it, and
    `witness` the variables by which the platform was recognised. `doubt` is a sentence where variables speak of other
    nodes, but not certainly: an error unless a rank table or the user decides.
    """

    platform: str = "no platform is recognised"
    witness: tuple[str, ...] = ()
    node_rank: int = 0
    nnodes: int = 1
    master_addr: str = ""
    master_port: int = MASTER_PORT
    hosts: tuple[str, ...] = ()
    devices_per_node: int | None = None
    address: str = ""
    job_id: str = ""
    log_dirs: tuple[str, ...] = ()
    sources: Mapping[str, str] = {}
    doubt: str = ""

    @property
    def why(self) -> str:
        """Say in one sentence which platform was seen, by which variables, and what it told."""
        seen = f", seen by {' and '.join(self.witness)}" if self.witness else ""
        place = f"node rank {self.node_rank} of {self.nnodes}{self._told_by('node_rank', 'nnodes')}"
        master = f"node 0 at {self.master_addr or 'an unknown address'}{self._told_by('master_addr')}"
        port = f"port {self.master_port}{self._told_by('master_port')}"
        return f"{self.platform}{seen}: {place}, {master}, {port}"

    def rank_ids(self, nproc: int) -> tuple[int, ...]:
        """Give the ranks of this node in a job without a rank table: `nproc` on every node, in the nodes' order."""
        return tuple(range(self.node_rank * nproc, (self.node_rank + 1) * nproc))

    def _told_by(self, *facts: str) -> str:
        names = dict.fromkeys(self.sources[fact] for fact in facts if fact in self.sources)
        return f" ({', '.join(names)})" if names else ""


class Said(NamedTuple):
    """What the user says of this node, named as the facts of a node. None: nothing."""

    nnodes: int | None = None
    node_rank: int | None = None
    master_addr: str | None = None
    master_port: int | None = None
    devices_per_node: int | None = None

    @property
    def facts(self) -> Mapping[str, Any]:
        """What was said, by fact, each of the type that the fact has."""
        return {fact: value for fact, value in self._asdict().items() if value is not None}

    @property
    def is_complete(self) -> bool:
        """Whether no platform needs to be asked: stale variables of one cannot do harm then."""
        return self.nnodes == 1 or None not in {self.nnodes, self.node_rank, self.master_addr}


NOTHING: Final = Said()
