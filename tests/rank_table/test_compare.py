"""What differs between two tables."""

from __future__ import annotations

import json

from ascend_runner.rank_table import codec
from ascend_runner.rank_table.compare import Difference, compare_documents, compare_tables
from tests.rank_table.rank_table_edits import edited
from tests.rank_table.rank_table_files import valid

PODS = "server_list_2_super_pods"


def _differences(first: bytes, second: bytes) -> list[Difference]:
    return list(compare_tables(codec.loads(first), codec.loads(second)))


def test_equal_tables() -> None:
    """A table does not differ from itself."""
    assert [] == _differences(valid(PODS), valid(PODS))


def test_value_of_a_rank() -> None:
    """What a device states differently is told by its rank, ignored keys too."""
    other = edited(PODS, **{"server_list[1].device[0].device_ip": "10.9.9.9", "server_list[1].device[1].note": "x"})

    assert [
        Difference("rank 2", "device_ip", "192.168.101.1", "10.9.9.9"),
        Difference("rank 3", "note", None, "x"),
    ] == _differences(valid(PODS), other)


def test_ranks_that_changed_places() -> None:
    """Two ranks on each other's device are two differences."""
    other = edited(PODS, **{"server_list[0].device[0].rank_id": "1", "server_list[0].device[1].rank_id": "0"})
    told = {(found.about, found.what) for found in _differences(valid(PODS), other)}

    assert {("rank 0", "device_id"), ("rank 1", "device_id")} <= told
    assert {"rank 0", "rank 1"} == {about for about, _ in told}


def test_ranks_that_only_one_has() -> None:
    """A rank that is missing from a table is told with its place in the other."""
    document = json.loads(valid("server_list_8_devices"))
    document["server_list"][0]["device"].pop()
    shorter = json.dumps(document).encode()

    assert [
        Difference("the table", "rank_size", 8, 7),
        Difference("rank 7", "device", "7 on 10.0.0.1", None),
    ] == _differences(valid("server_list_8_devices"), shorter)


def test_servers_and_super_pods() -> None:
    """Keys of a server and members of a super-pod are told by name."""
    other = edited(PODS, **{"server_list[1].host_ip": "172.16.9.9", "super_pod_list[1].super_pod_id": "9"})

    assert [
        Difference("the super-pods", "1", ["node-2", "node-3"], None),
        Difference("the super-pods", "9", None, ["node-2", "node-3"]),
        Difference("server node-1", "host_ip", "172.16.0.101", "172.16.9.9"),
    ] == _differences(valid(PODS), other)


def test_documents_that_say_the_same() -> None:
    """HCCL sees the order of lists and the type of a value, and not the order of keys."""
    first = {"a": [1, 2], "b": "1", "c": True, "d": 1}
    second = {"d": 1.0, "c": 1, "b": 1, "a": [2, 1]}

    assert [("a[0]", 1, 2), ("a[1]", 2, 1), ("b", "1", 1), ("c", True, 1), ("d", 1, 1.0)] == [
        (found.what, found.first, found.second) for found in compare_documents(first, second)
    ]
    assert [] == list(compare_documents({"a": 1, "b": 2}, {"b": 2, "a": 1}))


def test_documents_of_other_lengths() -> None:
    """An array that is longer, and a key that is missing, are told where they are."""
    assert [("a", [1], [1, 2]), ("b.c", None, 3)] == [
        (found.what, found.first, found.second)
        for found in compare_documents({"a": [1], "b": {}}, {"a": [1, 2], "b": {"c": 3}})
    ]


def test_deep_documents() -> None:
    """Nesting does not bring the comparison down."""
    deep = json.loads("[" * 900 + "1" + "]" * 900)
    other = json.loads("[" * 900 + "2" + "]" * 900)

    assert ["[0]" * 900] == [found.what for found in compare_documents(deep, other)]
