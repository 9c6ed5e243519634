"""Plans the processes of this node's part of a job: the ranks, or another engine that starts them. Pure."""

from __future__ import annotations

import hashlib
import os.path
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.engines import node_0
from ascend_runner.engines.command import program_of
from ascend_runner.engines.local import Handover, Request
from ascend_runner.engines.registry import BY_VARIABLES, DIRECT, ENGINES
from ascend_runner.errors import NodeNotFoundError, RankTableError, SettingsError
from ascend_runner.frameworks import conflicts, env_patch
from ascend_runner.frameworks.env_patch import LaunchContext, merge
from ascend_runner.frameworks.registry import NONE, patch_environment, without_auto
from ascend_runner.plan.spec import (
    FLIGHT_RECORDER,
    NO_RANK,
    NO_RESTARTS,
    Files,
    JobSpec,
    RankSpec,
    Rotation,
    Stopping,
    TableFile,
    Watching,
)
from ascend_runner.platforms import chips, detect, kubernetes, places
from ascend_runner.platforms import places as platform_table
from ascend_runner.platforms.detect import SingleProcess
from ascend_runner.platforms.node import MACHINE_ADDRESSES, POD_ADDRESSES, Node
from ascend_runner.platforms.places import Hosts, TableFacts
from ascend_runner.settings.model import LINK_SECRETS, STAGED, VARIABLES, Settings
from ascend_runner.settings.options import CHECKPOINT_SIGNUMS, FOLD, HTML, STOP_SIGNUMS, WORKDIR_DEVICE, WORKDIR_INHERIT
from ascend_runner.settings.parsing import AUTO, OFF
from ascend_runner.supervision.causes import InspectAction, WatchAction
from ascend_runner.supervision.job_machine import JobState, Policy
from ascend_runner.text import PREFIX_STYLES, abbreviated, colored, counted, is_whole_number

if TYPE_CHECKING:
    from ascend_runner.rank_table import Device, RankTable, Server

PLACEHOLDER: Final = re.compile(r"\{stage:([0-9]+)\}")


@attrs.frozen
class Stage:
    """A dataset to copy from `source` into the directory `folder`; `name` is the name of a single file, else ""."""

    source: str
    folder: str
    name: str = ""

    @property
    def place(self) -> str:
        """The copy: the directory, or the file in it."""
        return os.path.join(self.folder, self.name) if self.name else self.folder

    @property
    def top(self) -> str:
        """The directory in the source that becomes `folder`."""
        return os.path.dirname(self.source) if self.name else self.source


def without_place(command: Sequence[str]) -> str:
    """Return a warning about a placeholder without a stage, or "" if there is none or another runner may replace it."""
    found = next(filter(None, map(PLACEHOLDER.search, command)), None)
    if not found or any(word.startswith("--stage") for word in command):
        return ""
    return f"the command contains {found[0]}, which is passed on unchanged because --stage is not set"


def with_places(command: Sequence[str], stages: Sequence[Stage]) -> tuple[str, ...]:
    """Return a command with the place of each stage instead of its placeholder {stage:N}.

    Without a stage the command stays as it is: the placeholder may be meant for a runner inside it.

    Raises:
        SettingsError: There is no stage of this number.
    """

    def place(found: re.Match[str]) -> str:
        number = int(found[1])
        if number >= len(stages):
            last = len(stages) - 1
            known = f"{{stage:0}} to {{stage:{last}}}" if last else "{stage:0}"
            times = counted(len(stages), "time") if last else "once"
            raise SettingsError(f"the command contains {found[0]}, but --stage is set only {times}: use {known}")
        return stages[number].place

    return tuple(PLACEHOLDER.sub(place, word) for word in command) if stages else tuple(command)


TABLE_NAME: Final = "jobstart_hccl.json"
LONGEST_NAME: Final = 64  # characters of a command in the name of a job; its files add to it
CLUSTER_LENGTH: Final = 16  # hexadecimal digits
LATEST: Final = "latest"  # beside the log directories of all jobs, a link to the newest


@attrs.frozen
class Command:
    """The command to run: the program that was found for it, and its words."""

    executable: str
    argv: tuple[str, ...]


@attrs.frozen(kw_only=True, eq=False, repr=False, slots=False)  # cached properties need a __dict__
class PlanContext:
    """What a plan is made from. Facts that take long to find, or are rarely needed, are functions."""

    settings: Settings = attrs.field(factory=Settings)
    command: tuple[str, ...] = ()
    environ: Mapping[str, str]
    cwd: str  # the caller's working directory
    logs: str = "/"  # where each run gets a log directory unless the user or the platform has one
    started_at: str = ""  # the time as a part of the name of that directory
    version: str = ""  # the runner's
    host_name: str
    is_folder: Callable[[str], bool]
    cache: str = ""  # the local disk of a ModelArts node ("": there is none, or it cannot be written)
    real_path: Callable[[str], str] = str  # follows links
    read_text: Callable[[str], str] = lambda _path: ""  # "": there is no such file
    own_addresses: Callable[[], Sequence[str]] = tuple
    resolve: Callable[[str], str] = str  # turns a host name into an address
    # Reserves the first of some ports that nothing else here uses (None: there is none).
    reserve_port: Callable[[Iterable[int]], int | None] = lambda ports: next(iter(ports), None)
    cores: int | None = None  # the number of cores that this node may use (None: unknown)
    columns: int = 0  # the width of the terminal that shows lines of ranks (0: there is none)
    has_colors: bool = False  # whether the prefixes of these lines are colored
    is_in_background: Callable[[], bool] = lambda: False  # whether something else reads the terminal's input
    stages: tuple[Stage, ...] = ()  # the datasets that are copied to this node before its ranks start
    catalogue: bytes = b""  # the content of the file of --catalogue

    @cached_property
    def job_id(self) -> str:
        """The job's name, which log files and directories carry: the user's, the platform's or the command's.

        Raises:
            SettingsError: The platform's is not a plain file name.
        """
        named = self.settings.job_name or detect.job_id(self.environ)
        if "/" in named or named in {".", ".."} or not named.isprintable():
            raise SettingsError(
                f"invalid value {named!r} for {detect.job_id_variable(self.environ)}: expected a plain file name; use"
                " another --job-name"
            )
        return named or self.command_name

    @property
    def command_name(self) -> str:
        """The name of what the command runs, as a part of a file name."""
        name = program_of(self.command) if self.command else ""
        name = name[:-3] if name.endswith((".py", ".sh")) else name
        return re.sub(r"[^\w.-]", "_", name)[:LONGEST_NAME].lstrip(".-") or "job"

    @property
    def job_variable(self) -> Mapping[str, str]:
        """The variable with the name of the job, which is the same on all nodes; a name that the user has set stays."""
        own = "" if self.settings.job_name or detect.job_id(self.environ) else self.environ.get("JOB_ID", "")
        return {"JOB_ID": own or self.job_id}

    @property
    def rank_environ(self) -> Mapping[str, str]:
        """The environment of the ranks: with the places of staged datasets, and without this runner's options.

        A runner inside a rank must not obey them. The platform's variables of datasets lead to the copies.
        """
        own = {name: value for name, value in self.environ.items() if name not in {*VARIABLES, *LINK_SECRETS}}
        own.update(places.staged(own, [(stage.source, stage.place) for stage in self.stages], self.real_path))
        return {**own, **{f"{STAGED}{number}": stage.place for number, stage in enumerate(self.stages)}}

    @cached_property
    def log_dir(self) -> str:
        """The log directory: --log-dir, else the platform's, else a new one for each run."""
        folders = detect.log_dirs(self.environ)
        own = self.settings.log_dir or next(filter(self.is_folder, folders), "") or (folders[-1] if folders else "")
        return os.path.join(self.cwd, own or os.path.join(self.logs, f"{self.job_id}-{self.started_at}"))

    @property
    def newest_link(self) -> str:
        """The link to the newest log directory, if each run has a new one, else ""."""
        has_new_one = not self.settings.log_dir and not detect.log_dirs(self.environ)
        return os.path.join(self.logs, LATEST) if has_new_one else ""

    @property
    def has_table(self) -> bool:
        """Whether the user names a rank table or the platform announces one."""
        is_announced = bool(platform_table.announced_table(self.environ, self.is_folder))
        return self.settings.rank_table is not None or is_announced

    @property
    def has_own_workdirs(self) -> bool:
        """Whether each process gets a working directory of its own, which the runner makes."""
        is_expected = self.environ.get("MA_MOUNT_PATH") or (self.cache and detect.log_dirs(self.environ))
        default = WORKDIR_DEVICE if is_expected else WORKDIR_INHERIT
        return (self.settings.workdir or default) == WORKDIR_DEVICE

    def workdir(self, folder: str) -> str:
        """Return the working directory of a process; `folder` is its name if each process has its own."""
        if self.has_own_workdirs:
            mount = self.environ.get("MA_MOUNT_PATH")
            if mount:
                return os.path.join(self.cwd, mount, "workspace", folder)
            return os.path.join(self.cache or self.log_dir, folder)

        named = self.settings.workdir
        return os.path.join(self.cwd, named) if named and named != WORKDIR_INHERIT else self.cwd

    def place_table(self, data: bytes, source: bytes = b"") -> TableFile:
        """Choose where to write the rank table: below MA_MOUNT_PATH, else MA_HOME, else the job's part of the logs."""
        own = os.path.join(self.log_dir, self.job_id)
        root = os.path.join(self.cwd, self.environ.get("MA_MOUNT_PATH") or self.environ.get("MA_HOME") or own)
        path, fallback_path = (os.path.join(place, "rank_table", TABLE_NAME) for place in (root, own))
        return TableFile(path=path, fallback_path=fallback_path, data=data, source=source)


CURRENT_ADDRESS: Final = "MA_CURRENT_HOST_IP"  # the server_id of this node on ModelArts
ADDRESS_VARIABLES: Final = (CURRENT_ADDRESS, *MACHINE_ADDRESSES, *POD_ADDRESSES)
WAY_OUT: Final = "use --pod-name, --server-id, or --nnodes and --node-rank to identify this node"


@attrs.frozen(kw_only=True)
class NodeShare:
    """This node's part of a job: its ranks in local order, their server and pod, its place among the nodes."""

    rank_ids: tuple[int, ...]
    rank_size: int
    server_id: str = ""
    pod_name: str = ""
    node: Node = attrs.field(factory=Node)


def find_node(context: PlanContext, engine: str = "") -> Node:
    """Find this node's place in its job by options, variables and --hosts, and for an `engine` by host files as well.

    Raises:
        SettingsError: An option, a variable or a host file cannot be used.
    """
    environ = context.environ
    settings = context.settings
    overrides = settings.overrides
    if settings.hosts and settings.node_rank is not None and settings.nnodes is None:
        overrides = attrs.evolve(overrides, nnodes=len(settings.hosts))
    node = detect.find_node(environ, overrides)
    hosts, source = context.settings.hosts or (), places.OPTION
    if not hosts and engine in node_0.ENGINES and context.settings.nnodes != 1:
        hosts, source = _of_host_file(context, engine)
        if not hosts and not node.hosts:  # no variable numbers the nodes in Volcano's lists
            hosts, source = kubernetes.listed_hosts(environ)
    if not hosts:
        return node

    node = places.with_hosts(node, hosts, source, lambda: _own_names(context))
    if engine not in node_0.ENGINES:
        if len({*node.slots}) > 1:
            raise SettingsError(f"{source} gives hosts different numbers of devices, which requires a rank table")
        return node
    if "node_rank" not in node.sources:
        # A launcher outside the list, or a task that the list does not name; its index above 0 is not node 0's.
        index = next(filter(None, map(environ.get, kubernetes.INDICES)), "0")
        rank = int(index) if is_whole_number(index) and int(index) < node.nnodes else 0
        node = attrs.evolve(node, node_rank=rank, ambiguity="")
    return node


def _of_host_file(context: PlanContext, engine: str) -> tuple[Hosts, str]:
    """Return the hosts of the first host file that there is, and its path."""
    for name in node_0.host_files(engine, context.environ):
        path = os.path.join(context.cwd, name)
        hosts = places.decode(context.read_text(path), path)
        if hosts:
            return hosts, path
    return (), ""


def _own_names(context: PlanContext) -> Iterator[str]:
    yield from filter(None, (context.environ.get("HOSTNAME"), context.host_name))
    yield from filter(None, map(context.environ.get, ADDRESS_VARIABLES))
    yield from context.own_addresses()


def without_table(nproc: int, node: Node, host_name: str) -> NodeShare:
    """Return this node's share of a job without a rank table, with `nproc` ranks on each node.

    Raises:
        SettingsError: The number of this node or the address of node 0 is unknown.
    """
    problem = platform_table.problem_without_table(node)
    if problem:
        raise SettingsError(problem)

    return NodeShare(rank_ids=node.rank_ids(nproc), rank_size=nproc * node.nnodes, server_id=host_name, node=node)


def waiting(node: Node, context: PlanContext) -> NodeShare:
    """Return this node's share of a job before its ranks are known; it has a name if its number is unknown."""
    settings, environ = context.settings, context.environ
    names = (settings.pod_name, settings.server_id, *map(environ.get, detect.POD_NAMES), context.host_name)
    name = "" if node.is_numbered else next(filter(None, names))
    return NodeShare(rank_ids=(), rank_size=0, server_id=name, node=node)


def needs_table(context: PlanContext, node: Node | None) -> bool:
    """Whether a rank table is needed: it was requested, it is announced and of use, or nothing else gives the ranks."""
    settings = context.settings
    if settings.names_the_ranks:
        return settings.rank_table is not None
    if not node:
        return True
    is_announced = bool(platform_table.announced_table(context.environ, context.is_folder))
    if not node.devices_per_node:
        # By the Octopus guide there is one device; an engine that is the command itself may count them.
        return is_announced or not (context.environ.get("MA_NUM_HOSTS") or settings.launcher in BY_VARIABLES)

    # Other engines and MindSpore's own scheduler number the ranks without one.
    is_of_use = settings.launcher == DIRECT and settings.framework != "mindspore-cluster"
    return is_of_use and is_announced


def missing_nodes(share: NodeShare) -> str:
    """Return a sentence if the rank table has fewer nodes than it could have."""
    node = share.node
    return (
        f"the rank table has {node.nnodes} of {counted(node.nnodes + node.missing, 'node')}, so the job has"
        f" {counted(share.rank_size, 'rank')} (--min-nodes)"
    )


def refuse_min_nodes(settings: Settings) -> None:
    """Refuse --min-nodes for a job without a rank table.

    Raises:
        SettingsError: It is set.
    """
    if settings.min_nodes is not None:
        raise SettingsError("--min-nodes requires a rank table, and this job has none")


def find_share(table: RankTable, context: PlanContext) -> NodeShare:
    """Find this node's devices in a table that has devices, without the node's place (see `agreed`).

    The user decides with --pod-name, --server-id, or --nnodes and --node-rank. Else, if the table has pods, the pod's
    name does, because two pods may share a server; else an address.

    Raises:
        NodeNotFoundError: No entry matches, or the matching entry has no device.
    """
    settings = context.settings
    if settings.pod_name:
        return _share_of_pod(table, {"--pod-name": settings.pod_name}, context)
    if settings.server_id:
        return _share_of_named_server(table, settings.server_id)
    nodes, nnodes = len(table.pod_names) or len(table.servers_by_rank), settings.nnodes
    # A smaller table renumbers its nodes.
    is_smaller = settings.min_nodes is not None and nnodes is not None and nodes < nnodes
    if nnodes is not None and settings.node_rank is not None and not is_smaller:
        return _share_of_number(table, nnodes, settings.node_rank)
    if table.pod_names:
        return _share_of_pod(table, _names_of_pod(context), context)
    return _share_of_server(table, context)


def agreed(share: NodeShare, table: RankTable, node: Node) -> NodeShare:
    """Add the node's place to a share of a table.

    Raises:
        RankTableError: The table and the node's variables contradict each other.
    """
    facts = _facts(share, table)
    contradiction = platform_table.contradiction(node, facts)
    if contradiction:
        raise RankTableError(contradiction)

    return attrs.evolve(share, node=platform_table.with_table(node, facts))


def _facts(share: NodeShare, table: RankTable) -> TableFacts:
    pods, servers = table.pod_names, table.servers_by_rank
    server_ids = tuple(server.server_id for server in servers)
    return TableFacts(
        unit="pod" if pods else "server",
        nodes=len(pods) + len(table.idle_pods) if pods else table.server_count,
        position=pods.index(share.pod_name) if pods else server_ids.index(share.server_id),
        devices=len(share.rank_ids),
        server_id=share.server_id,
        server_ids=server_ids,
        first_address=_address_of(servers[0]),
        first_pod_name=pods[0] if pods else "",
    )


def _share_of_number(table: RankTable, nnodes: int, number: int) -> NodeShare:
    """Find the devices of the node with a number; pods count as nodes if their number fits, else servers do."""
    servers, pods = table.servers_by_rank, table.pod_names
    if len(pods) == nnodes > number:
        server = next(server for server in servers if pods[number] in server.pod_names)
        return _share(table, server.devices_of(pods[number]), server_id=server.server_id, pod_name=pods[number])
    if not pods and len(servers) == nnodes > number:
        return _share(table, servers[number].devices, server_id=servers[number].server_id)

    nodes = counted(len(pods), "pod") if pods else counted(len(servers), "server")
    raise NodeNotFoundError(
        f"this node is not in the rank table: --nnodes is {nnodes} and --node-rank is {number}, but the rank table has"
        f" {nodes} with devices; correct both options, or use --pod-name or --server-id instead"
    )


def _names_of_pod(context: PlanContext) -> dict[str, str]:
    names = {variable: name for variable in detect.POD_NAMES if (name := context.environ.get(variable))}
    return {**names, "host name": context.host_name}


def _share_of_pod(table: RankTable, names: Mapping[str, str], context: PlanContext) -> NodeShare:
    """Find the devices of the pod with one of some names, or of the only pod if no option or variable names one."""
    pods = {pod_name: server for server in table.servers for pod_name in server.pod_names}
    instances = (*pods, *table.idle_pods)
    own = next((name for name in names.values() if name in instances), None)
    if own is None and len(instances) == 1 and not {"--pod-name", *detect.POD_NAMES} & names.keys():
        _check_current_address(table, context)
        own = instances[0]
    if own is None:
        raise NodeNotFoundError(
            f"this node is not in the rank table: no pod_name matches {_with_origins(names)}; the table has"
            f" {_quoted(instances) or 'no pods'}; {WAY_OUT}"
        )
    if own not in pods:
        raise NodeNotFoundError(f"this node has no ranks: pod {own!r} has no device in the rank table")

    server = pods[own]
    return _share(table, server.devices_of(own), server_id=server.server_id, pod_name=own)


def _share_of_named_server(table: RankTable, name: str) -> NodeShare:
    server = _by_name(table.servers).get(name)
    if server is None:
        raise _no_server(table, {"--server-id": name})
    if len(server.pod_names) > 1:
        raise NodeNotFoundError(
            f"server {name!r} has several pods in the rank table, {_quoted(server.pod_names)}: use --pod-name"
        )
    return _share_of_whole(table, server)


def _check_current_address(table: RankTable, context: PlanContext) -> None:
    """Refuse the only pod of a table if no server has the address that the platform gives this node."""
    current = context.environ.get(CURRENT_ADDRESS)
    if current and current not in _by_name(table.servers) and _has_addresses(table):
        raise _no_server(table, {CURRENT_ADDRESS: current})


def _share_of_server(table: RankTable, context: PlanContext) -> NodeShare:
    servers = _by_name(table.servers)
    current = context.environ.get(CURRENT_ADDRESS)
    if table.server_count == 1 and (not current or current in servers or not _has_addresses(table)):
        return _share_of_whole(table, table.servers[0])

    names = {variable: value for variable in ADDRESS_VARIABLES if (value := context.environ.get(variable))}
    own = next((name for name in names.values() if name in servers), None)
    if own is None:
        addresses = context.own_addresses()
        own = next((address for address in (*addresses, context.host_name) if address in servers), None)
        names.update({"own address": " ".join(addresses) or "none", "host name": context.host_name})
    if own is None:
        raise _no_server(table, names)
    return _share_of_whole(table, servers[own])


def _no_server(table: RankTable, names: Mapping[str, str]) -> NodeNotFoundError:
    return NodeNotFoundError(
        f"this node is not in the rank table: no server_id matches {_with_origins(names)}; the table has"
        f" {_quoted(server.server_id for server in table.servers)}; {WAY_OUT}"
    )


def _share_of_whole(table: RankTable, server: Server) -> NodeShare:
    if not server.devices:
        raise NodeNotFoundError(f"this node has no ranks: server {server.server_id!r} has no device in the rank table")

    pod_name = server.devices[0].pod_name
    return _share(table, server.devices, server_id=server.server_id, pod_name=pod_name)


def _has_addresses(table: RankTable) -> bool:
    """Whether a table identifies its servers by addresses; MindCluster also writes a pod's UID."""
    return all(platform_table.is_address(server.server_id) for server in table.servers)


def _by_name(servers: Sequence[Server]) -> dict[str, Server]:
    """Index servers by server_id, and by every other address that is unique.

    MindCluster may use a pod's UID as server_id; two pods on one machine then share its host_ip.
    """
    known: dict[str, Server] = {}
    shared: set[str] = set()
    for server in servers:
        for address in server.addresses:
            if known.setdefault(address, server) is not server:
                shared.add(address)
    for address in shared:
        del known[address]
    known.update((server.server_id, server) for server in servers)

    return known


def _address_of(server: Server) -> str:
    """Return the address at which other nodes reach a server: its server_id if that is an address, else the last one.

    The last one is the pod's own (container_ip, pod_ip), which on the host network is also the machine's.
    """
    is_address = platform_table.is_address(server.server_id)
    return server.server_id if is_address else (server.server_id, *server.addresses)[-1]


def _share(table: RankTable, devices: Iterable[Device], *, server_id: str, pod_name: str = "") -> NodeShare:
    rank_ids = tuple(device.rank_id for device in devices)
    return NodeShare(rank_ids=rank_ids, rank_size=table.rank_size, server_id=server_id, pod_name=pod_name)


def _with_origins(names: Mapping[str, str]) -> str:
    return " or ".join(f"{name!r} ({origin})" for origin, name in names.items())


def _quoted(names: Iterable[str]) -> str:
    return abbreviated(list(map(repr, names)))


TIME_WIDTH: Final = len("03:12:45 ")
_BAD_ENDS: Final = frozenset({JobState.FAILED, JobState.HOLDING, JobState.EXPIRED})
# A job that is stopped by a signal has little time, and no failure to explain.
_ALL_ENDS: Final = _BAD_ENDS | {JobState.SUCCEEDED, JobState.STOPPED}
HTML_STATES: Final = dict(zip(HTML, (_BAD_ENDS, _ALL_ENDS, frozenset[JobState]())))


@attrs.frozen(kw_only=True)
class Seats:
    """Where this node's ranks run, in local order."""

    device_ids: Sequence[int] = ()  # the physical number of each rank's NPU; of another length: unknown
    cores: Sequence[frozenset[int]] = ()  # the cores of each rank (none: all)


def plan_ranks(
    command: Command, share: NodeShare, context: PlanContext, table: TableFile | None, *, seats: Seats | None = None
) -> JobSpec:
    """Plan this node's ranks; `table` is the rank table that they read, if any.

    Raises:
        SettingsError: The environment holds variables that must not be set together.
    """
    seats, launch = seats or Seats(), launch_context(share, context, table)
    patch = patch_environment(launch)
    environ, own = context.rank_environ, context.job_variable

    ranks = tuple(
        _seated(plan_process(command, {**env, **own}, context, rank_id=rank_id, local_rank=local_rank), share, seats)
        for local_rank, (rank_id, env) in enumerate(zip(share.rank_ids, patch.environments_of_ranks(environ)))
    )
    auxiliary = tuple(
        plan_process(command, {**patch.environment_of_process(name, environ), **own}, context, name=name)
        for name in patch.beside
    )
    framework = without_auto(launch)[0].framework
    return plan_job(share, context, ranks, auxiliary, Kind(table=table, notes=patch.notes, framework=framework))


def _seated(spec: RankSpec, share: NodeShare, seats: Seats) -> RankSpec:
    number = spec.local_rank
    return attrs.evolve(
        spec,
        device_id=seats.device_ids[number] if len(seats.device_ids) == len(share.rank_ids) else None,
        cores=seats.cores[number] if seats.cores else None,
    )


def plan_process(  # noqa: PLR0913  a rank has two numbers, an auxiliary process a name
    command: Command,
    env: Mapping[str, str],
    context: PlanContext,
    *,
    rank_id: int = NO_RANK,
    local_rank: int = 0,
    name: str = "",
) -> RankSpec:
    """Plan a rank, or an auxiliary process, which has a `name`. `env` lacks only CANN's log directory."""
    log_dir, job_id = context.log_dir, context.job_id
    process_log = os.path.join(log_dir, job_id, "ascend", "process_log", name or f"rank_{rank_id}")
    spec = RankSpec(
        rank_id=rank_id,
        local_rank=local_rank,
        executable=command.executable,
        argv=command.argv,
        env={**env, "ASCEND_PROCESS_LOG_PATH": env.get("ASCEND_PROCESS_LOG_PATH") or process_log},
        cwd=context.workdir(name or f"device{local_rank}"),
        log_path=os.path.join(log_dir, f"{job_id}-proc-{name or f'rank-{rank_id}-device-{local_rank}'}.txt"),
        prefix=None,
        name=name,
    )
    return _with_console(spec, context)


def _with_console(spec: RankSpec, context: PlanContext) -> RankSpec:
    """Plan how the lines of a process are shown, and set the terminal's width, which the process cannot query."""
    settings, env = context.settings, spec.env
    prefix = f"[{spec.title}] "
    width = context.columns - len(prefix) - (TIME_WIDTH if settings.timestamps else 0)
    if width > 0:
        env = {"COLUMNS": str(width), **env}
    if settings.stdin == spec.rank_id:
        return with_stdin(attrs.evolve(spec, env=env), context)

    if settings.stdin is not None:
        env = {"PYTHONBREAKPOINT": "0", **env}  # without a terminal, breakpoint() does nothing
    if context.has_colors:
        prefix = colored(prefix, PREFIX_STYLES[spec.rank_id % len(PREFIX_STYLES)])
    is_shown = settings.console is None or spec.rank_id in settings.console
    return attrs.evolve(spec, env=env, prefix=prefix.encode() if is_shown else None)


def with_stdin(spec: RankSpec, context: PlanContext) -> RankSpec:
    """Return the plan of a process that reads the runner's standard input. Its prompts have no prefix."""
    return attrs.evolve(spec, has_stdin=not context.is_in_background(), prefix=b"")


@attrs.frozen(kw_only=True)
class Kind:
    """How the plans of different kinds differ."""

    table: TableFile | None = None
    host_files: Mapping[str, bytes] = {}
    framework: str = ""  # "": the one that the user has chosen
    notes: tuple[str, ...] = ()
    is_passed_through: bool = False
    is_placed: bool = True
    is_waiting: bool = False  # it only waits for node 0, so that neither its silence nor its failure has a meaning
    is_silent: bool = False  # its silence has no meaning
    scratch: str = ""  # a directory to remove at the end


ORDINARY: Final = Kind()
UNCHANGED: Final = Handover(argv=(), note="")


def plan_job(
    share: NodeShare,
    context: PlanContext,
    ranks: tuple[RankSpec, ...] = (),
    beside: tuple[RankSpec, ...] = (),
    kind: Kind = ORDINARY,
) -> JobSpec:
    """Plan the job that consists of some processes."""
    settings, node = context.settings, share.node
    return JobSpec(
        job_id=context.job_id,
        ranks=ranks,
        beside=beside,
        rank_size=share.rank_size,
        server_id=share.server_id,
        pod_name=share.pod_name,
        node_number=node.file_number,
        nodes=(node.nnodes, node.nnodes + node.missing),
        is_placed=kind.is_placed,
        is_passed_through=kind.is_passed_through,
        files=_files(context, (*ranks, *beside), kind),
        stopping=_stopping(context),
        watching=_watching(settings, kind),
        restarts=NO_RESTARTS if kind.is_waiting else _restarts(settings, node),
        hooks=settings.hook,
        platform=node.platform if node.detected_by else "",
        framework=kind.framework or settings.framework,
        runner_version=context.version,
        notes=kind.notes,
    )


def _files(context: PlanContext, processes: Sequence[RankSpec], kind: Kind) -> Files:
    settings = context.settings
    return Files(
        log_dir=context.log_dir,
        folders=_folders(processes, context),
        host_files=kind.host_files,
        scratch=kind.scratch,
        table=kind.table,
        rotation=Rotation(max_size=settings.log_max_size),
        has_own_process_logs=not context.environ.get("ASCEND_PROCESS_LOG_PATH"),
        log_runs=settings.log_runs,
        newest_link=context.newest_link,
        checkpoint_dir=os.path.join(context.cwd, settings.checkpoint_dir) if settings.checkpoint_dir else "",
        catalogue=context.catalogue,
        html_states=HTML_STATES[settings.html],
        folds_progress_bars=settings.progress_bars == FOLD,
        has_timestamps=settings.timestamps,
    )


def _stopping(context: PlanContext) -> Stopping:
    settings = context.settings
    return Stopping(
        grace=settings.grace,
        stop_signum=STOP_SIGNUMS[settings.stop_signal],
        checkpoint_signum=CHECKPOINT_SIGNUMS[settings.checkpoint_signal],
        checkpoint_grace=settings.checkpoint_grace,
        recovery=env_patch.recovery(context.environ)[1],
    )


def _watching(settings: Settings, kind: Kind) -> Watching:
    is_silent = kind.is_waiting or kind.is_silent
    return Watching(
        hang_timeout=None if is_silent or settings.hang_timeout == OFF else settings.hang_timeout or AUTO,
        hang_action=_hang_action(settings),
        perf_pattern=settings.perf_pattern,
        perf_threshold=settings.perf_threshold,
        perf_drop=settings.perf_drop,
        perf_action=WatchAction(settings.perf_action or WatchAction.WARN),
        summary_interval=settings.summary,
        inspect=None if settings.inspect is None else InspectAction(settings.inspect),
    )


def _folders(processes: Sequence[RankSpec], context: PlanContext) -> tuple[str, ...]:
    """Return the directories that must exist before the first process starts."""
    workdirs = [process.cwd for process in processes] if context.has_own_workdirs else ()
    process_logs = dict.fromkeys(process.env["ASCEND_PROCESS_LOG_PATH"] for process in processes)
    return (context.log_dir, *workdirs, *process_logs)


def _hang_action(settings: Settings) -> WatchAction:
    if settings.hang_action is None and settings.hang_timeout is None:
        return WatchAction.WARN
    if settings.hang_action is None:
        return WatchAction.RESTART if settings.max_restarts else WatchAction.STOP
    return WatchAction(settings.hang_action)


def _restarts(settings: Settings, node: Node) -> Policy:
    return Policy(
        max_restarts=settings.max_restarts,
        always=settings.restart_on or frozenset(),
        never=settings.no_restart_on or frozenset(),
        delay=settings.restart_delay,
        gives_verdict=settings.exit_verdict,
        linger=node.linger if settings.linger is None else settings.linger,
        hold=settings.hold,
    )


def launch_context(share: NodeShare, context: PlanContext, table: TableFile | None = None) -> LaunchContext:
    """Return the launch context for `frameworks`."""
    settings = context.settings
    limit = settings.hang_timeout
    return LaunchContext(
        framework=settings.framework if settings.launcher == DIRECT else NONE,
        node=share.node,
        rank_ids=share.rank_ids,
        rank_size=share.rank_size,
        table_path=table.path if table else None,
        environ=context.environ,
        cores=context.cores,
        isolate_devices=settings.isolate_devices,
        chip=settings.chip or chips.chip_of(context.environ),
        dumps=os.path.join(context.log_dir, f"{context.job_id}-{FLIGHT_RECORDER}-") if limit not in {None, OFF} else "",
        hang_timeout=limit if isinstance(limit, float) else None,
        resolve=context.resolve,
    )


def in_place(context: PlanContext) -> PlanContext:
    """Return the context of a job of one process, which runs in the current directory by default."""
    workdir = context.settings.workdir or WORKDIR_INHERIT
    return attrs.evolve(context, settings=attrs.evolve(context.settings, workdir=workdir))


def plan_single(
    command: Command,
    single: SingleProcess,
    context: PlanContext,
    node: Node | None,
    engine: Handover = UNCHANGED,
) -> JobSpec:
    """Plan the command as one process in the environment as it is, but for what an `engine` must know.

    This process is the whole part of the job on `node`; None: another launcher has started it beside others.
    """
    ranks: tuple[RankSpec, ...]
    beside: tuple[RankSpec, ...]
    env = {**context.job_variable, "PYTHONUNBUFFERED": "1", **context.rank_environ, **engine.variables}
    command = attrs.evolve(command, argv=engine.argv or command.argv)
    share = NodeShare(rank_ids=(), rank_size=single.rank_size, server_id=context.host_name, node=node or Node())
    if single.rank_id is None or single.local_rank is None:
        number = share.node.file_number
        name = single.name or (context.command_name if node else context.host_name)
        name = name if number is None else f"{name}-node-{number}"
        process = plan_process(command, env, context, name=name)
        if context.settings.stdin is not None:
            process = with_stdin(process, context)  # the only one there is
        ranks, beside = (), (process,)
    else:
        rank = plan_process(command, env, context, rank_id=single.rank_id, local_rank=single.local_rank)
        ranks, beside = (rank,), ()

    host_files = {os.path.join(context.cwd, path): content for path, content in engine.files.items()}
    kind = Kind(host_files=host_files, is_passed_through=node is None, is_waiting=engine.is_waiting)
    return plan_job(share, context, ranks, beside, kind)


def plan_waiting(single: SingleProcess, context: PlanContext, node: Node) -> JobSpec:
    """Plan a process that waits for node 0, instead of a command that starts everything from there."""
    engine = node_0.wait(_report_of_node_0(context))
    return plan_single(Command(engine.argv[0], engine.argv), single, context, node, engine)


def with_hosts(engine: str, context: PlanContext, node: Node) -> Handover:
    """Return what a command that is an engine must know of the other nodes.

    Raises:
        SettingsError: The engine cannot run this command or this job.
    """
    return node_0.with_hosts(engine, _request(engine, context, node, node.devices_per_node or 0))


def _request(engine: str, context: PlanContext, node: Node, nproc: int) -> Request:
    return Request(
        argv=context.command,
        node=node,
        nproc=nproc,
        environ=context.environ,
        log_dir=os.path.join(context.log_dir, context.job_id, engine),
        report_of_node_0=_report_of_node_0(context),
        resolve=context.resolve,
        read_text=context.read_text,
        job=context.job_id,
        cluster=_cluster(context),
        run=context.started_at,
        timeout=context.settings.link_timeout,
    )


def _cluster(context: PlanContext) -> str:
    """Return what tells a job from others of its name and is the same on all its nodes, as far as there is anything."""
    text, path = (context.environ.get(name, "") for name in LINK_SECRETS)
    secret = (text or (path and context.read_text(path))).strip()
    known = f"{detect.job_id(context.environ)}\n{secret}".encode(errors="surrogateescape")
    return hashlib.sha256(known).hexdigest()[:CLUSTER_LENGTH]


def _report_of_node_0(context: PlanContext) -> str:
    """Return the path of the report of node 0 if each node has one process (see `JobSpec.report_path`)."""
    return os.path.join(context.log_dir, f"{context.job_id}-report-node-0.json")


def hand_over(share: NodeShare, context: PlanContext) -> Handover:
    """Rewrite a command for the engine that --launcher names.

    Raises:
        SettingsError: The engine cannot run this command or this job.
    """
    launcher = context.settings.launcher
    return ENGINES[launcher](_request(launcher, context, share.node, len(share.rank_ids)))


def refuse_options_of_ranks(settings: Settings) -> None:
    """Refuse options that apply to single ranks if another engine starts the ranks.

    Raises:
        SettingsError: Such an option is set.
    """
    per_rank = {
        "--workdir device": settings.workdir == WORKDIR_DEVICE,
        "--isolate-devices": settings.isolate_devices,
        "--bind": bool(settings.bind),
        "--stdin": settings.stdin is not None,
    }
    given = [option for option, is_given in per_rank.items() if is_given]
    if given and settings.launcher != DIRECT:
        raise SettingsError(
            f"{' and '.join(given)} cannot be used with {settings.launcher}, which starts the ranks itself"
        )


def plan_handover(executable: str, engine: Handover, share: NodeShare, context: PlanContext) -> JobSpec:
    """Plan the one process of an engine; `executable` is the program that was found for it.

    It gets no rank table, because engines that start ranks also number them.

    Raises:
        SettingsError: The environment holds variables that must not be set together.
    """
    node, launcher = share.node, context.settings.launcher
    launched = launch_context(share, context)
    patch = merge([conflicts.resolve(launched), env_patch.defaults(launched)], nproc=0)
    process = plan_process(
        Command(executable, engine.argv),
        {**patch.environment(context.rank_environ), **engine.variables, **context.job_variable},
        context,
        name=launcher if node.nnodes == 1 else f"{launcher}-node-{node.node_rank}",
    )
    kind = Kind(
        host_files={os.path.join(context.cwd, path): content for path, content in engine.files.items()},
        notes=patch.notes,
        is_waiting=engine.is_waiting,
        is_silent=engine.is_silent,
        scratch=engine.scratch,
    )
    return plan_job(share, context, beside=(process,), kind=kind)
