"""The devices of a table that belong to this node: by each name that a platform gives a node, never by a guess."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import attrs
import pytest

from ascend_runner import rank_table
from ascend_runner.errors import NodeNotFoundError, RankTableError, SettingsError
from ascend_runner.plan import ranks
from ascend_runner.plan.ranks import NodeShare, PlanContext, agreed, find_share, without_table
from ascend_runner.platforms.detect import find_node
from ascend_runner.platforms.node import Node, Overrides
from ascend_runner.rank_table import RankTable
from ascend_runner.settings.model import Settings

NOTHING_SET = Settings()


def _no_addresses() -> list[str]:
    pytest.fail("the machine was asked for its addresses, which takes 20 ms, without need")


def _context(
    environ: Mapping[str, str] = MappingProxyType({}),
    host_name: str = "some-host",
    addresses: Callable[[], Sequence[str]] = _no_addresses,
    settings: Settings = NOTHING_SET,
) -> PlanContext:
    return PlanContext(
        settings=settings,
        environ=environ,
        cwd="/",
        host_name=host_name,
        is_folder=lambda _: False,
        own_addresses=addresses,
    )


def _device(number: int) -> dict[str, str]:
    return {"device_id": str(number), "device_ip": ""}


def _pods(*pods: tuple[str, str, list[int]]) -> RankTable:
    """Make a group list of pods: name, server and devices."""
    instances = [
        {"pod_name": name, "server_id": server_id, "devices": [_device(number) for number in device_ids]}
        for name, server_id, device_ids in pods
    ]
    document = {"status": "completed", "group_count": "1", "group_list": [{"instance_list": instances}]}
    return rank_table.loads(json.dumps(document).encode())


def _servers(*servers: tuple[str, list[int]], **addresses: tuple[str, ...]) -> RankTable:
    """Make a server list of servers: id and ranks; `addresses` are the values of other keys on each."""
    entries = [
        {
            "server_id": server_id,
            "device": [{**_device(number), "rank_id": str(rank_id)} for number, rank_id in enumerate(rank_ids)],
            **{key: values[index] for key, values in addresses.items()},
        }
        for index, (server_id, rank_ids) in enumerate(servers)
    ]
    document = {"status": "completed", "version": "1.0", "server_count": str(len(servers)), "server_list": entries}
    return rank_table.loads(json.dumps(document).encode())


TWO_PODS = _pods(("job-worker-0", "10.0.0.1", [0, 1]), ("job-worker-1", "10.0.0.2", [0, 1]))
TWO_SERVERS = _servers(("10.0.0.1", [0, 1]), ("10.0.0.2", [2, 3]))


# --- Tables with pods -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "host_name"),
    [
        ({"BATCH_TASK_CURRENT_INSTANCE": "job-worker-1"}, "some-host"),
        ({"MA_CURRENT_INSTANCE_NAME": "job-worker-1"}, "some-host"),
        ({}, "job-worker-1"),
        ({"BATCH_TASK_CURRENT_INSTANCE": "job-worker-1", "MA_CURRENT_INSTANCE_NAME": "job-worker-0"}, "job-worker-0"),
        ({"MA_CURRENT_INSTANCE_NAME": "job-worker-1"}, "job-worker-0"),
        ({"BATCH_TASK_CURRENT_INSTANCE": "", "MA_CURRENT_INSTANCE_NAME": "job-worker-1"}, "some-host"),
    ],
    ids=["BATCH", "MA", "host", "BATCH-before-MA", "MA-before-host", "empty-is-unset"],
)
def test_own_pod_is_found_by_name(environ: dict[str, str], host_name: str) -> None:
    """The pod's name is BATCH_TASK_CURRENT_INSTANCE, else MA_CURRENT_INSTANCE_NAME, else the host name."""
    share = find_share(TWO_PODS, _context(environ, host_name, _no_addresses))

    assert NodeShare(rank_ids=(2, 3), rank_size=4, server_id="10.0.0.2", pod_name="job-worker-1") == share


def test_ranks_follow_pod_numbers_and_not_the_list() -> None:
    """A node's share consists of global ranks, which follow the numbers of the pods, not their order in the list."""
    table = _pods(("a-2", "s2", [0, 1]), ("a-10", "s10", [0]), ("a-1", "s1", [0, 1, 2]))

    shares = {name: find_share(table, _context({}, name, _no_addresses)).rank_ids for name in ("a-1", "a-2", "a-10")}
    assert {"a-1": (0, 1, 2), "a-2": (3, 4), "a-10": (5,)} == shares


def test_two_pods_on_one_server_start_their_own_devices_each() -> None:
    """Pods on one server share out its ranks, and each pod counts from local index 0."""
    table = _pods(("job-1", "10.0.0.1", [4, 5, 6, 7]), ("job-0", "10.0.0.1", [0, 1, 2, 3]))
    first, second = (find_share(table, _context({"MA_CURRENT_INSTANCE_NAME": name})) for name in ("job-0", "job-1"))

    assert (0, 1, 2, 3) == first.rank_ids
    assert (4, 5, 6, 7) == second.rank_ids
    assert 8 == first.rank_size == second.rank_size


def test_two_pods_on_one_server_meet_at_the_server() -> None:
    """Pods on one server have their own networks: 127.0.0.1 differs between them."""
    table = _pods(("job-0", "10.0.0.1", [0]), ("job-1", "10.0.0.1", [1]))
    nodes = [_node(table, {}, name) for name in ("job-0", "job-1")]

    assert ["10.0.0.1", "10.0.0.1"] == [node.master_addr for node in nodes]


def test_only_pod_is_this_node_whatever_its_name() -> None:
    """The only pod of a table is this node, whatever its name is, if no variable names this node's pod."""
    table = _pods(("npu8p", "10.0.0.1", [0, 1]))
    share = find_share(table, _context({}, "other"))

    assert NodeShare(rank_ids=(0, 1), rank_size=2, server_id="10.0.0.1", pod_name="npu8p") == share


@pytest.mark.parametrize("variable", ["MA_CURRENT_INSTANCE_NAME", "BATCH_TASK_CURRENT_INSTANCE"])
def test_only_pod_of_another_name_is_not_this_node(variable: str) -> None:
    """A table without the pod that the platform names is another node's, although it has only one."""
    table = _pods(("npu8p", "10.0.0.1", [0, 1]))
    with pytest.raises(NodeNotFoundError, match=f"no pod_name matches 'other' .{variable}."):
        find_share(table, _context({variable: "other"}))

    named = _context({variable: "other"}, settings=Settings(pod_name="npu8p"))
    assert "npu8p" == find_share(table, named).pod_name


def test_only_pod_at_another_address_is_not_this_node() -> None:
    """A table without the address of this node is another node's, unless the pod's name matches."""
    table = _pods(("npu8p", "10.0.0.1", [0, 1]))

    with pytest.raises(NodeNotFoundError, match=r"MA_CURRENT_HOST_IP"):
        find_share(table, _context({"MA_CURRENT_HOST_IP": "10.9.9.9"}))
    assert (0, 1) == find_share(table, _context({"MA_CURRENT_HOST_IP": "10.0.0.1"})).rank_ids
    assert (0, 1) == find_share(table, _context({"MA_CURRENT_HOST_IP": "10.9.9.9"}, host_name="npu8p")).rank_ids


def test_only_pod_with_devices_is_not_taken_for_the_idle_one() -> None:
    """A pod without devices counts: with two pods this node must match by name."""
    table = _pods(("job-0", "10.0.0.1", [0, 1]), ("job-1", "10.0.0.2", []))

    with pytest.raises(NodeNotFoundError) as caught:
        find_share(table, _context({}))

    assert (
        "this node is not in the rank table: no pod_name matches 'some-host' (host name); the table has 'job-0',"
        " 'job-1'; use --pod-name, --server-id, or --nnodes and --node-rank to identify this node" == str(caught.value)
    )


def test_idle_pod_has_nothing_to_start() -> None:
    """A pod without devices is an error, and starts no other pod's ranks."""
    table = _pods(("job-0", "10.0.0.1", [0, 1]), ("job-1", "10.0.0.2", []))

    with pytest.raises(NodeNotFoundError) as caught:
        find_share(table, _context({"MA_CURRENT_INSTANCE_NAME": "job-1"}))

    assert "this node has no ranks: pod 'job-1' has no device in the rank table" == str(caught.value)


def test_unknown_pod_is_refused_with_all_that_was_looked_for() -> None:
    """The error gives each name with its origin, and the first pods of the table."""
    table = _pods(*((f"job-{number}", f"10.0.0.{number}", [0]) for number in range(11)))
    environ = {"BATCH_TASK_CURRENT_INSTANCE": "x", "MA_CURRENT_INSTANCE_NAME": "y"}

    with pytest.raises(NodeNotFoundError) as caught:
        find_share(table, _context(environ))

    assert (
        "this node is not in the rank table: no pod_name matches 'x' (BATCH_TASK_CURRENT_INSTANCE) or 'y'"
        " (MA_CURRENT_INSTANCE_NAME) or 'some-host' (host name); the table has 'job-0', 'job-1', 'job-2', 'job-3',"
        " 'job-4', 'job-5', 'job-6', 'job-7' and 3 more; "
    ) == str(caught.value).partition("use ")[0]
    assert 125 == caught.value.exit_status


def test_pod_is_not_found_by_part_of_its_name() -> None:
    """job-1 is not job-10."""
    table = _pods(("job-10", "10.0.0.1", [0]), ("job-11", "10.0.0.2", [0]))

    with pytest.raises(NodeNotFoundError):
        find_share(table, _context({"MA_CURRENT_INSTANCE_NAME": "job-1"}))


# --- Tables with servers only -----------------------------------------------------------------------------------------


def test_only_server_is_this_node_whatever_its_name() -> None:
    """The only server of a table is this node, and its addresses are not looked up."""
    share = find_share(_servers(("10.0.0.9", [0, 1])), _context({"HOST_IP": "1.2.3.4"}))

    assert NodeShare(rank_ids=(0, 1), rank_size=2, server_id="10.0.0.9") == share


@pytest.mark.parametrize("variable", ["MA_CURRENT_HOST_IP", "MA_CURRENT_IP", "HOST_IP", "POD_IP", "XDL_IP"])
def test_own_server_is_found_by_each_variable(variable: str) -> None:
    """Each of these variables may carry this node's server_id."""
    share = find_share(TWO_SERVERS, _context({variable: "10.0.0.2"}))

    assert NodeShare(rank_ids=(2, 3), rank_size=4, server_id="10.0.0.2") == share


def test_variables_are_asked_in_order() -> None:
    """The host's address precedes the container's; an address that matches no server is skipped."""
    environ = {"POD_IP": "10.0.0.1", "HOST_IP": "10.0.0.2", "MA_CURRENT_HOST_IP": "172.16.0.1"}

    assert "10.0.0.2" == find_share(TWO_SERVERS, _context(environ)).server_id


def test_own_server_is_found_by_own_address() -> None:
    """If no variable matches a server, the machine's own addresses count, including IPv6."""
    table = _servers(("10.0.0.1", [0]), ("fd00::2", [1]))
    context = _context({"HOST_IP": "172.16.0.1"}, addresses=lambda: ["127.0.0.1", "fd00::2"])

    assert (1,) == find_share(table, context).rank_ids


def test_own_server_is_found_by_host_name() -> None:
    """A server_id may be a host name."""
    table = _servers(("node-a", [0]), ("node-b", [1]))

    assert (1,) == find_share(table, _context({}, "node-b", lambda: ["127.0.0.1"])).rank_ids


def test_unknown_server_is_refused_with_all_that_was_looked_for() -> None:
    """The error gives every address and name that was tried, the table's servers, and the variable that helps."""
    with pytest.raises(NodeNotFoundError) as caught:
        find_share(TWO_SERVERS, _context({"HOST_IP": "172.16.0.1"}, "some-host", lambda: ["127.0.0.1", "::1"]))

    assert (
        "this node is not in the rank table: no server_id matches '172.16.0.1' (HOST_IP) or '127.0.0.1 ::1' (own"
        " address) or 'some-host' (host name); the table has '10.0.0.1', '10.0.0.2'; "
    ) == str(caught.value).partition("use ")[0]


def test_address_is_not_found_by_its_beginning() -> None:
    """10.0.0.1 is not 10.0.0.10."""
    table = _servers(("10.0.0.10", [0]), ("10.0.0.11", [1]))

    with pytest.raises(NodeNotFoundError):
        find_share(table, _context({"HOST_IP": "10.0.0.1"}, "some-host", list))


def test_ranks_of_a_server_are_what_the_table_says() -> None:
    """Local indices follow the ranks, not the order of the list."""
    table = _servers(("10.0.0.1", [3, 2]), ("10.0.0.2", [1, 0]))
    share = find_share(table, _context({"HOST_IP": "10.0.0.1"}))

    assert (2, 3) == share.rank_ids
    assert "10.0.0.2" == _node(table, {"HOST_IP": "10.0.0.1"}).master_addr


# As MindCluster's operator writes it for three pods, two of them on one machine.
UIDS = _servers(
    ("uid-a", [0]),
    ("uid-b", [1]),
    ("uid-c", [2]),
    host_ip=("10.0.0.1", "10.0.0.1", "10.0.0.2"),
    container_ip=("172.16.0.1", "172.16.0.2", "172.16.0.3"),
)


@pytest.mark.parametrize(
    ("environ", "server_id"),
    [
        ({"POD_IP": "172.16.0.2"}, "uid-b"),
        ({"XDL_IP": "10.0.0.2"}, "uid-c"),
        ({"XDL_IP": "10.0.0.1", "POD_IP": "172.16.0.1"}, "uid-a"),
        ({"MA_CURRENT_HOST_IP": "uid-b"}, "uid-b"),
    ],
)
def test_server_with_a_uid_is_found_by_its_other_addresses(environ: dict[str, str], server_id: str) -> None:
    """An address that only one server has identifies it."""
    assert server_id == find_share(UIDS, _context(environ)).server_id


def test_server_with_a_uid_is_found_by_the_machines_own_address() -> None:
    """No variable is needed if the table has the pod's address."""
    assert "uid-b" == find_share(UIDS, _context({}, "some-pod", lambda: ["172.16.0.2"])).server_id


def test_address_of_two_servers_is_no_guess() -> None:
    """An address that two pods share identifies neither."""
    with pytest.raises(NodeNotFoundError):
        find_share(UIDS, _context({"XDL_IP": "10.0.0.1"}, "some-pod", list))


def test_server_id_comes_before_other_addresses() -> None:
    """If one server's id is another's address, the id counts."""
    table = _servers(("10.0.0.1", [0]), ("10.0.0.2", [1]), host_ip=("10.0.0.2", "10.0.0.1"))

    assert "10.0.0.2" == find_share(table, _context({"HOST_IP": "10.0.0.2"})).server_id


def test_ranks_meet_at_an_address() -> None:
    """Ranks cannot meet at a UID: the pod's own address is used."""
    assert "172.16.0.1" == _node(UIDS, {"POD_IP": "172.16.0.3"}).master_addr


def test_server_without_devices_has_nothing_to_start() -> None:
    """A server without devices is an error."""
    with pytest.raises(NodeNotFoundError) as caught:
        find_share(_servers(("10.0.0.1", [0]), ("10.0.0.2", [])), _context({"HOST_IP": "10.0.0.2"}))

    assert "this node has no ranks: server '10.0.0.2' has no device in the rank table" == str(caught.value)


# --- No table -------------------------------------------------------------------------------------------------------


def test_without_table_ranks_are_those_of_this_machine() -> None:
    """A node alone has the ranks 0 to N - 1, which meet at 127.0.0.1."""
    node = find_node({})

    assert NodeShare(rank_ids=(0, 1, 2), rank_size=3, server_id="some-host", node=node) == without_table(
        3, node, "some-host"
    )
    assert "127.0.0.1" == node.master_addr


def test_without_table_ranks_are_numbered_by_nodes() -> None:
    """Every node has the same number of ranks, in the order of the nodes."""
    node = find_node({}, Overrides(nnodes=3, node_rank=2, master_addr="a"))
    share = without_table(2, node, "some-host")

    assert ((4, 5), 6) == (share.rank_ids, share.rank_size)


def test_without_table_an_ambiguity_is_an_error() -> None:
    """An ambiguous place is an error: each node would otherwise run as the only one."""
    node = find_node({"RANK": "1", "WORLD_SIZE": "2"})

    with pytest.raises(SettingsError) as caught:
        without_table(2, node, "some-host")

    assert node.ambiguity == str(caught.value)


def test_without_table_and_without_address() -> None:
    """Without the address of node 0, several nodes are an error."""
    with pytest.raises(SettingsError) as caught:
        without_table(2, find_node({"PMI_SIZE": "2", "PMI_RANK": "1"}), "some-host")

    assert "--master-addr" in str(caught.value)


# --- The node's place by the table -----------------------------------------------------------------------------------


def test_place_is_that_of_the_ranks() -> None:
    """Nodes are numbered in the order of their ranks, whatever number the platform gives them."""
    table = _pods(("job-1", "10.0.0.2", [0]), ("job-0", "10.0.0.1", [0]), ("job-2", "10.0.0.3", []))
    environ = {"MA_VJ_NAME": "job", "MA_NUM_HOSTS": "3", "VC_TASK_INDEX": "0"}
    node = _node(table, environ, "job-1")

    assert (1, 3, "10.0.0.1") == (node.node_rank, node.nnodes, node.master_addr)


def test_place_among_servers() -> None:
    """Without pods the servers are the nodes, including those without devices."""
    table = _servers(("10.0.0.3", []), ("10.0.0.2", [2, 3]), ("10.0.0.1", [0, 1]))
    node = _node(table, {"HOST_IP": "10.0.0.2"})

    assert (1, 3, "10.0.0.1") == (node.node_rank, node.nnodes, node.master_addr)


def test_ranks_meet_at_the_host_of_the_first_pod() -> None:
    """Volcano's host list gives rank 0's host by a name that pods can resolve; it overrides the server_id."""
    hosts = {"MA_NUM_HOSTS": "2", "VC_TASK_INDEX": "1", "VC_WORKER_HOSTS": "job-worker-0.job,job-worker-1.job"}
    node = _node(TWO_PODS, hosts, "job-worker-1")

    assert "job-worker-0.job" == node.master_addr


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({"MA_NUM_HOSTS": "3"}, "MA_NUM_HOSTS"),
        ({"MA_NUM_HOSTS": "2", "MA_NUM_GPUS": "8"}, "MA_NUM_GPUS"),
        ({"MA_NUM_HOSTS": "2", "MA_CURRENT_HOST_IP": "10.0.0.1"}, "MA_CURRENT_HOST_IP"),
    ],
)
def test_contradiction_is_an_error(environ: dict[str, str], variable: str) -> None:
    """Counts and addresses that differ are an error that names the variable."""
    with pytest.raises(RankTableError, match=f"^{variable} is "):
        _node(TWO_PODS, {"MA_VJ_NAME": "job", **environ}, "job-worker-1")


def _node(table: RankTable, environ: dict[str, str], host_name: str = "some-host") -> Node:
    """Return this node's place by the table and its variables."""
    return agreed(find_share(table, _context(environ, host_name)), table, find_node(environ)).node


@pytest.mark.parametrize("table", [TWO_PODS, TWO_SERVERS])
def test_node_of_a_smaller_table_is_found_by_its_name(table: RankTable) -> None:
    """With --min-nodes, a smaller table renumbers its nodes, so that --node-rank does not identify this one."""
    settings = Settings(nnodes=3, node_rank=1, min_nodes=2)
    environ = {"MA_CURRENT_INSTANCE_NAME": "job-worker-0", "MA_CURRENT_HOST_IP": "10.0.0.1"}
    share = find_share(table, _context(environ, settings=settings))
    node = agreed(share, table, find_node({}, settings.overrides)).node

    assert (0, 1) == share.rank_ids
    assert (0, 2, 1) == (node.node_rank, node.nnodes, node.missing)


# --- The user's own word ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("table", "server_id"), [(TWO_PODS, "10.0.0.2"), (TWO_SERVERS, "10.0.0.2")])
def test_flags_that_name_this_node_win(table: RankTable, server_id: str) -> None:
    """--nnodes with --node-rank decides which part of the table is this node's, whatever the names say."""
    environ = {"MA_CURRENT_HOST_IP": "10.0.0.1", "MA_CURRENT_INSTANCE_NAME": "job-worker-0"}
    share = find_share(table, _context(environ, settings=Settings(nnodes=2, node_rank=1)))

    assert (2, 3) == share.rank_ids
    assert server_id == share.server_id


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        (TWO_PODS, Settings(pod_name="job-worker-1")),
        (TWO_PODS, Settings(server_id="10.0.0.2")),
        (TWO_SERVERS, Settings(server_id="10.0.0.2")),
        (TWO_SERVERS, Settings(server_id="10.0.0.2", nnodes=2, node_rank=0)),
    ],
)
def test_names_that_the_user_gives_win(table: RankTable, settings: Settings) -> None:
    """--pod-name and --server-id decide, whatever the platform, the host name and a number say."""
    environ = {"MA_CURRENT_HOST_IP": "10.0.0.1", "MA_CURRENT_INSTANCE_NAME": "job-worker-0"}

    assert (2, 3) == find_share(table, _context(environ, "job-worker-0", settings=settings)).rank_ids


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        (TWO_SERVERS, Settings(nnodes=3, node_rank=1)),
        (TWO_SERVERS, Settings(server_id="10.0.0.3")),
        (TWO_SERVERS, Settings(pod_name="job-worker-1")),
        (TWO_PODS, Settings(pod_name="job-worker-3")),
        (TWO_PODS, Settings(server_id="10.0.0.3")),
        (_pods(("only", "10.0.0.1", [0])), Settings(pod_name="other")),
        (_pods(("one", "10.0.0.1", [0]), ("two", "10.0.0.1", [1])), Settings(server_id="10.0.0.1")),
    ],
)
def test_flags_that_do_not_fit_the_table(table: RankTable, settings: Settings) -> None:
    """Names that are not the table's are an error, also where only one node could be meant."""
    with pytest.raises(NodeNotFoundError):
        find_share(table, _context({}, "job-worker-0", list, settings))


def test_address_of_no_server() -> None:
    """A MA_CURRENT_HOST_IP that is in no row of the table is an error, even if the table has only one server."""
    table = _servers(("10.0.0.1", [0, 1]))

    with pytest.raises(NodeNotFoundError):
        find_share(table, _context({"MA_CURRENT_HOST_IP": "10.0.0.9"}, addresses=list))


# --- Lists of hosts ---------------------------------------------------------------------------------------------------

OPEN_MPI = "server1 slots=4\nserver2 slots=4\n"
MPICH = "server1:4\nserver2:4\n"
PYTORCH = {"MASTER_ADDR": "server1", "MASTER_PORT": "2222", "WORLD_SIZE": "2", "RANK": "1", "SLOTS": "4"}


def _on_host(host_name: str, engine: str, environ: dict[str, str], **files: str) -> Node:
    """Find the node of an engine, with host files by their paths, in which "_" stands for a slash."""
    by_path = {name.replace("_", "/"): text for name, text in files.items()}
    found = attrs.evolve(_context(environ, host_name, tuple), read_text=lambda path: by_path.get(path, ""))
    return ranks.find_node(found, engine)


@pytest.mark.parametrize(
    ("engine", "environ", "files"),
    [
        ("mpirun", {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"}, {"_etc_mpi_hostfile": OPEN_MPI}),
        ("mpirun", {"HYDRA_HOST_FILE": "/x", "HYDRA_IFACE": "eth0"}, {"_x": MPICH}),
        ("mpirun", {"VK_TASK_INDEX": "1"}, {"_etc_mpi_hostfile": OPEN_MPI}),
        ("deepspeed", PYTORCH, {"_job_hostfile": OPEN_MPI}),
        ("deepspeed", {}, {"_job_hostfile": OPEN_MPI, "_etc_mpi_hostfile": "other slots=1"}),
    ],
)
def test_documented_modes(engine: str, environ: dict[str, str], files: dict[str, str]) -> None:
    """In the task-training platform's modes for Horovod and DeepSpeed, its host file gives what no variable does."""
    node = _on_host("server2", engine, environ, **files)

    assert (1, 2, ("server1", "server2"), 4) == (node.node_rank, node.nnodes, node.hosts, node.devices_per_node)
    assert ("server1", "") == (node.master_addr, node.ambiguity)


@pytest.mark.parametrize(("environ", "node_rank"), [({}, 0), ({"VK_TASK_INDEX": "1"}, 1), ({"VC_TASK_INDEX": "7"}, 0)])
def test_node_that_is_not_listed(environ: dict[str, str], node_rank: int) -> None:
    """A node outside the list starts the engine, unless its task has an index above 0 that fits."""
    node = _on_host("elsewhere", "mpirun", environ, _etc_mpi_hostfile=OPEN_MPI)

    assert (node_rank, "") == (node.node_rank, node.ambiguity)


def test_host_files_are_the_engines() -> None:
    """Without such an engine, or with --nnodes 1, host files mean nothing."""
    alone = _context(settings=Settings(nnodes=1))
    alone = attrs.evolve(alone, read_text=lambda _: OPEN_MPI)

    assert () == _on_host("server2", "direct", {}, _etc_mpi_hostfile=OPEN_MPI).hosts
    assert () == ranks.find_node(alone, "mpirun").hosts


def test_variables_name_the_hosts_first() -> None:
    """A list in the variables counts more than a host file, which then gives the slots only."""
    environ = {"VC_TASK_INDEX": "1", "VC_WORKER_HOSTS": "a.job,b.job"}
    node = _on_host("b", "mpirun", environ, _etc_mpi_hostfile=OPEN_MPI)

    assert (("a.job", "b.job"), (4, 4), 1) == (node.hosts, node.slots, node.node_rank)


@pytest.mark.parametrize(("engine", "node_rank"), [("mpirun", 1), ("horovodrun", 1), ("direct", 0)])
def test_list_without_an_index(engine: str, node_rank: int) -> None:
    """An engine that starts all nodes from node 0 needs no number of this node beside the list of hosts."""
    node = _on_host("server2", engine, {"VC_WORKER_HOSTS": "server1.job,server2.job"})

    assert (node_rank, node_rank == 0) == (node.node_rank, bool(node.ambiguity))


def test_own_address_in_a_list() -> None:
    """A list of addresses names a node by an address of its own."""
    settings = Settings(hosts=(("10.0.0.1", 2), ("10.0.0.2", 2)))
    by_variable = _context({"POD_IP": "10.0.0.2"}, "pod", settings=settings)
    by_interface = _context({}, "10", lambda: ["10.0.0.2"], settings)

    assert [1, 1] == [ranks.find_node(found).node_rank for found in (by_variable, by_interface)]


def test_node_rank_in_a_list() -> None:
    """--node-rank says which host of --hosts a node is that the list does not name."""
    settings = Settings(hosts=(("a", 2), ("b", 2)), node_rank=1)
    node = ranks.find_node(_context(settings=settings))

    assert (1, 2, "a", "") == (node.node_rank, node.nnodes, node.master_addr, node.ambiguity)
