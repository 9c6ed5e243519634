"""The group-list dialect: the order of ranks."""

from __future__ import annotations

import attrs
import orjson
import pytest
from hypothesis import given

from ascend_runner.errors import RankTableError
from ascend_runner.rank_table import codec
from ascend_runner.rank_table.fields import Document, Fields
from ascend_runner.rank_table.group_list import decode
from ascend_runner.rank_table.model import RankTable
from tests.rank_table.rank_table_edits import GONE, edited
from tests.rank_table.rank_table_files import valid
from tests.rank_table.rank_table_strategies import group_list_documents, patient


def _decode(*groups: tuple[str, ...]) -> RankTable:
    """Read a table of pods with one device each, on a server of their own."""
    document: dict[str, object] = {
        "group_list": [
            {
                "instance_list": [
                    {"pod_name": pod, "server_id": f"at-{pod}", "devices": [{"device_id": "0"}]} for pod in group
                ]
            }
            for group in groups
        ]
    }
    top = Fields(Document("a.json"), document)
    table = decode(top)

    assert () == top.document.errors
    return attrs.evolve(table, notes=top.document.warnings)


def _order(table: RankTable) -> list[str]:
    return [device.pod_name for device in table.devices]


@pytest.mark.parametrize(
    ("listed", "ordered"),
    [
        (("j-2", "j-10", "j-1"), ["j-1", "j-2", "j-10"]),
        (("1", "0"), ["0", "1"]),
        (("npu8p", "cloud0", "tf-bae41"), ["npu8p", "cloud0", "tf-bae41"]),
        (("j-1", "x", "j-0"), ["j-0", "x", "j-1"]),
        (("x", "j-1", "j-0"), ["x", "j-0", "j-1"]),
        (("m-0", "w-1", "w-0"), ["m-0", "w-0", "w-1"]),
        (("w-0", "m-0"), ["w-0", "m-0"]),
        (("j-٣", "j-²", "j-"), ["j-٣", "j-²", "j-"]),
        (("j-" + "9" * 18, "j-007"), ["j-007", "j-" + "9" * 18]),
    ],
)
def test_order_of_instances(listed: tuple[str, ...], ordered: list[str]) -> None:
    """Instances are ordered by the numbers of their names; those without a number keep their position."""
    assert ordered == _order(_decode(listed))


def test_each_group_is_ordered_by_itself() -> None:
    """Groups keep their order, and instances are ordered within each group."""
    assert ["b-0", "b-1", "a-0", "a-1"] == _order(_decode(("b-1", "b-0"), ("a-1", "a-0")))


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        (("j-0", "npu8p"), "have no number at the end ('npu8p')"),
        (("a", "b", "c"), "have no number at the end ('a', 'b', 'c')"),
        (("m-0", "w-0", "w-1"), "have the same number at the end ('m-0', 'w-0')"),
    ],
)
def test_warnings_where_the_list_decides(listed: tuple[str, ...], told: str) -> None:
    """A warning lists the pods whose names do not determine the order."""
    (note,) = _decode(listed).notes

    assert f"pod names {told}, so ranks follow the order of the list" == note.sentence
    assert "group_list[0].instance_list" == note.path


@pytest.mark.parametrize("listed", [("j-0", "j-1"), ("1", "0"), ("npu8p",)])
def test_no_warning_where_names_settle_the_order(listed: tuple[str, ...]) -> None:
    """There is no warning if all numbers differ, or if there is only one instance."""
    assert () == _decode(listed).warnings


def test_device_ids_stay_physical() -> None:
    """A device_id is the physical id of the document, not an index."""
    table = codec.loads(valid("group_list_1_device"))

    assert [(4, "192.168.101.5", 0)] == [(d.device_id, d.device_ip, d.rank_id) for d in table.devices]


def test_pods_of_one_server_are_one_server() -> None:
    """Two pods with one server_id share a server, and each keeps its devices."""
    table = codec.loads(valid("group_list_2_pods_on_1_server"))

    assert ["10.0.0.1"] == [server.server_id for server in table.servers]
    assert ("job-worker-0", "job-worker-1") == table.servers[0].pod_names
    assert [4, 5, 6, 7] == [device.device_id for device in table.servers[0].devices_of("job-worker-1")]


def test_groups_and_instances_without_devices() -> None:
    """Instances without devices get no rank; their pods are listed as idle."""
    table = codec.loads(valid("group_list_3_groups"))

    assert ["job-chief-0", "job-chief-1", "job-worker-0", "job-worker-1"] == _order(table)
    assert ("job-worker-2",) == table.idle_pods


def test_table_without_any_device() -> None:
    """A group list without devices is an empty table."""
    table = codec.loads(valid("group_list_without_devices"))

    assert 0 == table.rank_size
    assert () == table.servers
    assert ("job-worker-0",) == table.idle_pods


@pytest.mark.parametrize("name", ["group_list_integers", "group_list_without_counts"])
def test_numbers_and_missing_counts(name: str) -> None:
    """Ids may be JSON numbers, and counts may be missing."""
    table = codec.loads(valid(name))

    assert [(0, 0), (1, 1)] == [(device.device_id, device.rank_id) for device in table.devices]


def _again(table: RankTable) -> RankTable:
    return codec.loads(codec.dumps_group_list(table))


def _said(table: RankTable) -> list[tuple[int, int, str, str]]:
    return [
        (device.rank_id, device.device_id, device.device_ip, server.server_id)
        for server in table.servers
        for device in server.devices
    ]


@patient
@given(group_list_documents())
def test_round_trip(document: dict[str, object]) -> None:
    """Writing and reading a group list keeps ranks, devices and pods."""
    table = codec.loads(orjson.dumps(document))

    assert sorted(_said(table)) == sorted(_said(_again(table)))
    assert _order(table) == _order(_again(table))


@pytest.mark.parametrize("name", ["server_list_8_devices", "server_list_ranks_do_not_rise", "lab_2_servers"])
def test_table_without_pods_becomes_a_group_list(name: str) -> None:
    """Each server becomes a pod, named after its position."""
    table = codec.loads(valid(name))
    again = _again(table)

    assert sorted(_said(table)) == sorted(_said(again))
    assert "server-0" == again.rank(0).pod_name


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("server_list_2_super_pods", "super-pods (version 1.2)"),
        ("rank_list_2_servers", "the levels of a rank list"),
    ],
)
def test_table_that_a_group_list_cannot_express(name: str, what: str) -> None:
    """A table that a group list cannot express is rejected with the reason."""
    with pytest.raises(RankTableError) as caught:
        codec.dumps_group_list(codec.loads(valid(name)))

    assert f"cannot convert the table to a group list, which has no fields for {what}" == str(caught.value)


def test_version_for_super_pods_that_lists_none() -> None:
    """Version 1.2 without super_pod_list cannot be converted either."""
    table = codec.loads(edited("server_list_2_super_pods", super_pod_list=GONE))
    with pytest.raises(RankTableError, match="no fields for super-pods"):
        codec.dumps_group_list(table)


def test_ranks_that_are_not_contiguous() -> None:
    """A table whose servers do not have contiguous ranks cannot be converted."""
    table = codec.loads(
        edited(
            "server_list_ranks_do_not_rise",
            **{"server_list[0].device[0].rank_id": "0", "server_list[1].device[1].rank_id": "2"},
        )
    )
    with pytest.raises(RankTableError) as caught:
        codec.dumps_group_list(table)

    sentence = "the ranks of server '10.0.0.2' are not contiguous"
    assert f"cannot convert the table to a group list: {sentence}" == str(caught.value)
