"""The commands: their output and exit statuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import attrs
import orjson
import pytest

from ascend_runner.rank_table import codec, source
from ascend_runner.tools.rank_table.main import main
from tests.rank_table.rank_table_edits import edited
from tests.rank_table.rank_table_files import FIXTURES, valid

GROUP = str(FIXTURES / "valid" / "group_list_3_pods_listed_2_10_1.json")
PLAIN = str(FIXTURES / "valid" / "server_list_8_devices.json")
PODS = str(FIXTURES / "valid" / "server_list_2_super_pods.json")
DEVICES = "group_list[0].instance_list[0].devices"
BAD = str(FIXTURES / "invalid" / "server_list_rank_id_gap.json")

Capture = pytest.CaptureFixture[str]
WARNED = str(FIXTURES / "valid" / "server_list_version_1_1.json")
CHECKSUM = "HCCL compares tables by a checksum of all these values, including the order of lists (EI0005)."
TOOL = f"{sys.executable} -m ascend_runner.tools.rank_table"
NAMES = ("show", "validate", "wait", "diff", "convert", "generate")


def _tool(*args: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the tool in a process."""
    return subprocess.run(
        [sys.executable, "-m", "ascend_runner.tools.rank_table", *args], input=data, capture_output=True, check=False
    )


def _shell(words: str, before: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run the tool in a shell."""
    return subprocess.run(["/bin/bash", "-c", f"{before} {TOOL} {words}"], capture_output=True, check=False)


def test_first_folder_of_pythonpath_counts() -> None:
    """The first directory of PYTHONPATH is kept if Python does not put the current directory before it (-P)."""
    packages = dict.fromkeys(str(Path(package.__file__ or "").parents[1]) for package in (attrs, orjson))
    env = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join([*packages, str(FIXTURES.parent)])}
    command = [sys.executable, "-S", "-m", "ascend_runner.tools.rank_table", "show", PLAIN]
    ended = subprocess.run(command, env=env, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)

    assert (0, b"") == (ended.returncode, ended.stderr)


@pytest.mark.parametrize("name", NAMES)
def test_help_has_an_example(name: str, capsys: Capture) -> None:
    """The help of every command has an example."""
    assert 0 == main([name, "--help"])
    assert f"example: ascend-rank-table {name} " in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_help_breaks_no_word(name: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal of any width no path and no option is broken at a hyphen, so that each can be copied."""
    for columns in range(40, 100, 5):
        monkeypatch.setenv("COLUMNS", str(columns))
        main([name, "--help"])

    assert [] == [line for line in capsys.readouterr().out.splitlines() if re.search(r"\w-$", line)]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["show"], "the following arguments are required: FILE"),
        (["show", ""], "argument FILE: file name is empty"),
        (["convert", PLAIN, "-o", ""], "argument -o/--output: file name is empty"),
        (["generate", "--devices", "0-x"], "argument --devices: '0-x' is not a number or a range such as 8-15"),
        (["generate", "--server-id", ""], "argument --server-id: server_id is empty"),
        (["generate", "--server-id", " a"], "argument --server-id: server_id ' a' has leading or trailing spaces"),
        (
            ["wait", "a", "--timeout", "-1"],
            "argument --timeout: invalid value '-1': expected a number of seconds, 0 or more, or a duration",
        ),
        (["wait", "-"], "argument FILE: cannot wait for standard input; specify a file or directory"),
        (["validate", "--chip", "A4", PLAIN], "argument --chip: invalid choice: 'A4'"),
    ],
)
def test_usage(args: list[str], sentence: str, capsys: Capture) -> None:
    """Wrong usage ends with status 2 and one sentence."""
    assert 2 == main(args)
    assert f"error: {sentence}" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["validate", "-", "-"], "standard input (-) is specified twice, but can be read only once"),
        (["diff", "-", "-"], "standard input (-) is specified twice, but can be read only once"),
        (["shwo", PLAIN], f"unknown command 'shwo' (did you mean show?); the commands are {', '.join(NAMES)}"),
        (["--", "help"], "unknown command 'help'; the commands are "),
        (["show", PLAIN, "--al"], "unknown option '--al' (did you mean --all?); see ascend-rank-table show --help"),
        (["show", PLAIN, "--\x1b[31m"], "unknown option '--\\x1b[31m'; see"),
        (["show", PLAIN, PLAIN], f"unexpected argument '{PLAIN}'; see"),
        (
            ["merge", PLAIN, PLAIN],
            "the command merge has been removed: the platform writes one table of all nodes; check",
        ),
        (["subset", PLAIN, "--devices", "0"], "removed: to run fewer ranks, use --nproc-per-node N of ascend-runner; "),
        (["show", PLAIN, "--svg=a"], "option --svg has been removed: ascend-job report draws the rank table of a job"),
    ],
)
def test_contradictory_arguments(args: list[str], sentence: str, capsys: Capture) -> None:
    """Arguments that contradict each other are rejected before anything is read or written."""
    before = Path(PLAIN).read_bytes()

    assert 2 == main(args)
    out, err = capsys.readouterr()
    assert sentence in err
    assert (1, "") == (err.count("\n"), out)
    assert before == Path(PLAIN).read_bytes()


def test_show(capsys: Capture) -> None:
    """`show` lists a table."""
    assert 0 == main(["show", PODS])
    assert f"{PODS}: server list (template 1), version 1.2\n2 super-pods, " in capsys.readouterr().out


def test_show_json(capsys: Capture) -> None:
    """JSON goes to standard output."""
    assert 0 == main(["show", PODS, "--json"])
    assert 8 == json.loads(capsys.readouterr().out)["rank_size"]


def test_show_of_a_folder(tmp_path: Path, capsys: Capture) -> None:
    """A directory stands for its jobstart_hccl.json."""
    (tmp_path / "jobstart_hccl.json").write_bytes(valid("group_list_8_devices"))

    assert 0 == main(["show", str(tmp_path)])
    assert f"{tmp_path}/jobstart_hccl.json: group list" in capsys.readouterr().out


def test_invalid_table(capsys: Capture) -> None:
    """All errors of a document are reported, one line each."""
    both = edited("server_list_8_devices", **{"server_count": "9", "server_list[0].device[0].rank_id": "x"})
    ran = _tool("show", "-", data=both)

    assert 1 == ran.returncode
    first = "server_count is 9, but 1 server is listed, in 'server_count'"
    second = "rank_id is 'x', expected a whole number, in 'server_list[0].device[0].rank_id'"
    assert [f"ascend-rank-table: {sentence} of standard input (EI0014)" for sentence in (first, second)] == (
        ran.stderr.decode().splitlines()
    )
    assert not capsys.readouterr().out


def test_missing_file(capsys: Capture) -> None:
    """A file that cannot be read ends with status 2."""
    assert 2 == main(["show", "/nowhere/a.json"])
    assert "ascend-rank-table: cannot read /nowhere/a.json: no such file or directory\n" == capsys.readouterr().err


def test_validate(capsys: Capture) -> None:
    """Problems are printed with their code; the status is that of the worst file."""
    assert 0 == main(["validate", PLAIN])
    assert 1 == main(["validate", PLAIN, BAD])
    assert 2 == main(["validate", BAD, "/nowhere/a.json", PLAIN])

    found = "error: rank_id is 4, expected 0 to 3 (one per device), in 'server_list[1].device[1].rank_id' of"
    fine = f"{PLAIN}: no problems, 1 server, 8 devices"
    assert [
        fine,
        fine,
        f"{found} {BAD} (EI0014)",
        f"{found} {BAD} (EI0014)",
        fine,
    ] == capsys.readouterr().out.splitlines()


def test_validate_with_a_chip(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chip comes from the option or the environment."""
    assert 1 == main(["validate", "--chip", "950", PLAIN])
    monkeypatch.setenv("SOC_VERSION", "Ascend950PR_9599")
    assert 1 == main(["validate", PLAIN])
    assert 2 * [f"error: version is '1.0', but the 950 requires '2.0', in 'version' of {PLAIN} (EI0014)"] == (
        capsys.readouterr().out.splitlines()
    )


def test_validate_looks_at_the_name(tmp_path: Path, capsys: Capture) -> None:
    """HCCL reads files whose names end in .json."""
    path = tmp_path / "hccl.txt"
    path.write_bytes(valid("server_list_8_devices"))

    assert 1 == main(["validate", str(path)])
    assert f"error: HCCL cannot read {path}: " in capsys.readouterr().out


def test_validate_what_is_not_completed(capsys: Capture) -> None:
    """A table that is not completed is an error."""
    path = FIXTURES / "invalid" / "not_ready_initializing.json"

    assert 1 == main(["validate", str(path)])
    assert f"error: {path} is not a completed rank table: its status is 'initializing'\n" == capsys.readouterr().out


def test_warnings_alone(capsys: Capture) -> None:
    """Warnings alone end with status 0."""
    assert 0 == main(["validate", str(FIXTURES / "valid" / "server_list_version_1_1.json")])
    assert capsys.readouterr().out.startswith("warning: version is '1.1'")


def test_convert_through_pipes() -> None:
    """A dash stands for standard input and output; the output is what the runner gives HCCL."""
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


def test_convert_copies_what_hccl_reads(tmp_path: Path) -> None:
    """A server list is passed on byte for byte."""
    assert 0 == main(["convert", PODS, "-o", str(tmp_path / "a.json")])
    assert Path(PODS).read_bytes() == (tmp_path / "a.json").read_bytes()


def test_output_that_cannot_be_written(capsys: Capture) -> None:
    """A target that cannot be written is reported, with status 2."""
    assert 2 == main(["convert", PODS, "-o", f"{PODS}/a.json"])
    assert f"ascend-rank-table: cannot write {PODS}/a.json: no such directory: {PODS}\n" == capsys.readouterr().err


def test_wait(tmp_path: Path, capsys: Capture) -> None:
    """The command returns when the table is completed."""
    path = tmp_path / "jobstart_hccl.json"
    writer = threading.Thread(target=source.write, args=(path, valid("group_list_8_devices")))
    writer.start()

    assert 0 == main(["wait", str(tmp_path), "--timeout", "30"])
    writer.join()
    assert f"ascend-rank-table: {path} is completed: 1 server, 8 devices" == capsys.readouterr().err.splitlines()[-1]


def test_wait_times_out(tmp_path: Path, capsys: Capture) -> None:
    """At the limit the reason is reported, with status 1."""
    path = tmp_path / "a.json"
    path.write_bytes(b'{"status": "initializing"}')

    assert 1 == main(["wait", str(path), "--timeout", "0"])
    sentence = f"timed out after 0 s waiting for the rank table {path}: its status is 'initializing'; "
    assert capsys.readouterr().err.startswith(f"ascend-rank-table: {sentence}")


def test_generate(tmp_path: Path, capsys: Capture) -> None:
    """Addresses come from hccn.conf."""
    conf = tmp_path / "hccn.conf"
    conf.write_text("".join(f"address_{index}=192.168.1.{index}\n" for index in (0, 1, 2, 10)))

    assert 0 == main(["generate", "--hccn-conf", str(conf), "--devices", "1-2,10", "--server-id", "10.0.0.1"])
    table = codec.loads(capsys.readouterr().out.encode())
    assert [(1, "192.168.1.1"), (2, "192.168.1.2"), (10, "192.168.1.10")] == [
        (device.device_id, device.device_ip) for device in table.devices
    ]
    assert "10.0.0.1" == table.servers[0].server_id


@pytest.fixture
def hccn_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an hccn_tool into PATH that knows the address of every device but 9, and return the file of its questions."""
    asked = tmp_path / "asked"
    tool = tmp_path / "hccn_tool"
    tool.write_text(f'#!/bin/sh\necho $2 >>{asked}; [ "$1 $3 $4 $2" = "-i -ip -g 9" ] || echo "ipaddr:192.168.7.$2"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return asked


def test_generate_with_the_tool(hccn_tool: Path, tmp_path: Path, capsys: Capture) -> None:
    """hccn_tool is asked for what hccn.conf does not have; an address that is still missing is a warning."""
    conf = tmp_path / "hccn.conf"
    conf.write_text("address_3=192.168.1.3\n")

    assert 0 == main(["generate", "--hccn-conf", str(conf), "--devices", "5,3,9"])
    out, err = capsys.readouterr()
    assert [(5, "192.168.7.5"), (3, "192.168.1.3"), (9, "")] == [
        (device.device_id, device.device_ip) for device in codec.loads(out.encode()).devices
    ]
    assert "5\n9\n" == hccn_tool.read_text()
    assert "warning: no address found for device 9; the table works on this machine only\n" in err


@pytest.mark.usefixtures("hccn_tool")
def test_generate_without_a_conf(tmp_path: Path, capsys: Capture) -> None:
    """A missing hccn.conf is a warning."""
    missing = str(tmp_path / "hccn.conf")

    assert 0 == main(["generate", "--hccn-conf", missing, "--devices", "3,5"])
    out, err = capsys.readouterr()
    assert ["192.168.7.3", "192.168.7.5"] == [device.device_ip for device in codec.loads(out.encode()).devices]
    assert f"warning: {missing}, which has the addresses of devices, does not exist" in err


def test_generate_of_all_devices(tmp_path: Path, capsys: Capture) -> None:
    """Without a choice the table has what hccn.conf knows, by number and not by text; its first bytes may be a mark."""
    conf = tmp_path / "hccn.conf"
    conf.write_bytes(b"\xef\xbb\xbfaddress_10=192.168.1.10\naddress_2=192.168.1.2\n")

    assert 0 == main(["generate", "--hccn-conf", str(conf), "--server-id", "a"])
    assert [(2, "192.168.1.2"), (10, "192.168.1.10")] == [
        (device.device_id, device.device_ip) for device in codec.loads(capsys.readouterr().out.encode()).devices
    ]


def test_generate_without_devices(capsys: Capture) -> None:
    """A machine without devices has no table."""
    assert 1 == main(["generate", "--hccn-conf", os.devnull])
    assert "ascend-rank-table: no devices found in hccn.conf or /dev; use --devices to specify them\n" == (
        capsys.readouterr().err
    )


def test_convert_writes_nothing_that_hccl_would_reject(tmp_path: Path, capsys: Capture) -> None:
    """Errors of the output are printed as validate does, and --no-checks writes the table."""
    source_path, target = tmp_path / "a.json", tmp_path / "b.json"
    source_path.write_bytes(edited("group_list_8_devices", **{f"{DEVICES}[0].device_ip": "10.0.0.256"}))
    sentence = "device_ip is '10.0.0.256', expected an IP address, in 'server_list[0].device[0].device_ip'"
    told = f"ascend-rank-table: error: {sentence} of the table to be written (EI0014)\n"
    last = "ascend-rank-table: nothing written: HCCL would reject the table; use --no-checks to write it anyway\n"

    assert 1 == main(["convert", str(source_path), "-o", str(target)])
    assert ("", f"{told}{last}") == capsys.readouterr()
    assert not target.exists()

    assert 0 == main(["convert", str(source_path), "-o", str(target), "--no-checks"])
    assert f"{told}ascend-rank-table: wrote {target}: 1 server, 8 devices\n" == capsys.readouterr().err
    assert "10.0.0.256" == codec.loads(target.read_bytes()).rank(0).device_ip


def test_convert_warns(tmp_path: Path, capsys: Capture) -> None:
    """Warnings about the output are printed, and the table is written."""
    odd, target = str(FIXTURES / "valid" / "group_list_names_without_number.json"), tmp_path / "a.json"

    assert 0 == main(["convert", odd, "-o", str(target), "--to", "group-list"])
    warning = "warning: HCCL numbers the ranks differently without conversion (by server_id as text, then"
    assert f"ascend-rank-table: {warning} device_id)" in capsys.readouterr().err
    assert target.exists()


def test_count_that_contradicts_its_list(tmp_path: Path, capsys: Capture) -> None:
    """A wrong count is an error; with --no-checks it is a warning, and the output is correct."""
    bad, target = str(FIXTURES / "invalid" / "server_list_server_count_wrong.json"), tmp_path / "a.json"
    told = "server_count is 3, but 2 servers are listed"

    assert 1 == main(["convert", bad, "-o", str(target)])
    assert f"ascend-rank-table: {told}, in 'server_count' of {bad} (EI0014)\n" == capsys.readouterr().err
    assert 0 == main(["convert", bad, "-o", str(target), "--no-checks"])
    assert f"warning: {told} (the count is ignored), in 'server_count' of {bad} (EI0014)\n" in capsys.readouterr().err
    assert b'"server_count": "2"' in target.read_bytes()


def test_output_to_a_folder_that_is_not_there(tmp_path: Path, capsys: Capture) -> None:
    """Missing directories are not created: the name may be mistyped."""
    assert 2 == main(["convert", PLAIN, "-o", str(tmp_path / "there" / "a.json")])
    sentence = f"cannot write {tmp_path}/there/a.json: no such directory: {tmp_path}/there"
    assert f"ascend-rank-table: {sentence}\n" == capsys.readouterr().err
    assert [] == [*tmp_path.iterdir()]


def test_chip_of_the_output(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output is checked for the chip of --chip, or else of SOC_VERSION."""
    devices = ("--devices", "0-2,4", "--server-id", "a", "--hccn-conf", os.devnull)
    args = ["generate", *devices, "-o", str(tmp_path / "a.json")]

    assert 0 == main([*args, "--chip", "910B"])
    assert 1 == main([*args, "--chip", "910"])
    monkeypatch.setenv("SOC_VERSION", "Ascend910A")
    assert 1 == main(args)
    assert 1 == main(["convert", str(tmp_path / "a.json")])
    assert 3 == capsys.readouterr().err.count("which do not form a ring on the 910")


def test_name_of_the_output(tmp_path: Path, capsys: Capture) -> None:
    """A file whose name HCCL cannot read is written, with a warning."""
    assert 0 == main(["convert", PLAIN, "-o", str(tmp_path / "a.txt")])
    assert f"warning: HCCL cannot read {tmp_path}/a.txt: " in capsys.readouterr().err


def test_diff(tmp_path: Path, capsys: Capture) -> None:
    """Equal tables end with 0, different ones with 1 and their differences by rank, and errors with 2."""
    other = tmp_path / "a.json"
    other.write_bytes(edited("server_list_8_devices", **{"server_list[0].device[5].device_ip": "10.9.9.9"}))

    assert 0 == main(["diff", PLAIN, PLAIN])
    assert not capsys.readouterr().out
    assert 1 == main(["diff", PLAIN, str(other)])
    assert [
        f"A is {PLAIN}, B is {other}",
        "rank 5: device_ip is '192.168.101.6' in A, '10.9.9.9' in B",
        CHECKSUM,
    ] == capsys.readouterr().out.splitlines()
    assert 2 == main(["diff", PLAIN, BAD])


def test_diff_of_documents(tmp_path: Path, capsys: Capture) -> None:
    """Documents are compared, because HCCL compares documents; equal ranks are not enough."""
    document = json.loads(valid("server_list_8_devices"))
    document["server_list"][0]["device"].reverse()
    document["server_count"] = 1
    other = tmp_path / "a.json"
    other.write_text(json.dumps(document))

    assert 1 == main(["diff", PLAIN, str(other)])
    assert [
        "the table: server_count is '1' in A, 1 in B",
        "server 10.0.0.1: device is in a different order: [0] is 'rank 0' in A, 'rank 7' in B",
        CHECKSUM,
    ] == capsys.readouterr().out.splitlines()[1:]


def test_diff_of_null_and_a_text(tmp_path: Path, capsys: Capture) -> None:
    """Null differs from the string 'null'."""
    (tmp_path / "a.json").write_bytes(edited("server_list_8_devices", note=None))
    (tmp_path / "b.json").write_bytes(edited("server_list_8_devices", note="null"))

    assert 1 == main(["diff", str(tmp_path / "a.json"), str(tmp_path / "b.json")])
    assert "the table: note is null in A, 'null' in B" in capsys.readouterr().out


def test_diff_of_dialects(tmp_path: Path, capsys: Capture) -> None:
    """Tables of different dialects are compared as HCCL would read them."""
    assert 0 == main(["convert", GROUP, "-o", str(tmp_path / "a.json")])
    assert 0 == main(["diff", GROUP, str(tmp_path / "a.json")])
    assert 1 == main(["diff", GROUP, PLAIN])
    out, err = capsys.readouterr()
    assert "A is a group list, B is a server list; comparing them as HCCL would read them\n" in err
    assert "server 10.0.0.4 is only in A\n" in out
    assert "rank 0: device_ip is '192.168.102.1' in A, '192.168.101.1' in B\n" in out
    assert "rank 7 is only in B: device 7 on 10.0.0.1\n" in out


def test_reader_that_leaves() -> None:
    """A reader that closes the pipe early causes no traceback."""
    data = valid("server_list_8_devices")
    script = f"{sys.executable} -m ascend_runner.tools.rank_table show --json - | true; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["/bin/bash", "-c", script], input=data, capture_output=True, check=False)

    assert ran.returncode in {0, 2}
    assert b"" == ran.stderr


@pytest.mark.deep(quick=3)
@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (f"show {PLAIN} >/dev/full", 2, "cannot write to standard output: no space left on device"),
        (f"show {PLAIN} --json >/dev/full", 2, "cannot write to standard output: no space left on device"),
        ("show --help >/dev/full", 2, "cannot write to standard output: no space left on device"),
        (f"convert {PLAIN} >/dev/full", 2, "cannot write to standard output: no space left on device"),
        (f"convert {PLAIN} -o /dev/full", 2, "cannot write /dev/full: no space left on device"),
        (f"show {PLAIN} >&-", 2, "cannot write to standard output: it is closed"),
        ("convert - <&-", 2, "cannot read standard input: it is closed"),
        (f"show {WARNED} >/dev/null 2>&-", 0, ""),
        (f"show {WARNED} >/dev/null 2>/dev/full", 0, ""),
        ("show /nowhere 2>&-", 2, ""),
        (f"convert {WARNED} -o /dev/null <&- >&-", 0, "warning: version is '1.1', so HCCL"),
    ],
)
def test_streams_that_fail(words: str, status: int, sentence: str) -> None:
    """A stream that is closed or full causes at most one sentence, never a traceback."""
    ran = _shell(words)

    assert status == ran.returncode
    lines = ran.stderr.decode().splitlines()
    assert ([sentence] if sentence else []) == [line[len("ascend-rank-table: ") :][: len(sentence)] for line in lines]


def test_too_little_memory() -> None:
    """A table that needs more memory than there is ends with one sentence."""
    ran = _shell("show /dev/zero", before="ulimit -v 600000;")

    assert (2, b"ascend-rank-table: not enough memory for a file of this size\n") == (
        ran.returncode,
        ran.stderr,
    )


INTERRUPTED_IMPORT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == "orjson":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


def test_interrupt_while_it_starts(tmp_path: Path) -> None:
    """Ctrl-C during the imports ends with 130, quietly."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_IMPORT)
    program = [sys.executable, "-m", "ascend_runner.tools.rank_table", "show", PLAIN]
    ran = subprocess.run(program, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, check=False)

    assert (130, b"", b"") == (ran.returncode, ran.stdout, ran.stderr)


def test_user_files_of_python_names(tmp_path: Path) -> None:
    """A json.py in the current directory does not shadow Python's."""
    for name in ("json.py", "argparse.py"):
        (tmp_path / name).write_text("raise SystemExit('taken')\n")
    program = [sys.executable, "-m", "ascend_runner.tools.rank_table", "show", "--json", PLAIN]

    assert 8 == json.loads(subprocess.run(program, cwd=tmp_path, capture_output=True, check=True).stdout)["rank_size"]


def test_output_to_a_pipe(tmp_path: Path) -> None:
    """A FIFO is written to, not replaced."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["/bin/cat", pipe], stdout=subprocess.PIPE) as reader:
        assert 0 == main(["convert", PODS, "-o", str(pipe)])
        assert reader.stdout
        assert Path(PODS).read_bytes() == reader.stdout.read()
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", ["/dev/fd/5", "/proc/self/fd/5", "/dev/stdout"])
def test_output_to_a_descriptor(name: str, tmp_path: Path) -> None:
    """Output to a descriptor of the shell is written at the shell's position."""
    there = tmp_path / "a.txt"
    number = "1" if name == "/dev/stdout" else "5"
    script = f"{{ echo a >&{number}; {TOOL} convert {PODS} -o {name}; echo b >&{number}; }} {number}>{there}"
    ran = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=True)

    assert (b"", b"a\n" + Path(PODS).read_bytes() + b"b\n") == (ran.stderr, there.read_bytes())


@pytest.mark.parametrize("name", ["/dev/fd/99", "/dev/fd/99999999999", "/proc/self/fd/²", "/dev"])
def test_output_to_an_invalid_target(name: str, capsys: Capture) -> None:
    """A descriptor that is not open, or a directory, causes one sentence."""
    assert 2 == main(["convert", PLAIN, "-o", name])
    assert 1 == capsys.readouterr().err.count("\n")


def test_output_to_a_link(tmp_path: Path) -> None:
    """A symlink is kept, and its target is replaced or created."""
    link, there = tmp_path / "link.json", tmp_path / "there.json"
    link.symlink_to("there.json")

    for name in (PODS, PLAIN):
        assert 0 == main(["convert", name, "-o", str(link)])
        assert link.is_symlink()
        assert Path(name).read_bytes() == there.read_bytes()
    assert ["link.json", "there.json"] == sorted(path.name for path in tmp_path.iterdir())


def test_names_of_pipes(tmp_path: Path) -> None:
    """The rule for file names does not apply to pipes."""
    ran = _shell(f"validate <(cat {PLAIN}) - <{PLAIN}")

    assert 0 == ran.returncode
    assert 2 == ran.stdout.count(b"no problems, 1 server, 8 devices")

    link = tmp_path / "hccl.txt"
    link.symlink_to(PLAIN)
    assert 0 == main(["validate", str(link)])  # it is the real name that HCCL looks at


def test_control_characters_in_names(tmp_path: Path, capsys: Capture) -> None:
    """Control characters in file names are escaped."""
    path = tmp_path / "\x1b[31m.json"
    path.write_bytes(valid("server_list_8_devices"))
    for command in (["validate"], ["show"], ["diff", PODS], ["convert", "-o", str(path)]):
        main([*command, str(path)])

    assert "\x1b" not in "".join(capsys.readouterr())


def test_wait_for_an_unreadable_file(tmp_path: Path, capsys: Capture) -> None:
    """A file that cannot be read ends with status 2 in `wait` as well."""
    os.mkfifo(tmp_path / "a.json")

    assert 2 == main(["wait", str(tmp_path / "a.json")])
    assert "a.json: it is not a regular file\n" in capsys.readouterr().err


def test_names_of_any_script() -> None:
    """Characters that the output's encoding lacks are escaped."""
    data = valid("server_list_8_devices").replace(b"10.0.0.1", "节点".encode())
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ran = subprocess.run(
        [sys.executable, "-m", "ascend_runner.tools.rank_table", "show", "-"],
        input=data,
        capture_output=True,
        check=True,
        env=env,
    )

    assert rb"\u8282\u70b9" in ran.stdout


def test_deep_documents_are_no_traceback(tmp_path: Path, capsys: Capture) -> None:
    """Deep nesting in an unknown key is harmless."""
    deep = valid("server_list_8_devices").replace(b'"status"', b'"deep": ' + b"[" * 900 + b"]" * 900 + b', "status"')
    path = tmp_path / "a.json"
    path.write_bytes(deep)

    # How deep a document may be is orjson's to say, and differs between its versions.
    assert main(["show", str(path)]) in {0, 1}
    assert main(["diff", str(path), str(path)]) in {0, 1, 2}
    assert "Traceback" not in capsys.readouterr().err
