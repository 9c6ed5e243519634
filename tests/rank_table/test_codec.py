"""Decoding and encoding: every fixture, round trips, and which exceptions may be raised."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from random import Random
from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.errors import RankTableError, RankTableNotReadyError
from ascend_runner.problems import RankTableFormatError
from ascend_runner.rank_table import checks, codec
from ascend_runner.rank_table.model import RankTable
from tests.rank_table.rank_table_changes import changed
from tests.rank_table.rank_table_edits import ERROR, edited
from tests.rank_table.rank_table_files import FIXTURES, invalid, valid
from tests.rank_table.rank_table_strategies import (
    group_list_documents,
    json_values,
    lab_list_documents,
    patient,
    rank_list_tables,
    server_list_tables,
)

INSTANCE: Final = "group_list[0].instance_list[1]"
DEVICE: Final = f"{INSTANCE}.devices[1]"
REFUSED: Final = {
    "group_list_device_count_0_with_devices": (
        "device_count is 0, but 4 devices are listed",
        "group_list[0].device_count",
    ),
    "group_list_device_count_wrong": ("device_count is 16, but 4 devices are listed", "group_list[0].device_count"),
    "group_list_device_id_fraction": ("device_id is 1.5, expected a whole number", f"{DEVICE}.device_id"),
    "group_list_device_id_huge": (
        "device_id is '999999999999999999999999999999999999999999999999999999999999'..., expected a whole number",
        f"{DEVICE}.device_id",
    ),
    "group_list_device_id_is_bool": ("device_id is true, expected a whole number", f"{DEVICE}.device_id"),
    "group_list_device_id_missing": ("missing field 'device_id'", f"{DEVICE}.device_id"),
    "group_list_device_id_negative": ("device_id is '-1', expected a whole number", f"{DEVICE}.device_id"),
    "group_list_device_id_no_number": ("device_id is 'npu1', expected a whole number", f"{DEVICE}.device_id"),
    "group_list_device_id_other_digits": ("device_id is '٣', expected a whole number", f"{DEVICE}.device_id"),
    "group_list_device_in_2_pods_of_1_server": (
        "duplicate device_id 3 on server '10.0.0.1' (first used in group_list[0].instance_list[0].devices[3])",
        f"{INSTANCE}.devices[0].device_id",
    ),
    "group_list_device_ip_no_text": ("device_ip is an array, expected a string", f"{DEVICE}.device_ip"),
    "group_list_device_no_object": ("devices[0] is 0, expected an object", f"{INSTANCE}.devices[0]"),
    "group_list_device_twice": (
        "duplicate device_id 0 on server '10.0.0.2' (first used in group_list[0].instance_list[1].devices[0])",
        f"{DEVICE}.device_id",
    ),
    "group_list_devices_no_array": ("devices is '0,1', expected an array", f"{INSTANCE}.devices"),
    "group_list_group_count_no_number": ("group_count is 'one', expected a whole number", "group_count"),
    "group_list_group_no_object": ("group_list[0] is 'worker', expected an object", "group_list[0]"),
    "group_list_instance_count_wrong": (
        "instance_count is 1, but 2 instances are listed",
        "group_list[0].instance_count",
    ),
    "group_list_instance_list_missing": ("missing field 'instance_list'", "group_list[0].instance_list"),
    "group_list_instance_no_object": ("instance_list[1] is an array, expected an object", INSTANCE),
    "group_list_no_array": ("group_list is an object, expected an array", "group_list"),
    "group_list_null": ("group_list is null, expected an array", "group_list"),
    "group_list_pod_name_missing": ("missing field 'pod_name'", f"{INSTANCE}.pod_name"),
    "group_list_pod_name_twice": (
        "duplicate pod_name 'job-worker-0' (first used in group_list[0].instance_list[0])",
        f"{INSTANCE}.pod_name",
    ),
    "group_list_server_id_empty": ("server_id is '', expected a non-empty string", f"{INSTANCE}.server_id"),
    "group_list_server_id_missing": ("missing field 'server_id'", f"{INSTANCE}.server_id"),
    "group_list_status_is_number": ("status is 1, expected 'completed'", "status"),
    "group_list_status_missing": ("missing field 'status'", "status"),
    "lab_device_num_wrong": ("device_num is 8, but 4 devices are listed", "group_list[0].device_num"),
    "lab_instance_with_2_devices": (
        "devices has 2 items, expected 1 (each instance has one rank_id)",
        f"{INSTANCE}.devices",
    ),
    "lab_rank_id_missing": ("missing field 'rank_id'", "group_list[0].instance_list[3].rank_id"),
    "lab_rank_id_twice": (
        "duplicate rank_id 0 (first used in group_list[0].instance_list[0].devices[0])",
        "group_list[0].instance_list[3].rank_id",
    ),
    "lab_server_num_wrong": ("server_num is 1, but 2 servers are listed", "group_list[0].server_num"),
    "no_table_array": ("the document is an array, expected an object", ""),
    "no_table_completed_only": ("the document is not a rank table, expected group_list, server_list or rank_list", ""),
    "no_table_null": ("the document is null, expected an object", ""),
    "no_table_object": ("the document is not a rank table, expected group_list, server_list or rank_list", ""),
    "rank_list_device_id_missing": ("missing field 'device_id'", "rank_list[1].device_id"),
    "rank_list_level_list_empty": (
        "level_list is empty, expected at least the level inside the server",
        "rank_list[1].level_list",
    ),
    "rank_list_local_id_missing": ("missing field 'local_id'", "rank_list[1].local_id"),
    "rank_list_net_instance_id_missing": (
        "missing field 'net_instance_id'",
        "rank_list[1].level_list[0].net_instance_id",
    ),
    "rank_list_rank_count_wrong": ("rank_count is 2, but 4 ranks are listed", "rank_count"),
    "rank_list_rank_id_twice": ("duplicate rank_id 0 (first used in rank_list[0])", "rank_list[1].rank_id"),
    "rank_list_status_null": ("status is null, expected 'completed'", "status"),
    "rank_list_version_missing": ("missing field 'version'", "version"),
    "rank_list_version_wrong": ("version is '1.0', expected '2.0'", "version"),
    "server_list_device_missing": ("missing field 'device'", "server_list[1].device"),
    "server_list_device_twice": (
        "duplicate device_id 0 on server '10.0.0.2' (first used in server_list[1].device[0])",
        "server_list[1].device[1].device_id",
    ),
    "server_list_no_array": ("server_list is '10.0.0.1', expected an array", "server_list"),
    "server_list_port_is_array": ("host_port is an array, expected a string", "server_list[0].device[0].host_port"),
    "server_list_rank_id_gap": ("rank_id is 4, expected 0 to 3 (one per device)", "server_list[1].device[1].rank_id"),
    "server_list_rank_id_missing": ("missing field 'rank_id'", "server_list[1].device[0].rank_id"),
    "server_list_rank_id_no_number": ("rank_id is 'x', expected a whole number", "server_list[1].device[0].rank_id"),
    "server_list_rank_id_twice": (
        "duplicate rank_id 2 (first used in server_list[1].device[0])",
        "server_list[1].device[1].rank_id",
    ),
    "server_list_server_count_wrong": ("server_count is 3, but 2 servers are listed", "server_count"),
    "server_list_server_id_missing": ("missing field 'server_id'", "server_list[1].server_id"),
    "server_list_server_id_twice": (
        "duplicate server_id '10.0.0.1' (first used in server_list[0])",
        "server_list[1].server_id",
    ),
    "server_list_status_missing": ("missing field 'status'", "status"),
    "server_list_version_1_3": ("version is '1.3', expected '1.0' or '1.2'", "version"),
    "super_pod_no_object": ("super_pod_list[1] is 'node-2', expected an object", "super_pod_list[1]"),
    "super_pod_server_list_missing": ("missing field 'server_list'", "super_pod_list[1].server_list"),
}
# Tables that HCCL would reject, as the checks find.
REFUSED_BY_CHECKS: Final = {
    "rank_list_backup_addr_no_address": (
        "backup_addr[1] is '172.16.2', expected an address of type IPV4",
        "rank_list[0].level_list[1].rank_addr_list[0].backup_addr[1]",
    ),
    "rank_list_backup_addr_no_array": (
        "backup_addr is '172.16.1.10', expected an array of at most 16 strings",
        "rank_list[0].level_list[1].rank_addr_list[0].backup_addr",
    ),
    "rank_list_backup_addr_of_eid": (
        "backup_addr has 1 address, but an address of type EID has no backups",
        "rank_list[0].level_list[0].rank_addr_list[0].backup_addr",
    ),
    "rank_list_control_plane_addr_of_another_type": (
        "addr is 'fd00::10', expected an address of type IPV4",
        "rank_list[0].control_plane.addr",
    ),
    "rank_list_control_plane_no_object": (
        "control_plane is '172.16.0.10', expected an object",
        "rank_list[0].control_plane",
    ),
    "rank_list_listen_port_beyond": (
        "listen_port is 65536, expected 1 to 65535",
        "rank_list[0].control_plane.listen_port",
    ),
    "rank_list_listen_port_missing": ("missing field 'listen_port'", "rank_list[0].control_plane.listen_port"),
}
# Documents of other kinds, and their names in the error.
FOREIGN: Final = {
    "foreign_clusters": "a rank table of several clusters (cluster_list)",
    "foreign_decode_device_list": "a prefill and decode device list for inference (decode_device_list)",
    "foreign_edges": "a topology file (peer_list, edge_list)",
    "foreign_global_rank_table": "the global rank table of an inference service (server_group_list)",
    "foreign_heterogeneous": "a heterogeneous rank table (version 1.1, node_list)",
    "foreign_pod_annotation": "the annotation of one pod (pod_name, devices)",
    "foreign_prefill_decode": "a prefill and decode device list for inference (prefill_device_list)",
    "foreign_root_info": "the root info of a machine (hccl_rootinfo.json, topo_file_path)",
    "foreign_switches": "a list of switches for affinity scheduling (tor_node.json, tor_count)",
    "foreign_topology": "a topology file (peer_list, edge_list)",
}
NOT_READY: Final = {
    "not_ready_empty": "it is empty",
    "not_ready_half": "it is not JSON at line 18",
    "not_ready_initializing": "its status is 'initializing'",
    "not_ready_initializing_list_null": "its status is 'initializing'",
    "not_ready_initializing_with_old_list": "its status is 'initializing'",
    "not_ready_no_utf8": "it is not JSON: byte 17 is not UTF-8",
    "not_ready_packed_half": "it is packed, but damaged: unexpected end of data",
    "not_ready_packed_no_base64": "it is packed, but damaged: Incorrect padding",
}


def test_tables_list_every_fixture() -> None:
    """The tables above list exactly the invalid fixtures."""
    assert {path.stem for path in (FIXTURES / "invalid").glob("*.json")} == {
        *REFUSED,
        *REFUSED_BY_CHECKS,
        *FOREIGN,
        *NOT_READY,
    }


def test_text() -> None:
    """A document may be a string, as for json.loads; a sentence says what is wrong with one that is no table."""
    document = valid("group_list_1_device")

    assert codec.loads(document) == codec.loads(document.decode())
    assert "group list: 1 server, 1 device" == str(codec.loads(document))
    with pytest.raises(RankTableFormatError, match=r"^the document is not a rank table, expected group_list"):
        codec.loads("{}")
    with pytest.raises(TypeError, match=r"^expected bytes or str as the rank table, not NoneType$"):
        codec.loads(None)  # type: ignore[arg-type]  # as in a program without types


@pytest.mark.parametrize("name", REFUSED)
def test_document_that_is_not_a_table(name: str) -> None:
    """One defect gives one problem, with its path."""
    with pytest.raises(RankTableFormatError) as caught:
        codec.loads(invalid(name), source="a.json")

    (problem,) = caught.value.problems
    assert (*REFUSED[name], "a.json") == (problem.sentence, problem.path, problem.source)


@pytest.mark.parametrize("name", [name for name in REFUSED if name.endswith(("_count_wrong", "_num_wrong"))])
def test_wrong_count_with_lists_decide(name: str) -> None:
    """With lists_decide a wrong count is a warning, and the output has the right one."""
    sentence, path = REFUSED[name]
    table = codec.loads(invalid(name), source="a.json", lists_decide=True)

    assert [(f"{sentence} (the count is ignored)", path)] == [(note.sentence, note.path) for note in table.notes]
    assert () == codec.loads(codec.to_hccl_bytes(table)).notes


def test_wrong_number_of_groups() -> None:
    """A wrong group_count is a warning in any case: the conversion drops it."""
    table = codec.loads(edited("group_list_8_devices", group_count="2"), source="a.json")

    (note,) = table.notes
    assert "group_count is 2, but 1 group is listed (the count is ignored), in 'group_count' of a.json" == str(note)
    assert b"group_count" not in codec.to_hccl_bytes(table)


@pytest.mark.parametrize("name", [name for name in REFUSED if name.endswith(("_twice", "_empty", "_missing"))])
def test_other_errors_with_lists_decide(name: str) -> None:
    """With lists_decide other errors are still errors."""
    with pytest.raises(RankTableFormatError) as caught:
        codec.loads(invalid(name), lists_decide=True)

    assert [REFUSED[name][0]] == [problem.sentence for problem in caught.value.problems]


@pytest.mark.parametrize("name", REFUSED_BY_CHECKS)
def test_table_that_hccl_would_reject(name: str) -> None:
    """One defect gives one problem of the checks, with its path."""
    assert codec.loads(invalid(name))
    (finding,) = checks.check_document(codec.examine(invalid(name)))

    assert (ERROR, *REFUSED_BY_CHECKS[name]) == (finding.severity, finding.sentence, finding.path)


@pytest.mark.parametrize("empty", [[], None, {}, ""])
def test_empty_list_of_another_dialect(empty: object) -> None:
    """An empty list of another dialect does not change the dialect of a group list."""
    table = codec.loads(edited("group_list_1_device", server_list=empty, rank_list=empty))

    assert codec.loads(valid("group_list_1_device")).devices == table.devices


@pytest.mark.parametrize("name", FOREIGN)
def test_document_of_another_kind(name: str) -> None:
    """A document that is often mistaken for a rank table is rejected by name."""
    with pytest.raises(RankTableFormatError) as caught:
        codec.loads(invalid(name), source="a.json")

    (problem,) = caught.value.problems
    expected = "expected a job's rank table with group_list, server_list or rank_list"
    assert f"the document is {FOREIGN[name]}, {expected}" == problem.sentence


@pytest.mark.parametrize("name", NOT_READY)
def test_document_that_may_become_a_table(name: str) -> None:
    """A document that may still become a table raises RankTableNotReadyError with the reason."""
    with pytest.raises(RankTableNotReadyError) as caught:
        codec.loads(invalid(name), source="a.json")

    assert f"a.json is not a completed rank table: {caught.value.reason}" == str(caught.value)
    assert caught.value.reason.startswith(NOT_READY[name])  # some end in words of orjson


@pytest.mark.parametrize("path", sorted((FIXTURES / "valid").glob("*.json")), ids=lambda path: path.stem)
def test_valid_fixture(path: Any) -> None:
    """Every valid fixture is a table; writing and reading it keeps servers, devices and ranks."""
    table = codec.loads(path.read_bytes())
    again = codec.loads(codec.dumps(table))

    assert [_facts(device) for device in table.devices] == [_facts(device) for device in again.devices]
    assert [server.server_id for server in table.servers] == [server.server_id for server in again.servers]


def _facts(device: Any) -> tuple[int, str, int]:
    return (device.device_id, device.device_ip, device.rank_id)


def test_all_defects_are_reported() -> None:
    """All defects of a document are reported at once, in document order, including those that the checks find."""
    document = {
        "status": "completed",
        "version": "1.0",
        "server_count": "2",
        "server_list": [
            {"server_id": "", "device": [{"device_id": "x", "device_ip": "192.168.0.1", "rank_id": "0"}]},
            {"server_id": "b", "device": [{"device_id": "1", "rank_id": "0"}]},
            {"server_id": "c", "device": []},
        ],
    }
    with pytest.raises(RankTableFormatError) as caught:
        codec.loads(json.dumps(document).encode(), source="a.json")

    assert [
        ("server_count", "server_count is 2, but 3 servers are listed"),
        ("server_list[0].device[0].device_id", "device_id is 'x', expected a whole number"),
        ("server_list[0].server_id", "server_id is '', expected a non-empty string"),
        ("server_list[1].device[0].device_ip", "device_ip is missing, but every device needs one with several servers"),
        ("server_list[1].device[0].rank_id", "duplicate rank_id 0 (first used in server_list[0].device[0])"),
        ("server_list[2].device", "server 'c' has no devices"),
    ] == [(problem.path, problem.sentence) for problem in caught.value.problems]


def test_written_table_reads_well() -> None:
    """The output is indented and ends with a newline, because people read it."""
    written = codec.dumps(codec.loads(valid("group_list_1_device")))

    assert (
        b'{\n  "status": "completed",\n  "version": "1.0",\n  "server_count": "1",\n  "server_list": [\n    {\n'
        b'      "server_id": "10.0.0.1",\n      "device": [\n        {\n          "device_id": "4",\n'
        b'          "device_ip": "192.168.101.5",\n          "rank_id": "0"\n        }\n      ]\n    }\n  ]\n}\n'
    ) == written


def test_native_table_is_copied() -> None:
    """A table that HCCL can read is not changed, not even its whitespace."""
    data = valid("server_list_unknown_keys")

    assert data is codec.to_hccl_bytes(codec.loads(data))


@pytest.mark.parametrize("name", ["group_list_8_devices", "server_list_integers"])
def test_other_table_is_rewritten(name: str) -> None:
    """A table that HCCL cannot read as intended is rewritten."""
    data = valid(name)
    table = codec.loads(data)

    assert codec.dumps(table) == codec.to_hccl_bytes(table)


def test_byte_order_mark() -> None:
    """A byte order mark is ignored, as HCCL ignores it."""
    assert 8 == codec.loads(b"\xef\xbb\xbf" + valid("server_list_8_devices")).rank_size


@patient
@given(server_list_tables() | rank_list_tables())
def test_round_trip(table: RankTable) -> None:
    """Reading a written table gives an equal one, and writing it again the same bytes."""
    written = codec.dumps(table)

    assert table == codec.loads(written)
    assert written == codec.dumps(codec.loads(written))


@patient
@given(group_list_documents())
def test_group_list_converts(document: dict[str, Any]) -> None:
    """A conversion keeps each device on its server, and numbers the ranks from 0 without gaps."""
    table = codec.loads(orjson.dumps(document))
    converted = codec.loads(codec.dumps(table))

    instances = [instance for group in document["group_list"] for instance in group["instance_list"]]
    listed = {(pod["server_id"], int(device["device_id"])) for pod in instances for device in pod["devices"]}
    assert listed == {(server.server_id, d.device_id) for server in converted.servers for d in server.devices}
    assert list(range(len(listed))) == [device.rank_id for device in converted.devices]


@patient
@given(lab_list_documents())
def test_lab_list_converts(document: dict[str, Any]) -> None:
    """A conversion of the lab form keeps each rank with its device and server."""
    converted = codec.loads(codec.dumps(codec.loads(orjson.dumps(document))))

    instances = [instance for group in document["group_list"] for instance in group["instance_list"]]
    listed = {(int(one["rank_id"]), one["server_id"], int(one["devices"][0]["device_id"])) for one in instances}
    assert listed == {
        (d.rank_id, server.server_id, d.device_id) for server in converted.servers for d in server.devices
    }


@patient
@given(server_list_tables() | rank_list_tables())
def test_packed_round_trip(table: RankTable) -> None:
    """A packed table is read and passed on as the table inside."""
    document = codec.dumps(table)
    data = base64.b64encode(gzip.compress(document, 1))

    assert table == codec.loads(data)
    assert document == codec.to_hccl_bytes(codec.loads(data))


@patient
@given(st.binary(max_size=200))
def test_bytes_never_escape_as_another_error(data: bytes) -> None:
    """Arbitrary bytes give a table or a RankTableError."""
    _load(data)


@patient
@given(
    st.sampled_from(["group_list", "server_list", "rank_list"]),
    st.dictionaries(
        st.sampled_from(
            ["version", "group_count", "server_count", "server_list", "super_pod_list", "group_list", "deploy_mode"]
        ),
        json_values,
    ),
    st.lists(
        st.dictionaries(
            st.sampled_from(["device", "devices", "server_id", "instance_list", "rank_id", "level_list", "local_id"]),
            json_values,
        )
    ),
)
def test_json_never_escapes_as_another_error(dialect: str, rest: dict[str, object], entries: list[object]) -> None:
    """An arbitrary document gives a table or a RankTableError."""
    _load(json.dumps({**rest, "status": "completed", dialect: entries}).encode())


@patient
@given(st.sampled_from(sorted(FIXTURES.glob("*valid/*.json"))), st.integers(0, 2**64))
def test_changed_fixture_never_escapes_as_another_error(path: Path, seed: int) -> None:
    """A randomly changed fixture gives a table that survives a round trip, or a RankTableError."""
    chance = Random(seed)  # noqa: S311 - dice
    try:
        document = json.loads(path.read_bytes())
    except ValueError:
        return

    for _ in range(chance.choice((1, 1, 2, 4))):
        document = changed(document, chance)
    data = json.dumps(document).encode()
    try:
        table = codec.loads(data)
        again = codec.loads(codec.dumps(table))
    except RankTableError:
        return
    assert [_facts(device) for device in table.devices] == [_facts(device) for device in again.devices]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"[" * 5000 + b"]" * 5000, "the document is not JSON at line 1 column "),
        (b'{"status": 1' + b"0" * 5000 + b"}", "the document is not JSON at line 1 column "),
        (b'{"status": 1e999}', "the document is not JSON at line 1 column "),
        (b'{"status": NaN}', "the document is not JSON at line 1 column "),
        (b'{"status": "\\ud800"}', "the document is not JSON at line 1 column "),
        (b'{"status": "completed", "group_list": [], "group_list": 3}', "group_list is 3, expected an array"),
        ("\ufeff{}".encode("utf-16-le"), "the document is UTF-16 or UTF-32, expected UTF-8"),
        ("\ufeff{".encode("utf-16-be"), "the document is UTF-16 or UTF-32, expected UTF-8"),
        ("\ufeff{}".encode("utf-32-be"), "the document is UTF-16 or UTF-32, expected UTF-8"),
        ("{}".encode("utf-16-le"), "the document is not JSON at line 1 column "),
    ],
    ids=[
        "deep",
        "digits",
        "exponent",
        "NaN",
        "surrogate",
        "key twice",
        "UTF-16",
        "UTF-16 half",
        "UTF-32",
        "UTF-16 without mark",
    ],
)
def test_complete_document_that_is_not_a_table(data: bytes, sentence: str) -> None:
    """A complete document that is not a rank table is rejected at once."""
    with pytest.raises(RankTableFormatError) as caught:
        codec.loads(data)

    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("end", [b"", b"}}", b" x", b'{"status": "completed"}', b"[" * 10_000])
def test_incomplete_document(end: bytes) -> None:
    """A truncated document, or one with leftovers of a longer one, is not ready yet."""
    data = valid("server_list_8_devices")
    with pytest.raises(RankTableNotReadyError):
        codec.loads(data + end if end else data[:-5])


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**300 + 7])
def test_large_numbers_are_kept(number: int) -> None:
    """A whole number of an unknown key keeps its digits when a table is rewritten."""
    data = edited("server_list_integers", **{"uid": number, "server_list[0].device[0].uid": number})
    written = json.loads(codec.to_hccl_bytes(codec.loads(data)))

    assert not codec.loads(data).is_native
    assert number == written["uid"] == written["server_list"][0]["device"][0]["uid"]


def test_large_number_in_a_deep_document() -> None:
    """A document that is too deep for the exact parser is still read."""
    deep = valid("server_list_8_devices").replace(b"{", b'{"x": ' + b"[" * 1000 + b"1" * 30 + b"]" * 1000 + b",", 1)

    assert 8 == codec.loads(deep).rank_size


@pytest.mark.parametrize(("version", "written"), [(1.0, "1.0"), (1, "1.0"), (1.1, "1.0"), (1.2, "1.2")])
def test_version_that_is_a_number(version: float, written: str) -> None:
    """The version may be a JSON number."""
    table = codec.loads(edited("server_list_8_devices", version=version))

    assert written == json.loads(codec.dumps(table))["version"]
    assert not table.is_native


def _load(data: bytes) -> None:
    try:
        table = codec.loads(data)
    except RankTableError:
        return

    assert isinstance(table, RankTable)
