"""A rank table and a node's variables: what contradicts, and what the table decides."""

from __future__ import annotations

import pytest

from ascend_runner.platforms.agree import TableFacts, contradiction, with_table, without_table
from ascend_runner.platforms.find import find
from ascend_runner.platforms.node import Said
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


def test_agreement() -> None:
    """Variables and a table of the same job have nothing to say against each other."""
    assert "" == contradiction(find(MODELARTS), TABLE)


def test_nobody_says_anything() -> None:
    """What no variable told cannot contradict."""
    assert "" == contradiction(find({}), TABLE)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            TABLE._replace(nodes=3, server_ids=("a", "b", "c")),
            "MA_NUM_HOSTS says 2 nodes, but the rank table holds 3 pods",
        ),
        (
            TABLE._replace(devices=4),
            "MA_NUM_GPUS says 8 devices on each node, but the rank table gives 4 to this one, on server '192.168.0.26'",
        ),
        (
            TABLE._replace(server_id="192.168.0.25"),
            "MA_CURRENT_HOST_IP says 192.168.0.26, but the rank table has this node's devices on server '192.168.0.25'",
        ),
    ],
)
def test_contradiction(table: TableFacts, sentence: str) -> None:
    """Counts and the own address are compared, and the sentence names who said what."""
    assert sentence == contradiction(find(MODELARTS), table)


def test_node_rank_of_the_users() -> None:
    """A number that the user gave must be the table's; a platform's may differ after pods were placed anew."""
    table = TABLE._replace(position=0)

    assert "" == contradiction(find(MODELARTS), table)
    assert "--node-rank is 1, but in the rank table this node is number 0" == contradiction(
        find(MODELARTS, Said(node_rank=1)), table
    )


@pytest.mark.parametrize("server_id", ["5f9c-uid-of-a-pod", "172.16.0.26"])
def test_server_id_that_is_another_name(server_id: str) -> None:
    """MindCluster may write a pod's UID, and a node has more than one address."""
    table = TABLE._replace(server_id=server_id, server_ids=("192.168.0.25", server_id))

    assert "" == contradiction(find(MODELARTS), table)


def test_pods_on_one_server() -> None:
    """Who counts machines and who counts pods mean the same then."""
    variables = {**MODELARTS, "MA_NUM_HOSTS": "1", "VC_TASK_INDEX": "0"}
    table = TABLE._replace(server_ids=("192.168.0.26",))

    assert "" == contradiction(find(variables), table)


def test_ranks_meet_where_the_table_puts_rank_0() -> None:
    """The host of rank 0's pod counts, not the first of the platform's list."""
    node = with_table(find(MODELARTS), TABLE._replace(position=0, first_pod_name="ma-job-7c1d-worker-1"))

    assert (0, "ma-job-7c1d-worker-1.ma-job-7c1d") == (node.node_rank, node.master_addr)


def test_table_without_pods() -> None:
    """Without a pod's name the platform's first host counts, without hosts the server of rank 0."""
    table = TABLE._replace(first_pod_name="", unit="server")

    assert "ma-job-7c1d-worker-0.ma-job-7c1d" == with_table(find(MODELARTS), table).master_addr
    assert "192.168.0.25" == with_table(find({}), table).master_addr


@pytest.mark.parametrize("hosts", ["10.0.0.6,10.0.0.5", "10.0.0.5,10.0.0.6"])
def test_addresses_in_another_order(hosts: str) -> None:
    """Rank 0 is where the table says, on every node, however the platform lists the same addresses."""
    table = TABLE._replace(
        first_pod_name="", unit="server", server_ids=("10.0.0.5", "10.0.0.6"), first_address="10.0.0.5"
    )
    variables = {**MODELARTS, "VC_WORKER_HOSTS": hosts, "MA_CURRENT_HOST_IP": "10.0.0.6"}

    assert "10.0.0.5" == with_table(find(variables), table).master_addr


def test_one_node_meets_at_home() -> None:
    """On one node nobody needs a name for it."""
    assert "127.0.0.1" == with_table(find({}), TABLE._replace(nodes=1, position=0)).master_addr


def test_address_that_was_told_stays() -> None:
    """A flag or MASTER_ADDR beats the table."""
    assert "told" == with_table(find({"MASTER_ADDR": "told"}), TABLE).master_addr


def test_table_ends_doubt() -> None:
    """Where a table says who is who, variables without a second witness do not matter."""
    node = with_table(find({"WORLD_SIZE": "2", "RANK": "1"}), TABLE)

    assert ("", 1, 2) == (node.doubt, node.node_rank, node.nnodes)


def test_without_a_table() -> None:
    """Then a doubt is an error, and so is a node 0 that nobody can find."""
    assert "" == without_table(find(MODELARTS))
    assert "" == without_table(find({}))
    assert without_table(find({"WORLD_SIZE": "2", "RANK": "1"})).startswith("WORLD_SIZE is 2 and RANK is 1, but")
    assert (
        "there are 2 nodes (PMI_SIZE), but nothing says where node 0 is: expected --master-addr or MASTER_ADDR"
    ) == without_table(find({"PMI_SIZE": "2", "PMI_RANK": "1"}))
