"""The differences between two tables."""

from __future__ import annotations

import json

import pytest

from ascend_runner.rank_table import codec
from ascend_runner.rank_table.compare import ABSENT, Difference, compare, compare_values
from tests.rank_table.rank_table_edits import GONE, edited
from tests.rank_table.rank_table_files import valid

PODS = "server_list_2_super_pods"


def _differences(first: bytes, second: bytes) -> list[Difference]:
    return list(compare(codec.loads(first), codec.loads(second)))


def _moved(path: str, *, key: str = "") -> bytes:
    """Return a fixture with a list turned around."""
    document = json.loads(valid(PODS))
    holder = document[path][0] if key else document
    holder[key or path].reverse()

    return json.dumps(document).encode()


def test_equal_tables() -> None:
    """A table does not differ from itself."""
    assert [] == _differences(valid(PODS), valid(PODS))


def test_value_of_a_rank() -> None:
    """Differences of a device carry its rank; ignored keys count too."""
    other = edited(PODS, **{"server_list[1].device[0].device_ip": "10.9.9.9", "server_list[1].device[1].note": "x"})

    assert [
        Difference("rank 2", "device_ip", "192.168.101.1", "10.9.9.9"),
        Difference("rank 3", "note", ABSENT, "x"),
    ] == _differences(valid(PODS), other)


def test_ranks_that_changed_places() -> None:
    """Two ranks on each other's device are two differences."""
    other = edited(PODS, **{"server_list[0].device[0].rank_id": "1", "server_list[0].device[1].rank_id": "0"})
    told = {(found.subject, found.path) for found in _differences(valid(PODS), other)}

    assert {("rank 0", "device_id"), ("rank 1", "device_id")} <= told
    assert ("server node-0", "device is in a different order: [0]") in told
    assert {"rank 0", "rank 1", "server node-0"} == {subject for subject, _ in told}


def test_ranks_that_only_one_has() -> None:
    """A rank that only one table has is reported with its place there."""
    document = json.loads(valid("server_list_8_devices"))
    document["server_list"][0]["device"].pop()
    shorter = json.dumps(document).encode()

    assert [
        Difference("the table", "rank_size", 8, 7),
        Difference("rank 7", "the entry", "device 7 on 10.0.0.1", ABSENT),
    ] == _differences(valid("server_list_8_devices"), shorter)


def test_servers_and_super_pods() -> None:
    """Differences in a server or a super-pod carry its name."""
    other = edited(PODS, **{"server_list[1].host_ip": "172.16.9.9", "super_pod_list[1].super_pod_id": "9"})

    members = {"server_list": [{"server_id": "node-2"}, {"server_id": "node-3"}]}
    assert [
        Difference("server node-1", "host_ip", "172.16.0.101", "172.16.9.9"),
        Difference("super-pod 1", "the entry", {"super_pod_id": "1", **members}, ABSENT),
        Difference("super-pod 9", "the entry", ABSENT, {"super_pod_id": "9", **members}),
    ] == _differences(valid(PODS), other)


def test_values_inside_of_a_rank() -> None:
    """Arrays and objects of a rank are gone into, to the value that differs."""
    address = "level_list[1].rank_addr_list[0]"
    other = edited("rank_list_2_servers", **{f"rank_list[2].{address}.addr": "172.16.9.9"})
    (found,) = _differences(valid("rank_list_2_servers"), other)

    assert ("rank 2", f"{address}.addr", "172.16.9.9") == (found.subject, found.path, found.second)


@pytest.mark.parametrize(
    ("path", "key", "expected"),
    [
        (
            "server_list",
            "",
            ("the table", "server_list is in a different order: [0]", "server node-0", "server node-3"),
        ),
        ("server_list", "device", ("server node-0", "device is in a different order: [0]", "rank 0", "rank 1")),
        (
            "super_pod_list",
            "",
            ("the table", "super_pod_list is in a different order: [0]", "super-pod 0", "super-pod 1"),
        ),
        ("super_pod_list", "server_list", ("super-pod 0", "server_list[0].server_id", "node-0", "node-1")),
    ],
)
def test_order_of_a_list(path: str, key: str, expected: tuple[str, str, str, str]) -> None:
    """A different order is reported by the first entry that differs, not entry by entry."""
    found = _differences(valid(PODS), _moved(path, key=key))

    assert Difference(*expected) == found[0]
    assert (1 if key != "server_list" else 2) == len(found)


def test_order_beside_other_differences() -> None:
    """The order of the common entries is reported where it starts to differ."""
    document = json.loads(_moved("server_list"))
    document["server_list"][0]["server_id"] = "node-9"
    found = _differences(valid(PODS), json.dumps(document).encode())

    order = Difference("the table", "server_list is in a different order: [0]", "server node-0", "server node-2")
    assert order == found[-1]


def test_keys_that_no_table_knows() -> None:
    """Keys that the model ignores count in HCCL's checksum, so their differences are reported."""
    name = "group_list_3_pods_listed_2_10_1"
    changes = {
        "group_list[0].note": 1,
        "group_list[0].instance_list[0].note": None,
        "group_list[0].instance_list[0].devices[1].tor_ip": "10.1.1.1",
        "note": {"a": [1]},
    }
    found = _differences(valid(name), edited(name, **changes))

    assert [
        ("the table", "note", {"a": [1]}),
        ("group worker", "note", 1),
        ("pod job-worker-2", "note", None),
        ("rank 3", "tor_ip", "10.1.1.1"),
    ] == [(one.subject, one.path, one.second) for one in found]


def test_entries_without_a_name() -> None:
    """Entries that have none, or share one, are compared by their places."""
    name = "lab_2_servers"
    (found,) = _differences(valid(name), edited(name, **{"group_list[0].instance_list[1].note": 1}))

    assert ("instance_list[1]", "note") == (found.subject.rpartition(", ")[2], found.path)


def test_list_that_only_one_has() -> None:
    """A list that is missing, empty or null is reported."""
    found = _differences(valid(PODS), edited(PODS, super_pod_list=GONE))

    assert ["super-pod 0", "super-pod 1"] == [one.subject for one in found]
    null = edited("group_list_8_devices", x_list=None)
    assert [Difference("the table", "x_list", ABSENT, None)] == _differences(valid("group_list_8_devices"), null)


def test_documents_that_say_the_same() -> None:
    """HCCL sees the order of lists and the type of a value, and not the order of keys."""
    first = {"a": [1, 2], "b": "1", "c": True, "d": 1}
    second = {"d": 1.0, "c": 1, "b": 1, "a": [2, 1]}

    assert [("a[0]", 1, 2), ("a[1]", 2, 1), ("b", "1", 1), ("c", True, 1), ("d", 1, 1.0)] == [
        (found.path, found.first, found.second) for found in compare_values("x", first, second)
    ]
    assert [] == list(compare_values("x", {"a": 1, "b": 2}, {"b": 2, "a": 1}))


def test_documents_of_other_lengths() -> None:
    """A longer array and a missing key are reported with their paths."""
    assert [("a[1]", ABSENT, 2), ("b.c", ABSENT, 3)] == [
        (found.path, found.first, found.second)
        for found in compare_values("x", {"a": [1], "b": {}}, {"a": [1, 2], "b": {"c": 3}})
    ]


def test_deep_documents() -> None:
    """Nesting does not bring the comparison down."""
    deep = json.loads("[" * 900 + "1" + "]" * 900)
    other = json.loads("[" * 900 + "2" + "]" * 900)

    assert ["[0]" * 900] == [found.path for found in compare_values("x", deep, other)]
