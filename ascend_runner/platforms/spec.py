"""How a platform is described: how it is detected, and which variable gives which fact."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from ascend_runner.platforms.node import ALONE, MASTER_PORT, Node, Overrides, Variables


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PlatformSpec:
    """One platform.

    It is detected if all variables in `detected_by` are set and `is_confirmed`, which checks their values, agrees.
    A node that has only lost another one stays for `linger` seconds before it fails, unless the user decides otherwise.
    `workload_manager` is what stops the processes of a node, "" if that is unknown.

    For each fact of a node the spec names the variables that give it: the first that is set counts. The frameworks'
    names for the address of node 0 apply as well (see `Variables.master_addr`); `port` is the default. `refine` adds
    what no variable gives directly.

    The rest applies even if another platform, or none, was detected: `ambiguity` returns a sentence if variables of
    this platform hint at other nodes. `job_ids` has the variables that name the job, each with the function that makes
    a file name of its value, and `pod_names` the variables that hold the name of this node's pod. `log_dirs` returns
    the platform's log directories: the first existing one counts, else the last. `way_in` takes the names of the pod
    and of the host, and returns the command that opens a shell where the runner runs, "" if it is unknown.
    """

    name: str
    detected_by: tuple[str, ...]
    linger: float = 0.0
    workload_manager: str = "Kubernetes"
    is_confirmed: Callable[[Mapping[str, str]], bool] = lambda _environ: True
    node_rank: tuple[str, ...] = ()
    nnodes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    master_addr: tuple[str, ...] = ()
    master_port: tuple[str, ...] = ()
    port: int = MASTER_PORT
    devices_per_node: tuple[str, ...] = ()
    address: tuple[str, ...] = ()
    refine: Callable[[Node, Mapping[str, str]], Node] = lambda node, _environ: node
    ambiguity: Callable[[Mapping[str, str]], str] = lambda _environ: ""
    job_ids: Mapping[str, Callable[[str], str]] = {}
    pod_names: tuple[str, ...] = ()
    log_dirs: Callable[[Mapping[str, str]], tuple[str, ...]] = lambda _environ: ()
    way_in: Callable[[Mapping[str, str], str, str], str] = lambda _environ, _pod_name, _host_name: ""

    def is_detected(self, environ: Mapping[str, str]) -> bool:
        """Whether the variables are this platform's.

        Raises:
            SettingsError: One of them cannot be read.
        """
        return all(map(environ.get, self.detected_by)) and self.is_confirmed(environ)

    def read(self, environ: Mapping[str, str], overrides: Overrides) -> Node:
        """Read the facts that the platform's variables give and the user has not set.

        Raises:
            SettingsError: A variable cannot be read.
        """
        variables = Variables(environ, overrides)
        node = Node(
            platform=self.name,
            detected_by=self.detected_by,
            linger=self.linger,
            workload_manager=self.workload_manager,
            node_rank=variables.whole_number("node_rank", self.node_rank, default=0),
            nnodes=variables.whole_number("nnodes", self.nnodes, default=1, at_least=1),
            hosts=variables.hosts(self.hosts),
            master_addr=variables.master_addr(self.master_addr),
            master_port=variables.master_port(self.master_port, default=self.port),
            # 0 devices: the node has none, or its platform does not count them (MA_NUM_GPUS).
            devices_per_node=variables.whole_number("devices_per_node", self.devices_per_node, default=0) or None,
            address=variables.text("address", self.address),
            sources=variables.sources,
        )
        return self.refine(node, environ)


def counts_other_nodes(*names: str) -> Callable[[Mapping[str, str]], str]:
    """Return an `ambiguity` for variables that count the nodes but do not give this node's rank."""

    def ambiguity(environ: Mapping[str, str]) -> str:
        name = next((name for name in names if environ.get(name, "1") not in {"", "1"}), "")
        if not name:
            return ""
        return (
            f"cannot tell this node's rank: {name} is {environ[name]}, but no variable gives the rank of this node: set"
            f" --nnodes, --node-rank and --master-addr ({ALONE})"
        )

    return ambiguity
