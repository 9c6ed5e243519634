"""The commands as a user types them: what they print, and their exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ascend_runner.rank_table import codec, source
from ascend_runner.rank_table_tool.main import main
from tests.rank_table.rank_table_edits import edited
from tests.rank_table.rank_table_files import FIXTURES, valid

GROUP = str(FIXTURES / "valid" / "group_list_3_pods_listed_2_10_1.json")
PLAIN = str(FIXTURES / "valid" / "server_list_8_devices.json")
PODS = str(FIXTURES / "valid" / "server_list_2_super_pods.json")
BAD = str(FIXTURES / "invalid" / "server_list_rank_id_gap.json")

Capture = pytest.CaptureFixture[str]
COMMANDS = ("show", "validate", "convert", "wait", "generate", "merge", "subset", "diff")


def _tool(*args: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the tool as a program of its own."""
    return subprocess.run(
        [sys.executable, "-m", "ascend_runner.rank_table_tool", *args], input=data, capture_output=True, check=False
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(name: str, capsys: Capture) -> None:
    """Every command's help shows how it is typed."""
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])

    assert 0 == caught.value.code
    assert f"example: ascend-rank-table {name} " in capsys.readouterr().out


@pytest.mark.parametrize(
    "args", [[], ["shew"], ["show"], ["generate", "--devices", "0-x"], ["wait", "a", "--timeout", "-1"]]
)
def test_usage(args: list[str], capsys: Capture) -> None:
    """Wrong words end with 2 and say what was wrong."""
    with pytest.raises(SystemExit) as caught:
        main(args)

    assert 2 == caught.value.code
    assert "error: " in capsys.readouterr().err


def test_show(capsys: Capture) -> None:
    """A table is listed."""
    assert 0 == main(["show", PODS])
    assert f"{PODS}: server list (template 1), version 1.2\n2 super-pods, " in capsys.readouterr().out


def test_show_json_and_picture(tmp_path: Path, capsys: Capture) -> None:
    """JSON goes to standard output, a picture to its file."""
    assert 0 == main(["show", PODS, "--json", "--svg", str(tmp_path / "a.svg")])
    assert 8 == json.loads(capsys.readouterr().out)["rank_size"]
    assert (tmp_path / "a.svg").read_text().startswith("<svg ")


def test_show_of_a_folder(tmp_path: Path, capsys: Capture) -> None:
    """A folder stands for its jobstart_hccl.json."""
    (tmp_path / "jobstart_hccl.json").write_bytes(valid("group_list_8_devices"))

    assert 0 == main(["show", str(tmp_path)])
    assert f"{tmp_path}/jobstart_hccl.json: group list" in capsys.readouterr().out


def test_what_is_no_table(capsys: Capture) -> None:
    """All that is wrong with a document is told, one line each."""
    both = edited("server_list_8_devices", **{"server_count": "9", "server_list[0].device[0].rank_id": "x"})
    ran = _tool("show", "-", data=both)

    assert 1 == ran.returncode
    first = "server_count is 9, but 1 server is listed, in 'server_count'"
    second = "rank_id is 'x', expected a whole number, in 'server_list[0].device[0].rank_id'"
    assert [f"ascend-rank-table: {sentence} of standard input" for sentence in (first, second)] == (
        ran.stderr.decode().splitlines()
    )
    assert not capsys.readouterr().out


def test_file_that_is_not_there(capsys: Capture) -> None:
    """A file that cannot be read is no bad table: 2."""
    assert 2 == main(["show", "/nowhere/a.json"])
    assert "ascend-rank-table: /nowhere/a.json cannot be read: No such file or directory\n" == capsys.readouterr().err


def test_validate(capsys: Capture) -> None:
    """Findings are told with their code; the status is that of the worst file."""
    assert 0 == main(["validate", PLAIN])
    assert 1 == main(["validate", PLAIN, BAD])
    assert 2 == main(["validate", BAD, "/nowhere/a.json", PLAIN])

    found = "error: rank_id is 4, expected 0 to 3, one for each device, in 'server_list[1].device[1].rank_id' of"
    fine = f"{PLAIN}: nothing found, 1 server, 8 devices"
    assert [
        fine,
        fine,
        f"{found} {BAD} (EI0014)",
        f"{found} {BAD} (EI0014)",
        fine,
    ] == capsys.readouterr().out.splitlines()


def test_validate_with_a_chip(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chip is given, or told by the environment."""
    assert 1 == main(["validate", "--chip", "950", PLAIN])
    monkeypatch.setenv("SOC_VERSION", "Ascend950PR_9599")
    assert 1 == main(["validate", PLAIN])
    assert 2 * [f"error: version is '1.0', the 950 needs '2.0', in 'version' of {PLAIN} (EI0014)"] == (
        capsys.readouterr().out.splitlines()
    )


def test_validate_looks_at_the_name(tmp_path: Path, capsys: Capture) -> None:
    """HCCL reads files whose names end in .json."""
    path = tmp_path / "hccl.txt"
    path.write_bytes(valid("server_list_8_devices"))

    assert 1 == main(["validate", str(path)])
    assert f"error: HCCL would not read {path}: " in capsys.readouterr().out


def test_validate_what_is_not_completed(capsys: Capture) -> None:
    """A table that is not completed is none yet."""
    path = FIXTURES / "invalid" / "not_ready_initializing.json"

    assert 1 == main(["validate", str(path)])
    assert f"error: {path} is not a completed rank table: its status is 'initializing'\n" == capsys.readouterr().out


def test_warnings_are_no_errors(capsys: Capture) -> None:
    """What is odd but works ends with 0."""
    assert 0 == main(["validate", str(FIXTURES / "valid" / "server_list_version_1_1.json")])
    assert capsys.readouterr().out.startswith("warning: version is '1.1'")


def test_convert_through_pipes() -> None:
    """- is standard input and output; what is written is what the runner hands HCCL."""
    data = valid("group_list_8_devices")
    ran = _tool("convert", "-", data=data)

    assert 0 == ran.returncode
    assert codec.dumps(codec.loads(data)) == ran.stdout


def test_convert_there_and_back(tmp_path: Path, capsys: Capture) -> None:
    """A group list becomes a server list and a group list again."""
    there, back = tmp_path / "there.json", tmp_path / "back.json"

    assert 0 == main(["convert", GROUP, "-o", str(there)])
    assert 0 == main(["convert", str(there), "-o", str(back), "--to", "group-list"])
    assert [device.device_ip for device in source.read(GROUP).devices] == [
        device.device_ip for device in source.read(back).devices
    ]
    assert f"ascend-rank-table: wrote {there}: 3 servers, 6 devices\n" in capsys.readouterr().err


def test_convert_hands_on_what_hccl_reads(tmp_path: Path) -> None:
    """A server list is passed on byte for byte."""
    assert 0 == main(["convert", PODS, "-o", str(tmp_path / "a.json")])
    assert Path(PODS).read_bytes() == (tmp_path / "a.json").read_bytes()


def test_output_that_cannot_be_written(capsys: Capture) -> None:
    """A target that cannot be written is told, with 2."""
    assert 2 == main(["convert", PODS, "-o", f"{PODS}/a.json"])
    assert f"ascend-rank-table: {PODS}/a.json cannot be written: Not a directory\n" == capsys.readouterr().err


def test_wait(tmp_path: Path, capsys: Capture) -> None:
    """The command returns when the table is completed."""
    path = tmp_path / "jobstart_hccl.json"
    writer = threading.Thread(target=source.write, args=(path, valid("group_list_8_devices")))
    writer.start()

    assert 0 == main(["wait", str(tmp_path), "--timeout", "30"])
    writer.join()
    assert f"ascend-rank-table: {path} is completed: 1 server, 8 devices" == capsys.readouterr().err.splitlines()[-1]


def test_wait_in_vain(tmp_path: Path, capsys: Capture) -> None:
    """At the limit the reason is told, with 1."""
    path = tmp_path / "a.json"
    path.write_bytes(b'{"status": "initializing"}')

    assert 1 == main(["wait", str(path), "--timeout", "0"])
    sentence = f"the rank table {path} was not completed within 0 s: its status is 'initializing'"
    assert f"ascend-rank-table: {sentence}\n" == capsys.readouterr().err


def test_generate(tmp_path: Path, capsys: Capture) -> None:
    """A machine's table comes from its hccn.conf."""
    conf = tmp_path / "hccn.conf"
    conf.write_text("".join(f"address_{index}=192.168.1.{index}\n" for index in (0, 1, 2, 10)))

    assert 0 == main(["generate", "--hccn-conf", str(conf), "--devices", "1-2,10", "--server-id", "10.0.0.1"])
    table = codec.loads(capsys.readouterr().out.encode())
    assert [(1, "192.168.1.1"), (2, "192.168.1.2"), (10, "192.168.1.10")] == [
        (device.device_id, device.device_ip) for device in table.devices
    ]
    assert "10.0.0.1" == table.servers[0].server_id


def test_generate_with_the_tool(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where hccn.conf is not mounted, that is told, and hccn_tool is asked."""
    tool = tmp_path / "hccn_tool"
    tool.write_text('#!/bin/sh\n[ "$1 $3 $4" = "-i -ip -g" ] && echo "ipaddr:192.168.7.$2"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    missing = str(tmp_path / "hccn.conf")

    assert 0 == main(["generate", "--hccn-conf", missing, "--devices", "3,5"])
    out, err = capsys.readouterr()
    assert ["192.168.7.3", "192.168.7.5"] == [device.device_ip for device in codec.loads(out.encode()).devices]
    assert f"warning: there is no {missing}, where the driver keeps the addresses" in err


def test_merge_and_subset(tmp_path: Path, capsys: Capture) -> None:
    """Two parts of a table, merged, are checked as they are written."""
    parts = [str(tmp_path / name) for name in ("a.json", "b.json")]

    assert 0 == main(["subset", PODS, "--servers", "node-0,node-1", "-o", parts[0]])
    assert 0 == main(["subset", PODS, "--servers", "node-2,node-3", "-o", parts[1]])
    assert 0 == main(["merge", *parts, "-o", str(tmp_path / "c.json")])
    assert source.read(PODS) == source.read(tmp_path / "c.json")
    assert 1 == main(["merge", PODS, parts[0]])
    assert f"server 'node-0' is in {PODS} and in {parts[0]}\n" in capsys.readouterr().err


def test_merge_tells_what_hccl_would_refuse(tmp_path: Path, capsys: Capture) -> None:
    """Tables that are sound one by one may not be together: that is told, with 1."""
    other = tmp_path / "a.json"
    other.write_bytes(edited("server_list_8_devices", **{"server_list[0].server_id": "10.0.0.2"}))

    assert 1 == main(["merge", PLAIN, str(other), "-o", str(tmp_path / "b.json")])
    assert "error: device_ip '192.168.101.1' is that of another device already\n" in capsys.readouterr().err


def test_diff(tmp_path: Path, capsys: Capture) -> None:
    """Equal tables end with 0, others with 1 and what differs by rank, and 2 is for trouble."""
    other = tmp_path / "a.json"
    other.write_bytes(edited("server_list_8_devices", **{"server_list[0].device[5].device_ip": "10.9.9.9"}))

    assert 0 == main(["diff", PLAIN, PLAIN])
    assert not capsys.readouterr().out
    assert 1 == main(["diff", PLAIN, str(other)])
    assert [
        f"A is {PLAIN}, B is {other}",
        "rank 5: device_ip is '192.168.101.6' in A, '10.9.9.9' in B",
    ] == capsys.readouterr().out.splitlines()
    assert 2 == main(["diff", PLAIN, BAD])


def test_diff_of_documents(tmp_path: Path, capsys: Capture) -> None:
    """Tables that say the same can be different documents, which is what HCCL compares."""
    document = json.loads(valid("server_list_8_devices"))
    document["server_list"][0]["device"].reverse()
    document["server_count"] = 1
    other = tmp_path / "a.json"
    other.write_text(json.dumps(document))

    assert 1 == main(["diff", PLAIN, str(other)])
    lines = capsys.readouterr().out.splitlines()
    assert "both say the same of every rank, but HCCL compares the documents, and these differ" == lines[0]
    assert "the document: server_count is '1' in A, 1 in B" == lines[2]
    assert "the document: server_list[0].device[0].device_id is '0' in A, '7' in B" == lines[3]


def test_reader_that_leaves() -> None:
    """A pipe that is closed early is no traceback."""
    data = valid("server_list_8_devices")
    script = f"{sys.executable} -m ascend_runner.rank_table_tool show --json - | true; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["/bin/bash", "-c", script], input=data, capture_output=True, check=False)

    assert ran.returncode in {0, 1}
    assert b"" == ran.stderr


def test_names_of_any_script() -> None:
    """What the terminal's encoding lacks is written out."""
    data = valid("server_list_8_devices").replace(b"10.0.0.1", "节点".encode())
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ran = subprocess.run(
        [sys.executable, "-m", "ascend_runner.rank_table_tool", "show", "-"],
        input=data,
        capture_output=True,
        check=True,
        env=env,
    )

    assert rb"\u8282\u70b9" in ran.stdout


def test_deep_documents_are_no_traceback(tmp_path: Path, capsys: Capture) -> None:
    """Nesting in a key that nobody knows does no harm."""
    deep = valid("server_list_8_devices").replace(b'"status"', b'"deep": ' + b"[" * 900 + b"]" * 900 + b', "status"')
    path = tmp_path / "a.json"
    path.write_bytes(deep)

    # How deep a document may be is orjson's to say, and differs between its versions.
    assert main(["show", str(path)]) in {0, 1}
    assert main(["diff", str(path), str(path)]) in {0, 1, 2}
    assert main(["subset", str(path), "--devices", "0"]) in {0, 1}
    assert "Traceback" not in capsys.readouterr().err
