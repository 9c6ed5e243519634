"""Jobs of several nodes, which their platform restarts: what it learns from the runners' exit statuses, and when."""

from __future__ import annotations

import json
import sys

import pytest

from tests.helpers.program import Program

IMPORT = (sys.executable, "-c", "import a_module_that_nobody_has")


# --- The exit verdict -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "status", "verdict"),
    [
        (("sh", "-c", "exit 7"), 7, 75),
        (("sh", "-c", "kill -SEGV $$"), 139, 75),
        ((sys.executable, "-c", "raise ValueError"), 1, 75),
        (IMPORT, 1, 93),
        (("sh", "-c", "exit 127"), 127, None),
        (("true",), 0, None),
    ],
)
def test_exit_verdict(program: Program, command: tuple[str, ...], status: int, verdict: int | None) -> None:
    """The runner's status says whether a retry may help; the screen and the report have that of the rank as well."""
    run = program.start("--nproc-per-node", "1", "--exit-verdict", *command)

    assert (status if verdict is None else verdict) == run.finish()
    assert (status, verdict) == (program.report()["status"], program.report()["exit_verdict"])
    assert (verdict is not None) == ("--exit-verdict" in run.screen)


def test_exit_verdict_on_the_screen(program: Program) -> None:
    """The last line says what the runner exits with, and what the rank exited with."""
    passing = program.start("--nproc-per-node", "1", "--exit-verdict", "sh", "-c", "exit 7")
    passing.finish()
    hopeless = program.start("--nproc-per-node", "1", "--exit-verdict", *IMPORT)
    hopeless.finish()

    assert "  exit   75 instead of 7: a retry may help (--exit-verdict)\n" in passing.lines
    assert "  exit   93 instead of 1: a retry will not help (--exit-verdict)\n" in hopeless.lines


def test_exit_verdict_after_restarts(program: Program) -> None:
    """An exception that came again after a restart will come again."""
    options = ("--exit-verdict", "--max-restarts", "5", "--restart-delay", "0")
    run = program.start("--nproc-per-node", "1", *options, sys.executable, "-c", "raise ValueError")

    assert 93 == run.finish()
    assert ["confirm", "confirm"] == [attempt["restart"] for attempt in program.report()["attempts"]]


def test_verdict_is_off_unless_asked_for(program: Program) -> None:
    """Without the option the exit status is the rank's."""
    run = program.start("--nproc-per-node", "1", *IMPORT)

    assert 1 == run.finish()
    assert program.report()["exit_verdict"] is None
    assert "93" not in run.screen


def test_stopped_job_gives_no_verdict(program: Program) -> None:
    """A stop signal is what the status says, whether ranks run or have failed just before."""
    run = program.act(1, "say=ready", "sleep", options=("--exit-verdict",))
    run.wait_for("ready")
    run.popen.terminate()

    assert 143 == run.finish()
    assert program.report()["exit_verdict"] is None


def test_verdict_for_the_caller_of_a_library(program: Program) -> None:
    """`launch()` returns the rank's status and the verdict."""
    code = (
        "import ascend_runner, json\n"
        "outcome = ascend_runner.launch(['sh', '-c', 'exit 7'], nproc_per_node=1, exit_verdict=True)\n"
        "print(json.dumps([outcome.status, outcome.exit_verdict, outcome.exit_status]))"
    )
    run = program.run([sys.executable, "-c", code], {"ASCEND_RUNNER_LOG_DIR": str(program.log_dir)})

    assert 0 == run.finish(), run.screen
    assert [7, 75, 75] == json.loads(run.lines[-1])
