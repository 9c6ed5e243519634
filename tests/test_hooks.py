"""Hooks of real jobs: when they run, which facts they get, and what their failure means."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from ascend_runner.guardian.signal_sets import ONE_SIGNAL
from tests.helpers import time_limit
from tests.helpers.job_files import contradictions
from tests.helpers.npu_tools import NPU_SMI, fake_npu_smi
from tests.helpers.package_source import PACKAGE
from tests.helpers.program import Program, Run
from tests.helpers.waiting import is_gone, wait_until

TELL = (
    'echo "$ASCEND_RUNNER_EVENT $ASCEND_RUNNER_STATE $ASCEND_RUNNER_ATTEMPT [$ASCEND_RUNNER_STATUS]'
    ' $ASCEND_RUNNER_CAUSE" >> told; test -e "$ASCEND_RUNNER_REPORT" && test -d "$ASCEND_RUNNER_LOG_DIR"'
)
TELL_SAVED = (
    'echo "$ASCEND_RUNNER_EVENT $ASCEND_RUNNER_STATE [$ASCEND_RUNNER_CHECKPOINT] [$ASCEND_RUNNER_STEP]'
    ' [$ASCEND_RUNNER_RANKS] [$ASCEND_RUNNER_MISSING] [$ASCEND_RUNNER_CAUSE]" >> saved'
)
TRAINS = (sys.executable, str(Path(__file__).parent / "workers" / "trains.py"))
FAILED = "rank 0 failed: exit status 7"


def start(program: Program, script: str, *options: str, command: str = TELL) -> Run:
    """Start a rank that runs a shell script, with the same hook for every event."""
    hooks = [word for event in ("before-start", "after-attempt", "before-exit") for word in ("--hook", event)]
    hooks = [word if word == "--hook" else f"{word}={command}" for word in hooks]
    return program.start("--nproc-per-node", "1", *hooks, *options, "sh", "-c", script)


def told(program: Program) -> list[str]:
    """Return what the hooks were told, in the order in which they ran."""
    return (program.folder / "told").read_text().splitlines()


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("script", "options", "expected"),
    [
        (
            "true",
            (),
            ["before-start preparing 0 [] ", "after-attempt succeeded 0 [0] ", "before-exit succeeded 0 [0] "],
        ),
        (
            "exit 7",
            (),
            [
                "before-start preparing 0 [] ",
                f"after-attempt failed 0 [7] {FAILED}",
                f"before-exit failed 0 [7] {FAILED}",
            ],
        ),
        (
            "exit 7",
            ("--max-restarts", "1"),
            [
                "before-start preparing 0 [] ",
                f"after-attempt restarting 0 [7] {FAILED}",
                "before-start preparing 1 [] ",
                f"after-attempt failed 1 [7] {FAILED}",
                f"before-exit failed 1 [7] {FAILED}",
            ],
        ),
    ],
    ids=["success", "failure", "restart"],
)
def test_events_of_a_job(program: Program, script: str, options: tuple[str, ...], expected: list[str]) -> None:
    """Hooks run before each start, after each attempt and at the end, and find the report of that moment."""
    run = start(program, script, *options)

    assert (7 if "7" in script else 0) == run.finish()
    assert expected == told(program)
    assert "hook" not in run.screen
    assert [] == contradictions(program.log_dir)


def test_failing_hook_before_the_start_ends_the_job(program: Program) -> None:
    """No rank is started, the exit status is 125, and the reason is on the screen and in the report."""
    options = ("--hook", "before-start=echo no room; exit 3", "--hook", f"before-exit={TELL}")
    run = program.start("--nproc-per-node", "1", *options, "touch", "ran")
    why = f"hook before-start failed: exit status 3 (no room); see {program.log_dir / 'job-hook-before-start.txt'}"

    assert 125 == run.finish()
    assert not (program.folder / "ran").exists()
    assert f"ERROR {why}; no rank was started\n" in run.screen
    assert f"{why}; no rank was started" == program.report()["cause"]["sentence"]
    assert [f"before-exit failed 0 [125] {why}; no rank was started"] == told(program)


def test_failing_hook_before_another_attempt_keeps_the_last_failure(program: Program) -> None:
    """Screen and report name the hook, and the failure that the job was to be restarted for."""
    hook = ("--hook", "before-start=[ $ASCEND_RUNNER_ATTEMPT = 0 ]")
    run = start(program, "exit 7", "--max-restarts", "1", *hook)

    assert 125 == run.finish()
    assert f"ERROR the previous attempt failed: {FAILED}\n  log    {program.log_dir}/" in run.screen
    assert "; no further attempt was started\n" in run.screen
    assert program.report()["cause"]["sentence"].endswith(
        f"; no further attempt was started; the previous attempt failed: {FAILED}"
    )
    assert told(program)[-1].endswith(FAILED)


def test_other_failing_hooks_are_warnings(program: Program) -> None:
    """A hook that fails after an attempt changes neither the exit status nor the state."""
    options = ("--hook", "after-attempt=exit 3", "--hook", "before-exit=exit 4")
    run = program.start("--nproc-per-node", "1", *options, "true")

    assert 0 == run.finish()
    assert "WARNING hook after-attempt failed: exit status 3;" in run.screen
    assert "WARNING hook before-exit failed: exit status 4;" in run.screen
    assert "succeeded" == program.report()["state"]


@pytest.mark.deep
def test_time_limit_ends_a_hook_before_the_start(program: Program) -> None:
    """The hook is killed, and the job expires before a rank has started."""
    run = program.start("--nproc-per-node", "1", "--hook", "before-start=touch up; sleep 1000", "touch", "ran")
    wait_until((program.folder / "up").exists)
    time_limit.set_soon(run)

    assert 124 == run.finish()
    assert "WARNING hook before-start was killed: the time limit was reached\n" in run.screen
    assert "expired" == program.report()["state"]
    assert not (program.folder / "ran").exists()


def test_stop_signal_ends_a_hook_before_the_start(program: Program) -> None:
    """The job is stopped before a rank has started; the hook and what it has started are gone."""
    options = ("--hook", "before-start=setsid sleep 1000 & touch up; sleep 1000")
    run = program.start("--nproc-per-node", "1", *options, "touch", "ran")
    program.shell("while ! [ -e up ]; do sleep 0.05; done")
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert "stopped" == program.report()["state"]
    assert not (program.folder / "ran").exists()


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("event", ["after-attempt", "before-exit"])
def test_stop_signal_ends_a_hook_at_the_end(program: Program, event: str) -> None:
    """A hook that hangs at the end is ended by a stop signal, and this is reported; the exit status is the job's."""
    options = ("--hook", f"{event}=touch up; trap '' TERM; sleep 1000; sleep 1000")
    run = program.start("--nproc-per-node", "1", *options, "sh", "-c", "exit 7")
    program.shell("while ! [ -e up ]; do sleep 0.05; done")
    run.send(signal.SIGTERM)

    assert 7 == run.finish()
    assert "failed" == program.report()["state"]
    assert f"WARNING hook {event} was killed: received SIGTERM\n" in run.screen


@pytest.mark.deep
def test_stop_signal_during_a_hook_prevents_a_restart(program: Program) -> None:
    """A job that would be restarted is stopped; its last hooks still run."""
    options = ("--max-restarts", "1", "--hook", "after-attempt=touch up; sleep 1000", "--hook", f"before-exit={TELL}")
    run = program.start("--nproc-per-node", "1", *options, "sh", "-c", "exit 7")
    program.shell("while ! [ -e up ]; do sleep 0.05; done")
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert [f"before-exit stopped 0 [143] stopped by SIGTERM; the previous attempt failed: {FAILED}"] == told(program)


# --- Checkpoints ------------------------------------------------------------------------------------------------------


def train(program: Program, *words: str, hook: str, options: tuple[str, ...] = ()) -> Run:
    """Start two ranks that save when they are asked, with a hook for checkpoints."""
    env = {"PYTHONPATH": str(PACKAGE.parent)}
    options = ("--nproc-per-node", "2", "--hook", f"checkpoint={hook}", *options)
    return program.start(*options, *TRAINS, "0.1", *words, env=env)


@pytest.mark.deep
def test_hook_for_a_checkpoint(program: Program) -> None:
    """It runs beside the ranks, and gets what was saved; each checkpoint has one."""
    run = train(program, hook=f"{TELL_SAVED}; touch up; while ! [ -e down ]; do sleep 0.01; done")
    run.wait_for("ready", times=2)
    run.send(signal.SIGUSR1)
    program.shell("while ! [ -e up ]; do sleep 0.01; done")
    wait_until(lambda: program.report()["last_checkpoint"] and program.report()["state"] == "running")
    last, saved_by = program.report()["last_checkpoint"], time.monotonic()
    wait_until(lambda: time.monotonic() > saved_by + ONE_SIGNAL)  # what follows at once is a copy of the first signal
    run.send(signal.SIGUSR1)
    run.wait_for("by ranks 0, 1 in ", times=2)
    program.shell("touch down; while ! [ 2 = $(wc -l < saved) ]; do sleep 0.01; done")
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    (first, _second) = (program.folder / "saved").read_text().splitlines()
    assert f"checkpoint checkpointing [{last['path']}] [{last['step']}] [0,1] [] []" == first
    assert "WARNING" not in run.screen


def test_hook_for_the_last_checkpoint_ends_before_the_job(program: Program) -> None:
    """It runs beside the stop, and the job waits for it; it gets the reason why the ranks had to save."""
    hook = f"while kill -0 $PPID && ! grep -q stopped job-events.jsonl; do sleep 0.01; done; {TELL_SAVED}"
    run = train(program, hook=f'cd "$ASCEND_RUNNER_LOG_DIR"; {hook}', options=("--checkpoint-grace", "600"))
    run.wait_for("ready", times=2)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    why = "received SIGTERM; the ranks save a checkpoint first"
    assert (program.log_dir / "saved").read_text().endswith(f"[0,1] [] [{why}]\n")


def test_hook_for_a_checkpoint_fails_or_leaves_processes(program: Program) -> None:
    """Its failure is a warning, and what it leaves behind is killed at once; neither disturbs the ranks."""
    run = train(program, hook="setsid sleep 1000 & echo $! > left; echo no room; exit 3")
    run.wait_for("ready", times=2)
    run.send(signal.SIGUSR1)
    run.wait_for("WARNING hook checkpoint failed: exit status 3 (no room); see ")
    pid = int((program.folder / "left").read_text())
    wait_until(lambda: is_gone(pid))
    wait_until(lambda: program.report()["state"] == "running")
    run.send(signal.SIGTERM)

    assert 143 == run.finish()


@pytest.mark.deep
def test_stop_signal_ends_a_hook_for_a_checkpoint(program: Program) -> None:
    """The first signal stops the ranks, the second one the hook that the job waits for."""
    run = train(program, hook="trap '' TERM; touch up; sleep 1000; sleep 1000")
    run.wait_for("ready", times=2)
    run.send(signal.SIGUSR1)
    program.shell("while ! [ -e up ]; do sleep 0.01; done")
    run.send(signal.SIGTERM)
    run.wait_for("stopped by SIGTERM")
    run.send(signal.SIGHUP)

    assert 143 == run.finish()
    assert "WARNING hook checkpoint was killed: received SIGHUP\n" in run.screen


SLOW_STEP = "this iteration hardware time is 2201.521 and e2e time is 3317.794921875 ms."


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize(
    ("options", "begin", "cause"),
    [
        ("hanging --hang-timeout 1 --hang-action warn", "", "no rank wrote any output for 1 s (--hang-timeout)"),
        ("slow --perf-threshold 0.6", f"for i in 1 2 3; do echo '{SLOW_STEP}'; done; ", "slow training"),
        ("unhealthy --inspect warn", "", "device 5 reported 80E24E00"),
    ],
    ids=["hanging", "slow", "unhealthy"],
)
def test_hook_for_a_condition(program: Program, options: str, begin: str, cause: str) -> None:
    """It runs beside the ranks as soon as the condition is seen, and is told what has happened."""
    event, *words = options.split()
    hook = f'{event}=printf "%s: %s" "$ASCEND_RUNNER_EVENT" "$ASCEND_RUNNER_CAUSE" > told'
    env = {"PATH": f"{fake_npu_smi(program.folder, NPU_SMI)}:{os.environ['PATH']}"}
    script = f"{begin}until [ -s told ]; do sleep 0.05; done"
    run = program.start("--nproc-per-node", "1", "--hook", hook, *words, "sh", "-c", script, env=env)

    assert 0 == run.finish()
    told = (program.folder / "told").read_text()
    assert told.startswith(f"{event}: ")
    assert cause in told


def test_no_hook_without_a_checkpoint(program: Program) -> None:
    """If no rank has saved, there is nothing to tell."""
    run = train(program, "deaf", hook=TELL_SAVED)
    run.wait_for("ready", times=2)
    run.send(signal.SIGUSR1)
    run.wait_for("no rank handles SIGUSR1")
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert not (program.folder / "saved").exists()


# --- Signals, holds and refusals --------------------------------------------------------------------------------------


def test_second_stop_signal_skips_hooks(program: Program) -> None:
    """Who signals twice does not wait for hooks that have not begun."""
    options = ("--hook", f"after-attempt={TELL}", "--hook", f"before-exit={TELL}", "--grace", "60")
    run = program.act(1, "ignore=TERM", "say=ready", "sleep", options=options)
    run.wait_for("ready")
    run.send(signal.SIGTERM)
    run.wait_for("stopping")
    run.send(signal.SIGINT)

    assert 143 == run.finish()
    assert not (program.folder / "told").exists()


def test_hooks_of_a_held_job_run_before_the_hold(program: Program) -> None:
    """They learn that the job is held, and do not delay its release."""
    run = start(program, "exit 7", "--hold", "1h")
    run.wait_for("  release with ")
    program.shell("while ! grep -q before-exit told; do sleep 0.05; done")
    run.send(signal.SIGTERM)

    assert 7 == run.finish()
    assert [f"after-attempt holding 0 [7] {FAILED}", f"before-exit holding 0 [7] {FAILED}"] == told(program)[1:]


@pytest.mark.deep
def test_logs_of_hooks_are_put_aside(program: Program) -> None:
    """The next run finds no output of an earlier one."""
    for _ in range(2):
        start(program, "true", command="echo one").finish()
    names = ["job-hook-after-attempt.txt", "job-hook-before-exit.txt", "job-hook-before-start.txt"]

    assert names == sorted(path.name for path in (program.log_dir / "run-1").glob("*-hook-*"))
    assert {"one\n"} == {(program.log_dir / name).read_text() for name in names}


def test_refusals(program: Program) -> None:
    """An unknown event and an empty command are refused before anything starts; the command is not shown."""
    for value in ("before-strat=echo hf_abcdefghijklmnopqrst", "before-start", "before-exit= "):
        ended = program.here("--nproc-per-node", "1", "--hook", value, "touch", "ran")

        assert 125 == ended.returncode
        event = value.partition("=")[0]
        assert f"invalid value '{event}' for --hook: expected EVENT=CMD with a shell command" in ended.stderr
        assert "hf_" not in ended.stderr
    assert not (program.folder / "ran").exists()
    assert not program.log_dir.exists()
