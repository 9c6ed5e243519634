"""Which devices of a table are this node's: by every name that a platform gives a node, and never by a guess."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ascend_runner import rank_table
from ascend_runner.errors import NodeNotFoundError, RankTableError, SettingsError
from ascend_runner.job.this_node import Host, NodeShare, agreed, find_share, without_table
from ascend_runner.platforms.find import find
from ascend_runner.platforms.node import Said

if TYPE_CHECKING:
    from ascend_runner.platforms.node import Node
    from ascend_runner.rank_table import RankTable


def _no_addresses() -> list[str]:
    pytest.fail("the machine was asked for its addresses, which takes 20 ms, without need")


HOST = Host("some-host", _no_addresses)


def _device(number: int) -> dict[str, str]:
    return {"device_id": str(number), "device_ip": ""}


def _pods(*pods: tuple[str, str, list[int]]) -> RankTable:
    """Make a group-list table of pods: name, server and devices."""
    instances = [
        {"pod_name": name, "server_id": server_id, "devices": [_device(number) for number in device_ids]}
        for name, server_id, device_ids in pods
    ]
    document = {"status": "completed", "group_count": "1", "group_list": [{"instance_list": instances}]}
    return rank_table.loads(json.dumps(document).encode())


def _servers(*servers: tuple[str, list[int]], **addresses: tuple[str, ...]) -> RankTable:
    """Make a server-list table of servers: id and ranks; `addresses` are what other keys hold on each."""
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
    share = find_share(TWO_PODS, environ, Host(host_name, _no_addresses))

    assert NodeShare((2, 3), 4, server_id="10.0.0.2", pod_name="job-worker-1") == share


def test_ranks_follow_pod_numbers_and_not_the_list() -> None:
    """A node's share is global ranks: those of pod 2, listed before pod 1 and counted after it."""
    table = _pods(("a-2", "s2", [0, 1]), ("a-10", "s10", [0]), ("a-1", "s1", [0, 1, 2]))

    shares = {name: find_share(table, {}, Host(name, _no_addresses)).rank_ids for name in ("a-1", "a-2", "a-10")}
    assert {"a-1": (0, 1, 2), "a-2": (3, 4), "a-10": (5,)} == shares


def test_two_pods_on_one_server_start_their_own_devices_each() -> None:
    """The server is one, its ranks are shared out by pod, and each pod counts its own from local index 0."""
    table = _pods(("job-1", "10.0.0.1", [4, 5, 6, 7]), ("job-0", "10.0.0.1", [0, 1, 2, 3]))
    first, second = (find_share(table, {"MA_CURRENT_INSTANCE_NAME": name}, HOST) for name in ("job-0", "job-1"))

    assert (0, 1, 2, 3) == first.rank_ids
    assert (4, 5, 6, 7) == second.rank_ids
    assert 8 == first.rank_size == second.rank_size


def test_two_pods_on_one_server_meet_at_the_server() -> None:
    """Pods have networks of their own: 127.0.0.1 would be another place in each."""
    table = _pods(("job-0", "10.0.0.1", [0]), ("job-1", "10.0.0.1", [1]))
    nodes = [_node(table, {}, Host(name, _no_addresses)) for name in ("job-0", "job-1")]

    assert ["10.0.0.1", "10.0.0.1"] == [node.master_addr for node in nodes]


def test_only_pod_is_this_node_whatever_its_name() -> None:
    """With one instance there is nothing to mistake."""
    table = _pods(("npu8p", "10.0.0.1", [0, 1]))
    share = find_share(table, {"MA_CURRENT_INSTANCE_NAME": "other"}, HOST)

    assert NodeShare((0, 1), 2, server_id="10.0.0.1", pod_name="npu8p") == share


def test_only_pod_with_devices_is_not_taken_for_the_idle_one() -> None:
    """An instance without devices is an instance: two in all, so this node must be named."""
    table = _pods(("job-0", "10.0.0.1", [0, 1]), ("job-1", "10.0.0.2", []))

    with pytest.raises(NodeNotFoundError) as caught:
        find_share(table, {}, HOST)

    assert (
        "this node is not in the rank table: looked for a pod_name equal to 'some-host' (host name), the table holds"
        " 'job-0', 'job-1'" == str(caught.value)
    )


def test_idle_pod_has_nothing_to_start() -> None:
    """A pod that the table lists without devices is told so, and starts no other's."""
    table = _pods(("job-0", "10.0.0.1", [0, 1]), ("job-1", "10.0.0.2", []))

    with pytest.raises(NodeNotFoundError) as caught:
        find_share(table, {"MA_CURRENT_INSTANCE_NAME": "job-1"}, HOST)

    assert "this node has nothing to start: pod 'job-1' has no device in the rank table" == str(caught.value)


def test_unknown_pod_is_refused_with_all_that_was_looked_for() -> None:
    """The sentence names each name and where it came from, and the first pods of the table. Never a silent first."""
    table = _pods(*((f"job-{number}", f"10.0.0.{number}", [0]) for number in range(11)))
    environ = {"BATCH_TASK_CURRENT_INSTANCE": "x", "MA_CURRENT_INSTANCE_NAME": "y"}

    with pytest.raises(NodeNotFoundError) as caught:
        find_share(table, environ, HOST)

    assert (
        "this node is not in the rank table: looked for a pod_name equal to 'x' (BATCH_TASK_CURRENT_INSTANCE), 'y'"
        " (MA_CURRENT_INSTANCE_NAME), 'some-host' (host name), the table holds 'job-0', 'job-1', 'job-2', 'job-3',"
        " 'job-4', 'job-5', 'job-6', 'job-7' and 3 more" == str(caught.value)
    )
    assert caught.value.exit_status == 125


def test_pod_is_not_found_by_part_of_its_name() -> None:
    """job-1 is not job-10."""
    table = _pods(("job-10", "10.0.0.1", [0]), ("job-11", "10.0.0.2", [0]))

    with pytest.raises(NodeNotFoundError):
        find_share(table, {"MA_CURRENT_INSTANCE_NAME": "job-1"}, HOST)


# --- Tables with servers only -----------------------------------------------------------------------------------------


def test_only_server_is_this_node_whatever_its_name() -> None:
    """With one server there is nothing to mistake, and nobody is asked for addresses."""
    share = find_share(_servers(("10.0.0.9", [0, 1])), {"MA_CURRENT_HOST_IP": "1.2.3.4"}, HOST)

    assert NodeShare((0, 1), 2, server_id="10.0.0.9") == share


@pytest.mark.parametrize("variable", ["MA_CURRENT_HOST_IP", "MA_CURRENT_IP", "HOST_IP", "POD_IP", "XDL_IP"])
def test_own_server_is_found_by_each_variable(variable: str) -> None:
    """Each of these variables may carry this node's server_id."""
    share = find_share(TWO_SERVERS, {variable: "10.0.0.2"}, HOST)

    assert NodeShare((2, 3), 4, server_id="10.0.0.2") == share


def test_variables_are_asked_in_order() -> None:
    """The host's address comes before the container's; one that names no server is passed over."""
    environ = {"POD_IP": "10.0.0.1", "HOST_IP": "10.0.0.2", "MA_CURRENT_HOST_IP": "172.16.0.1"}

    assert "10.0.0.2" == find_share(TWO_SERVERS, environ, HOST).server_id


def test_own_server_is_found_by_own_address() -> None:
    """Where no variable names a server, the machine's own addresses do, IPv6 ones too."""
    table = _servers(("10.0.0.1", [0]), ("fd00::2", [1]))
    host = Host("some-host", lambda: ["127.0.0.1", "fd00::2"])

    assert (1,) == find_share(table, {"HOST_IP": "172.16.0.1"}, host).rank_ids


def test_own_server_is_found_by_host_name() -> None:
    """A server_id may be a host name."""
    table = _servers(("node-a", [0]), ("node-b", [1]))

    assert (1,) == find_share(table, {}, Host("node-b", lambda: ["127.0.0.1"])).rank_ids


def test_unknown_server_is_refused_with_all_that_was_looked_for() -> None:
    """The sentence names every address and name tried, the table's servers, and the variable that helps."""
    with pytest.raises(NodeNotFoundError) as caught:
        find_share(TWO_SERVERS, {"HOST_IP": "172.16.0.1"}, Host("some-host", lambda: ["127.0.0.1", "::1"]))

    assert (
        "this node is not in the rank table: looked for a server_id equal to '172.16.0.1' (HOST_IP), '127.0.0.1 ::1'"
        " (own address), 'some-host' (host name), the table holds '10.0.0.1', '10.0.0.2'; MA_CURRENT_HOST_IP can name"
        " this node's server_id" == str(caught.value)
    )


def test_address_is_not_found_by_its_beginning() -> None:
    """10.0.0.1 is not 10.0.0.10."""
    table = _servers(("10.0.0.10", [0]), ("10.0.0.11", [1]))

    with pytest.raises(NodeNotFoundError):
        find_share(table, {"HOST_IP": "10.0.0.1"}, Host("some-host", list))


def test_ranks_of_a_server_are_what_the_table_says() -> None:
    """The order of lists is not that of ranks: local indices follow the ranks."""
    table = _servers(("10.0.0.1", [3, 2]), ("10.0.0.2", [1, 0]))
    share = find_share(table, {"HOST_IP": "10.0.0.1"}, HOST)

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
    """An address that only one server has is as good as its server_id."""
    assert server_id == find_share(UIDS, environ, HOST).server_id


def test_server_with_a_uid_is_found_by_the_machines_own_address() -> None:
    """No variable is needed where the table has the pod's address."""
    assert "uid-b" == find_share(UIDS, {}, Host("some-pod", lambda: ["172.16.0.2"])).server_id


def test_address_of_two_servers_is_no_guess() -> None:
    """Two pods on one machine share its address, which names neither."""
    with pytest.raises(NodeNotFoundError):
        find_share(UIDS, {"XDL_IP": "10.0.0.1"}, Host("some-pod", list))


def test_server_id_comes_before_other_addresses() -> None:
    """Where one server's id is another's address, the id counts."""
    table = _servers(("10.0.0.1", [0]), ("10.0.0.2", [1]), host_ip=("10.0.0.2", "10.0.0.1"))

    assert "10.0.0.2" == find_share(table, {"HOST_IP": "10.0.0.2"}, HOST).server_id


def test_ranks_meet_at_an_address() -> None:
    """No node can reach a UID: the pod's own address is the one that its processes have."""
    assert "172.16.0.1" == _node(UIDS, {"POD_IP": "172.16.0.3"}).master_addr


def test_server_without_devices_has_nothing_to_start() -> None:
    """A server that the table lists without devices is told so."""
    with pytest.raises(NodeNotFoundError) as caught:
        find_share(_servers(("10.0.0.1", [0]), ("10.0.0.2", [])), {"HOST_IP": "10.0.0.2"}, HOST)

    assert "this node has nothing to start: server '10.0.0.2' has no device in the rank table" == str(caught.value)


# --- No table -------------------------------------------------------------------------------------------------------


def test_without_table_ranks_are_those_of_this_machine() -> None:
    """N ranks, 0 to N - 1, that meet at 127.0.0.1."""
    node = find({})

    assert NodeShare((0, 1, 2), 3, server_id="some-host", node=node) == without_table(3, node, HOST)
    assert "127.0.0.1" == node.master_addr


def test_without_table_ranks_are_numbered_by_nodes() -> None:
    """Every node has as many ranks, in the order of the nodes."""
    node = find({}, Said(nnodes=3, node_rank=2, master_addr="a"))
    share = without_table(2, node, HOST)

    assert ((4, 5), 6) == (share.rank_ids, share.rank_size)


def test_without_table_a_doubt_is_an_error() -> None:
    """Each node of a job would take itself for the only one."""
    node = find({"RANK": "1", "WORLD_SIZE": "2"})

    with pytest.raises(SettingsError) as caught:
        without_table(2, node, HOST)

    assert node.doubt == str(caught.value)


def test_without_table_and_without_address() -> None:
    """Ranks of several nodes cannot meet at an address that nobody knows."""
    with pytest.raises(SettingsError) as caught:
        without_table(2, find({"PMI_SIZE": "2", "PMI_RANK": "1"}), HOST)

    assert (
        "there are 2 nodes (PMI_SIZE), but nothing says where node 0 is: expected --master-addr or MASTER_ADDR"
        == str(caught.value)
    )


# --- The node's place by the table -----------------------------------------------------------------------------------


def test_place_is_that_of_the_ranks() -> None:
    """Nodes are counted in the order of their ranks, whatever number the platform gives them."""
    table = _pods(("job-1", "10.0.0.2", [0]), ("job-0", "10.0.0.1", [0]), ("job-2", "10.0.0.3", []))
    environ = {"MA_VJ_NAME": "job", "MA_NUM_HOSTS": "3", "VC_TASK_INDEX": "0"}
    node = _node(table, environ, Host("job-1", _no_addresses))

    assert (1, 3, "10.0.0.1") == (node.node_rank, node.nnodes, node.master_addr)


def test_place_among_servers() -> None:
    """Without pods the servers are the nodes, and those without devices count."""
    table = _servers(("10.0.0.3", []), ("10.0.0.2", [2, 3]), ("10.0.0.1", [0, 1]))
    node = _node(table, {"HOST_IP": "10.0.0.2"})

    assert (1, 3, "10.0.0.1") == (node.node_rank, node.nnodes, node.master_addr)


def test_ranks_meet_at_the_host_of_the_first_pod() -> None:
    """Volcano's list names rank 0's host in a way that pods can resolve; it beats the table's server_id."""
    hosts = {"MA_NUM_HOSTS": "2", "VC_TASK_INDEX": "1", "VC_WORKER_HOSTS": "job-worker-0.job,job-worker-1.job"}
    node = _node(TWO_PODS, hosts, Host("job-worker-1", _no_addresses))

    assert "job-worker-0.job" == node.master_addr


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"MA_NUM_HOSTS": "3"}, "MA_NUM_HOSTS says 3 nodes, but the rank table holds 2 pods"),
        (
            {"MA_NUM_HOSTS": "2", "MA_NUM_GPUS": "8"},
            "MA_NUM_GPUS says 8 devices on each node, but the rank table gives 2 to this one, on server '10.0.0.2'",
        ),
        (
            {"MA_NUM_HOSTS": "2", "MA_CURRENT_HOST_IP": "10.0.0.1"},
            "MA_CURRENT_HOST_IP says 10.0.0.1, but the rank table has this node's devices on server '10.0.0.2'",
        ),
    ],
)
def test_contradiction_is_an_error(environ: dict[str, str], sentence: str) -> None:
    """Counts and addresses that differ are not guessed about."""
    with pytest.raises(RankTableError) as caught:
        _node(TWO_PODS, {"MA_VJ_NAME": "job", **environ}, Host("job-worker-1", _no_addresses))

    assert sentence == str(caught.value)


def _node(table: RankTable, environ: dict[str, str], host: Host = HOST) -> Node:
    """Give this node's place, by the table and its variables."""
    return agreed(find_share(table, environ, host), table, find(environ)).node
