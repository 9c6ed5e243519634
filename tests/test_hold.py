"""Jobs that have failed and are held, so that somebody can look at their nodes: which are, and how they end."""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime

import pytest

from ascend_runner.guardian import process_tree
from tests.helpers.job_files import contradictions
from tests.helpers.program import FAIL_BESIDE_A_DEAF_RANK, Program, Run
from tests.helpers.replay import replay
from tests.helpers.surroundings import permitted
from tests.helpers.waiting import wait_until

FAIL = "[ $RANK = 0 ] || { touch up; exec sleep 1000; }; while ! [ -e up ]; do :; done; exit 7"
SECOND_NODE = ("--nnodes", "2", "--node-rank", "1", "--master-addr", "10.0.0.1", "--link", "off")
SUFFIX = "-node-1"  # of its files
HELD = "  release with "  # begins the last line of the screen


def hold(program: Program, script: str, *options: str, duration: str = "1h", under: tuple[str, ...] = ()) -> Run:
    """Start ranks that run a shell script, to be held after a failure."""
    return program.start("--nproc-per-node", "2", "--hold", duration, *options, "sh", "-c", script, under=under)


def test_held_job(program: Program) -> None:
    """While a job is held, its ranks are gone, its report is final but for the state, and its directory is locked."""
    run = hold(program, FAIL)
    run.wait_for(HELD)
    report = program.report()
    another = program.start("--nproc-per-node", "1", "touch", "ran")

    assert (125, False) == (another.finish(), (program.folder / "ran").exists())
    assert ("holding", 7, "rank_failed", 0) == (
        report["state"],
        report["status"],
        report["cause"]["kind"],
        report["cause"]["rank_id"],
    )
    assert 3000 < datetime.fromisoformat(report["held_until"]).timestamp() - time.time() < 3600
    assert [] == process_tree.children(run.runner_pid)
    assert f"{HELD}ascend-job release job, or kill {run.popen.pid}\n" in run.screen
    run.send(signal.SIGTERM)
    assert 7 == run.finish()
    assert {**report, "state": "failed", "held_until": ""} == program.report()
    assert program.events()[-1]["sentence"].startswith(report["cause"]["sentence"])
    assert [] == contradictions(program.log_dir)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_stop_signal_releases(program: Program, signum: signal.Signals) -> None:
    """Any stop signal ends a hold, and the exit status stays that of the failure; other signals change nothing."""
    run = hold(program, FAIL)
    run.wait_for(HELD)
    run.send(signal.SIGUSR1)
    run.send(signum)

    assert 7 == run.finish()
    assert [*("preparing", "starting", "running", "stopping"), "holding", "failed"] == program.states()


def test_impatient_release_is_no_kill(program: Program) -> None:
    """A second and a third signal to a job that is being released do not change its exit status."""
    run = hold(program, FAIL)
    run.wait_for(HELD)
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        run.send(signum)

    assert 7 == run.finish()
    assert "killed" not in run.screen
    assert "failed" == program.report()["state"]


@pytest.mark.deep
def test_signal_to_the_runner_itself_releases(program: Program) -> None:
    """The runner is released as well by a signal that its guardian does not see."""
    run = hold(program, FAIL)
    run.wait_for(HELD)
    os.kill(run.runner_pid, signal.SIGTERM)

    assert 7 == run.finish()


def test_killed_runner_releases(program: Program) -> None:
    """The first process gets 137 from the kernel, and the screen says so; the job keeps the status of its failure."""
    run = hold(program, FAIL)
    run.wait_for(HELD)
    runner = run.runner_pid
    run.send(signal.SIGKILL)

    assert -signal.SIGKILL == run.finish()
    os.waitpid(runner, 0)
    assert "released because ascend-runner was killed; exit status 137 instead of 7\n" in run.screen
    assert ("failed", 7) == (program.report()["state"], program.report()["status"])


def test_hold_ends_by_itself(program: Program) -> None:
    """When the time is over, the runner exits with the status of the failure."""
    run = hold(program, FAIL, duration="0.1")

    assert 7 == run.finish()
    assert ["holding", "failed"] == program.states()[-2:]
    job = replay((program.log_dir / "job-events.jsonl").read_bytes().splitlines(keepends=True))
    assert job
    assert ("failed", 7) == (job.state.value, job.status)


@pytest.mark.deep
def test_program_that_cannot_be_started_is_held(program: Program) -> None:
    """A rank that could not be started is a failure as well, which somebody can look into."""
    (program.folder / "program").write_text("no program")
    (program.folder / "program").chmod(0o755)
    run = program.start("--nproc-per-node", "1", "--hold", "1h", "./program")
    run.wait_for(HELD)
    run.send(signal.SIGTERM)

    assert 126 == run.finish()


@pytest.mark.deep
def test_success_and_refusals_are_not_held(program: Program) -> None:
    """Neither a success nor a job that was refused before it had started anything is held."""
    assert 0 == hold(program, "true").finish()
    assert 125 == hold(program, "true", "--rank-table", "missing", "--rank-table-timeout", "0").finish()
    assert "holding" not in program.states()


def test_stopped_job_is_not_held(program: Program) -> None:
    """Who has stopped a job does not wait for it."""
    run = hold(program, "echo ready; exec sleep 1000")
    run.wait_for("ready", times=2)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert "holding" not in program.states()


@pytest.mark.deep
def test_signal_during_the_teardown_prevents_the_hold(program: Program) -> None:
    """A stop signal that arrives after the failure, before the ranks have ended, ends the job as well."""
    run = hold(program, FAIL_BESIDE_A_DEAF_RANK, "--grace", "60")
    run.wait_for("stopping the other rank")
    run.send(signal.SIGTERM)
    run.wait_for("already stopping")
    run.send(signal.SIGINT)  # kill now

    assert 7 == run.finish()
    assert "holding" not in program.states()


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("line", "is_held"),
    [
        ("RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:1", False),
        ("ValueError: loss is nan", True),
        ("", True),
    ],
)
def test_only_the_node_with_the_cause_is_held(program: Program, line: str, is_held: bool) -> None:  # noqa: FBT001  a column
    """A node of a larger job whose ranks have only lost a peer leaves, so that the platform sees the failure."""
    run = hold(program, f'echo "{line}"; exit 7', *SECOND_NODE)
    if is_held:
        run.wait_for(HELD)
        run.send(signal.SIGTERM)

    assert 7 == run.finish()
    assert is_held is ("holding" in program.states(SUFFIX))
    assert is_held is ("not held (--hold)" not in run.screen)


@pytest.mark.deep
def test_hang_of_a_part_is_not_held(program: Program) -> None:
    """Ranks of a larger job that hang wait for any of its nodes: none of them knows that it is the cause."""
    run = hold(program, "exec sleep 1000", "--hang-timeout", "0.5", *SECOND_NODE)

    assert 124 == run.finish()
    assert "holding" not in program.states(SUFFIX)


@pytest.mark.deep
def test_first_process_of_a_container(program: Program) -> None:
    """As PID 1, the runner reaps what somebody who has entered leaves behind, and ends when it is released."""
    namespace = permitted("unshare", "--pid", "--fork", "--mount-proc")
    run = hold(program, FAIL, under=namespace)
    run.wait_for(HELD)
    assert ", or kill 1\n" in run.screen
    (guardian,) = process_tree.children(run.popen.pid)
    enter = f"nsenter --target {guardian} --pid --mount sh -c"
    assert 0 == program.shell(f"{enter} '(exec true) & exit 0'").returncode
    wait_until(lambda: len(process_tree.children(guardian)) == 1)
    assert 0 == program.shell(f"{enter} 'kill -TERM 1'").returncode

    assert 7 == run.finish()
