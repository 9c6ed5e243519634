"""The places of a rank table, contradictions between it and a node's variables, and the facts that it decides."""

from __future__ import annotations

import os

import attrs
import pytest

from ascend_runner.errors import RankTableError, SettingsError
from ascend_runner.platforms.detect import find_node
from ascend_runner.platforms.node import Overrides
from ascend_runner.platforms.places import (
    USUAL_PLACES,
    TableFacts,
    announced_table,
    contradiction,
    find_table,
    problem_without_table,
    with_table,
)
from tests.platforms import platform_cases

MODELARTS = platform_cases.load("modelarts").variables
TABLE = TableFacts(
    unit="pod",
    nodes=2,
    position=1,
    devices=8,
    server_id="192.168.0.26",
    server_ids=("192.168.0.25", "192.168.0.26"),
    first_address="192.168.0.25",
    first_pod_name="ma-job-7c1d-worker-0",
)
BOTH = {"RANK_TABLE_FILE_V_1_0": "/v1", "RANK_TABLE_FILE": "/v0"}


def test_order_of_the_places() -> None:
    """The user's choice wins, then RANK_TABLE_FILE_V_1_0, RANK_TABLE_FILE, and the directories of known platforms."""
    folders = {os.path.dirname(place) for place in USUAL_PLACES}

    assert "here" == find_table("here", BOTH, folders.__contains__)
    assert "/v1" == find_table(None, BOTH, folders.__contains__)
    assert "/v0" == announced_table({"RANK_TABLE_FILE_V_1_0": "", "RANK_TABLE_FILE": "/v0"}, folders.__contains__)
    assert USUAL_PLACES[0] == announced_table({}, folders.__contains__)
    assert USUAL_PLACES[1] == announced_table({}, os.path.dirname(USUAL_PLACES[1]).__eq__)


def test_no_table_is_announced() -> None:
    """Without a variable and a platform's directory there is no rank table."""
    assert "" == announced_table({}, lambda _: False)
    with pytest.raises(RankTableError):
        find_table(None, {}, lambda _: False)


def test_agreement() -> None:
    """Variables and table of the same job do not contradict each other."""
    assert "" == contradiction(find_node(MODELARTS), TABLE)


def test_nobody_says_anything() -> None:
    """A fact without a variable cannot contradict the table."""
    assert "" == contradiction(find_node({}), TABLE)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            attrs.evolve(TABLE, nodes=3, server_ids=("a", "b", "c")),
            "MA_NUM_HOSTS is 2, but the rank table has 3 pods; if the table is right, use --nnodes 3",
        ),
        (
            attrs.evolve(TABLE, devices=4),
            "MA_NUM_GPUS is 8, but the rank table has 4 devices for this node (server '192.168.0.26')",
        ),
        (
            attrs.evolve(TABLE, server_id="192.168.0.25"),
            "MA_CURRENT_HOST_IP is 192.168.0.26, but the rank table has this node's devices on server '192.168.0.25'",
        ),
    ],
)
def test_contradiction(table: TableFacts, sentence: str) -> None:
    """Counts and the node's address are compared with the table, and the sentence names the variable."""
    assert sentence == contradiction(find_node(MODELARTS), table)


@pytest.mark.parametrize(
    ("nodes", "min_nodes", "expected"),
    [
        (3, 3, ""),
        (4, 2, ""),
        (3, None, "--min-nodes 3 if the job may start on fewer nodes"),
        (2, 3, "--min-nodes is 3, but the rank table has 2 servers"),
        (5, 3, "--nnodes is 4, but the rank table has 5 servers; if the table is right, use --nnodes 5"),
    ],
)
def test_number_of_nodes(nodes: int, min_nodes: int | None, expected: str) -> None:
    """A smaller table is accepted down to --min-nodes, and refused with the way out otherwise; a larger one always."""
    node = find_node({}, Overrides(nnodes=4, node_rank=3, min_nodes=min_nodes))
    ids = tuple(map(str, range(nodes)))
    table = attrs.evolve(TABLE, unit="server", nodes=nodes, position=nodes - 1, server_ids=ids, server_id=ids[-1])

    assert contradiction(node, table).endswith(expected)
    assert bool(expected) is bool(contradiction(node, table))


def test_smaller_table() -> None:
    """The table renumbers the nodes and ranks that take part; the platform's first host may not be among them."""
    environ = {"VC_TASK_INDEX": "2", "VC_WORKER_HOSTS": "job-0.job,job-1.job,job-2.job"}
    table = attrs.evolve(TABLE, server_ids=("a", "b"), first_address="10.0.0.9", first_pod_name="job-1")
    for first_pod_name, master in (("job-1", "job-1.job"), ("", "10.0.0.9")):
        node = find_node(environ, Overrides(min_nodes=1))
        node = with_table(node, attrs.evolve(table, first_pod_name=first_pod_name))

        assert (1, 2, 1, master) == (node.node_rank, node.nnodes, node.missing, node.master_addr)
        assert 2 == node.file_number


def test_single_node_of_several_keeps_its_number() -> None:
    """The files of a node are called the same, however many others take part."""
    node = find_node({}, Overrides(nnodes=3, node_rank=2, min_nodes=1))
    table = attrs.evolve(TABLE, nodes=1, position=0, server_ids=("a",), first_pod_name="")

    assert (2, 2, "127.0.0.1") == (
        node.file_number,
        with_table(node, table).file_number,
        with_table(node, table).master_addr,
    )


@pytest.mark.parametrize("environ", [{}, MODELARTS])
def test_least_number_of_nodes_above_their_number(environ: dict[str, str]) -> None:
    """--min-nodes must not exceed the number of nodes, whoever gives it."""
    overrides = Overrides(min_nodes=9) if environ else Overrides(nnodes=2, node_rank=0, min_nodes=9)
    with pytest.raises(SettingsError, match=r"^--min-nodes is 9, but the number of nodes is 2 "):
        find_node(environ, overrides)


def test_node_rank_of_the_users() -> None:
    """--node-rank must match the table; a platform's rank may differ after pods were rescheduled."""
    table = attrs.evolve(TABLE, position=0)

    assert "" == contradiction(find_node(MODELARTS), table)
    assert "--node-rank is 1, but the rank table gives this node rank 0" == contradiction(
        find_node(MODELARTS, Overrides(node_rank=1)), table
    )


@pytest.mark.parametrize("server_id", ["5f9c-uid-of-a-pod", "172.16.0.26"])
def test_server_id_that_is_another_name(server_id: str) -> None:
    """A server_id may be a pod's UID or another address of the node."""
    table = attrs.evolve(TABLE, server_id=server_id, server_ids=("192.168.0.25", server_id))

    assert "" == contradiction(find_node(MODELARTS), table)


def test_pods_on_one_server() -> None:
    """A variable may count machines while the table counts pods."""
    variables = {**MODELARTS, "MA_NUM_HOSTS": "1", "VC_TASK_INDEX": "0"}
    table = attrs.evolve(TABLE, server_ids=("192.168.0.26",))

    assert "" == contradiction(find_node(variables), table)


def test_ranks_meet_where_the_table_puts_rank_0() -> None:
    """The host of rank 0's pod counts, not the first of the platform's list."""
    node = with_table(find_node(MODELARTS), attrs.evolve(TABLE, position=0, first_pod_name="ma-job-7c1d-worker-1"))

    assert (0, "ma-job-7c1d-worker-1.ma-job-7c1d") == (node.node_rank, node.master_addr)


def test_table_without_pods() -> None:
    """Without a pod's name the platform's first host counts, without hosts the server of rank 0."""
    table = attrs.evolve(TABLE, first_pod_name="", unit="server")

    assert "ma-job-7c1d-worker-0.ma-job-7c1d" == with_table(find_node(MODELARTS), table).master_addr
    assert "192.168.0.25" == with_table(find_node({}), table).master_addr


@pytest.mark.parametrize("hosts", ["10.0.0.6,10.0.0.5", "10.0.0.5,10.0.0.6"])
def test_addresses_in_another_order(hosts: str) -> None:
    """The table's rank 0 counts on every node, in whatever order the platform lists the same addresses."""
    table = attrs.evolve(
        TABLE, first_pod_name="", unit="server", server_ids=("10.0.0.5", "10.0.0.6"), first_address="10.0.0.5"
    )
    variables = {**MODELARTS, "VC_WORKER_HOSTS": hosts, "MA_CURRENT_HOST_IP": "10.0.0.6"}

    assert "10.0.0.5" == with_table(find_node(variables), table).master_addr


def test_one_node_meets_at_home() -> None:
    """On one node the ranks meet at localhost."""
    assert "127.0.0.1" == with_table(find_node({}), attrs.evolve(TABLE, nodes=1, position=0)).master_addr


def test_address_that_was_told_stays() -> None:
    """An option or MASTER_ADDR overrides the table."""
    assert "told" == with_table(find_node({"MASTER_ADDR": "told"}), TABLE).master_addr


def test_table_resolves_an_ambiguity() -> None:
    """A table resolves an ambiguity."""
    node = with_table(find_node({"WORLD_SIZE": "2", "RANK": "1"}), TABLE)

    assert ("", 1, 2) == (node.ambiguity, node.node_rank, node.nnodes)


def test_without_a_table() -> None:
    """Without a table an ambiguity is an error, and so is an unknown address of node 0."""
    assert "" == problem_without_table(find_node(MODELARTS))
    assert "" == problem_without_table(find_node({}))
    ambiguous = find_node({"WORLD_SIZE": "2", "RANK": "1"})
    assert ambiguous.ambiguity == problem_without_table(ambiguous)
    assert (
        "cannot tell the address of node 0 of 2 nodes (PMI_SIZE): set --master-addr or MASTER_ADDR"
        == problem_without_table(find_node({"PMI_SIZE": "2", "PMI_RANK": "1"}))
    )
