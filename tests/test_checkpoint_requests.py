"""Requests for a checkpoint to a running job, with ranks that save when they are asked."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ascend_runner.guardian.signal_sets import ONE_SIGNAL
from tests.helpers.job_files import contradictions
from tests.helpers.package_source import PACKAGE
from tests.helpers.program import Program, Run
from tests.helpers.waiting import wait_until

TRAINS = (sys.executable, str(Path(__file__).parent / "workers" / "trains.py"))
LONG = ("--checkpoint-grace", "600")


def start(program: Program, *words: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Run:
    """Start two ranks that train. A pre-check would write events of its own after two seconds."""
    env = {"PYTHONPATH": str(PACKAGE.parent), **(env or {})}
    return program.start("--nproc-per-node", "2", "--precheck", "off", *options, *TRAINS, *words, env=env)


def events(program: Program) -> list[bytes]:
    """Return the lines of the events."""
    return (program.log_dir / "job-events.jsonl").read_bytes().splitlines()


def states(program: Program) -> list[str]:
    """Return the states that the events report."""
    return [json.loads(line)["data"]["state"] for line in events(program)]


def saves(program: Program) -> list[int]:
    """Return how often each rank has begun to save."""
    return [program.log(rank_id).count(b"saving\n") for rank_id in range(2)]


def last_checkpoint(program: Program) -> dict[str, Any]:
    """Wait until the report of a running job has a checkpoint, and return it; it is written later than the screen."""
    wait_until(lambda: program.report()["last_checkpoint"])
    found: dict[str, Any] = program.report()["last_checkpoint"]
    return found


def test_job_goes_on_after_a_checkpoint(program: Program) -> None:
    """SIGUSR1 asks every rank, and their reports end the request; the job runs until it is stopped."""
    run = start(program, "0.1")
    run.wait_for("ready", times=2)
    run.send(signal.SIGUSR1)
    run.wait_for("by ranks 0, 1 in ")
    last = last_checkpoint(program)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert ["running", "checkpointing", "running", "stopping", "stopped"] == states(program)[2:]
    assert ([0, 1], [], f"checkpoint-{last['step']}") == (last["ranks"], last["missing"], last["path"])
    assert f"INFO checkpoint at step {last['step']} by ranks 0, 1 in " in run.screen


@pytest.mark.deep
def test_second_checkpoint_is_a_new_one(program: Program) -> None:
    """A request right after a checkpoint is postponed until the ranks no longer take it for a copy of the first."""
    run = start(program, "0")
    run.wait_for("ready", times=2)
    run.send(signal.SIGUSR1)
    run.wait_for("by ranks 0, 1 in ")
    first, saved_by = last_checkpoint(program), time.monotonic()
    wait_until(lambda: time.monotonic() > saved_by + ONE_SIGNAL)  # what follows at once is a copy of the first signal
    run.send(signal.SIGUSR1)
    run.wait_for("the ranks have just saved a checkpoint; they will be asked for another one in ")
    run.wait_for("by ranks 0, 1 in ", times=2)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert [2, 2] == saves(program)
    assert first["step"] < program.report()["last_checkpoint"]["step"]


def test_sigterm_saves_and_then_stops(program: Program) -> None:
    """With --checkpoint-grace the stop begins when all ranks have saved, not when the time is over."""
    run = start(program, "0.1", options=LONG)
    run.wait_for("ready", times=2)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert [1, 1] == saves(program)
    assert program.log(0).endswith(b"saved\n")
    assert ["running", "checkpointing", "stopping", "stopped"] == states(program)[2:]
    assert "interrupted" == program.report()["cause"]["kind"]
    assert f"  saved  step {program.report()['last_checkpoint']['step']}, checkpoint-" in run.screen


def test_request_while_the_ranks_import(program: Program) -> None:
    """A rank gets the signal as soon as it handles it: it is neither killed nor forgotten."""
    begin, end = program.folder / "begin", program.folder / "end"
    run = start(program, "0", f"until={end}", env={"START": str(begin)})
    run.wait_for("importing", times=2)
    run.send(signal.SIGUSR1)
    run.wait_for("no rank handles SIGUSR1")
    begin.touch()
    run.wait_for("saving", times=2)
    end.touch()
    run.wait_for("by ranks 0, 1 in ")
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert [1, 1] == saves(program)


@pytest.mark.deep
def test_stop_after_a_checkpoint_is_not_delayed(program: Program) -> None:
    """Slurm and Kubernetes may ask for a checkpoint first: the ranks that have just saved answer SIGTERM with it."""
    run = start(program, "0.1", options=LONG)
    run.wait_for("ready", times=2)
    run.send(signal.SIGUSR1)
    run.wait_for("by ranks 0, 1 in ")
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert [0, 1] == program.report()["last_checkpoint"]["ranks"]
    assert [] == program.report()["last_checkpoint"]["missing"]


def test_rank_without_a_handler_survives(program: Program) -> None:
    """It is named by screen, events and report, and the rank that saves is not kept waiting for it."""
    run = start(program, "0.1", "deaf=1")
    run.wait_for("ready", times=2)
    run.send(signal.SIGUSR1)
    run.wait_for("by rank 0 in ")
    last = last_checkpoint(program)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert [1, 0] == saves(program)
    assert ([0], [1]) == (last["ranks"], last["missing"])
    assert re.search(r"WARNING checkpoint at .* by rank 0 in .*; rank 1 was not asked", run.screen)
    assert any(b"rank 1 was not asked" in line for line in events(program))


@pytest.mark.deep
def test_rank_that_does_not_answer_is_named(program: Program) -> None:
    """The stop begins at the end of the time, and the screen has the rank and its stack."""
    run = start(program, "0.1", "stuck=1", options=("--checkpoint-grace", "10"))  # of which 1 s is for the stack
    run.wait_for("ready", times=2)
    run.send(signal.SIGUSR1)
    run.wait_for("saved")
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert "rank 1 has not reported a checkpoint within " in run.screen
    assert "rank 1 (sleeping):" in run.screen
    assert ([0], [1]) == tuple(program.report()["last_checkpoint"][name] for name in ("ranks", "missing"))


@pytest.mark.deep
def test_rank_that_fails_while_it_saves_before_a_stop(program: Program) -> None:
    """The job is stopped all the same, but screen, report and events have the rank and why it has failed."""
    run = start(program, "0.1", "full=1", options=LONG)
    run.wait_for("ready", times=2)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    report, why = program.report(), "stopped by SIGTERM; rank 1 failed before it had saved (exit status 1)"
    assert ("stopped", "interrupted", why) == (report["state"], report["cause"]["kind"], report["cause"]["sentence"])
    assert (None, []) == (report["cause"]["rank_id"], report["cause"]["candidates"])
    assert ("failed", "OSError: [Errno 28] no space left") == (
        report["ranks"][1]["state"],
        report["ranks"][1]["finding"]["exception"],
    )
    assert ("stopped", [1]) == (report["ranks"][0]["state"], report["last_checkpoint"]["missing"])
    assert "\n  failed rank 1 before it had saved (exit status 1)\n  | Traceback" in run.screen
    assert f"\n  log    {report['ranks'][1]['log_path']}\n" in run.screen
    assert why == json.loads(events(program)[-1])["data"]["sentence"]


@pytest.mark.deep
def test_stop_signal_during_a_save_is_an_event(program: Program) -> None:
    """The state stays the same until the ranks have saved, but the events report the signal, and no other."""
    end = program.folder / "end"
    run = start(program, "0", f"until={end}", options=LONG)
    run.wait_for("ready", times=2)
    run.send(signal.SIGUSR1)
    run.wait_for("saving", times=2)
    run.send(signal.SIGTERM)
    run.wait_for("received SIGTERM")
    end.touch()

    assert 143 == run.finish()
    assert ["running", "checkpointing", "checkpointing", "stopping", "stopped"] == states(program)[2:]
    lines = map(json.loads, events(program))
    assert ["io.ascend-runner.job.stop-pending.v1"] == [line["type"] for line in lines if "pending" in line["type"]]
    assert [] == contradictions(program.log_dir)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(("choice", "forwarded"), [("USR2", "USR1"), ("none", "USR1"), ("none", "USR2")])
def test_other_user_signals_are_forwarded(program: Program, choice: str, forwarded: str) -> None:
    """Only the chosen signal is a request; the other ones are the ranks' own business."""
    run = program.act(1, f"note={forwarded}", "say=ready", "sleep", options=("--checkpoint-signal", choice))
    run.wait_for("ready")
    run.send(signal.Signals[f"SIG{forwarded}"])
    run.wait_for(f"got {forwarded}")
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert "checkpointing" not in states(program)


@pytest.mark.deep
def test_checkpoint_before_the_time_limit(program: Program) -> None:
    """The ranks are asked before the limit and stopped when they have saved; the job has expired."""
    end = program.folder / "end"
    run = start(program, "0", f"until={end}", options=("--checkpoint-grace", "600", "--time-limit", "601"))
    run.wait_for("saving", times=2)  # on a slow machine, one of them is asked before the other one handles the signal
    end.touch()

    assert 124 == run.finish()
    assert [1, 1] == saves(program)
    assert ["running", "checkpointing", "stopping", "expired"] == states(program)[2:]
    assert "; its time limit of 10 min 1 s reserves 10 min 0 s for saving (--checkpoint-grace)\n" in run.screen
