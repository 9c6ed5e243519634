"""What HCCL would refuse of any table: versions, chips, servers, files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ascend_runner.rank_table import checks, codec
from ascend_runner.rank_table.findings import BAD_TABLE, BAD_VALUE, ERROR, WARNING
from ascend_runner.rank_table.model import Device, RankTable, Server
from tests.rank_table.rank_table_edits import GONE, edited, findings
from tests.rank_table.rank_table_files import FIXTURES, valid

CLEAN = [
    path.stem
    for path in sorted((FIXTURES / "valid").glob("*.json"))
    if not codec.loads(path.read_bytes()).notes and path.stem != "group_list_without_devices"
]


def _servers(*device_ids: tuple[int, ...], version: str = "1.0") -> RankTable:
    """Make a table with these devices on each server, and nothing else to find."""
    ranks = iter(range(1000))
    return RankTable(
        version=version,
        servers=tuple(
            Server(
                server_id=f"10.0.0.{index}",
                devices=tuple(
                    Device(device_id=device_id, device_ip=f"192.168.{index}.{device_id}", rank_id=next(ranks))
                    for device_id in ids
                ),
            )
            for index, ids in enumerate(device_ids)
        ),
    )


def _said(table: RankTable, chip: str | None = None) -> list[tuple[str, str]]:
    return [(finding.severity, finding.sentence) for finding in checks.check(table, chip=chip)]


@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_found_about_a_good_table(name: str) -> None:
    """Every valid fixture that decodes without a warning is clean."""
    assert [] == findings(valid(name))


def test_notes_of_the_decoder_are_findings() -> None:
    """What was odd on reading is among the findings."""
    sentence = "version is '1.1', by which HCCL takes a table for a heterogeneous one: it is written anew as '1.0'"

    assert [(WARNING, "version", sentence, BAD_VALUE)] == findings(valid("server_list_version_1_1"))


def test_problems_of_the_decoder_are_findings() -> None:
    """What keeps a document from being a table is among the findings, with what HCCL would refuse besides."""
    data = edited(
        "server_list_ranks_do_not_rise",
        **{"server_list[0].device[0].rank_id": "x"},
        **{"server_list[1].device[1].device_ip": "nonsense"},
    )

    assert [
        (ERROR, "server_list[0].device[0].rank_id", "rank_id is 'x', expected a whole number", BAD_VALUE),
        (ERROR, "server_list[1].device[1].device_ip", "device_ip is 'nonsense', expected an IP address", BAD_VALUE),
    ] == findings(data)


@pytest.mark.parametrize(("chip", "last"), [("910", 7), ("910B", 15), ("A3", 15), ("310P", 31)])
def test_device_id_limit(chip: str, last: int) -> None:
    """Each chip has a highest device_id."""
    assert [] == _said(_servers((last,)), chip)
    assert [(ERROR, f"device_id is {last + 1}, the highest of the {chip} is {last}")] == _said(
        _servers((last + 1,)), chip
    )


def test_device_id_limit_of_an_unknown_chip() -> None:
    """Where the chip is not known, only what no chip takes is told."""
    assert [] == _said(_servers((64,)))
    assert [(ERROR, "device_id is 65, the highest of any chip is 64")] == _said(_servers((65,)))


@pytest.mark.parametrize("ids", [(0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 4, 5), (0, 2, 4, 6), (1, 3, 5, 7), (2, 3, 6, 7)])
def test_rings_of_the_910(ids: tuple[int, ...]) -> None:
    """Four devices of a 910 must be a ring or two pairs that face each other."""
    assert [] == _said(_servers(ids), "910")


def test_no_ring_of_the_910() -> None:
    """Other sets of four are refused on a 910, and on no other chip."""
    sentence = "server '10.0.0.0' has the devices 0, 1, 2, 4, which no ring of the 910 joins"

    assert [(ERROR, sentence)] == _said(_servers((4, 2, 1, 0)), "910")
    assert [] == _said(_servers((0, 1, 2, 4)), "910B")


def test_odd_number_of_devices_on_the_910() -> None:
    """CANN's document knows 1, 2, 4 and 8 devices."""
    sentence = "server '10.0.0.0' has 3 devices, on the 910 one has 1, 2, 4 or 8"

    assert [(WARNING, sentence)] == _said(_servers((0, 1, 2)), "910")


def test_uneven_servers() -> None:
    """On a 910, and on no other chip, every server must have as many devices as the others."""
    sentence = "server '10.0.0.1' has 1 device, the first server has 2: on the 910 every server needs as many"

    assert [(ERROR, sentence)] == _said(_servers((0, 1), (0,)), "910")
    assert [] == _said(_servers((0, 1), (0,)), "310P")
    assert [] == _said(_servers((0, 1), (0,)), "910B")


def test_table_without_anything() -> None:
    """A server list or rank list is for HCCL, which wants devices; a group list may be a job's that has none."""
    no_server = (ERROR, "server_list", "server_list is empty, expected at least one server", BAD_VALUE)
    no_device = (ERROR, "server_list[0].device", "server '10.0.0.1' has no device", BAD_TABLE)
    no_rank = (ERROR, "rank_list", "rank_list is empty, expected at least one rank", BAD_VALUE)

    assert [no_server] == findings(edited("server_list_8_devices", server_list=[], server_count="0"))
    assert [no_device] == findings(edited("server_list_8_devices", **{"server_list[0].device": []}))
    assert [no_rank] == findings(edited("rank_list_2_servers", rank_list=[], rank_count=0))
    assert [(WARNING, "", "the table has no device", "")] == findings(valid("group_list_without_devices"))
    assert [no_server] == findings(edited("server_list_8_devices", server_list=[], server_count="0"), "910")


@pytest.mark.parametrize(
    ("version", "chip", "found"),
    [
        ("1.0", "950", (ERROR, "version is '1.0', the 950 needs '2.0'")),
        ("", "950", (ERROR, "version is '1.0' once the table is converted, the 950 needs '2.0'")),
        ("1.2", "910B", (WARNING, "version is '1.2', which is for super-pods of the A3: the 910B needs '1.0'")),
        ("1.0", "A3", (WARNING, "version is '1.0': the A3 uses its super-pods only with version '1.2'")),
    ],
)
def test_version_of_another_chip(version: str, chip: str, found: tuple[str, str]) -> None:
    """A table of one chip's version is told of on another chip."""
    assert [found] == _said(_servers((0,), (1,), version=version), chip)


def test_rank_list_on_another_chip() -> None:
    """Version 2.0 is the 950's alone."""
    sentence = "version is '2.0', which only the 950 reads: the 910B needs '1.0' or '1.2'"

    assert [(ERROR, "version", sentence, BAD_VALUE)] == findings(valid("rank_list_2_servers"), "910B")


def test_server_without_devices() -> None:
    """An empty list of devices is refused."""
    data = edited("server_list_8_devices", server_count="2")
    document = json.loads(data)
    document["server_list"].append({"server_id": "10.0.0.2", "device": []})

    assert [(ERROR, "server_list[1].device", "server '10.0.0.2' has no device", BAD_TABLE)] == findings(
        json.dumps(document).encode()
    )


def test_table_without_devices() -> None:
    """A table without any device is odd, and no more: jobs without devices have one."""
    assert [(WARNING, "", "the table has no device", "")] == findings(valid("group_list_without_devices"))


@pytest.mark.parametrize("path", ["server_list[0]", "server_list[0].device[0]"])
def test_array_whose_only_item_is_lost(path: str) -> None:
    """An item that cannot be read is told, and not that its array is empty."""
    document = json.loads(valid("server_list_8_devices"))
    del document["server_list"][0]["device"][1:]
    steps = document["server_list"] if path == "server_list[0]" else document["server_list"][0]["device"]
    steps[0] = "x"
    name = path.rpartition(".")[2]

    assert [(ERROR, path, f"{name} is 'x', expected an object", BAD_TABLE)] == findings(json.dumps(document).encode())


def test_length_of_server_id() -> None:
    """A server_id has at most 64 bytes, not characters."""
    assert [] == findings(edited("server_list_8_devices", **{"server_list[0].server_id": "x" * 64}))

    name = "é" * 33
    sentence = f"server_id '{name}' has more than 64 bytes"
    assert [(ERROR, "server_list[0].server_id", sentence, BAD_TABLE)] == findings(
        edited("server_list_8_devices", **{"server_list[0].server_id": name})
    )


def test_ranks_of_servers_that_mix() -> None:
    """CANN does not support ranks of one server between another's."""
    data = edited(
        "server_list_ranks_do_not_rise",
        **{"server_list[0].device[0].rank_id": "0"},
        **{"server_list[1].device[1].rank_id": "2"},
    )
    sentence = "of server '{}' have other servers' between them, which CANN does not support"

    assert [
        (WARNING, "server_list[0].server_id", f"the ranks 0 to 3 {sentence.format('10.0.0.2')}", ""),
    ] == findings(data)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/t/hccl.txt", "HCCL would not read /t/hccl.txt: '.json' must stand once in its path, at the end"),
        ("/t/x.json/y.json", "HCCL would not read /t/x.json/y.json: '.json' must stand once in its path, at the end"),
        ("/t/" + "x" * 4088 + ".json", "the path of the table has more than 4095 bytes"),
    ],
)
def test_path_of_the_file(path: str, sentence: str) -> None:
    """HCCL wants one ".json" in the path, at its end, and a path that fits."""
    assert [sentence] == [finding.sentence for finding in checks.check(_servers((0,)), path)]
    assert () == checks.check(_servers((0,)), "/t/jobstart_hccl.json")


@pytest.mark.parametrize(("version", "limit"), [("1.0", 40 << 20), ("1.2", 40 << 20)])
def test_size_of_the_file(version: str, limit: int) -> None:
    """HCCL reads 40 MB."""
    table = _servers((0,), version=version)

    assert () == checks.check(table, "/t/a.json", size=limit)
    assert [f"the table has {limit + 1} bytes, HCCL reads no more than {limit}"] == [
        finding.sentence for finding in checks.check(table, "/t/a.json", size=limit + 1)
    ]


def test_size_of_a_rank_list() -> None:
    """Of a rank list HCCL reads 1 GB."""
    table = codec.loads(valid("rank_list_2_servers"))

    assert () == checks.check(table, "/t/a.json", size=1 << 30)
    assert 1 == len(checks.check(table, "/t/a.json", size=(1 << 30) + 1))


def test_order_of_findings() -> None:
    """Errors come first; each part is in the order of the document, where 10 comes after 9."""
    document = json.loads(valid("server_list_8_devices"))
    devices = document["server_list"][0]["device"]
    for index in range(8, 12):
        devices.append({"device_id": str(index), "device_ip": "x" if index > 8 else "loop", "rank_id": str(index)})

    assert [(ERROR, 9), (ERROR, 10), (ERROR, 11), (WARNING, 8)] == [
        (severity, int(path.split("[")[-1].split("]")[0]))
        for severity, path, _, _ in findings(json.dumps(document).encode())
    ]


@pytest.mark.parametrize(
    ("name", "chip"),
    [("server_list_2_super_pods", "A3"), ("rank_list_2_servers", "950"), ("lab_2_servers", "910")],
)
def test_chip_that_a_table_implies(name: str, chip: str) -> None:
    """The version or the chip_info of a table tells its chip."""
    assert chip == checks.implied_chip(codec.loads(valid(name)))


@pytest.mark.parametrize("name", ["server_list_8_devices", "group_list_8_devices"])
def test_table_that_implies_no_chip(name: str) -> None:
    """Version 1.0 is that of several chips."""
    assert checks.implied_chip(codec.loads(valid(name))) is None


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("Ascend910A", "910"),
        ("Ascend910ProB", "910"),
        ("Ascend910B3", "910B"),
        ("ascend910_9391", "A3"),
        ("Ascend310P3", "310P"),
        ("Ascend950PR_9599", "950"),
        ("Ascend910B", None),
        ("Ascend310", None),
        ("", None),
    ],
)
def test_chip_of_the_environment(name: str, chip: str | None) -> None:
    """CANN's SOC_VERSION names the chip."""
    assert chip == checks.chip_of({"SOC_VERSION": name})
    assert checks.chip_of({}) is None


def test_missing_status_is_no_finding() -> None:
    """A document without a status is refused before it is looked at."""
    options: dict[str, Any] = {"status": GONE}
    with pytest.raises(Exception, match=r"^status is missing"):
        findings(edited("server_list_8_devices", **options))
