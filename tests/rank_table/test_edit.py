"""Merging tables, and taking subsets of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.errors import RankTableError
from ascend_runner.rank_table import checks, codec
from ascend_runner.rank_table.edit import merge, subset
from ascend_runner.rank_table.model import Device, RankTable, Server
from tests.rank_table.rank_table_files import valid
from tests.rank_table.rank_table_strategies import patient, server_list_tables

PODS = codec.loads(valid("server_list_2_super_pods"), source="pods.json")
RANKS = codec.loads(valid("rank_list_2_servers"), source="ranks.json")
TURNED = codec.loads(valid("server_list_ranks_do_not_rise"), source="turned.json")


def _table(server_id: str, size: int) -> RankTable:
    devices = tuple(Device(device_id=index, rank_id=index) for index in range(size))
    return RankTable(servers=(Server(server_id=server_id, devices=devices),), source=f"{server_id}.json")


def _ranks(table: RankTable) -> list[tuple[str, list[int], list[int]]]:
    return [
        (
            server.server_id,
            [device.device_id for device in server.devices],
            [device.rank_id for device in server.devices],
        )
        for server in table.servers
    ]


def test_merge_numbers_in_the_order_given() -> None:
    """The ranks of each table follow those of the previous one, in the order that they had."""
    merged = merge([_table("b", 2), TURNED, _table("a", 1)])

    assert [
        ("b", [0, 1], [0, 1]),
        ("10.0.0.2", [0, 1], [4, 5]),
        ("10.0.0.1", [0, 1], [2, 3]),
        ("a", [0], [6]),
    ] == _ranks(merged)


def test_merge_of_group_lists_is_a_server_list() -> None:
    """Merged group lists give a sound server list."""
    merged = merge([codec.loads(valid("group_list_8_devices")), _table("b", 8)])

    assert "1.0" == merged.version
    assert merged == codec.loads(codec.dumps(merged))


def test_merge_joins_super_pods() -> None:
    """Parts of one super-pod become one again."""
    halves = [subset(PODS, server_ids=ids) for ids in (["node-0", "node-2"], ["node-1", "node-3"])]

    assert {"0": {"node-0", "node-1"}, "1": {"node-2", "node-3"}} == {
        pod.super_pod_id: set(pod.server_ids) for pod in merge(halves).super_pods
    }


def test_merge_of_a_server_that_is_in_two_tables() -> None:
    """A server that is in two tables is an error."""
    with pytest.raises(RankTableError) as caught:
        merge([_table("a", 1), TURNED, _table("10.0.0.2", 1)])

    assert "cannot merge tables: server '10.0.0.2' is in both turned.json and 10.0.0.2.json" == str(caught.value)


def test_merge_of_a_table_with_itself() -> None:
    """Merging a table with itself is an error that names the table twice."""
    with pytest.raises(RankTableError, match=r"server '10\.0\.0\.2' is in both turned\.json and turned\.json$"):
        merge([TURNED, TURNED])


def test_merge_of_different_versions() -> None:
    """Tables of different versions cannot be merged."""
    with pytest.raises(RankTableError) as caught:
        merge([_table("a", 1), PODS])

    assert "cannot merge tables of different versions: version '1.2' of pods.json and version '1.0' of a.json" == str(
        caught.value
    )


def test_merge_of_nothing() -> None:
    """Merging no tables is an error."""
    with pytest.raises(RankTableError, match=r"^no tables to merge$"):
        merge([])


def test_subset_of_servers() -> None:
    """Ranks are renumbered in their order in the table, not in that of the argument."""
    assert [("10.0.0.2", [0, 1], [0, 1])] == _ranks(subset(TURNED, server_ids=["10.0.0.2"]))
    assert [("10.0.0.2", [0, 1], [2, 3]), ("10.0.0.1", [0, 1], [0, 1])] == _ranks(
        subset(TURNED, server_ids=["10.0.0.1", "10.0.0.2"])
    )


def test_subset_of_devices() -> None:
    """Devices are selected by their physical ids, on every server."""
    assert [("10.0.0.2", [1], [1]), ("10.0.0.1", [1], [0])] == _ranks(subset(TURNED, device_ids={1}))


def test_subset_of_super_pods() -> None:
    """Super-pods keep their remaining servers, and HCCL accepts the table."""
    part = subset(PODS, server_ids=["node-1"], device_ids={1})

    assert [("0", ("node-1",))] == [(pod.super_pod_id, pod.server_ids) for pod in part.super_pods]
    assert part == codec.loads(codec.dumps(part))
    assert () == checks.check(part)


def test_subset_of_a_rank_list() -> None:
    """A subset of a rank list is a rank list with its levels."""
    part = subset(RANKS, server_ids=["az0-rack0-pod1"])

    assert part == codec.loads(codec.dumps(part))
    assert [(0, 0), (1, 1)] == [(device.rank_id, device.extra_keys["local_id"]) for device in part.devices]


def test_subset_of_unknown_names() -> None:
    """An unknown server or device is reported with the known ones."""
    with pytest.raises(RankTableError) as caught:
        subset(TURNED, server_ids=["10.0.0.1", "x"])
    assert "server 'x' is not in turned.json, which has 10.0.0.1, 10.0.0.2" == str(caught.value)

    with pytest.raises(RankTableError) as caught:
        subset(TURNED, device_ids={1, 7})
    assert "server '10.0.0.2' of turned.json has no device 7, only 0, 1" == str(caught.value)


@patient
@given(server_list_tables(), st.data())
def test_subsets_merge_into_the_whole(table: RankTable, data: st.DataObject) -> None:
    """Merging two complementary subsets gives every server and device of the table."""
    chosen = data.draw(st.sets(st.sampled_from([server.server_id for server in table.servers] or [""])))
    first = [server.server_id for server in table.servers if server.server_id in chosen]
    second = [server.server_id for server in table.servers if server.server_id not in chosen]
    merged = merge([subset(table, server_ids=first), subset(table, server_ids=second)])

    assert {(s.server_id, d.device_id) for s in table.servers for d in s.devices} == {
        (s.server_id, d.device_id) for s in merged.servers for d in s.devices
    }
