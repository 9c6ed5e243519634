"""A training that becomes slow, on real ranks: told within a second, in the events, the report and `ascend-job`."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.helpers.program import Program, Run
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import wait_until

GUIDE = "this iteration hardware time is 2201.521 and e2e time is 3317.794921875 ms."
SLOW = "slow training (--perf-threshold)"
WAIT = "; while [ ! -e go ]; do sleep 0.05; done"


def start(program: Program, *options: str, script: str) -> Run:
    """Start two ranks that run a shell script."""
    return program.start("--nproc-per-node", "2", *options, "sh", "-c", script)


def lines(text: str, count: int = 3) -> str:
    """Return a shell command that prints a line so many times."""
    return "; ".join([f"echo '{text}'"] * count)


def events(program: Program, name: str) -> list[dict[str, object]]:
    """Return the data of all events of a type."""
    path = next(program.log_dir.glob("*-events.jsonl"))
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [event["data"] for event in found if event["type"] == f"io.ascend-runner.job.{name}.v1"]


def test_warning_event_report_and_status(program: Program) -> None:
    """The job goes on; its condition and its last step are seen while it runs, and how it recovers."""
    good = GUIDE.replace("2201.521", "1000.0")
    script = f"echo X_STEP=1200; {lines(GUIDE)}{WAIT}; {lines(good)}; while [ ! -e end ]; do sleep 0.05; done"
    run = start(program, "--perf-threshold", "0.6", script=script)
    run.wait_for(SLOW)
    wait_until(lambda: program.report()["conditions"])  # which is written later than the screen
    command = [sys.executable, "-m", "ascend_runner.tools.job", "status", str(program.log_dir)]
    status = subprocess.run(command, env=CLEAN, capture_output=True, text=True, check=False, timeout=60).stdout
    conditions = program.report()["conditions"]
    (program.folder / "go").touch()
    run.wait_for("the hardware time is down to 30%")
    (program.folder / "end").touch()

    assert 0 == run.finish()
    assert 1 == run.screen.count("WARNING")
    assert [("slow", "ratio", 2.201521)] == [(one["condition"], one["rule"], one["own"]) for one in conditions]
    assert re.search(r"step +1200", status)
    assert re.search(r"slow +.*66% of the end-to-end time", status)
    assert (1, 1) == (len(events(program, "slow")), len(events(program, "slow-over")))
    report = program.report()
    assert ([], 1200, 2.201521 - 1.201521) == (
        report["conditions"],
        report["last_step"]["step"],
        report["last_step"]["hardware"],
    )


@pytest.mark.parametrize(("end", "warnings"), [("exit 0", 1), ("exit 1", 0)])
def test_no_line_matches(program: Program, end: str, warnings: int) -> None:
    """That is reported once at the end of a success, on the screen and in the report; a failure has other reasons."""
    run = start(program, "--perf-pattern", "iteration (?P<step>.*) took", script=f"{lines('step 1 took 2 s')}; {end}")
    run.finish()

    assert warnings == run.screen.count("WARNING")
    assert warnings == len(program.report()["warnings"])


@pytest.mark.deep
def test_stop(program: Program) -> None:
    """The job ends like one that hangs, with the reason on the screen, and is not restarted."""
    options = ("--perf-threshold", "0.6", "--perf-action", "stop", "--max-restarts", "3")
    run = start(program, *options, script=f"{lines(GUIDE)}; sleep 1000")

    assert 124 == run.finish()
    assert f"ERROR {SLOW}" in run.screen
    report = program.report()
    assert ("slow", 0, "failed") == (report["cause"]["kind"], report["attempt"], report["state"])


def test_restart(program: Program) -> None:
    """The next attempt may be faster."""
    script = f'if [ "$ASCEND_RUNNER_ATTEMPT" = 0 ]; then {lines(GUIDE)}; sleep 1000; fi'
    options = ("--perf-threshold", "0.6", "--perf-action", "restart", "--max-restarts", "3")
    run = start(program, *options, script=script)

    assert 0 == run.finish()
    assert 1 == program.report()["attempt"]
    assert [] == program.report()["conditions"]


@pytest.mark.deep
@pytest.mark.parametrize("ends", ["exit 0", "sleep 1000"])
def test_pattern_that_never_ends(program: Program, ends: str) -> None:
    """It is given up, which is reported; neither the job nor its end waits for it."""
    pattern = r"iteration (?P<step>\d+) (a+)+$"
    script = f"echo 'iteration 7 {60 * 'a'}!'; {lines(GUIDE)}; {ends}"
    options = ("--perf-pattern", pattern, "--perf-threshold", "0.6", "--perf-action", "stop")
    run = start(program, *options, script=script)

    assert run.finish() in {0, 124}
    if ends != "exit 0":
        assert "--perf-pattern 'iteration" in run.screen
        assert SLOW in run.screen
