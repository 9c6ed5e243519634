"""From a rank table to running ranks: where the table is found, how it is awaited, and what the ranks read."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from ascend_runner.platforms.places import USUAL_PLACES
from ascend_runner.tools.job import jobs
from tests.helpers import time_limit
from tests.helpers.job_files import contradictions
from tests.helpers.program import Program, Run, run_here, run_to_end, sentence
from tests.helpers.waiting import wait_until

VALID = Path(__file__).parents[2] / "fixtures" / "valid"
INVALID = VALID.parent / "invalid"
GROUP_LIST = (VALID / "group_list_8_devices.json").read_bytes()
SERVER_LIST = (VALID / "server_list_8_devices.json").read_bytes()
INITIALIZING = b'{"status": "initializing"}'
STRANGER = 12345

# Each rank prints a line with its position and the table that it reads.
TELL = ("sh", "-c", 'echo "$RANK_ID/$RANK_SIZE on $DEVICE_ID"; echo "table $RANK_TABLE_FILE"')


def run(folder: Path, *args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program until it exits in `folder`, with logs in `folder`/log."""
    return run_to_end("--log-dir", "log", *args, env={"MA_VJ_NAME": "job", **(env or {})}, cwd=folder)


def error_of(folder: Path, *args: str, env: dict[str, str] | None = None) -> str:
    """Return the last message of a run that exits with 125."""
    ended = run_here("--log-dir", "log", *args, env={"MA_VJ_NAME": "job", **(env or {})}, cwd=folder)
    assert 125 == ended.returncode, ended.stderr
    return sentence(ended.stderr.splitlines()[-1]).partition("ERROR ")[2]


def told(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the positions that the ranks printed, in rank order."""
    assert 0 == ended.returncode, ended.stderr
    lines = [line.split("] ")[1] for line in ended.stdout.splitlines() if " on " in line]
    return sorted(lines, key=lambda line: int(line.split("/")[0]))


def table_of(ended: subprocess.CompletedProcess[str]) -> str:
    """Return the rank table that all ranks received, "" for none."""
    assert 0 == ended.returncode, ended.stderr
    (path,) = {line.split("] table ")[1] for line in ended.stdout.splitlines() if "] table " in line}
    return path


def planned(folder: Path, *args: str, env: dict[str, str] | None = None) -> list[str]:
    """Return the positions that the ranks would print."""
    ended = run_here(
        "--dry-run", "--log-dir", "log", *args, "true", env={"MA_VJ_NAME": "job", **(env or {})}, cwd=folder
    )
    assert 0 == ended.returncode, ended.stderr
    variables = [rank["variables"] for rank in json.loads(ended.stdout)["ranks"]]
    return [f"{one['RANK_ID']}/{one['RANK_SIZE']} on {one['DEVICE_ID']}" for one in variables]


EIGHT = [f"{rank}/8 on {rank}" for rank in range(8)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a directory with a table of each dialect, and a platform's directory."""
    (tmp_path / "group_list.json").write_bytes(GROUP_LIST)
    (tmp_path / "server_list.json").write_bytes(SERVER_LIST)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "jobstart_hccl.json").write_bytes(GROUP_LIST)
    return tmp_path


# --- Where the table comes from ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "env"),
    [
        (("--rank-table", "group_list.json"), {}),
        (("--rank-table", "config"), {}),
        ((), {"ASCEND_RUNNER_RANK_TABLE": "config"}),
        ((), {"RANK_TABLE_FILE_V_1_0": "server_list.json", "RANK_TABLE_FILE": "/missing"}),
        ((), {"RANK_TABLE_FILE": "config"}),
        ((), {"RANK_TABLE_FILE": "group_list.json"}),
        (("--rank-table", "config"), {"RANK_TABLE_FILE_V_1_0": "/missing", "RANK_TABLE_FILE": "/missing"}),
        (("--rank-table", "config"), {"ASCEND_RUNNER_RANK_TABLE": "/missing"}),
        (("--rank-table", "config"), {"ASCEND_RUNNER_NPROC_PER_NODE": "3"}),
        (("--rank-table", "config", "--nproc-per-node", "8"), {}),
    ],
)
def test_table_is_found(args: tuple[str, ...], env: dict[str, str], folder: Path) -> None:
    """--rank-table, else RANK_TABLE_FILE_V_1_0, else RANK_TABLE_FILE; each a file, or a directory that holds one."""
    assert EIGHT == planned(folder, *args, env=env)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("name", ["RANK_TABLE_FILE_V_1_0", "RANK_TABLE_FILE"])
def test_number_of_processes_beats_the_platforms_tables(name: str, folder: Path) -> None:
    """--nproc-per-node is an explicit choice: no table is read, and none is handed on."""
    ended = run(folder, "--nproc-per-node", "2", *TELL, env={name: "server_list.json"})

    assert ["0/2 on 0", "1/2 on 1"] == told(ended)
    assert "" == table_of(ended)


def test_number_of_processes_that_is_not_the_tables(folder: Path) -> None:
    """Neither --rank-table nor --nproc-per-node is ignored: another number than the table's is refused."""
    sentence = error_of(folder, "--rank-table", "config", "--nproc-per-node", "3", "true")

    assert (
        "--nproc-per-node is 3, but the rank table has 8 devices for this node (server '10.0.0.1'); remove"
        " --nproc-per-node to start the ranks of the table, or --rank-table to start 3 ranks without one" == sentence
    )


@pytest.mark.skipif(
    any(os.path.isdir(os.path.dirname(place)) for place in USUAL_PLACES), reason="this machine has a platform's folder"
)
def test_no_table_anywhere(folder: Path) -> None:
    """The error names all places and the way to do without a rank table."""
    assert (
        "no rank table found: --rank-table, RANK_TABLE_FILE_V_1_0 and RANK_TABLE_FILE are not set, and neither"
        " /user/config nor /user/serverid/devindex/config exists; use --nproc-per-node N to start N processes without"
        " one, such as --nproc-per-node 1" == error_of(folder, "true")
    )


def test_relaunch_reads_the_table_that_it_has_written(folder: Path) -> None:
    """If a framework left RANK_TABLE_FILE at the converted file, a second launch is the same."""
    path = table_of(run(folder, "--rank-table", "config", *TELL))
    before = os.stat(path)
    ended = run(folder, *TELL, env={"RANK_TABLE_FILE": path})

    assert EIGHT == told(ended)
    assert path == table_of(ended)
    assert (before.st_ino, before.st_mtime_ns) == (os.stat(path).st_ino, os.stat(path).st_mtime_ns)


# --- The table that the ranks read ------------------------------------------------------------------------------------


def test_group_list_is_converted(folder: Path) -> None:
    """Ranks read a server list in a regular file below the log directory or the mount."""
    path = Path(table_of(run(folder, "--rank-table", "config", *TELL)))
    document = json.loads(path.read_bytes())

    assert folder / "log" / "job" / "rank_table" / "jobstart_hccl.json" == path
    assert ["status", "version", "server_count", "server_list"] == list(document)
    assert [str(rank) for rank in range(8)] == [
        device["rank_id"] for server in document["server_list"] for device in server["device"]
    ]
    assert stat.S_ISREG(path.lstat().st_mode)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("env", "place"),
    [({"MA_MOUNT_PATH": "mount", "MA_HOME": "home"}, "mount"), ({"MA_HOME": "home"}, "home"), ({}, "log/job")],
)
def test_table_is_written_where_the_platform_expects_it(env: dict[str, str], place: str, folder: Path) -> None:
    """The table goes below MA_MOUNT_PATH, else MA_HOME, else the job's part of the log directory."""
    ended = run(folder, "--rank-table", "config", *TELL, env=env)

    assert str(folder / place / "rank_table" / "jobstart_hccl.json") == table_of(ended)


@pytest.mark.parametrize(("dialect", "times"), [("group_list", 2), ("server_list", 1)])
def test_verbose_shows_the_table(dialect: str, times: int, folder: Path) -> None:
    """--verbose shows the table as it was read and, if it is converted, as the ranks read it; nothing else does."""
    shown, silent = (
        run_here(*options, "--dry-run", "--rank-table", f"{dialect}.json", "true", cwd=folder).stderr.count(
            '"device_ip"'
        )
        for options in (["--verbose"], [])
    )

    assert (8 * times, 0) == (shown, silent)


def test_server_list_is_handed_on_byte_for_byte(folder: Path) -> None:
    """The bytes are unchanged, and the file is regular even if a ConfigMap's is a symlink."""
    original = (VALID / "server_list_unknown_keys.json").read_bytes()
    (folder / "..data").mkdir()
    (folder / "..data" / "table.json").write_bytes(original)
    (folder / "table.json").symlink_to("..data/table.json")
    path = Path(
        table_of(run(folder, "--rank-table", "table.json", *TELL, env={"MA_CURRENT_HOST_IP": _first_server(original)}))
    )

    assert original == path.read_bytes()
    assert not path.is_symlink()


def _first_server(document: bytes) -> str:
    server_id: str = json.loads(document)["server_list"][0]["server_id"]
    return server_id


def test_unwritable_place_is_left_with_a_warning(folder: Path) -> None:
    """If the mount cannot be written, the table goes below the log directory, and the ranks read it there."""
    (folder / "mount").mkdir()
    (folder / "mount" / "rank_table").write_bytes(b"in the way")
    env = {"MA_MOUNT_PATH": str(folder / "mount")}
    ended = run(folder, "--rank-table", "config", "--workdir", "inherit", *TELL, env=env)

    fallback = folder / "log" / "job" / "rank_table" / "jobstart_hccl.json"
    assert str(fallback) == table_of(ended)
    assert fallback.exists()
    warning = (
        f"WARNING cannot create the directory '{folder}/mount/rank_table': file exists; writing the rank table to"
        f" '{fallback}' instead"
    )
    assert warning in map(sentence, ended.stderr.splitlines())


def test_second_place_that_hccl_would_not_read(folder: Path) -> None:
    """HCCL's rule for names applies to the fallback path as well, unless the checks are switched off."""
    (folder / "mount").mkdir()
    (folder / "mount" / "rank_table").write_bytes(b"in the way")
    args = ("--rank-table", "config", "--workdir", "inherit", "--log-dir", "log.json")
    env = {"MA_MOUNT_PATH": str(folder / "mount")}
    refused = run(folder, *args, "touch", "ran", env=env)
    there = folder / "log.json" / "job" / "rank_table" / "jobstart_hccl.json"

    assert 125 == refused.returncode
    assert str(there) in refused.stderr.splitlines()[-1]
    assert not (folder / "ran").exists()
    assert 0 == run(folder, "--no-table-checks", *args, "true", env=env).returncode


def test_nothing_runs_where_no_place_can_be_written(folder: Path) -> None:
    """The exit status is 125: without the table, ranks would wait for each other forever."""
    (folder / "log" / "job").mkdir(parents=True)
    (folder / "log" / "job" / "rank_table").write_bytes(b"in the way")
    error = error_of(folder, "--rank-table", "config", "touch", "ran")

    assert f"cannot create the directory '{folder}/log/job/rank_table': file exists" == error
    assert not (folder / "ran").exists()


def _symlink(place: Path, elsewhere: Path) -> None:
    place.symlink_to(elsewhere)


def _strangers_folder(place: Path, _elsewhere: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make what belongs to somebody else")
    place.mkdir(mode=0o777)
    os.chown(place, STRANGER, STRANGER)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("lay", [_symlink, _strangers_folder])
def test_table_is_not_written_through_what_a_stranger_has_laid(lay: object, folder: Path) -> None:
    """In a world-writable log directory, another user's directory could make ranks read a different table."""
    public, elsewhere = folder / "public", folder / "elsewhere"
    public.mkdir()
    (public / "job").mkdir()
    for open_to_all in (public, public / "job"):
        open_to_all.chmod(0o1777)
    elsewhere.mkdir()
    lay(public / "job" / "rank_table", elsewhere)  # type: ignore[operator]  # one of the functions above
    error = error_of(folder, "--log-dir", str(public), "--rank-table", "config", "touch", "ran")

    assert f"'{public}/job/rank_table'" in error
    assert [] == [*elsewhere.iterdir(), *(public / "job" / "rank_table").iterdir()]
    assert not (folder / "ran").exists()


def test_table_without_devices_is_handed_to_nobody(folder: Path) -> None:
    """The command runs once, on the CPU, and no variable names a table."""
    ended = run(folder, *TELL, env={"RANK_TABLE_FILE": str(VALID / "group_list_without_devices.json")})

    assert ["0/1 on 0"] == told(ended)
    assert "" == table_of(ended)


def test_odd_tables_work_with_a_warning(folder: Path) -> None:
    """Warnings about a table appear before the ranks start."""
    path = VALID / "group_list_names_without_number.json"
    pod = json.loads(path.read_bytes())["group_list"][0]["instance_list"][0]["pod_name"]
    ended = run(folder, "--rank-table", str(path), *TELL, env={"MA_CURRENT_INSTANCE_NAME": pod})
    levels = [sentence(line).split(" ")[0] for line in ended.stderr.splitlines()]

    assert 0 == ended.returncode
    assert ["WARNING", "INFO", "INFO"] == levels
    assert "in 'group_list[0].instance_list'" in ended.stderr


# --- Waiting ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return the path of a table that is not completed."""
    path = tmp_path / "config" / "jobstart_hccl.json"
    path.parent.mkdir()
    path.write_bytes(INITIALIZING)
    return path


def complete(table: Path, data: bytes = GROUP_LIST) -> None:
    """Complete the table as a platform does: by a rename."""
    neighbour = table.with_suffix(".new")
    neighbour.write_bytes(data)
    neighbour.rename(table)


def start_waiting(program: Program, table: Path, *command: str, env: dict[str, str] | None = None) -> Run:
    """Start a run, and return when it waits for the table."""
    waiting = program.start(*command, env={"RANK_TABLE_FILE": str(table.parent), **(env or {})})
    waiting.wait_for("waiting for the rank table")
    return waiting


def test_table_is_awaited(program: Program, table: Path) -> None:
    """While the table is initializing, nothing is started; the wait is announced once."""
    run = start_waiting(program, table, *TELL)
    assert [] == [*program.log_dir.glob("*-proc-*")]
    complete(table)

    assert 0 == run.finish()
    assert 1 == run.screen.count("waiting for the rank table")
    assert 8 == sum("/8 on " in line for line in run.lines)


def test_signal_for_ranks_that_do_not_run_yet(program: Program, table: Path) -> None:
    """A request for a checkpoint is not lost in silence."""
    run = start_waiting(program, table, *TELL)
    run.send(signal.SIGUSR1)
    run.wait_for("SIGUSR1 has no effect because no rank is running")
    complete(table)

    assert 0 == run.finish()


def test_table_that_is_written_in_place_is_awaited_whole(program: Program, table: Path) -> None:
    """A table that is missing, empty, half-written or initializing again does not start the job."""
    table.unlink()
    table.parent.rmdir()
    run = start_waiting(program, table, *TELL)
    table.parent.mkdir()
    for data in (b"", GROUP_LIST[:-100], GROUP_LIST.replace(b"completed", b"initializing")):
        table.write_bytes(data)
    table.write_bytes(GROUP_LIST)

    assert 0 == run.finish()
    assert 8 == sum("/8 on " in line for line in run.lines)


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["run", "dry-run"])
def test_signal_during_the_wait_ends_it(
    program: Program, table: Path, signum: signal.Signals, options: tuple[str, ...]
) -> None:
    """The exit status is 128 + the signal at once; nothing is started, and a dry run creates nothing."""
    run = start_waiting(program, table, *options, "touch", "ran")
    run.send(signum)

    assert 128 + signum == run.finish()
    assert f" ERROR stopped by {signum.name} before any rank was started\n" in run.screen
    assert (not options) == program.log_dir.exists()
    assert not (program.folder / "ran").exists()


def start_waiting_alone(program: Program, table: Path, *command: str) -> Run:
    """Start a run of a job that is known to have one node, after an earlier one, and return when it waits."""
    program.log_dir.mkdir()
    (program.log_dir / "job-report.json").write_text('{"state": "succeeded"}')
    return start_waiting(program, table, "--nnodes", "1", *command)


def names_in(folder: Path) -> set[str]:
    """Return the relative paths of all files below a directory."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_report_says_that_the_job_waits(program: Program, table: Path) -> None:
    """If the job has one node, its report is about this run from the start of the wait, not about an earlier one."""
    run = start_waiting_alone(program, table, *TELL)
    assert "preparing" == program.report()["state"]
    assert '{"state": "succeeded"}' == (program.log_dir / "run-1" / "job-report.json").read_text()
    complete(table)

    assert 0 == run.finish()
    assert ("succeeded", 8) == (program.report()["state"], len(program.report()["ranks"]))
    assert not (program.log_dir / "run-2").exists()


def test_report_of_one_of_several_nodes_waits_under_its_number(program: Program, table: Path) -> None:
    """A node whose number is known before the rank table has a report of its own from the start of the wait."""
    run = start_waiting(program, table, "--nnodes", "2", "--node-rank", "1", *TELL)
    report = program.log_dir / "job-report-node-1.json"
    assert "preparing" == json.loads(report.read_bytes())["state"]
    complete(table, json.dumps(two_servers()).encode())

    assert 0 == run.finish()
    assert ("succeeded", [1]) == (
        json.loads(report.read_bytes())["state"],
        [rank["rank_id"] for rank in json.loads(report.read_bytes())["ranks"]],
    )


def two_servers() -> dict[str, object]:
    """Return a completed rank table of two servers with one device each."""
    servers = [{"server_id": f"10.1.0.{number}", "device": [device(number)]} for number in range(2)]
    return {"status": "completed", "version": "1.0", "server_count": "2", "server_list": servers}


def device(number: int) -> dict[str, str]:
    """Return a device of a rank table, the first of its server."""
    return {"device_id": "0", "device_ip": f"10.2.0.{number}", "rank_id": str(number)}


# --- Waiting while the number of this node is unknown -----------------------------------------------------------------

REPORT_OF_NODE: Final = f"job-report-{os.uname().nodename}.json"  # until the rank table is known


def report_of_node(program: Program) -> dict[str, Any]:
    """Read the report of a job that is waiting, or has timed out."""
    report: dict[str, Any] = json.loads((program.log_dir / REPORT_OF_NODE).read_bytes())
    return report


def test_job_exists_while_the_number_of_its_node_is_unknown(program: Program, table: Path) -> None:
    """Its files have the name of the node until the table is completed; `ascend-job` finds it under both names."""
    program.log_dir.mkdir()
    for name in ("job-report.json", "job-proc-rank-0-device-0.txt", "job-report-node-1.json", "other-report.json"):
        (program.log_dir / name).write_text('{"state": "succeeded"}')
    run = start_waiting(program, table, "sh", "-c", "echo up; exec sleep 1000")
    assert "preparing" == report_of_node(program)["state"]
    assert not (program.log_dir / "job-report.json").exists()
    assert 3 == len(names_in(program.log_dir / "run-1"))
    pid = str(run.popen.pid)
    waiting = jobs.find(pid, {})
    assert (f"job-{os.uname().nodename}", True) == (waiting.name, waiting.is_alive())
    complete(table)
    run.wait_for("up", times=8)
    wait_until(lambda: program.report()["state"] == "running")

    assert "job" == jobs.find(pid, {}).name
    assert {"job.lock", "job-report.json", "job-events.jsonl", "job-run.json", "other-report.json"} == {
        path.name for path in program.log_dir.iterdir() if path.is_file() and "-proc-" not in path.name
    }
    assert not (program.log_dir / "run-2").exists()
    run.send(signal.SIGTERM)
    assert 143 == run.finish()
    assert [] == contradictions(program.log_dir)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("end", "options", "expected"),
    [
        (lambda run, _table: run.send(signal.SIGTERM), (), ("stopped", 143)),
        (lambda run, _table: time_limit.set_soon(run), (), ("expired", 124)),
        (lambda _run, _table: None, ("--rank-table-timeout", "1"), ("failed", 125)),
        (lambda _run, table: complete(table, b'{"status": "completed", "server_list": 5}'), (), ("failed", 125)),
    ],
    ids=["stop signal", "time limit", "timeout", "unusable table"],
)
def test_end_of_a_wait_is_reported(
    program: Program,
    table: Path,
    end: Callable[[Run, Path], object],
    options: tuple[str, ...],
    expected: tuple[str, int],
) -> None:
    """A job whose wait has timed out leaves a report, and runs the hooks for the end of a job."""
    hook = 'before-exit=echo "$ASCEND_RUNNER_STATE $ASCEND_RUNNER_STATUS" > told; test -e "$ASCEND_RUNNER_REPORT"'
    run = start_waiting(program, table, *options, "--hook", hook, "touch", "ran")
    end(run, table)

    assert expected[1] == run.finish()
    report = report_of_node(program)
    assert (*expected, []) == (report["state"], report["status"], report["ranks"])
    assert f"{expected[0]} {expected[1]}\n" == (program.folder / "told").read_text()
    assert "hook" not in run.screen
    assert not (program.folder / "ran").exists()


def test_part_of_a_job_gets_its_number_from_the_table(program: Program, table: Path) -> None:
    """A node that has waited without a number has the files of that number afterwards."""
    run = start_waiting(program, table, "--server-id", "10.1.0.1", *TELL)
    assert (program.log_dir / "job-report-10.1.0.1.json").exists()
    complete(table, json.dumps(two_servers()).encode())

    assert 0 == run.finish()
    assert "succeeded" == json.loads((program.log_dir / "job-report-node-1.json").read_bytes())["state"]
    assert {"job-node-1.lock"} == {path.name for path in program.log_dir.glob("*.lock")}
    assert [] == [*program.log_dir.glob("*10.1.0.1*")]


def test_job_that_waits_for_the_address_of_a_host_exists(program: Program) -> None:
    """The report of a job begins before its wait for another node's address."""
    hosts = ("--nnodes", "2", "--node-rank", "1", "--master-addr", "nowhere.invalid", "--nproc-per-node", "1")
    run = program.start(*hosts, "--framework", "mindspore-cluster", "true")
    run.wait_for("cannot resolve host")
    report = program.log_dir / "job-report-node-1.json"
    assert "preparing" == json.loads(report.read_bytes())["state"]
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert "stopped" == json.loads(report.read_bytes())["state"]


def test_refused_second_start_moves_nothing(program: Program, table: Path) -> None:
    """While a job waits, a second one in its log directory is refused, and the files of the first stay."""
    first = start_waiting_alone(program, table, *TELL)
    before = names_in(program.log_dir)
    second = program.start("--nnodes", "1", "touch", "ran", env={"RANK_TABLE_FILE": str(table.parent)})

    assert 125 == second.finish()
    assert before == names_in(program.log_dir)
    assert "preparing" == program.report()["state"]
    complete(table)
    assert 0 == first.finish()


@pytest.mark.parametrize("options", [("--dry-run",), ("--check",)])
def test_look_at_a_job_of_one_node_writes_nothing(program: Program, table: Path, options: tuple[str, ...]) -> None:
    """A dry run may wait, but leaves no trace."""
    complete(table)
    program.here("--nnodes", "1", *options, *TELL, env={"RANK_TABLE_FILE": str(table.parent)})

    assert not program.log_dir.exists()


@pytest.mark.deep
def test_user_signals_during_the_wait_are_nobodys(program: Program, table: Path) -> None:
    """User signals do not end the wait, as there is no rank to forward them to."""
    run = start_waiting(program, table, *TELL)
    run.send(signal.SIGUSR1)
    run.send(signal.SIGUSR2)
    complete(table)

    assert 0 == run.finish()


def test_killed_while_it_waits(program: Program, table: Path) -> None:
    """SIGKILL of the runner gives 137 during the wait, too."""
    run = start_waiting(program, table, "touch", "ran")
    os.kill(run.runner_pid, signal.SIGKILL)

    assert 137 == run.finish()
    assert not (program.folder / "ran").exists()


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "it does not exist"),
        (b"", "it is empty"),
        (INITIALIZING, "its status is 'initializing'"),
        (b'{"status": "unknown"}', "its status is 'unknown'"),
        (b'{\n  "status": "completed",\n  "group_', "it is not JSON at line 3 column "),
    ],
    ids=["missing", "empty", "initializing", "unknown", "half-written"],
)
def test_wait_ends_at_its_limit(data: bytes | None, reason: str, tmp_path: Path) -> None:
    """The exit status is 125, and the error gives the reason."""
    path = tmp_path / "a.json"
    if data is not None:
        path.write_bytes(data)
    error = error_of(tmp_path, "--rank-table", str(path), "--rank-table-timeout", "0.1", "touch", "ran")

    assert error.startswith(f"timed out after 0.1 s waiting for the rank table {path}: {reason}")
    assert not (tmp_path / "ran").exists()


def test_no_time_to_wait_is_one_look(folder: Path) -> None:
    """With a limit of 0, a completed table is used."""
    assert EIGHT == planned(folder, "--rank-table", "config", "--rank-table-timeout", "0")


# --- What is refused before anything is made --------------------------------------------------------------------------


@pytest.mark.deep(quick=12)
@pytest.mark.parametrize(
    "path",
    [path for path in sorted(INVALID.iterdir()) if not path.name.startswith("not_ready_")],
    ids=lambda path: path.stem,
)
def test_bad_table_ends_it_at_once(path: Path, tmp_path: Path) -> None:
    """A complete document that is not a rank table is an error without a wait."""
    ended = run(tmp_path, "--rank-table", str(path), "touch", "ran")

    assert 125 == ended.returncode
    assert str(path) in ended.stderr
    assert "Traceback" not in ended.stderr
    assert [] == list(tmp_path.iterdir())


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("args", "env", "expected"),
    [
        (("true",), {"BATCH_JOB_ID": "../x"}, "invalid value '../x' for BATCH_JOB_ID"),
        (
            ("true",),
            {"RANK_TABLE_FILE": str(VALID / "group_list_3_pods_listed_2_10_1.json"), "MA_CURRENT_INSTANCE_NAME": "x"},
            "this node is not in the rank table: no pod_name matches 'x' (MA_CURRENT_INSTANCE_NAME) or ",
        ),
        (("--grace", "x", "true"), {}, "invalid value 'x' for --grace: expected "),
    ],
    ids=["job-id", "no-such-node", "flag"],
)
def test_bad_input_makes_and_overwrites_nothing(
    args: tuple[str, ...], env: dict[str, str], expected: str, tmp_path: Path
) -> None:
    """Nothing is created before everything is decided: logs and tables of an earlier job stay as they are."""
    log = tmp_path / "log"
    (log / "job" / "rank_table").mkdir(parents=True)
    earlier = [log / "job" / "rank_table" / "jobstart_hccl.json", log / "job-proc-rank-0-device-0.txt"]
    for path in earlier:
        path.write_bytes(b"earlier")
    before = set(tmp_path.rglob("*"))

    assert error_of(
        tmp_path, *args, env={"RANK_TABLE_FILE": str(VALID / "group_list_8_devices.json"), **env}
    ).startswith(expected)
    assert before == set(tmp_path.rglob("*"))
    assert [b"earlier", b"earlier"] == [path.read_bytes() for path in earlier]


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    "command", [("python3", "train.py"), ("./train.py",), ("python3", "-u", "train.py", "--lr", "1")]
)
def test_script_that_is_not_in_the_ranks_folder_is_refused_with_a_hint(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    """A relative script that exists only in the caller's directory is an error with a hint."""
    (tmp_path / "train.py").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "train.py").chmod(0o755)
    word = next(word for word in command if "train" in word)
    options = ("--nproc-per-node", "1", "--workdir", "device")

    workdir = "/cache/device0" if os.access("/cache", os.W_OK) else f"{tmp_path}/log/device0"
    assert (
        f"{word!r} is in {tmp_path}, but not in {workdir}, the working directory of rank 0; use its full path or"
        " --workdir inherit" == error_of(tmp_path, *options, *command)
    )
    assert ["train.py"] == [path.name for path in tmp_path.iterdir()]


def test_script_that_is_in_every_ranks_folder_runs(tmp_path: Path) -> None:
    """Relative paths count from the working directory of each rank."""
    mount = tmp_path / "mount"
    for device in range(2):
        (mount / "workspace" / f"device{device}").mkdir(parents=True)
        script = mount / "workspace" / f"device{device}" / "train.sh"
        script.write_text(f"#!/bin/sh\necho script {device}\n")
        script.chmod(0o755)
    ended = run(tmp_path, "--nproc-per-node", "2", "./train.sh", env={"MA_MOUNT_PATH": str(mount)})

    assert 0 == ended.returncode
    assert ["[rank 0] script 0", "[rank 1] script 1"] == sorted(ended.stdout.splitlines())


# --- The whole job ----------------------------------------------------------------------------------------------------


def _tell_all(folder: Path, table: Path, nodes: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    """Run every node of a job in turn, each with its own variables and directory; return what their ranks print."""
    shown = {}
    tables = set()
    for name, env in nodes.items():
        (folder / name).mkdir()
        ended = run(folder / name, "--rank-table", str(table), *TELL, env=env)
        shown[name] = told(ended)
        tables.add(Path(table_of(ended)).read_bytes())
    assert 1 == len(tables), "every node reads the same bytes"
    return shown


@pytest.mark.deep
def test_nodes_of_a_job_cover_all_ranks(tmp_path: Path) -> None:
    """Each pod starts its own ranks, together they start every rank once, and all read the same bytes."""
    table = VALID / "group_list_3_pods_listed_2_10_1.json"
    pods = {name: {"MA_CURRENT_INSTANCE_NAME": name} for name in ("job-worker-1", "job-worker-2", "job-worker-10")}

    assert {
        "job-worker-1": ["0/6 on 0", "1/6 on 1"],
        "job-worker-2": ["2/6 on 0", "3/6 on 1"],
        "job-worker-10": ["4/6 on 0", "5/6 on 1"],
    } == _tell_all(tmp_path, table, pods)


@pytest.mark.deep
def test_pods_of_one_server_cover_its_ranks_once(tmp_path: Path) -> None:
    """Two pods on one host start their own devices each, with local indices from 0."""
    pods = {name: {"BATCH_TASK_CURRENT_INSTANCE": name} for name in ("job-worker-0", "job-worker-1")}

    assert {
        "job-worker-0": ["0/8 on 0", "1/8 on 1", "2/8 on 2", "3/8 on 3"],
        "job-worker-1": ["4/8 on 0", "5/8 on 1", "6/8 on 2", "7/8 on 3"],
    } == _tell_all(tmp_path, VALID / "group_list_2_pods_on_1_server.json", pods)


@pytest.mark.deep
def test_nodes_of_a_server_list_cover_all_ranks(tmp_path: Path) -> None:
    """Nodes are found by their addresses, and have the ranks of the table."""
    table = VALID / "server_list_ranks_do_not_rise.json"
    servers = json.loads(table.read_bytes())["server_list"]
    nodes = {server["server_id"]: {"MA_CURRENT_HOST_IP": server["server_id"]} for server in servers}
    size = sum(len(server["device"]) for server in servers)
    expected = {
        server["server_id"]: [
            f"{rank}/{size} on {index}"
            for index, rank in enumerate(sorted(int(device["rank_id"]) for device in server["device"]))
        ]
        for server in servers
    }

    assert len(nodes) > 1
    assert expected == _tell_all(tmp_path, table, nodes)
