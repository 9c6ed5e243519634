"""A rank list's local ids, ports, levels and addresses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ascend_runner.rank_table import checks
from ascend_runner.rank_table.check_levels import NET_TYPES
from ascend_runner.rank_table.findings import BAD_TABLE, BAD_VALUE, ERROR, MISSING_FIELD
from ascend_runner.rank_table.model import RANK_LIST, Device, RankTable, Server
from tests.rank_table.rank_table_edits import GONE, edited, findings
from tests.rank_table.rank_table_files import valid

RANK = "rank_list[1]"
LEVEL = "rank_list[1].level_list[1]"
ADDRESS = "rank_list[1].level_list[1].rank_addr_list[0]"
ONLY_ADDRESS = "rank_list[0].level_list[1].rank_addr_list[0]"
PLANE = "rank_list[0].control_plane"


def _found(**changes: Any) -> list[tuple[str, str, str, str]]:
    return findings(edited("rank_list_2_servers", **changes))


@pytest.mark.parametrize(
    ("path", "value", "sentence", "code"),
    [
        (f"{RANK}.device_port", 0, "device_port is 0, expected 1 to 65535", BAD_VALUE),
        (f"{RANK}.host_port", 65536, "host_port is 65536, expected 1 to 65535", BAD_VALUE),
        (f"{RANK}.host_port", "60001", "host_port is '60001', HCCL wants a number here", MISSING_FIELD),
        (f"{RANK}.host_port", "x", "host_port is 'x', expected a whole number", BAD_VALUE),
        (f"{RANK}.local_id", 65, "local_id is 65, expected 0 to 64", BAD_VALUE),
        (f"{LEVEL}.net_layer", 8, "net_layer is 8, expected 0 to 7", BAD_VALUE),
        (f"{LEVEL}.net_layer", 0, "net_layer is 0 after 0, expected rising numbers", BAD_VALUE),
        (f"{LEVEL}.net_layer", GONE, "net_layer is missing, expected a whole number", MISSING_FIELD),
        (f"{LEVEL}.net_instance_id", "", "net_instance_id is '', expected a non-empty string", BAD_VALUE),
        (f"{LEVEL}.net_instance_id", "x" * 1025, "net_instance_id has more than 1024 bytes", BAD_VALUE),
        (
            f"{LEVEL}.net_type",
            "TREE",
            f"net_type is 'TREE', expected one of {', '.join(map(repr, NET_TYPES))}",
            BAD_VALUE,
        ),
        (f"{LEVEL}.rank_addr_list", GONE, "rank_addr_list is missing, expected an array", MISSING_FIELD),
        (
            f"{LEVEL}.rank_addr_list",
            [],
            "rank_addr_list holds 0 addresses, another rank's of 'cluster' 1",
            BAD_VALUE,
        ),
        (f"{ADDRESS}.addr_type", "MAC", "addr_type is 'MAC', expected one of 'EID', 'IPV4', 'IPV6'", BAD_VALUE),
        (f"{ADDRESS}.addr_type", GONE, "addr_type is missing, expected one of 'EID', 'IPV4', 'IPV6'", MISSING_FIELD),
        (f"{ADDRESS}.addr", "10.0.0.256", "addr is '10.0.0.256', expected an address of type IPV4", BAD_VALUE),
        (f"{ADDRESS}.addr", "::1", "addr is '::1', expected an address of type IPV4", BAD_VALUE),
        (f"{ADDRESS}.addr", GONE, "addr is missing, expected a non-empty string", MISSING_FIELD),
        (f"{ADDRESS}.ports", [], "ports holds 0, expected an array of 1 to 16 strings", BAD_VALUE),
        (f"{ADDRESS}.ports", GONE, "ports is missing, expected an array of 1 to 16 strings", MISSING_FIELD),
        (f"{ADDRESS}.ports", ["0/1"] * 17, "ports holds 17, expected an array of 1 to 16 strings", BAD_VALUE),
        (f"{ADDRESS}.ports[0]", 3, "ports[0] is 3, expected a string like '0/4'", BAD_VALUE),
        (
            "rank_list[1].level_list[0].rank_addr_list[0].addr",
            "00",
            "addr is '00', expected an address of type EID",
            BAD_VALUE,
        ),
        ("detour", "maybe", "detour is 'maybe', expected one of 'true', 'false'", BAD_VALUE),
        ("detour", True, "detour is true, expected one of 'true', 'false'", BAD_VALUE),
    ],
)
def test_value_that_hccl_refuses(path: str, value: Any, sentence: str, code: str) -> None:
    """Each field has its range; what is wrong is told with its place, and once."""
    assert [(ERROR, path, sentence, code)] == _found(**{path: value})


@pytest.mark.parametrize(
    ("path", "value", "sentence", "code"),
    [
        (PLANE, None, "control_plane is null, expected an object", BAD_TABLE),
        (f"{PLANE}.addr_type", GONE, "addr_type is missing, expected one of 'EID', 'IPV4', 'IPV6'", MISSING_FIELD),
        (f"{PLANE}.addr_type", "EID", "addr is '172.16.0.10', expected an address of type EID", BAD_VALUE),
        (f"{PLANE}.addr", "", "addr is '', expected a non-empty string", BAD_VALUE),
        (f"{PLANE}.listen_port", 0, "listen_port is 0, expected 1 to 65535", BAD_VALUE),
        (f"{PLANE}.listen_port", "18000", "listen_port is '18000', HCCL wants a number here", MISSING_FIELD),
        (f"{ONLY_ADDRESS}.backup_addr", None, "backup_addr is null, expected an array of up to 16 strings", BAD_VALUE),
        (
            f"{ONLY_ADDRESS}.backup_addr",
            ["172.16.0.1"] * 17,
            "backup_addr holds 17, expected an array of up to 16 strings",
            BAD_VALUE,
        ),
        (
            f"{ONLY_ADDRESS}.backup_addr[0]",
            "::1",
            "backup_addr[0] is '::1', expected an address of type IPV4",
            BAD_VALUE,
        ),
        (f"{ONLY_ADDRESS}.backup_addr[0]", 3, "backup_addr[0] is 3, expected an address of type IPV4", BAD_VALUE),
    ],
)
def test_control_plane_and_backup_addresses(path: str, value: Any, sentence: str, code: str) -> None:
    """They need not be there; where they are, HCCL wants them whole and of the type that is said."""
    where = path.replace("addr_type", "addr") if value == "EID" else path

    assert [(ERROR, where, sentence, code)] == findings(edited("rank_list_control_plane", **{path: value}))


@pytest.mark.parametrize("path", [PLANE, f"{ONLY_ADDRESS}.backup_addr"])
def test_what_need_not_be_there(path: str) -> None:
    """Most tables have neither a control plane nor backup addresses."""
    assert [] == findings(edited("rank_list_control_plane", **{path: GONE}))
    assert [] == findings(
        edited("rank_list_control_plane", **{"rank_list[0].level_list[0].rank_addr_list[0].backup_addr": []})
    )


def test_backup_addresses_of_no_type() -> None:
    """Where the type is none, what follows from that is not told besides."""
    sentence = "addr_type is 'MAC', expected one of 'EID', 'IPV4', 'IPV6'"
    data = edited("rank_list_control_plane", **{f"{ONLY_ADDRESS}.addr_type": "MAC"})

    assert [(ERROR, f"{ONLY_ADDRESS}.addr_type", sentence, BAD_VALUE)] == findings(data)


def test_levels_and_addresses_have_a_bound() -> None:
    """HCCL takes 8 levels, and 24 addresses on each."""
    document = json.loads(valid("rank_list_2_servers"))
    for rank in document["rank_list"]:
        level = rank["level_list"][1]
        level["rank_addr_list"] *= 25
        rank["level_list"] += [dict(level, net_layer=layer) for layer in (4, 5, 6, 7, 7, 7, 7)]
    found = {sentence for _, _, sentence, _ in findings(json.dumps(document).encode())}

    assert {
        "level_list holds 9 levels, HCCL takes at most 8",
        "rank_addr_list holds 25 addresses, HCCL takes at most 24",
        "net_layer is 7 after 7, expected rising numbers",
    } == found


def test_missing_addresses_are_no_count() -> None:
    """What a first rank lacks, or holds beside addresses, is no reason to refuse the ranks after it."""
    path = "rank_list[0].level_list[0].rank_addr_list"
    missing = "rank_addr_list is missing, expected an array"
    stranger = "rank_addr_list[0] is 'x', expected an object"

    assert [(ERROR, path, missing, MISSING_FIELD)] == _found(**{path: GONE})
    assert [(ERROR, f"{path}[0]", stranger, BAD_TABLE)] == _found(**{f"{path}[0]": "x"})


def test_long_instance_of_the_lowest_level() -> None:
    """It stands for a server, but it is no server_id, and may be longer than one."""
    changes = {f"rank_list[{rank}].level_list[0].net_instance_id": "x" * 1024 for rank in (0, 1)}

    assert [] == _found(**changes)


def test_local_id_that_is_there_twice() -> None:
    """A local_id is one device's on its server."""
    sentence = "local_id 0 is that of 'rank_list[0]' already, on server 'az0-rack0-pod0'"

    assert [(ERROR, f"{RANK}.local_id", sentence, BAD_VALUE)] == _found(**{f"{RANK}.local_id": 0})


def test_spare_device() -> None:
    """A spare device has local_id 64 and names the one that it stands in for, which no rank may have."""
    spare = {f"{RANK}.local_id": 64}
    missing = "replaced_local_id is missing, expected a whole number"
    taken = "replaced_local_id is 0, which a rank has as its local_id"

    assert [] == _found(**spare, **{f"{RANK}.replaced_local_id": 7})
    assert [(ERROR, f"{RANK}.replaced_local_id", missing, MISSING_FIELD)] == _found(**spare)
    assert [(ERROR, f"{RANK}.replaced_local_id", taken, BAD_VALUE)] == _found(
        **spare, **{f"{RANK}.replaced_local_id": 0}
    )


def test_two_spare_devices() -> None:
    """HCCL takes one spare device in a table."""
    changes = {
        f"rank_list[{rank}].{key}": value
        for rank in (1, 3)
        for key, value in (("local_id", 64), ("replaced_local_id", 9))
    }
    sentence = "local_id is 64, that of a spare device, which only one rank may have"

    assert [(ERROR, "rank_list[3].local_id", sentence, BAD_VALUE)] == _found(**changes)


def test_number_of_ranks() -> None:
    """HCCL takes 65,536 ranks."""
    levels: list[object] = [{"net_layer": 0, "net_instance_id": "a", "rank_addr_list": []}]
    table = RankTable(
        dialect=RANK_LIST,
        version="2.0",
        servers=tuple(
            Server(
                server_id=str(rank),
                devices=(Device(device_id=0, rank_id=rank, more={"local_id": 0, "level_list": levels}),),
            )
            for rank in range(65537)
        ),
    )

    assert ["rank_count is 65537, HCCL takes at most 65536"] == [found.sentence for found in checks.check(table)]


def test_item_that_is_no_object() -> None:
    """An array of levels or addresses holds objects."""
    assert [(ERROR, LEVEL, "level_list[1] is 3, expected an object", BAD_TABLE)] == _found(**{LEVEL: 3})
