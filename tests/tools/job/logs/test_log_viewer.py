"""`ascend-job logs`: the logs of real jobs, while they run, when they have ended, and from afar."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.program import Program
from tests.helpers.waiting import LIMIT
from tests.tools.job.conftest import Start, Tool

Follow = Callable[..., "subprocess.Popen[str]"]


class Gate:
    """Where ranks wait until a test lets them go on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.wait = f"until [ -e {path} ]; do sleep 0.02; done; "  # in a shell

    def open(self) -> None:
        """Let all ranks go on."""
        self._path.touch()


@pytest.fixture(name="gate")
def fixture_gate(tmp_path: Path) -> Gate:
    """Return a gate."""
    return Gate(tmp_path / "gate")


@pytest.fixture(name="follow")
def fixture_follow(run_dir: Path) -> Iterator[Follow]:
    """Return a function that starts `ascend-job logs -f`."""
    assert run_dir
    started: list[subprocess.Popen[str]] = []

    def follow(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ascend_runner.tools.job", "logs", "-f", *words]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True))
        return started[-1]

    yield follow
    for popen in started:
        popen.kill()
        popen.wait()
        if popen.stdout:
            popen.stdout.close()


def next_line(popen: subprocess.Popen[str]) -> str:
    """Return the next line of a process."""
    assert popen.stdout
    timer = threading.Timer(LIMIT, popen.kill)
    timer.start()
    line = popen.stdout.readline()
    timer.cancel()
    return line


def test_job_that_has_ended(start: Start, tool: Tool, program: Program) -> None:
    """The last lines of each rank have a prefix, unless one rank is named; patterns choose lines."""
    start('for i in 1 2 3; do echo "$RANK: $i"; done; printf "no newline"', ranks=3).finish()
    log_dir = str(program.log_dir)

    assert (0, "".join(f"[rank {rank}] no newline\n" for rank in range(3))) == tool("logs", "-n", "1")
    assert (0, "1: 3\nno newline\n") == tool("logs", log_dir, "-r", "1", "-n", "2")
    assert (0, "[rank 0] 0: 2\n[rank 2] 2: 2\n") == tool("logs", "job", "-r", "0,2", "--grep", ": [12]", "-n", "1")
    assert (
        12 == tool("logs", "-n", "all")[1].count("\n") == tool("logs", "--since", "1h", "-r", "0-2")[1].count("\n") - 1
    )
    assert (0, "") == tool("logs", "--grep", "nothing")


def test_default_number_of_lines(start: Start, tool: Tool) -> None:
    """Without a choice, a few of each rank are shown."""
    start("seq 100").finish()

    assert 20 == len(tool("logs")[1].splitlines())
    assert 200 == len(tool("logs", "--grep", ".")[1].splitlines())


def test_job_is_followed_over_restarts_and_rotation(start: Start, gate: Gate, follow: Follow) -> None:
    """Each line is shown once and in order, and the end of the job ends it."""
    script = f"echo begun; {gate.wait} seq 1 400; exit 7"
    run = start(script, "--max-restarts", "1", "--log-max-size", "1K", ranks=1)
    run.wait_for("begun")
    reader = follow("-r", "0")
    begun = next_line(reader)
    gate.open()
    rest = reader.communicate(timeout=LIMIT)[0].splitlines()

    assert [7, 0] == [run.finish(), reader.returncode]
    assert "begun\n" == begun
    assert [*map(str, range(1, 401)), "begun", *map(str, range(1, 401))] == rest


def test_ranks_are_followed_together(start: Start, gate: Gate, follow: Follow) -> None:
    """The lines of each have its prefix."""
    run = start(f'echo "old $RANK"; {gate.wait} echo "new $RANK"; exec sleep 1000')
    run.wait_for("old", times=2)
    reader = follow("-n", "1")
    first = {next_line(reader), next_line(reader)}
    gate.open()
    second = {next_line(reader), next_line(reader)}
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert "" == reader.communicate(timeout=LIMIT)[0]
    assert {"[rank 0] old 0\n", "[rank 1] old 1\n"} == first
    assert {"[rank 0] new 0\n", "[rank 1] new 1\n"} == second


def test_unfinished_line_that_is_drawn_again(start: Start, gate: Gate, follow: Follow) -> None:
    """A progress bar is shown before it ends."""
    run = start(f"printf 'begun\\n10%%\\r20%%'; {gate.wait} printf '\\r30%%'", ranks=1)
    run.wait_for("begun")
    reader = follow("-n", "1")
    first = next_line(reader)
    gate.open()

    assert 0 == run.finish()
    assert ["20%\n", "30%\n"] == [first, reader.communicate(timeout=LIMIT)[0]]


def test_runner_that_is_killed(start: Start, follow: Follow, tool: Tool) -> None:
    """Nothing more comes, so the logs are not followed any further."""
    run = start("echo begun; exec sleep 1000")
    run.wait_for("begun", times=2)
    reader = follow()
    lines = {next_line(reader), next_line(reader)}
    os.kill(run.runner_pid, signal.SIGKILL)
    run.finish()

    assert "" == reader.communicate(timeout=LIMIT)[0]
    assert 0 == reader.returncode
    assert lines == {f"{line}\n" for line in tool("logs")[1].splitlines()}


def test_reader_that_leaves(start: Start, follow: Follow) -> None:
    """It ends the following at once and without a word, also if no rank writes any more."""
    run = start("echo begun; exec sleep 1000", ranks=1)
    run.wait_for("begun")
    reader = follow()
    next_line(reader)
    assert reader.stdout
    reader.stdout.close()
    status = reader.wait(LIMIT)
    run.send(signal.SIGTERM)
    run.finish()

    assert 2 == status


@pytest.fixture(name="shared")
def fixture_shared(tmp_path: Path) -> Path:
    """Return the directory with the logs of a job on 128 other machines."""
    shared = tmp_path / "shared"
    shared.mkdir()
    for node in range(128):
        part = f"-node-{node}"
        run = {"job_id": "big", "part": part, "host": f"host{node}", "pid_namespace": "", "pid": 1, "started": 1}
        run.update(runner_pid=2, began=1.0, log_dir="/sfs/log", run_folder="/nowhere", command=["x"])
        (shared / f"big-run{part}.json").write_text(json.dumps(run))
        (shared / f"big-report{part}.json").write_text('{"state": "running"}')
        for device in range(8):
            path = shared / f"big-proc-rank-{8 * node + device}-device-{device}.txt"
            path.write_text(f"first\nlast {8 * node + device}\n")
    return shared


def test_directory_of_many_nodes(shared: Path, tool: Tool) -> None:
    """All ranks are shown, whatever nodes they are on."""
    expected = "".join(f"[rank {rank}] last {rank}\n" for rank in range(1024))

    assert (0, expected) == tool("logs", str(shared), "-n", "1")


@pytest.fixture(name="first")
def fixture_first(tmp_path: Path) -> Path:
    """Return the log directory of node 0 of 2, whose ranks were stopped because rank 3 has failed on node 1."""
    verdict = {"node": 1, "rank_id": 3, "sentence": "rank 3 failed", "lines": ["one", "two\x1b[2J"]}
    verdict.update(log="/data/job-proc-rank-3-device-1.txt", pod="worker-1", address="10.0.0.1")
    job = {"job_id": "job", "state": "failed", "node_rank": 0, "node_count": 4, "rank_size": 8, "verdict": verdict}
    rows = [{"node": 2, "address": "10.0.0.2"}]
    report = {**job, "log_dir": "/log", "ranks": [{"rank_id": 0}, {"rank_id": 1}], "nodes": rows}
    run = {"job_id": "job", "part": "-node-0", "host": "host0", "pid_namespace": "", "pid": 1, "started": 1}
    run.update(runner_pid=2, began=1.0, log_dir="/log", run_folder="/nowhere", command=["x"])
    (tmp_path / "job-run-node-0.json").write_text(json.dumps(run))
    (tmp_path / "job-report-node-0.json").write_text(json.dumps(report))
    for rank in (0, 1):
        (tmp_path / f"job-proc-rank-{rank}-device-{rank}.txt").write_text(f"last {rank}\n")
    return tmp_path


def test_rank_of_another_node(first: Path, tool: Tool) -> None:
    """Its last lines are shown that the link has carried, with a note, unless its log is here."""
    where = "rank 3 is on node 1 (10.0.0.1, pod worker-1); its log is /data/job-proc-rank-3-device-1.txt there"
    note = f"ascend-job: {where}; last lines received over the link:\n"
    everything = f"[rank 0] last 0\n[rank 1] last 1\n[rank 3] one\n[rank 3] two\\x1b[2J\n{note}"

    assert (0, f"one\ntwo\\x1b[2J\n{note}") == tool("logs", str(first), "-r", "3")
    assert (0, f"[rank 0] last 0\n[rank 3] one\n{note}") == tool("logs", str(first), "-r", "0,3", "--grep", "0|n")
    assert (0, everything) == tool("logs", str(first))
    (first / "job-proc-rank-3-device-1.txt").write_text("here\n")
    assert (0, "here\n") == tool("logs", str(first), "-r", "3")


def test_rank_of_another_node_without_lines(first: Path, tool: Tool) -> None:
    """A sentence says which node it is on, and where its log is there; a rank that no node has is an error."""
    of_two = "ranks 4, 5 are on node 2 (10.0.0.2); their logs are /log/job-proc-rank-*.txt there"
    of_one = "rank 7 is on node 3; its log is /log/job-proc-rank-7-device-1.txt there"
    doubt = ", unless that node has another log directory"

    assert (2, f"ascend-job: {of_two}{doubt}; {of_one}{doubt}\n") == tool("logs", str(first), "-r", "4,5,7")
    assert (0, f"[rank 1] last 1\nascend-job: {of_one}{doubt}\n") == tool("logs", str(first), "-r", "1,7")
    assert (2, f"ascend-job: no log of rank 8 in {str(first)!r}, only of ranks 0, 1\n") == tool(
        *("logs", str(first), "-r", "0,8")
    )


@pytest.mark.parametrize("source", ["table", "nodes", ""])
def test_rank_of_another_node_with_more_ranks(first: Path, tool: Tool, source: str) -> None:
    """The nodes of a job may differ in their ranks: the rank table shows it, or else what node 0 knows of the nodes."""
    report = json.loads((first / "job-report-node-0.json").read_text())
    sizes, table = {"10.0.0.1": 2, "10.0.0.2": 6}, first / "jobstart_hccl.json"
    ranks = iter(range(8))
    servers = [
        {"server_id": server, "device": [{"device_id": str(one), "rank_id": str(next(ranks))} for one in range(size)]}
        for server, size in sizes.items()
    ]
    if source == "table":
        text = {"version": "1.0", "status": "completed", "server_count": "2", "server_list": servers}
        table.write_text(json.dumps(text))
    rows = [{"node": node, "ranks": size} for node, size in enumerate(sizes.values())] if source == "nodes" else []
    report.update(node_count=2, server_id="10.0.0.1", rank_table=str(table), nodes=rows, verdict=None)
    (first / "job-report-node-0.json").write_text(json.dumps(report))
    where = "rank 4 is on node 1; its log is /log/job-proc-rank-4-device-2.txt there"
    unknown = f"no log of rank 4 in {str(first)!r}, only of ranks 0, 1"
    known = f"{where}, unless that node has another log directory"

    assert (2, f"ascend-job: {known if source else unknown}\n") == tool("logs", str(first), "-r", "4")


@pytest.mark.deep
def test_directory_of_other_machines_is_followed(shared: Path, follow: Follow) -> None:
    """Until all reports say that their part of the job has ended."""
    reader = follow(str(shared), "-n", "1", "-r", "5,6")
    first = [next_line(reader), next_line(reader)]
    with (shared / "big-proc-rank-5-device-5.txt").open("a") as file:
        file.write("new\n")
    first.append(next_line(reader))
    for path in shared.glob("big-report*.json"):
        path.write_text('{"state": "succeeded"}')

    assert "" == reader.communicate(timeout=LIMIT)[0]
    assert ["[rank 5] last 5\n", "[rank 6] last 6\n", "[rank 5] new\n"] == first


def test_log_that_comes_later(shared: Path, follow: Follow) -> None:
    """A job may be followed before its ranks have logs."""
    for path in shared.glob("big-proc-*"):
        path.unlink()
    reader = follow(str(shared))
    for rank in (0, 1):
        (shared / f"big-proc-rank-{rank}-device-{rank}.txt").write_text(f"{rank}\n")

    assert {"[rank 0] 0\n", "[rank 1] 1\n"} == {next_line(reader), next_line(reader)}


def test_wrong_words(start: Start, tool: Tool) -> None:
    """One sentence says what is wrong."""
    start("exit 0", ranks=1).finish()
    for words, expected, sentence in (
        (("-r", "7"), 2, "no log of rank 7 in "),
        (("-r", "x"), 2, "'x' is not a number or a range such as 8-15"),
        (("-n", "x"), 2, "invalid value 'x': expected a number of lines or all"),
        (("--since", "x"), 2, "invalid value 'x': expected a number of seconds, 0 or more"),
        (("--grep", r"\d("), 2, r"invalid regular expression '\d(': missing ), unterminated subpattern at position 2"),
        (("other",), 4, "no job 'other' on this machine"),
    ):
        status, screen = tool("logs", *words)

        assert expected == status
        assert sentence in screen


def test_logs_that_were_removed(start: Start, tool: Tool, program: Program) -> None:
    """It is said that there are none."""
    start("exit 0", ranks=1).finish()
    (program.log_dir / "job-proc-rank-0-device-0.txt").unlink()

    assert (2, f"ascend-job: no logs of job in {str(program.log_dir)!r}\n") == tool("logs")


def test_file_that_is_no_log(start: Start, tool: Tool, program: Program) -> None:
    """A link of another user is not followed, and nothing is waited for."""
    start("exit 0", ranks=2).finish()
    (program.log_dir / "job-proc-rank-0-device-0.txt").unlink()
    os.mkfifo(program.log_dir / "job-proc-rank-0-device-0.txt")
    fifo = tool("logs")
    (program.log_dir / "job-proc-rank-1-device-1.txt").unlink()
    (program.log_dir / "job-proc-rank-1-device-1.txt").symlink_to("/etc/passwd")

    assert (0, "") == fifo
    assert 2 == tool("logs")[0]
