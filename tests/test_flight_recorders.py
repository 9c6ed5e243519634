"""What the ranks of a job that hangs wait for: their flight recorders are switched on, asked, and told of.

The ranks stand for some with torch_npu (`workers/recorded.py`).
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.flight_recorders import dump, entry, waiting
from tests.helpers.program import WORKERS, Program, Run
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import LIMIT, wait_until

DUMPS = {
    "in": dump([entry(6), waiting(7)]),
    "before": dump([entry(5), entry(6)]),
    "chatty": dump([entry(6), waiting(7)]),
    "other": dump([entry(6), waiting(7, "hccl:broadcast")]),
    "huge": bytes(32 * 1024 * 1024),
    "garbage": b"cos\nsystem\n(S'touch called'\ntR.",
}
TOLD = "wait in all_reduce #7 (12 elements) of process group 0 (default_pg)"


def start(program: Program, *dumps: str, options: tuple[str, ...] = ()) -> Run:
    """Start a job that hangs, whose ranks have these dumps (see `workers/recorded.py`)."""
    for name, data in DUMPS.items():
        (program.folder / name).write_bytes(data)
    command = (sys.executable, "-S", str(WORKERS / "recorded.py"), *dumps)
    return program.start("--nproc-per-node", str(len(dumps)), "--hang-timeout", "2", *options, *command)


def hang(program: Program, *dumps: str) -> tuple[Run, dict[str, Any]]:
    """Run a job that is ended by its hang; return its report as well."""
    run = start(program, *dumps)

    assert 124 == run.finish()
    return run, program.report()


def test_rank_that_has_not_joined(program: Program) -> None:
    """Screen, report and `ascend-job status` name the collective and the rank, and the dumps are beside the logs."""
    run, report = hang(program, "in", "in", "before", "in")
    sentence = f"ranks 0, 1, 3 {TOLD}; rank 2 has not joined it (its last one is all_reduce #6)"
    command = [sys.executable, "-m", "ascend_runner.tools.job", "status", str(program.log_dir)]
    status = subprocess.run(command, env=CLEAN, capture_output=True, text=True, check=False, timeout=LIMIT).stdout

    assert f"ERROR {sentence}\n" in run.screen
    assert f"\n  waits  {sentence}\n" in run.screen
    assert f"\n  collective  {sentence}\n" in status
    assert [(0, 1, 3), (2,)] == [tuple(group["rank_ids"]) for group in report["collectives"]]
    assert report["hang"], "the stacks are found as well"
    names = [f"job-flight-recorder-torch_npu-rank-{rank}" for rank in range(4)]
    assert [DUMPS[name] for name in ("in", "in", "before", "in")] == [
        (program.log_dir / name).read_bytes() for name in names
    ]


def test_ranks_that_cannot_be_asked(program: Program) -> None:
    """If no rank reads a pipe, which costs no time, only the report says so."""
    run, report = hang(program, "deaf", "deaf")

    assert ([], "no flight recorder has dumped anything in time") == (report["collectives"], report["no_collectives"])
    assert "flight recorder" not in run.screen


@pytest.mark.deep
def test_ranks_that_do_not_answer(program: Program) -> None:
    """Ranks that do not read their pipe, or do not dump, and dumps that are no dump do not hide what others tell."""
    run, report = hang(program, "in", "deaf", "-", "huge", "garbage", "other", "busy")

    assert f"ERROR rank 0 {TOLD.replace('wait', 'waits', 1)}; rank 5 waits in broadcast #7 (12 elements) instead\n" in (
        run.screen
    )
    assert "ERROR ranks 1-4, 6 have not dumped their flight recorders\n" in run.screen
    assert 20 > report["seconds"]
    assert not (program.folder / "called").exists()


@pytest.mark.deep
def test_ranks_that_go_on_after_they_were_asked(program: Program) -> None:
    """Ranks are asked again at the limit: what they say before it is about an earlier moment."""
    run, report = hang(program, "in", "before,in", "in", "in,other")

    assert f"ERROR ranks 0-2 {TOLD}; rank 3 waits in broadcast #7 (12 elements) instead\n" in run.screen
    assert [(0, 1, 2), (3,)] == [tuple(group["rank_ids"]) for group in report["collectives"]]


@pytest.mark.deep
def test_ranks_that_answer_only_once(program: Program) -> None:
    """If no rank answers at the limit, what they have said before it counts, and the screen says when that was."""
    run, report = hang(program, "in,-", "in,-", "before,-")

    assert f"ERROR shortly before the limit: ranks 0, 1 {TOLD}; rank 2 has not joined it" in run.screen
    assert [True, True] == [group["is_early"] for group in report["collectives"]]


@pytest.mark.deep
def test_rank_that_answers_only_once(program: Program) -> None:
    """What a rank has said before the limit is not compared with what others say at it."""
    run, _report = hang(program, "in", "in", "before,-")

    assert f"ERROR ranks 0, 1 {TOLD}\n" in run.screen
    assert "ERROR rank 2 has not dumped its flight recorder\n" in run.screen


@pytest.mark.deep
def test_rank_that_logs_something_unknown_when_it_is_asked(program: Program) -> None:
    """That may be a sign of life. The job is ended by the next limit, at which the rank is asked again."""
    _run, report = hang(program, "in", "chatty")

    assert [(0, 1)] == [tuple(group["rank_ids"]) for group in report["collectives"]]
    assert 2 == Path(report["ranks"][1]["log_path"]).read_text().count("unknown\n")


@pytest.mark.deep
def test_hang_that_only_warns(program: Program) -> None:
    """A job that goes on is told of as well."""
    run = start(program, "in", "before", options=("--hang-action", "warn"))
    run.wait_for(f"WARNING rank 0 {TOLD.replace('wait', 'waits', 1)}; rank 1 has not joined it")
    wait_until(lambda: program.report()["collectives"])
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
