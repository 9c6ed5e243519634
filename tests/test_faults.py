"""Faults that a job must survive or end well after: hangs, Ctrl-Z, disks."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys

import pytest

import ascend_runner
from ascend_runner.guardian import process_tree
from tests.helpers.program import Program, Run
from tests.helpers.surroundings import CLEAN, bound_to_free_port
from tests.helpers.waiting import LIMIT, wait_until


def test_success_is_written_down(program: Program) -> None:
    """After a success the report has for each rank its times, status, resources and bytes logged."""
    assert 0 == program.act(2, "say=hello").finish()

    document = program.report()
    assert (0, None, 2) == (document["status"], document["cause"], len(document["ranks"]))
    assert document["runner_version"] == ascend_runner.__version__
    rank = document["ranks"][1]
    assert ("succeeded", 0, 6, 0) == (rank["state"], rank["exit_code"], rank["log_size"], rank["log_lost"])
    assert rank["user_seconds"] + rank["system_seconds"] > 0


def test_failure_is_written_down_with_its_traceback(program: Program) -> None:
    """The cause, the exception and the command that runs the rank alone again stand in the report."""
    script = "import os\nif os.environ['RANK_ID'] == '1': raise ValueError('loss is nan at step 17')\nopen('/dev/null')"
    assert 1 == program.start("--nproc-per-node", "2", "python3", "-c", script).finish()

    document = program.report()
    assert ("rank_failed", 1) == (document["cause"]["kind"], document["cause"]["rank_id"])
    assert "ValueError: loss is nan at step 17" == document["ranks"][1]["finding"]["exception"]
    assert document["ranks"][1]["rerun"] == f"sh {program.log_dir}/job-rerun-rank-1.sh --alone"


def test_rank_runs_again_by_its_script(program: Program) -> None:
    """The line on the screen runs the rank alone; only its owner can read the script, which explains its other form."""
    run = program.start("--nproc-per-node", "2", "sh", "-c", "echo $RANK of $WORLD_SIZE; exit $RANK")
    assert 1 == run.finish()
    path = program.log_dir / "job-rerun-rank-1.sh"
    (line,) = re.findall(r"^  rerun  (.*)$", run.screen, re.MULTILINE)
    alone, together = program.shell(line), program.shell(f"{path} --together")

    assert f"sh {path} --alone" == line
    assert ["# With --alone,", "# With --together,"] == re.findall(r"^# With --\w+,", path.read_text(), re.MULTILINE)
    assert 0o700 == stat.S_IMODE(path.stat().st_mode)
    assert 2 == program.shell(f"sh {path}").returncode
    assert (0, b"0 of 1\n") == (alone.returncode, alone.stdout)
    assert (1, b"1 of 2\n") == (together.returncode, together.stdout)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    "options",
    [
        ("--nproc-per-node", "1"),
        ("--nproc-per-node", "3"),
        *(("--nproc-per-node", number, "--nnodes", "2", "--node-rank", "1", "--link", "off") for number in ("1", "2")),
    ],
    ids=" ".join,
)
def test_line_that_runs_a_rank_again(program: Program, options: tuple[str, ...]) -> None:
    """Pasted into a shell elsewhere, the line on the screen runs the rank that failed as the only one of a job."""
    address = ("--master-addr", "10.0.0.1") if "--nnodes" in options else ()
    script = 'echo "$RANK of $WORLD_SIZE in $PWD, $A"; exit 7'
    log_dir = program.folder / "it's a log"
    words = ("--log-dir", str(log_dir), *options, *address, "sh", "-c", script)
    run = program.start_plain(*words, env={"A": "it's $A"})
    assert 7 == run.finish()
    (line,) = re.findall(r"^  rerun  (.*)$", run.screen, re.MULTILINE)
    again = program.shell(f"cd /; {line}")

    assert (7, f"0 of 1 in {program.folder}, it's $A\n") == (again.returncode, again.stdout.decode())


def test_job_that_has_not_failed_leaves_no_script(program: Program) -> None:
    """Neither a success nor a stop signal leaves scripts, and an earlier run's scripts are put aside."""
    assert 1 == program.act(1, "exit=1").finish()
    assert 0 == program.act(1).finish()
    stopped = program.act(1, "say=ready", "sleep")
    stopped.wait_for("ready")
    stopped.send(signal.SIGTERM)
    assert stopped.finish() == 128 + signal.SIGTERM

    assert ["run-1"] == [path.parent.name for path in program.log_dir.rglob("*.sh")]


@pytest.mark.deep
def test_exception_of_many_lines_ago(program: Program) -> None:
    """The exception is named, however much the rank wrote between it and its end."""
    script = "try: 1 / 0\nexcept ZeroDivisionError: import traceback; traceback.print_exc()\n"
    ending = "import sys; sys.stderr.write('frame\\n' * 50_000); sys.exit(1)"
    assert 1 == program.start("--nproc-per-node", "1", "python3", "-c", script + ending).finish()

    assert "ZeroDivisionError: division by zero" == program.report()["ranks"][0]["finding"]["exception"]


@pytest.mark.deep
@pytest.mark.parametrize(
    "words",
    [
        *("?a=b&token=c" * 5 + "\n", '{"level": "info", "token": "a"}\n', "token=a ", "token=a\n", "password: \n"),
        *("\n", "\r", "\r\n", " ", "\0\n", "\x1b[31mx\x1b[0m", "\x1b]", "'\"", '\\"a\\": \\"' * 8 + "\n", 'File "\n'),
        *("Traceback (most recent call last):\n", '  File "a.py", line 1, in f\n', "ValueError: x\n"),
        "  + Exception Group Traceback (most recent call last):\n",
        "Set the environment variable HYDRA_FULL_ERROR=1\n",
        *("1" * 4000 + "\n", "a." * 2000 + "\n", "*" * 4000 + "\n"),
    ],
    ids=lambda words: repr(words[:60]),
)
def test_last_words_of_any_kind(program: Program, words: str) -> None:
    """Megabytes of whatever ranks end with are read in time, so that no disk is said not to respond."""
    (program.folder / "words").write_text((words * (1 + (4 << 20) // len(words)))[: 4 << 20])
    # The first one to exit does not keep the others from writing it all.
    script = "trap '' TERM; : >up-$RANK; until [ -e up-0 -a -e up-1 -a -e up-2 -a -e up-3 ]; do sleep 0.01; done"
    script += "; cat words; exit 7"
    run = program.start("--nproc-per-node", "4", "--console", "none", "sh", "-c", script)

    assert 7 == run.finish()
    assert " WARNING " not in run.screen
    assert 4 << 20 == len(program.log(3))


def test_port_in_use(program: Program) -> None:
    """The process that listens on the port which a rank could not bind is named, also if its error names no port."""
    script = "import errno, os; raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))"
    binds = "import os, socket; socket.create_server(('127.0.0.1', int(os.environ['MASTER_PORT'])))"
    with bound_to_free_port() as bound:
        bound.listen()
        port = str(bound.getsockname()[1])
        for code in (binds, script):
            run = program.start("--nproc-per-node", "1", "--master-port", port, sys.executable, "-c", code)
            run.finish()

            assert f"; listening now: process {os.getpid()} (" in run.screen
            assert f") on port {port}\n" in run.screen


def test_secrets_are_masked(program: Program) -> None:
    """Values of variables that look secret stand neither in a plan nor in a report."""
    run = program.start("--nproc-per-node", "1", "--dry-run", "true", env={"MY_TOKEN": "s3cr3t"})
    assert 0 == run.finish()
    assert 0 == program.start("--nproc-per-node", "1", "true", env={"MY_TOKEN": "s3cr3t"}).finish()

    assert "s3cr3t" not in run.screen
    assert "s3cr3t" not in (program.log_dir / "job-report.json").read_text()


def test_hang_ends_with_124_and_every_ranks_stack(program: Program) -> None:
    """A job without output for the limit is stopped, with the stacks of its ranks on screen and in the report."""
    run = program.act(2, "say=ready", "sleep", options=("--hang-timeout", "1"))

    assert 124 == run.finish()
    assert "ERROR stacks of all ranks, outliers first:" in run.screen
    assert "ERROR no rank wrote any output for 1 s (--hang-timeout); stopped after " in run.screen
    assert [0, 1] == sorted(rank_id for group in program.report()["hang"] for rank_id in group["rank_ids"])


@pytest.mark.deep
def test_rank_that_hccl_reports_as_lost_ends_the_job(program: Program) -> None:
    """A silent job ends within seconds when HCCL writes into the log of a rank that another one is lost."""
    (program.folder / "train.sh").write_text(LOST)
    nodes = ("--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1")
    options = ("--nproc-per-node", "2", "--hang-timeout", "1800", "--hang-action", "stop")
    run = program.start(*nodes, *options, "sh", "train.sh")

    assert 124 == run.finish()
    report = program.report("-node-0")
    assert "hang" == report["cause"]["kind"]
    assert "ERROR HCCL reports that device 3 on server 10.0.0.2 is lost" in run.screen
    assert 20 > report["seconds"]
    assert [True] == ["device 3" in event["peer"] for event in program.events("-node-0") if event["event"] == "hanging"]


LOST = r"""
echo ready
[ "$RANK" = 0 ] && mkdir -p "$ASCEND_PROCESS_LOG_PATH/run/plog" && printf '%s%s\n' \
    "[INFO] HCCL($$,python):$(date -d +5sec +%F-%T).191.363 [heartbeat.cc:951] [9][TaskExecStage][HeartbeatAbnormal]" \
    "local rank [10.0.0.1/0]: crimer rank [10.0.0.2/3] status[LOST] by informer rank [10.0.0.1/0]" \
    > "$ASCEND_PROCESS_LOG_PATH/run/plog/plog-$$_20261124160000000.log"
exec sleep 1000
"""


@pytest.mark.deep
def test_hang_that_only_warns_is_a_condition(program: Program) -> None:
    """As long as it lasts, the report and `ascend-job status` have it; the events have its begin and its end."""
    script = "until [ -e go ]; do sleep 0.05; done; until [ -e end ]; do echo step; sleep 0.05; done"
    options = ("--nproc-per-node", "1", "--hang-timeout", "2", "--hang-action", "warn")
    run = program.start(*options, "sh", "-c", script)
    run.wait_for("the job continues")
    wait_until(lambda: program.report()["conditions"])
    (condition,) = program.report()["conditions"]
    command = [sys.executable, "-m", "ascend_runner.tools.job", "status", str(program.log_dir)]
    status = subprocess.run(command, env=CLEAN, capture_output=True, text=True, check=False, timeout=LIMIT).stdout
    (program.folder / "go").touch()
    run.wait_for("the job is no longer hanging")
    wait_until(lambda: program.report()["conditions"] == [])
    (program.folder / "end").touch()

    assert 0 == run.finish()
    assert ("hanging", 2.0) == (condition["condition"], condition["seconds"])
    assert re.search(r"\n  hanging +no rank wrote any output for 2 s", status)
    kinds = [event["event"] for event in program.events()]
    assert ["hanging", "hanging-over"] == [kind for kind in kinds if kind.startswith("hanging")][:2]


WAITING = """
import os, time


def all_reduce():
    while not os.path.exists("go"):
        time.sleep(0.05)


def load_batch():
    while not os.path.exists("go"):
        time.sleep(0.05)


load_batch() if os.environ["RANK"] == "2" else all_reduce()
"""


def warned_of_a_hang(program: Program, script: str) -> Run:
    """Run a script on four ranks that wait for the file `go`, which is made after the warning; return the ended run."""
    (program.folder / "train.py").write_text(script)
    options = ("--nproc-per-node", "4", "--hang-timeout", "2", "--hang-action", "warn")
    run = program.start(*options, sys.executable, "train.py")
    run.wait_for("the job continues")
    wait_until(lambda: program.report()["hang"])
    (program.folder / "go").touch()

    assert 0 == run.finish()
    return run


@pytest.mark.deep
def test_warning_of_a_hang_names_the_rank_that_stands_out(program: Program) -> None:
    """The screen has one line; the events and the report have the stacks while the job goes on."""
    run = warned_of_a_hang(program, WAITING)

    assert "(--hang-timeout); rank 2 in load_batch (train.py:" in run.screen
    assert "outliers first" not in run.screen
    (stacks,) = [event["sentence"] for event in program.events() if event["event"] == "stacks"]
    assert "rank 2 in load_batch (train.py:" in stacks  # another rank may look for the file just then


SLOW_MODULE = """
import os, time

while not os.path.exists("go"):
    {}
"""


@pytest.mark.deep
def test_warning_of_a_hang_names_no_rank_while_modules_are_imported(program: Program) -> None:
    """Ranks that still import wait for nobody, in whatever modules they are."""
    for name, wait in (("fast", "time.sleep(0.05)"), ("slow", "sum(range(99))")):
        (program.folder / f"{name}.py").write_text(SLOW_MODULE.format(wait))
    script = "import os, importlib\nimportlib.import_module('slow' if os.environ['RANK'] == '2' else 'fast')\n"
    run = warned_of_a_hang(program, script)

    assert [] == re.findall(r"\(--hang-timeout\); rank.*", run.screen)
    assert any(2 in group["rank_ids"] and len(group["rank_ids"]) == 1 for group in program.report()["hang"])


def test_missing_py_spy_is_noted_at_the_start(program: Program) -> None:
    """A job that is watched for a hang says before its ranks start that it will have no Python stacks."""
    (program.folder / "python").symlink_to(os.path.realpath(sys.executable))  # py-spy is looked for beside it
    env = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path)}

    def screen(*options: str) -> str:
        command = ["./python", "-m", "ascend_runner", "--log-dir", "log", *options, "--nproc-per-node", "1", "true"]
        return subprocess.run(
            command, cwd=program.folder, env=env, stderr=subprocess.PIPE, text=True, check=True, timeout=LIMIT
        ).stderr

    assert [True, False] == ["ascend-runner[debug]" in shown for shown in (screen("--hang-timeout", "60"), screen())]


def test_ctrl_z_stops_the_ranks_and_fg_continues_them(program: Program) -> None:
    """SIGTSTP stops guardian and ranks; after SIGCONT they go on."""
    run = program.act(2, "note=USR1", "answer=TERM:saved:0", "say=ready", "sleep")
    run.wait_for("ready", times=2)
    ranks = process_tree.children(run.runner_pid)
    run.send(signal.SIGTSTP)
    for pid in (run.popen.pid, *ranks):
        wait_until(lambda pid=pid: (found := process_tree.look(pid)) and found.state == "T")
    run.send(signal.SIGCONT)
    run.send(signal.SIGUSR1)
    run.wait_for("got USR1", times=2)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()


def test_logs_are_rotated(program: Program) -> None:
    """With --log-max-size no file grows over the size, and lines stay whole."""
    options = ("--log-max-size", "1K")
    run = program.start("--nproc-per-node", "1", *options, "seq", "1000")
    assert 0 == run.finish()

    name = "job-proc-rank-0-device-0.txt"
    parts = [(program.log_dir / part).read_bytes() for part in (f"{name}.3", f"{name}.2", f"{name}.1", name)]
    assert all(len(part) <= 1024 and part.endswith(b"\n") for part in parts)
    assert b"".join(b"%d\n" % number for number in range(1, 1001)).endswith(b"".join(parts))


def test_log_folder_removed_while_running(program: Program) -> None:
    """The training continues, and the log is created again with its whole content."""
    run = program.act(1, "say=before", f"await={program.folder}/go", "say=after")
    run.wait_for("before")
    os.unlink(program.log_dir / "job-proc-rank-0-device-0.txt")
    (program.folder / "go").touch()

    assert 0 == run.finish()
    assert b"before\nafter\n" == program.log(0)
