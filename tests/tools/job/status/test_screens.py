"""The screens of `ascend-job`, made from snapshots."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from ascend_runner.record.nodes import NodeRecord
from ascend_runner.text import clock
from ascend_runner.tools.job import screens
from ascend_runner.tools.job.jobs import FoundJob, Snapshot
from ascend_runner.training.steps import Step
from tests.helpers.planted import WORD
from tests.tools.job.conftest import record_of

BEGAN: Final = 1_795_000_000.0
JOB: Final = FoundJob(
    job_id="train",
    part="-node-1",
    command=("python", "train.py", "--name", "a b"),
    host="host-7",
    pid_namespace="pid:[1]",
    pid=4711,
    started=1,
    runner_pid=4712,
    began=BEGAN,
    log_dir="/nowhere/logs",
    run_folder="/nowhere/run",
    owner=0,
)


def rank(rank_id: int, state: str = "running", **members: object) -> dict[str, object]:
    """Return a rank as the report has it."""
    return {"rank_id": rank_id, "local_rank": rank_id, "pid": 5000 + rank_id, "state": state, **members}


def running(
    *ranks: dict[str, object],
    logs: Mapping[int, tuple[int, float | None]] = {},
    gone: Collection[int] = (),
    **members: object,
) -> Snapshot:
    """Return a job that is running."""
    report = {"state": "running", "server_id": "10.0.0.1", "pod_name": "pod-1", "ranks": [*ranks], **members}
    return Snapshot(job=JOB, is_alive=True, record=record_of(report, logs, gone))


def test_outlier_comes_first() -> None:
    """The rank that a hang singles out is marked, so that nothing says how to find it; silent ranks are not quiet."""
    groups = [((2,), "load_batch (data.py:3)"), ((0, 1, 3), "all_reduce (train.py:7)")]
    snapshot = running(
        *map(rank, range(4)),
        logs={0: (9, BEGAN + 10), **dict.fromkeys((1, 2, 3), (0, None))},
        started_at=BEGAN,
        conditions=[{"condition": "hanging", "sentence": "no output", "outlier": "rank 2 in load_batch"}],
        hang=[{"rank_ids": ids, "state": "sleeping", "frames": [frame]} for ids, frame in groups],
    )
    screen = screens.status(snapshot, BEGAN + 700)
    first, second = (line.split() for line in screen.splitlines()[-4:-2])

    assert "ascend-job stacks" not in screen
    assert ["2", "2", "5002", "running,", "outlier", "0", "B"] == first[:7]
    assert "no output expected: only rank 0 prints" == " ".join(first[7:])
    assert ["0", "0", "5000", "running", "9", "B", "11", "min", "30", "s"] == second
    assert 3 == screens.status(snapshot, BEGAN + 700, 80).count("  only rank 0 prints\n")
    assert [(50, "...")] * 5 == [
        (len(line), line[-3:]) for line in screens.status(snapshot, BEGAN + 700, 50).splitlines()[-5:]
    ]


def test_slow_rank() -> None:
    """A rank that a slow training singles out is marked and has the first line."""
    slow = {"condition": "slow", "rule": "straggler", "rank_id": 2, "sentence": "rank 2 is slow"}
    screen = screens.status(running(*map(rank, range(4)), conditions=[slow]), BEGAN + 700)

    assert ["2", "2", "5002", "running,", "slow"] == screen.splitlines()[-4].split()
    assert 1 == screen.count("running, slow")


def test_nodes_of_a_linked_job() -> None:
    """They have a table; of many, those that are missing or behind come first, and the others are counted."""
    nodes = [NodeRecord(node=node, state="running", heard=0.4, ranks=8, alive=8, step=100) for node in range(40)]
    nodes[7] = NodeRecord(node=7)
    nodes[30] = attrs.evolve(nodes[30], step=90, round_trip=0.00123)
    nodes[35] = attrs.evolve(nodes[35], is_unreachable=True)
    few, many = ([*screens.node_lines(found)] for found in (nodes[6:8], nodes))

    assert [
        "node  state       alive         step  heard",
        "6     running     8 of 8 ranks  100   0.4 s ago",
        "7     not joined",
    ] == few
    assert [["7", "35", "30"], "1.2 ms"] == [[line.split()[0] for line in many[1:4]], many[3][-6:]]
    assert "and 24 nodes running" == many[-1]
    assert "  6     running" in screens.status(attrs.evolve(running(rank(0)), nodes=tuple(nodes[6:8])), BEGAN)


def test_failure_of_another_node() -> None:
    """The end of the rank's log is shown, with its place, as the link has carried them."""
    verdict = {
        "node": 3,
        "rank_id": 26,
        "sentence": "x",
        "lines": ["step 16", "loss is nan"],
        "log": "/log/rank-26.txt",
    }
    cause = {"kind": "node_failed", "sentence": "rank 26 on node 3 failed: x"}
    lines = screens.status(running(rank(0, "stopped"), verdict=verdict, cause=cause), BEGAN).splitlines()

    assert [
        "  cause       rank 26 on node 3 failed: x",
        "  log         /log/rank-26.txt on that node",
        "              | step 16",
        "              | loss is nan",
    ] == lines[1:5]


def test_running_job() -> None:
    """The screen fits into 80 columns and has the facts in a fixed order."""
    at = datetime.fromtimestamp(BEGAN + 7199).astimezone().isoformat()
    logs = {0: (2048, BEGAN + 7190), 1: (1 << 30, BEGAN + 7199)}
    seen = attrs.evolve(
        running(*(rank(number, started_at=at) for number in range(2)), logs=logs, gone={1}), limit_at=BEGAN + 10800
    )
    lines = screens.status(seen, BEGAN + 7200).splitlines()

    assert lines[0].startswith("train-node-1: running, started ")
    assert lines[0].endswith(", 2 h 0 min ago")
    assert ["command", "node", "runner", "limit", "logs", "report"] == [line.split()[0] for line in lines[1:7]]
    assert "  node        10.0.0.1, pod pod-1, host host-7" == lines[2]
    assert "python train.py --name 'a b'" in lines[1]
    assert ["1", "1", "5001", "ended", "1.0", "GiB"] == lines[-1].split()
    assert max(map(len, lines)) <= 80


def test_many_ranks() -> None:
    """Ranks that have failed come first; the others are counted."""
    seen = running(*(rank(number, "failed" if number in {700, 900} else "running") for number in range(1024)))
    lines = screens.status(seen, BEGAN).splitlines()

    assert ["700", "900", "0", "1"] == [line.split()[0] for line in lines[-screens.MOST_RANKS - 1 : -1]][:4]
    assert "  and 1008 ranks running" == lines[-1]
    assert len(lines) < 30


def test_culprit() -> None:
    """The rank that caused the failure comes before others that have failed; the HTML report is named if it exists."""
    cause = {"rank_id": 5, "sentence": "rank 5 failed"}
    seen = running(*(rank(number, "failed") for number in range(8)), state="failed", cause=cause)
    lines = screens.status(attrs.evolve(seen, html="/logs/train-report.html"), BEGAN).splitlines()

    assert ["5", "0", "1", "2", "3", "4", "6", "7"] == [line.split()[0] for line in lines[-8:]]
    assert "  html        /logs/train-report.html" in lines


def test_ends_of_ranks() -> None:
    """The table has the exit status of a rank, or the name of its signal."""
    seen = running(rank(0, "failed", exit_code=7), rank(1, "stopped", signal=15), rank(2, "stopped", signal="x"))
    ends = [" ".join(line.split()[3:]) for line in screens.status(seen, BEGAN).splitlines()[-3:]]

    assert ["failed (exit status 7)", "stopped by the runner (SIGTERM)", "stopped by the runner"] == ends


def test_odd_rank() -> None:
    """A rank that has been quiet for much longer than the others comes first; lines end where the terminal does."""
    ranks = [rank(number, last_line=f"step {number} " + "." * 100) for number in range(8)]
    seen = running(*ranks, logs={number: (1, BEGAN - (300 if number == 5 else 20)) for number in range(8)})
    lines = screens.status(seen, BEGAN, 80).splitlines()[-8:]

    assert ["5", "0", "1", "2", "3", "4", "6", "7"] == [line.split()[0] for line in lines]
    assert "  5 min 0 s  step 5 " in lines[0]
    assert {80} == set(map(len, lines))


def test_rank_that_is_behind() -> None:
    """A slow rank comes first and is named beside the step, also after its runner was killed."""
    found = {number: Step(step=22 if number == 5 else 40) for number in range(8)}
    seen, died = (attrs.evolve(running(*map(rank, range(8)), gone=gone), steps=found) for gone in ((), range(8)))
    died = attrs.evolve(died, is_alive=False)

    for one, verb in ((seen, "is"), (died, "was")):
        text = screens.status(one, BEGAN)
        assert f"  step        40; rank 5 {verb} 18 steps behind the others\n" in text
        assert ["5", "0", "1"] == [line.split()[0] for line in text.splitlines()[-8:]][:3]


def test_quiet_rank() -> None:
    """A rank that is quiet has a line, with how to see its stack; one that is left alone comes before the others."""
    ended_at = datetime.fromtimestamp(BEGAN - 240).astimezone().isoformat()
    others = [rank(number, "succeeded", started_at=ended_at, ended_at=ended_at) for number in (0, 1, 3)]
    seen = running(*others, rank(2), logs={2: (1, BEGAN - 250)})
    lines = screens.status(seen, BEGAN).splitlines()

    assert "  stacks      to see where it is in its program, run ascend-job stacks train-node-1" in lines
    assert any(line.startswith("  quiet       rank 2 has been quiet for 4 min 10 s; ") for line in lines)
    assert ["2", "0", "1", "3"] == [line.split()[0] for line in lines[-4:]]
    assert "  quiet  " not in screens.status(attrs.evolve(seen, is_alive=False), BEGAN)


def test_ranks_that_wait_for_each_other() -> None:
    """Nothing here tells a slow one apart, so no rank is named, and a line says how to find it."""
    seen = running(*map(rank, range(8)))
    hint = "  stacks      to see which rank the others wait for, run ascend-job stacks train-node-1\n"

    assert hint in screens.status(seen, BEGAN)
    assert "  stacks  " not in screens.status(running(rank(0)), BEGAN)
    assert "  stacks  " not in screens.status(attrs.evolve(seen, is_alive=False), BEGAN)


def test_long_lines() -> None:
    """On a terminal, sentences are wrapped beside their labels, and a command stays in one line."""
    cause = {"sentence": "rank 2 failed: " + "x y " * 30}
    job = attrs.evolve(JOB, command=("python", "train.py", "--name", "x " * 50))
    seen = attrs.evolve(running(state="failed", cause=cause), job=job)
    lines = screens.status(seen, BEGAN, 80).splitlines()

    assert lines[1].startswith("  cause       rank 2 failed: x y")
    assert lines[2].startswith("              x y x y")
    assert ["command"] == [line.split()[0] for line in lines if len(line) > 80]
    assert len(screens.status(seen, BEGAN).splitlines()) == len(lines) - 2


def test_outlook() -> None:
    """It says until when a node is held, or else how many attempts there were."""
    until = datetime.fromtimestamp(BEGAN).astimezone().isoformat()
    held = running(state="holding", held_until=until, attempt=1)

    assert f"held until {clock(BEGAN)}; to release it now, run ascend-job release train-node-1" == screens.outlook(held)
    assert "attempts: 2" == screens.outlook(running(attempt=1))
    assert "" == screens.outlook(running(attempt=0))


def test_evidence() -> None:
    """Of the rank that caused a failure, there are the end of its log, and the command that runs it again."""
    last_lines = [f"line {number}" for number in range(20)]
    finding = {"last_lines": last_lines, "meaning": "x"}
    failed = rank(1, "failed", finding=finding, log_path="/home/rank-1.txt", rerun="sh rerun.sh")
    cause = {"rank_id": 1, "sentence": "rank 1 failed"}
    shown = screens.status(running(rank(0), failed, state="failed", cause=cause), BEGAN).splitlines()
    excerpt = screens.status(
        running(rank(0), {**failed, "finding": {**finding, "excerpt": ["E: \x1b[1m"]}}, state="failed", cause=cause),
        BEGAN,
    )

    assert ["  cause       rank 1 failed", "  means       x", "  log         /nowhere/logs/rank-1.txt"] == shown[1:4]
    assert [f"              | line {number}" for number in range(8, 20)] == shown[4:16]
    assert "  rerun       sh rerun.sh" == shown[16]
    assert "              | E: \\x1b[1m\n" in excerpt
    assert "line 19" not in excerpt


@pytest.mark.parametrize(("state", "expected"), [("failed", True), ("succeeded", False), ("running", False)])
def test_missing_page(*, state: str, expected: bool) -> None:
    """If there is no HTML report of a job that has ended badly, it says how to write one."""
    text = screens.status(running(state=state), BEGAN)

    assert expected is ("\n  html        not written; to write it, run ascend-job report train-node-1\n" in text)


def test_ranks_of_a_runner_that_was_killed() -> None:
    """A rank that nobody saw end has lasted until its last output, however late it is shown."""
    at = datetime.fromtimestamp(BEGAN).astimezone().isoformat()
    seen = attrs.evolve(running(rank(0, started_at=at), gone={0}, logs={0: (2048, BEGAN + 65)}), is_alive=False)

    assert ["ended", "1", "min", "5", "s", "2.0", "KiB"] == screens.status(seen, BEGAN + 600).splitlines()[-1].split()[
        3:
    ]


def test_last_checkpoint() -> None:
    """It has its step, its age and its place, and how many ranks have not saved it."""
    at = datetime.fromtimestamp(BEGAN).astimezone().isoformat()
    seen = running(last_checkpoint={"at": at, "step": 1200, "path": "/ckpt", "ranks": [0], "missing": [1, 2]})

    assert "  checkpoint  step 1200, 1 min 5 s ago, without ranks 1, 2, /ckpt\n" in screens.status(seen, BEGAN + 65)


@pytest.mark.parametrize("state", ["holding", "restarting"])
def test_time_of_a_job_between_attempts(state: str) -> None:
    """It goes on after the end of an attempt, and a hold that has died with its runner has no end to wait for."""
    at = datetime.fromtimestamp(BEGAN + 2).astimezone().isoformat()
    seen = running(state=state, ended_at=at, held_until=at)

    assert ", 1 min 5 s ago\n" in screens.status(seen, BEGAN + 65)
    assert "  1 min 5 s  " in screens.list_text([seen], BEGAN + 65)
    assert "held" in screens.status(seen, BEGAN)
    assert "held" not in screens.status(attrs.evolve(seen, is_alive=False), BEGAN)


def test_list_fits_the_terminal() -> None:
    """What is worth least is shortened or left out first, and nothing if the output is not a terminal."""
    path = "/cache/user/experiments/2026/llama-65b/logs"
    job = attrs.evolve(JOB, job_id="pretrain-llama-65b-8k", log_dir=path)
    ended = Snapshot(job=job, is_alive=False, record=record_of({"state": "failed", "status": 1}))
    seen = [attrs.evolve(running(), job=job), ended]
    full = screens.list_text(seen, BEGAN + 7200)
    by_width = {width: screens.list_text(seen, BEGAN + 7200, width) for width in range(40, 200)}
    tables = {width: table.splitlines() for width, table in by_width.items()}

    assert all(max(map(len, table)) <= width for width, table in tables.items() if width >= 50)
    assert {3} == {len(table) for table in tables.values()}
    assert {full} == {by_width[width] for width in range(140, 200)}
    assert f"  4711  {clock(BEGAN)[:-6]}  2 h 0 min  {path}" in tables[125][1]
    assert tables[110][1].endswith("  2 h 0 min  ...riments/2026/llama-65b/logs")
    assert ["job", "state", "pid", "started", "took"] == tables[90][0].split()
    assert ["job", "state", "started", "took"] == tables[65][0].split()
    assert tables[60][1].startswith("pretr...ma-65b-8k-node-1  running ")


def test_long_names_leave_room_for_causes() -> None:
    """On a narrow terminal, the middle of a long name is left out rather than the cause of a failure."""
    job = attrs.evolve(JOB, job_id="pretrain-llama-70b-with-a-very-long-name", part="")
    record = record_of({"state": "failed", "status": 2, "cause": {"sentence": "rank 2 failed: FileNotFoundError"}})
    seen = [Snapshot(job=job, is_alive=False, record=record)]
    tables = {width: screens.list_text(seen, BEGAN + 7200, width).splitlines() for width in range(60, 200)}

    assert all(len(line) <= width for width, table in tables.items() for line in table)
    assert all("  rank 2 failed:" in table[1] for width, table in tables.items() if width >= 80)
    assert tables[80][1].startswith("pretr...")


def test_attempts() -> None:
    """A job that was restarted says how often, and why last, unless the line of the cause does."""
    causes = ({"sentence": "a hang"}, {"sentence": "rank 3 failed", "certainty": "likely"})
    attempts = [{"cause": cause, "verdict": "restart"} for cause in causes]
    members: dict[str, Any] = {"attempt": 2, "attempts": attempts}
    failed = "the previous attempt failed: rank 3 failed (likely the cause)"
    seen = running(**members)
    stop = {"sentence": f"stopped by SIGTERM; {failed}"}
    stopped = {"cause": {"sentence": "stopped by SIGTERM"}, "verdict": None}
    between, during = running(**members, cause=stop), running(attempt=2, attempts=[*attempts, stopped], cause=stop)

    assert f"  attempts    3; {failed}\n" in screens.status(seen, BEGAN)
    for ended in (between, during):
        assert "  attempts    3\n" in screens.status(ended, BEGAN)


@pytest.mark.parametrize(
    ("delay", "words"), [(20.0, f"2; the next one starts at {clock(BEGAN + 22)}"), (0.0, "2; the next one")]
)
def test_next_attempt(delay: float, words: str) -> None:
    """A job that waits for its restart says how many attempts there were, and when the next one starts."""
    at = datetime.fromtimestamp(BEGAN).astimezone().isoformat()
    failed = {"cause": {"sentence": "rank 3 failed"}, "started_at": at, "seconds": 2.0, "delay": delay}
    seen = running(state="restarting", attempt=1, attempts=[failed, failed], cause={"sentence": "rank 3 failed"})

    assert f"  attempts    {words}" in screens.status(seen, BEGAN)
    assert "next" not in screens.status(attrs.evolve(seen, is_alive=False), BEGAN)


@pytest.mark.parametrize(
    ("is_alive", "state", "words"),
    [
        (True, "preparing", "preparing, started "),
        (False, "running", "runner killed (last state: running)"),
        (
            None,
            "running",
            "cannot tell from here whether it is running on host-7; the last state in its report is running",
        ),
        (None, "", "cannot tell from here whether it is running on host-7\n"),
        (False, "", "ended; the reason is unknown"),
        (False, "succeeded", "succeeded after "),
        (None, "failed", "failed (exit status 7) after "),
        (True, "stopped", "stopped (exit status 7) after "),
    ],
)
def test_headlines(*, is_alive: bool | None, state: str, words: str) -> None:
    """The first line gives the state from what is known."""
    status = None if state in {"succeeded", "running", "preparing"} else 7
    seen = Snapshot(job=JOB, is_alive=is_alive, record=record_of({"state": state, "status": status}))

    assert f"train-node-1: {words}" in screens.status(seen, BEGAN)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"state": "running", "attempt": 0, "event": "all_started"}, "running     all ranks have started"),
        (
            {
                "state": "restarting",
                "attempt": 1,
                "event": "ended",
                "sentence": "x",
                "verdict": "restart",
                "delay": 10.0,
            },
            "restarting  attempt 2: x; restart in 10 s",
        ),
        (
            {"state": "stopped", "attempt": 0, "event": "stop_requested", "signum": 15},
            "stopped     stop requested (SIGTERM)",
        ),
        (
            {"state": "stopped", "attempt": 0, "event": "stop_requested", "signum": 15, "sentence": "x was killed"},
            "stopped     x was killed",
        ),
        (
            {"state": "failed", "attempt": 0, "event": "stop_requested", "signum": 15, "sentence": "rank 0 failed"},
            "failed      rank 0 failed; released by SIGTERM",
        ),
        (
            {"state": "failed", "attempt": 0, "event": "stop_requested", "signum": 9, "sentence": "rank 0 failed"},
            "failed      rank 0 failed; released because ascend-runner was killed",
        ),
        (
            {"state": "failed", "attempt": 0, "event": "stop_requested", "signum": 15, "is_orphaned": True},
            "failed      released because the process that launched ascend-runner has ended",
        ),
        (
            {"state": "failed", "attempt": 0, "event": "released", "sentence": "rank 0 failed"},
            "failed      rank 0 failed; released at the end of its hold",
        ),
        ({"state": "preparing", "attempt": 1, "event": "delay_over"}, "preparing   preparing attempt 2"),
        (
            {
                "state": "running",
                "attempt": 0,
                "event": "checkpoint_over",
                "checkpoint": "checkpoint at step 7 by rank 0",
            },
            "running     the ranks continue (checkpoint at step 7 by rank 0)",
        ),
        (
            {"state": "running", "attempt": 0, "event": "limit-changed", "limit": 7200.0},
            "running     the time limit of the job is now 2 h 0 min after the start",
        ),
        (
            {"state": "restarting", "attempt": 0, "event": "ended", "verdict": "restart", "delay": float("inf")},
            "restarting  all ranks have succeeded",
        ),
        ({"state": "dancing", "attempt": 0, "event": "dance_begun", "steps": 7}, "dancing     dance begun, steps 7"),
    ],
)
def test_lines_of_events(tmp_path: Path, data: dict[str, object], expected: str) -> None:
    """An event of a newer runner is shown as it is; a line that is cut off is not shown."""
    line = json.dumps({"time": datetime.fromtimestamp(BEGAN).astimezone().isoformat(), "data": data}) + "\n"
    job = attrs.evolve(JOB, log_dir=str(tmp_path), part="")
    Path(job.path("events", "jsonl")).write_text(line + line[:-10])
    (shown,) = screens.event_lines(job, follows=False)

    assert shown.startswith(f"{clock(BEGAN)}  ")
    assert " ".join(shown.split()).endswith(" ".join(expected.split()))


def test_cause_is_as_uncertain_as_on_the_last_screen() -> None:
    """The line of the cause says how certain it is, and the next lines what it means, unless no rank is its rival."""
    finding = {
        "meaning": "killed by SIGKILL",
        "code": "EI0006",
        "code_kind": "usually caused by a peer",
        "code_meaning": "no peer",
    }
    cause = {"rank_id": 2, "sentence": "rank 2 failed", "certainty": "open", "candidates": [1, 2]}
    seen = running(rank(1, "stopped"), rank(2, "failed", finding=finding), state="failed", cause=cause)

    assert [
        "  cause       rank 2 failed (cause unclear)",
        "  candidates  may be rank 1 or rank 2",
        "  means       killed by SIGKILL",
        "  code        EI0006 (usually caused by a peer): no peer",
    ] == screens.status(seen, BEGAN).splitlines()[1:5]
    assert "open" == screens.document(seen)["certainty"]

    likely = running(rank(2, "failed"), state="failed", cause={**cause, "certainty": "likely", "candidates": [1]})

    assert "  also        rank 1 may be the cause" == screens.status(likely, BEGAN).splitlines()[2]

    alone = running(rank(2, "failed"), state="failed", cause={**cause, "candidates": []})

    assert "  cause       rank 2 failed" == screens.status(alone, BEGAN).splitlines()[1]


def test_secret_in_a_problem() -> None:
    """The path of a report that cannot be read may have one."""
    seen = attrs.evolve(running(), why=f"cannot read 'http://user:{WORD}@host/x': not found")

    assert WORD not in f"{screens.status(seen, BEGAN)}{screens.document(seen)}"


def test_cause_is_not_repeated_as_a_condition() -> None:
    """A hang that has ended the job is its cause, no present condition."""
    hang = {"condition": "hanging", "sentence": "no output", "since": "2026-11-22T09:47:36+08:00"}

    waits = {"group": "0", "rank_ids": [0, 1], "number": 7, "is_waiting": True}
    screen = screens.status(running(conditions=[hang], collectives=[waits]), BEGAN)

    assert "hanging" in screen
    assert "ranks 0, 1 wait in collective #7 of process group 0" in screen
    for cause in ("no output, likely", "stopped by SIGTERM; the previous attempt failed: no output"):
        assert "hanging" not in screens.status(running(conditions=[hang], cause={"sentence": cause}), BEGAN)


def test_secrets_in_names() -> None:
    """A secret in the name of a job or in the path of its logs is masked."""
    job = attrs.evolve(JOB, job_id=f"hf_{WORD}", log_dir=f"/log/hf_{WORD}")
    seen = Snapshot(job=job, is_alive=True)

    assert WORD not in screens.status(seen, 0.0)
    assert WORD not in screens.list_text([seen], 0.0)
