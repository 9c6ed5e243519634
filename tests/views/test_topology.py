"""The picture of a rank table on the page."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given

from ascend_runner.rank_table import codec
from ascend_runner.rank_table.model import Device, RankTable, Server, SuperPod
from ascend_runner.views.topology import picture
from tests.rank_table.rank_table_files import valid
from tests.rank_table.rank_table_strategies import patient, server_list_tables

SVG = "{http://www.w3.org/2000/svg}"


def _table(servers: int, devices: int = 8, *, pods: int = 0) -> RankTable:
    made = tuple(
        Server(
            server_id=f"10.0.{index >> 8}.{index & 255}",
            devices=tuple(
                Device(device_id=device, device_ip="192.168.0.1", rank_id=index * devices + device)
                for device in range(devices)
            ),
        )
        for index in range(servers)
    )
    share = servers // pods if pods else 0
    names = [server.server_id for server in made]
    return RankTable(
        servers=made,
        super_pods=tuple(SuperPod(str(pod), tuple(names[pod * share : (pod + 1) * share])) for pod in range(pods)),
    )


def drawn(table: RankTable) -> str:
    """Return the picture of a table without the states of its ranks."""
    return picture(table, {})


def _texts(found: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(found).iter(f"{SVG}text")]  # noqa: S314 - it is our own


def _size(found: str) -> tuple[int, int]:
    root = ET.fromstring(found)  # noqa: S314 - likewise
    return int(root.attrib["width"]), int(root.attrib["height"])


@pytest.mark.parametrize("servers", [1, 2, 8, 32])
def test_every_rank_is_in_the_picture(servers: int) -> None:
    """Up to some hundreds of devices, each device has a cell with its rank."""
    table = _table(servers)
    texts = _texts(drawn(table))

    assert {str(rank) for rank in range(table.rank_size)} <= set(texts)
    assert {server.server_id for server in table.servers} <= set(texts)


def test_small_picture_says_all() -> None:
    """A small picture also has device ids, addresses and pods."""
    texts = _texts(drawn(codec.loads(valid("group_list_2_pods_on_1_server"))))

    assert {"device 7", "192.168.101.8", "job-worker-0", "job-worker-1", "10.0.0.1"} <= set(texts)
    assert ["Rank table", "group list (template 2): 1 server, 8 devices"] == texts[:2]


def test_large_picture_has_a_tile_per_server() -> None:
    """A large picture has one tile per server, so that viewers can open it."""
    found = drawn(_table(1024))

    assert "8184-8191" in _texts(found)
    assert len(found) < 500_000


@pytest.mark.parametrize(("servers", "pods"), [(8, 0), (32, 0), (128, 0), (128, 4), (1024, 0)])
def test_shape(servers: int, pods: int) -> None:
    """The picture is neither very wide nor very high."""
    width, height = _size(drawn(_table(servers, pods=pods)))

    assert 0.5 < width / height < 3


def test_super_pods_are_boxes() -> None:
    """Super-pods are named; servers in none have a box of their own."""
    table = _table(4, pods=2)
    without = RankTable(servers=table.servers, super_pods=(table.super_pods[0],))

    assert {"super-pod 0", "super-pod 1"} <= set(_texts(drawn(table)))
    assert {"super-pod 0", "no super-pod"} <= set(_texts(drawn(without)))


def test_long_names_are_cut_and_whole_under_the_pointer() -> None:
    """A long name is shortened, and the tooltip has all of it."""
    name = "node-" + "x" * 60
    table = RankTable(servers=(Server(server_id=name, devices=(Device(device_id=0, rank_id=0),)),))
    found = drawn(table)

    assert name not in _texts(found)
    assert f"<title>{name}</title>" in found


def test_table_without_devices() -> None:
    """An empty table has a picture."""
    assert ["Rank table", "server list (template 1), version 1.0: 0 servers, 0 devices"] == _texts(
        drawn(RankTable(servers=()))
    )[:2]


@patient
@given(server_list_tables())
def test_any_table_is_xml(table: RankTable) -> None:
    """The picture of any table is valid XML, and the same each time."""
    found = drawn(table)

    assert _texts(found)
    assert found == drawn(table)
