"""The rank-list dialect (version 2.0)."""

from __future__ import annotations

import json

import pytest

from ascend_runner.rank_table import checks, codec
from tests.rank_table.rank_table_edits import GONE, edited
from tests.rank_table.rank_table_files import valid


def test_lowest_level_is_the_server() -> None:
    """Ranks with the same net_instance_id on the lowest level form one server; host addresses are addresses of it."""
    table = codec.loads(valid("rank_list_2_servers"))

    assert [("az0-rack0-pod0", [0, 1]), ("az0-rack0-pod1", [2, 3])] == [
        (server.server_id, [device.rank_id for device in server.devices]) for server in table.servers
    ]
    assert ("172.16.1.10", "172.16.1.11") == table.servers[1].addresses
    assert [0, 1, 0, 1] == [device.extra_keys["local_id"] for device in table.devices]


def test_rack_of_several_machines() -> None:
    """A repeated device_id in one instance starts another server."""
    table = codec.loads(valid("rank_list_rack_of_2_servers"))

    assert [("az0-rack0", [0, 1]), ("az0-rack0/1", [0, 1])] == [
        (server.server_id, [device.device_id for device in server.devices]) for server in table.servers
    ]


@pytest.mark.parametrize("name", ["rank_list_2_servers", "rank_list_without_status", "rank_list_rack_of_2_servers"])
def test_native_table_is_copied(name: str) -> None:
    """HCCL reads a rank list without conversion; its status is optional."""
    data = valid(name)

    assert data == codec.to_hccl_bytes(codec.loads(data))


@pytest.mark.parametrize("value", [["IPV4"], {}, None, 4])
def test_type_of_an_address_that_is_not_a_string(value: object) -> None:
    """An error inside a level is found by the checks and does not prevent decoding."""
    path = "rank_list[0].level_list[1].rank_addr_list[0].addr_type"
    table = codec.loads(edited("rank_list_2_servers", **{path: value}))

    assert ("172.16.0.11",) == table.servers[0].addresses
    assert [path] == [finding.path for finding in checks.check(table)]


def test_count_that_is_missing() -> None:
    """A field that HCCL requires is added, with a warning."""
    data = edited("rank_list_2_servers", rank_count=GONE)
    table = codec.loads(data)

    assert ["rank_count"] == [note.path for note in table.notes]
    assert json.loads(valid("rank_list_2_servers")) == json.loads(codec.to_hccl_bytes(table))


@pytest.mark.parametrize("version", [2.0, 2])
def test_version_that_is_a_number(version: float) -> None:
    """A version that is a number is read, and written as HCCL requires it."""
    data = edited("rank_list_2_servers", version=version)
    table = codec.loads(data)

    assert ["version"] == [note.path for note in table.notes]
    assert json.loads(valid("rank_list_2_servers")) == json.loads(codec.to_hccl_bytes(table))


def test_strings_are_rewritten() -> None:
    """HCCL requires numbers here, so a table with strings is rewritten with all its content."""
    data = valid("rank_list_strings")
    written = codec.to_hccl_bytes(codec.loads(data))

    assert json.loads(valid("rank_list_2_servers")) == json.loads(written)
