"""A table as text and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ascend_runner.rank_table import codec
from ascend_runner.rank_table.dialects import dialect_of, size_of
from ascend_runner.tools.rank_table.commands import facts_of, text_of
from tests.rank_table.rank_table_files import valid


def test_small_table_is_listed_by_device() -> None:
    """Each device has a line, without the cells that equal those above."""
    table = codec.loads(valid("group_list_3_groups"))

    assert (
        "a.json: group list (template 2)\n"
        "4 servers, 4 devices\n"
        "pods without devices: job-worker-2\n"
        "\n"
        "server    pod           rank  device  device_ip\n"
        "10.0.0.1  job-chief-0   0     0       192.168.101.1\n"
        "10.0.0.2  job-chief-1   1     0       192.168.102.1\n"
        "10.0.0.3  job-worker-0  2     0       192.168.103.1\n"
        "10.0.0.4  job-worker-1  3     0       192.168.104.1\n"
    ) == text_of(table, "a.json")


def test_super_pods_have_a_column() -> None:
    """Super-pods are the first column, if there are any."""
    lines = text_of(codec.loads(valid("server_list_2_super_pods")), "a.json").splitlines()

    assert "super-pod  server  rank  device  device_ip" == lines[3]
    assert "1          node-3  6     0       192.168.103.1" == lines[10]
    assert "                   7     1       192.168.103.2" == lines[11]


def test_large_table_is_listed_by_server() -> None:
    """Beyond 64 devices a server has a line, with its ranks and devices as ranges, unless all are asked for."""
    document = json.loads(valid("server_list_8_devices"))
    first = document["server_list"][0]
    for index in range(1, 9):
        devices = [{**device, "rank_id": str(8 * index + int(device["rank_id"]))} for device in first["device"]]
        document["server_list"].append({"server_id": f"10.0.0.{index + 1}", "device": devices})
    document["server_count"] = "9"
    table = codec.loads(json.dumps(document).encode())

    lines = text_of(table, "a.json").splitlines()
    assert "server    ranks  device  device_ip" == lines[3]
    assert "10.0.0.9  64-71  0-7     192.168.101.1 ... 192.168.101.8" == lines[-1]
    assert 3 + 1 + 72 == len(text_of(table, "a.json", lists_all=True).splitlines())


def test_empty_table() -> None:
    """An empty table is described."""
    assert "a.json: group list (template 2)\n0 servers, 0 devices\npods without devices: job-worker-0\n" == text_of(
        codec.loads(valid("group_list_without_devices")), "a.json"
    )


def test_control_characters_are_escaped() -> None:
    """Control characters in names are escaped."""
    data = valid("server_list_8_devices").replace(b"10.0.0.1", b"\\u001b[31mred")

    assert "\x1b" not in text_of(codec.loads(data), "a.json")


def test_facts() -> None:
    """The facts are the same for every dialect."""
    facts: Any = facts_of(codec.loads(valid("server_list_2_super_pods"), source="a.json"))

    assert {
        "server_id": "node-3",
        "super_pod_id": "1",
        "addresses": ["172.16.0.103"],
        "devices": [
            {"rank_id": 6, "device_id": 0, "device_ip": "192.168.103.1", "pod_name": None},
            {"rank_id": 7, "device_id": 1, "device_ip": "192.168.103.2", "pod_name": None},
        ],
    } == facts["servers"][3]
    assert ["a.json", "server list", "1.2", 8, 4] == [
        facts[key] for key in ("source", "dialect", "version", "rank_size", "server_count")
    ]


@pytest.mark.parametrize(
    ("name", "dialect", "size"),
    [
        ("group_list_8_devices", "group list (template 2)", "1 server, 8 devices"),
        ("lab_2_servers", "group list, lab form (template 2)", "2 servers, 4 devices"),
        ("server_list_device_ip_null", "server list (template 1), version 1.0", "1 server, 1 device"),
        (
            "server_list_2_super_pods",
            "server list (template 1), version 1.2",
            "2 super-pods, 4 servers, 8 devices",
        ),
        ("rank_list_2_servers", "rank list (Ascend 950), version 2.0", "2 servers, 4 devices"),
    ],
)
def test_table(name: str, dialect: str, size: str) -> None:
    """A table is described by its dialect and its size."""
    table = codec.loads(valid(name))

    assert dialect == dialect_of(table)
    assert size == size_of(table)
