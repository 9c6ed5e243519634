"""A rank list's local ids, ports, levels and addresses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ascend_runner.problems import RankTableFormatError
from ascend_runner.rank_table import checks, codec
from ascend_runner.rank_table.checks import NET_TYPES
from ascend_runner.rank_table.fields import BAD_TABLE, BAD_VALUE, MISSING_FIELD
from ascend_runner.rank_table.model import Device, Dialect, RankTable, Server
from tests.rank_table.rank_table_edits import ERROR, GONE, Found, edited, problems
from tests.rank_table.rank_table_files import valid

RANK = "rank_list[1]"
LEVEL = "rank_list[1].level_list[1]"
ADDRESS = "rank_list[1].level_list[1].rank_addr_list[0]"
ONLY_ADDRESS = "rank_list[0].level_list[1].rank_addr_list[0]"
PLANE = "rank_list[0].control_plane"


def _found(**changes: Any) -> list[Found]:
    return problems(edited("rank_list_2_servers", **changes))


@pytest.mark.parametrize(
    ("path", "value", "sentence", "code"),
    [
        (f"{RANK}.device_port", 0, "device_port is 0, expected 1 to 65535", BAD_VALUE),
        (f"{RANK}.host_port", 65536, "host_port is 65536, expected 1 to 65535", BAD_VALUE),
        (f"{RANK}.host_port", "60001", "host_port is '60001', but HCCL requires a number", MISSING_FIELD),
        (f"{RANK}.host_port", "x", "host_port is 'x', expected a whole number", BAD_VALUE),
        (f"{RANK}.local_id", 65, "local_id is 65, expected 0 to 64", BAD_VALUE),
        (f"{LEVEL}.net_layer", 8, "net_layer is 8, expected 0 to 7", BAD_VALUE),
        (f"{LEVEL}.net_layer", 0, "net_layer is 0 after 0, expected increasing numbers", BAD_VALUE),
        (f"{LEVEL}.net_layer", GONE, "missing field 'net_layer'", MISSING_FIELD),
        (f"{LEVEL}.net_instance_id", "", "net_instance_id is '', expected a non-empty string", BAD_VALUE),
        (f"{LEVEL}.net_instance_id", "x" * 1025, "net_instance_id is longer than 1024 bytes", BAD_VALUE),
        (
            f"{LEVEL}.net_type",
            "TREE",
            f"net_type is 'TREE', expected one of {', '.join(map(repr, NET_TYPES))}",
            BAD_VALUE,
        ),
        (f"{LEVEL}.rank_addr_list", GONE, "missing field 'rank_addr_list'", MISSING_FIELD),
        (
            f"{LEVEL}.rank_addr_list",
            [],
            "rank_addr_list has 0 addresses, but another rank of 'cluster' has 1",
            BAD_VALUE,
        ),
        (f"{ADDRESS}.addr_type", "MAC", "addr_type is 'MAC', expected one of 'EID', 'IPV4', 'IPV6'", BAD_VALUE),
        (f"{ADDRESS}.addr_type", GONE, "missing field 'addr_type'", MISSING_FIELD),
        (f"{ADDRESS}.addr", "10.0.0.256", "addr is '10.0.0.256', expected an address of type IPV4", BAD_VALUE),
        (f"{ADDRESS}.addr", "::1", "addr is '::1', expected an address of type IPV4", BAD_VALUE),
        (f"{ADDRESS}.addr", GONE, "missing field 'addr'", MISSING_FIELD),
        (f"{ADDRESS}.ports", [], "ports has 0 items, expected an array of 1 to 16 strings", BAD_VALUE),
        (f"{ADDRESS}.ports", GONE, "missing field 'ports'", MISSING_FIELD),
        (f"{ADDRESS}.ports", ["0/1"] * 17, "ports has 17 items, expected an array of 1 to 16 strings", BAD_VALUE),
        (f"{ADDRESS}.ports[0]", 3, "ports[0] is 3, expected a string like '0/4'", BAD_VALUE),
        (
            "rank_list[1].level_list[0].rank_addr_list[0].addr",
            "00",
            "addr is '00', expected an address of type EID",
            BAD_VALUE,
        ),
        (f"{LEVEL}.net_instance_id", 3, "net_instance_id is 3, expected a non-empty string", MISSING_FIELD),
        (f"{LEVEL}.net_attr", None, "net_attr is null, expected a string", MISSING_FIELD),
        (f"{ADDRESS}.plane_id", 1, "plane_id is 1, expected a string", MISSING_FIELD),
        ("detour", "maybe", "detour is 'maybe', expected one of 'true', 'false'", BAD_VALUE),
        ("detour", True, "detour is true, expected one of 'true', 'false'", BAD_VALUE),
    ],
)
def test_invalid_value(path: str, value: Any, sentence: str, code: str) -> None:
    """Each field has its range; a wrong value is reported once, with its path."""
    assert [(ERROR, path, sentence, code)] == _found(**{path: value})


@pytest.mark.parametrize(
    ("path", "value", "sentence", "code"),
    [
        (PLANE, None, "control_plane is null, expected an object", BAD_TABLE),
        (f"{PLANE}.addr_type", GONE, "missing field 'addr_type'", MISSING_FIELD),
        (f"{PLANE}.addr_type", "EID", "addr is '172.16.0.10', expected an address of type EID", BAD_VALUE),
        (f"{PLANE}.addr", "", "addr is '', expected a non-empty string", BAD_VALUE),
        (f"{PLANE}.listen_port", 0, "listen_port is 0, expected 1 to 65535", BAD_VALUE),
        (f"{PLANE}.listen_port", "18000", "listen_port is '18000', but HCCL requires a number", MISSING_FIELD),
        (
            f"{ONLY_ADDRESS}.backup_addr",
            None,
            "backup_addr is null, expected an array of at most 16 strings",
            BAD_VALUE,
        ),
        (
            f"{ONLY_ADDRESS}.backup_addr",
            ["172.16.0.1"] * 17,
            "backup_addr has 17 items, expected an array of at most 16 strings",
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
    """Both are optional; HCCL requires them to be complete and of the stated type."""
    where = path.replace("addr_type", "addr") if value == "EID" else path

    assert [(ERROR, where, sentence, code)] == problems(edited("rank_list_control_plane", **{path: value}))


@pytest.mark.parametrize("path", [PLANE, f"{ONLY_ADDRESS}.backup_addr"])
def test_optional_keys(path: str) -> None:
    """Most tables have neither a control plane nor backup addresses."""
    assert [] == problems(edited("rank_list_control_plane", **{path: GONE}))
    assert [] == problems(
        edited("rank_list_control_plane", **{"rank_list[0].level_list[0].rank_addr_list[0].backup_addr": []})
    )


def test_backup_addresses_of_no_type() -> None:
    """An unknown address type is reported without its consequences."""
    sentence = "addr_type is 'MAC', expected one of 'EID', 'IPV4', 'IPV6'"
    data = edited("rank_list_control_plane", **{f"{ONLY_ADDRESS}.addr_type": "MAC"})

    assert [(ERROR, f"{ONLY_ADDRESS}.addr_type", sentence, BAD_VALUE)] == problems(data)


def test_levels_and_addresses_have_a_bound() -> None:
    """HCCL accepts at most 8 levels, with at most 24 addresses each."""
    document = json.loads(valid("rank_list_2_servers"))
    for rank in document["rank_list"]:
        level = rank["level_list"][1]
        level["rank_addr_list"] *= 25
        rank["level_list"] += [dict(level, net_layer=layer) for layer in (4, 5, 6, 7, 7, 7, 7)]
    found = {sentence for _, _, sentence, _ in problems(json.dumps(document).encode())}

    assert {
        "level_list has 9 levels, but HCCL accepts at most 8",
        "rank_addr_list has 25 addresses, but HCCL accepts at most 24",
        "net_layer is 7 after 7, expected increasing numbers",
    } == found


def test_missing_addresses() -> None:
    """Missing or invalid addresses of the first rank are reported once, and not as a wrong count of the other ranks."""
    path = "rank_list[0].level_list[0].rank_addr_list"
    missing = "missing field 'rank_addr_list'"
    stranger = "rank_addr_list[0] is 'x', expected an object"

    assert [(ERROR, path, missing, MISSING_FIELD)] == _found(**{path: GONE})
    assert [(ERROR, f"{path}[0]", stranger, BAD_TABLE)] == _found(**{f"{path}[0]": "x"})


@pytest.mark.parametrize("instance", [0, "0", True])
def test_instance_of_the_lowest_level(instance: object) -> None:
    """The level that names the server must be a string as well: it is read twice, and reported once."""
    path = "rank_list[0].level_list[0].net_instance_id"
    found = [
        found.path for found in checks.check_document(codec.examine(edited("rank_list_2_servers", **{path: instance})))
    ]

    assert ([] if instance == "0" else [path]) == found


def test_rank_count_is_null() -> None:
    """HCCL counts the ranks itself if there is no rank_count, but refuses null."""
    with pytest.raises(RankTableFormatError) as caught:
        codec.loads(edited("rank_list_2_servers", rank_count=None))

    assert [("rank_count is null, expected a whole number", "rank_count", MISSING_FIELD)] == [
        (problem.sentence, problem.path, problem.code) for problem in caught.value.problems
    ]


OXC_LEVEL = "rank_list[1].level_list[2]"
OXC_ADDRESS = f"{OXC_LEVEL}.rank_addr_list[0]"


def test_optical_cross_connects() -> None:
    """A table with OXC_Mesh levels is one of the A3: what HCCL reads there is accepted, and passed on as it is."""
    table = codec.loads(valid("rank_list_oxc"))

    assert ("A3", ()) == (checks.implied_chip(table), checks.check(table, chip="A3"))
    assert table.data == codec.to_hccl_bytes(table)
    assert "10.0.0.1" in table.servers[0].addresses


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("rank_list[1].super_pod_id", GONE, "missing field 'super_pod_id'"),
        ("rank_list[1].super_device_id", "x", "super_device_id is 'x', expected a whole number"),
        (f"{OXC_LEVEL}.net_layer", 1, "level_list has the levels 0, 1, 1, 3, expected 0, 1, 2, 3"),
        (f"{OXC_LEVEL}.net_type", "CLOS", "net_type is 'CLOS', expected 'OXC_Mesh' on level 2"),
        (f"{OXC_LEVEL}.net_instance_id", "1", "net_instance_id is '1', expected '0' on level 2"),
        (f"{OXC_LEVEL}.net_attr", None, "net_attr is null, expected a string"),
        (f"{OXC_ADDRESS}.plane_id", 0, "plane_id is 0, expected a string"),
        (f"{OXC_ADDRESS}.ports", "0/1", "ports is '0/1', expected an array of strings"),
    ],
)
def test_invalid_value_with_optical_cross_connects(path: str, value: Any, sentence: str) -> None:
    """HCCL's rules for these tables are reported with their path."""
    (problem,) = problems(edited("rank_list_oxc", **{path: value}))

    assert (ERROR, sentence) == (problem[0], problem[2])
    assert path.startswith(problem[1])


@pytest.mark.parametrize(("chip", "sentence"), [("910B", "version is '2.0' "), ("950", "net_type is 'OXC_Mesh', ")])
def test_optical_cross_connects_of_another_chip(chip: str, sentence: str) -> None:
    """Only the A3 reads them."""
    found = checks.check(codec.loads(valid("rank_list_oxc")), chip=chip)

    assert any(problem.sentence.startswith(sentence) for problem in found)


def test_long_instance_of_the_lowest_level() -> None:
    """A net_instance_id may be longer than a server_id."""
    changes = {f"rank_list[{rank}].level_list[0].net_instance_id": "x" * 1024 for rank in (0, 1)}

    assert [] == _found(**changes)


def test_duplicate_local_id() -> None:
    """A local_id is unique on its server."""
    sentence = "duplicate local_id 0 on server 'az0-rack0-pod0' (first used in rank_list[0])"

    assert [(ERROR, f"{RANK}.local_id", sentence, BAD_VALUE)] == _found(**{f"{RANK}.local_id": 0})


def test_spare_device() -> None:
    """A spare device has local_id 64 and names the local_id that it replaces, which no rank may have."""
    spare = {f"{RANK}.local_id": 64}
    missing = "missing field 'replaced_local_id'"
    taken = "replaced_local_id is 0, but a rank has this local_id"

    assert [] == _found(**spare, **{f"{RANK}.replaced_local_id": 7})
    assert [(ERROR, f"{RANK}.replaced_local_id", missing, MISSING_FIELD)] == _found(**spare)
    assert [(ERROR, f"{RANK}.replaced_local_id", taken, BAD_VALUE)] == _found(
        **spare, **{f"{RANK}.replaced_local_id": 0}
    )


def test_two_spare_devices() -> None:
    """HCCL accepts one spare device per table."""
    changes = {
        f"rank_list[{rank}].{key}": value
        for rank in (1, 3)
        for key, value in (("local_id", 64), ("replaced_local_id", 9))
    }
    sentence = "local_id is 64 (a spare device), but a table may have only one"

    assert [(ERROR, "rank_list[3].local_id", sentence, BAD_VALUE)] == _found(**changes)


@pytest.mark.deep
def test_number_of_ranks() -> None:
    """HCCL accepts at most 65,536 ranks."""
    levels: list[object] = [{"net_layer": 0, "net_instance_id": "a", "rank_addr_list": []}]
    table = RankTable(
        dialect=Dialect.RANK_LIST,
        version="2.0",
        servers=tuple(
            Server(
                server_id=str(rank),
                devices=(Device(device_id=0, rank_id=rank, extra_keys={"local_id": 0, "level_list": levels}),),
            )
            for rank in range(65537)
        ),
    )

    assert ["rank_count is 65537, but HCCL accepts at most 65536"] == [found.sentence for found in checks.check(table)]


def test_item_that_is_not_an_object() -> None:
    """Items of level_list must be objects."""
    assert [(ERROR, LEVEL, "level_list[1] is 3, expected an object", BAD_TABLE)] == _found(**{LEVEL: 3})
