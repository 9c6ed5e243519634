"""What a platform's variables mean, as a record: which variable tells which fact."""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Callable, NamedTuple

from .node import MASTER_PORT, Node
from .variables import Variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .node import Said


def _as_read(node: Node, _environ: Mapping[str, str]) -> Node:
    return node


def _always(_environ: Mapping[str, str]) -> bool:
    return True


class Contract(NamedTuple):
    """One platform. For each fact the names of the variables that tell it: the first that is set counts.

    The frameworks' names for where node 0 is stand around a platform's own (see `Variables.master_addr`); `port` is for
    where all are silent. `is_certain` asks what the witness (see `find`) leaves open: not whether variables are set,
    but what they hold. `refine` adds what cannot be said by naming variables.
    """

    node_rank: tuple[str, ...] = ()
    nnodes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    master_addr: tuple[str, ...] = ()
    master_port: tuple[str, ...] = ()
    port: int = MASTER_PORT
    devices_per_node: tuple[str, ...] = ()
    address: tuple[str, ...] = ()
    is_certain: Callable[[Mapping[str, str]], bool] = _always
    refine: Callable[[Node, Mapping[str, str]], Node] = _as_read


def read(contract: Contract, environ: Mapping[str, str], said: Said) -> Node:
    """Read what a platform tells and the user has not said. Errors: SettingsError, naming the variable."""
    variables = Variables(environ, said)
    node = Node(
        node_rank=variables.whole_number("node_rank", contract.node_rank, default=0),
        nnodes=variables.whole_number("nnodes", contract.nnodes, default=1, at_least=1),
        hosts=variables.hosts(contract.hosts),
        master_addr=variables.master_addr(contract.master_addr),
        master_port=variables.master_port(contract.master_port, default=contract.port),
        # 0 cards: the node has none, or its platform does not count them (MA_NUM_GPUS).
        devices_per_node=variables.whole_number("devices_per_node", contract.devices_per_node, default=0) or None,
        address=variables.text("address", contract.address),
        sources=variables.sources,
    )

    return contract.refine(node, environ)
