"""Defects that HCCL would reject in any table: servers, devices, files."""

from __future__ import annotations

import json

import pytest

from ascend_runner.rank_table import checks, codec
from ascend_runner.rank_table.fields import BAD_TABLE, BAD_VALUE
from tests.rank_table.rank_table_edits import ERROR, WARNING, edited, problems, sentences, servers_with
from tests.rank_table.rank_table_files import FIXTURES, valid

CLEAN = [
    path.stem
    for path in sorted((FIXTURES / "valid").glob("*.json"))
    if not codec.loads(path.read_bytes()).notes and path.stem != "group_list_without_devices"
]


@pytest.mark.parametrize("name", CLEAN)
def test_good_table_has_no_problems(name: str) -> None:
    """Every valid fixture that decodes without a warning is clean."""
    assert [] == problems(valid(name))


def test_notes_of_the_decoder_are_findings() -> None:
    """Warnings of the decoder are included in the problems."""
    sentence = "version is '1.1', so HCCL would parse the table as heterogeneous; rewritten as '1.0'"

    assert [(WARNING, "version", sentence, BAD_VALUE)] == problems(valid("server_list_version_1_1"))


def test_problems_of_the_decoder_are_findings() -> None:
    """Errors of the decoder are included in the problems, along with everything else that HCCL would reject."""
    data = edited(
        "server_list_ranks_do_not_rise",
        **{"server_list[0].device[0].rank_id": "x"},
        **{"server_list[1].device[1].device_ip": "nonsense"},
    )

    assert [
        (ERROR, "server_list[0].device[0].rank_id", "rank_id is 'x', expected a whole number", BAD_VALUE),
        (ERROR, "server_list[1].device[1].device_ip", "device_ip is 'nonsense', expected an IP address", BAD_VALUE),
    ] == problems(data)


@pytest.mark.parametrize(("chip", "last"), [("910", 7), ("910B", 15), ("A3", 15), ("310P", 31)])
def test_device_id_limit(chip: str, last: int) -> None:
    """A device_id above the maximum of its chip is an error."""
    assert [] == sentences(servers_with((last,)), chip)
    assert [(ERROR, f"device_id is {last + 1}, but the highest on the {chip} is {last}")] == sentences(
        servers_with((last + 1,)), chip
    )


def test_device_id_limit_of_an_unknown_chip() -> None:
    """If the chip is unknown, only a device_id that no chip accepts is an error."""
    assert [] == sentences(servers_with((64,)))
    assert [(ERROR, "device_id is 65, but the highest on any chip is 64")] == sentences(servers_with((65,)))


def test_empty_table() -> None:
    """HCCL requires devices in a server list or rank list; a job without devices has a group list."""
    no_server = (ERROR, "server_list", "server_list is empty, expected at least one server", BAD_VALUE)
    no_device = (ERROR, "server_list[0].device", "server '10.0.0.1' has no devices", BAD_TABLE)
    no_rank = (ERROR, "rank_list", "rank_list is empty, expected at least one rank", BAD_VALUE)

    assert [no_server] == problems(edited("server_list_8_devices", server_list=[], server_count="0"))
    assert [no_device] == problems(edited("server_list_8_devices", **{"server_list[0].device": []}))
    assert [no_rank] == problems(edited("rank_list_2_servers", rank_list=[], rank_count=0))
    assert [(WARNING, "", "the table has no devices", "")] == problems(valid("group_list_without_devices"))
    assert [no_server] == problems(edited("server_list_8_devices", server_list=[], server_count="0"), "910")


@pytest.mark.parametrize("path", ["server_list[0]", "server_list[0].device[0]"])
def test_array_whose_only_item_is_unreadable(path: str) -> None:
    """An unreadable item is reported, but its array is not reported as empty."""
    document = json.loads(valid("server_list_8_devices"))
    del document["server_list"][0]["device"][1:]
    steps = document["server_list"] if path == "server_list[0]" else document["server_list"][0]["device"]
    steps[0] = "x"
    name = path.rpartition(".")[2]

    assert [(ERROR, path, f"{name} is 'x', expected an object", BAD_TABLE)] == problems(json.dumps(document).encode())


def test_length_of_server_id() -> None:
    """A server_id has at most 64 bytes, not characters."""
    assert [] == problems(edited("server_list_8_devices", **{"server_list[0].server_id": "x" * 64}))

    name = "é" * 33
    sentence = f"server_id '{name}' is longer than 64 bytes"
    assert [(ERROR, "server_list[0].server_id", sentence, BAD_TABLE)] == problems(
        edited("server_list_8_devices", **{"server_list[0].server_id": name})
    )


def test_interleaved_ranks() -> None:
    """Ranks of one server that are interleaved with another's are a warning: CANN does not support them."""
    data = edited(
        "server_list_ranks_do_not_rise",
        **{"server_list[0].device[0].rank_id": "0"},
        **{"server_list[1].device[1].rank_id": "2"},
    )
    sentence = "of server '{}' are interleaved with those of other servers, which CANN does not support"

    assert [
        (WARNING, "server_list[0].server_id", f"ranks 0 to 3 {sentence.format('10.0.0.2')}", ""),
    ] == problems(data)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/t/hccl.txt", "HCCL cannot read /t/hccl.txt: '.json' must occur once in the path, at its end"),
        ("/t/x.json/y.json", "HCCL cannot read /t/x.json/y.json: '.json' must occur once in the path, at its end"),
        ("/t/" + "x" * 4088 + ".json", "the path of the table is longer than 4095 bytes"),
    ],
)
def test_path_of_the_file(path: str, sentence: str) -> None:
    """HCCL requires a path with one ".json", at its end, of limited length."""
    assert [sentence] == [finding.sentence for finding in checks.check(servers_with((0,)), path=path)]
    assert () == checks.check(servers_with((0,)), path="/t/jobstart_hccl.json")


@pytest.mark.parametrize(("name", "limit"), [("server_list_8_devices", 40 << 20), ("rank_list_2_servers", 1 << 30)])
def test_size_of_the_file(name: str, limit: int) -> None:
    """HCCL reads at most 40 MB, and 1 GB of a rank list."""
    table = codec.loads(valid(name))

    assert () == checks.check(table, path="/t/a.json", size=limit)
    assert [f"the table has {limit + 1} bytes, but HCCL reads at most {limit}"] == [
        finding.sentence for finding in checks.check(table, path="/t/a.json", size=limit + 1)
    ]


def test_order_of_findings() -> None:
    """Errors come first; each part is in document order, with indices compared as numbers."""
    document = json.loads(valid("server_list_8_devices"))
    devices = document["server_list"][0]["device"]
    for index in range(8, 12):
        devices.append({"device_id": str(index), "device_ip": "x" if index > 8 else "loop", "rank_id": str(index)})

    assert [(ERROR, 9), (ERROR, 10), (ERROR, 11), (WARNING, 8)] == [
        (severity, int(path.split("[")[-1].split("]")[0]))
        for severity, path, _, _ in problems(json.dumps(document).encode())
    ]
