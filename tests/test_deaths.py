"""How ranks can die, alone, together and with many children: the exit status, and no process left."""

from __future__ import annotations

import os
import signal
from typing import Final

import pytest

from ascend_runner.guardian import process_tree
from tests.helpers.program import ACTOR, Program
from tests.helpers.surroundings import permitted

DEADLY: Final = sorted(
    signal.valid_signals()
    - {signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH}  # ignored by default
    - {signal.SIGCONT, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
    - set(range(signal.SIGRTMIN + 1, signal.SIGRTMAX))
)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("signum", DEADLY)
def test_each_signal(program: Program, signum: int) -> None:
    """A rank that dies of signal S ends the job with 128 + S, and the screen names S."""
    run = program.start(
        "--nproc-per-node", "2", "sh", "-c", f"ulimit -c 0; [ $RANK_ID = 0 ] && kill -{int(signum)} $$; exec sleep 1000"
    )

    assert 128 + signum == run.finish()
    name = signum.name if isinstance(signum, signal.Signals) else f"signal {signum}"
    assert f"ERROR rank 0 failed: killed by {name}" in run.screen


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize("status", [0, 1, 125, 126, 127, 255])
def test_each_kind_of_status(program: Program, status: int) -> None:
    """The exit status of a rank is that of the job, even if the runner uses the same status itself."""
    assert status == program.act(2, f"1:exit={status}").finish()


@pytest.mark.deep
def test_all_at_once(program: Program) -> None:
    """If ranks end at the same moment, status and cause are those of the same rank."""
    steps = [f"{rank_id}:exit={rank_id + 11}" for rank_id in range(8)]
    run = program.act(8, "say=ready", f"await={program.folder}/go", *steps)
    run.wait_for("ready", times=8)
    (program.folder / "go").touch()

    status = run.finish()
    assert status == program.report()["cause"]["rank_id"] + 11
    assert {rank["state"] for rank in program.report()["ranks"]} <= {"failed", "stopped"}


@pytest.mark.deep
def test_all_killed_at_once(program: Program) -> None:
    """SIGKILL to all ranks at the same moment ends the job with 137."""
    run = program.act(8, "child=session", "say=ready", "sleep")
    run.wait_for("ready", times=8)
    for pid in process_tree.children(run.runner_pid):
        os.kill(pid, signal.SIGKILL)

    assert 137 == run.finish()


def test_whoever_stops_each_process_of_a_job_stops_the_job(program: Program) -> None:
    """Slurm signals runner and ranks alike: a rank that dies before the runner has not failed."""
    steps = ("1:note=TERM", "say=ready", "0:sleep", f"await={program.folder}/go")
    run = program.act(2, *steps, options=("--grace", "3600"))
    run.wait_for("ready", times=2)
    os.kill(process_tree.children(run.runner_pid)[0], signal.SIGTERM)
    run.wait_for("got TERM")
    os.kill(run.runner_pid, signal.SIGTERM)
    (program.folder / "go").touch()

    assert 143 == run.finish()
    assert " ERROR stopped by SIGTERM after " in run.screen
    assert "ranks  failed (SIGTERM): rank 0\n" in run.screen
    assert {"kind": "interrupted", "signal": 15}.items() <= program.report()["cause"].items()


@pytest.mark.deep
def test_death_while_others_are_started(program: Program) -> None:
    """If the first of many ranks fails at once, the started ones are stopped, and the others are not started."""
    run = program.start("--nproc-per-node", "100", "sh", "-c", "[ $RANK_ID = 0 ] && exit 7; exec sleep 1000")

    assert 7 == run.finish()
    states = [rank["state"] for rank in program.report()["ranks"]]
    assert "failed" == states[0]
    assert set(states[1:]) <= {"stopped", "not_started"}


@pytest.mark.deep
@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("end", ["exit=0", "exit=3", "sleep"])
def test_fork_bomb(program: Program, end: str) -> None:
    """500 children of one rank, half of them in other sessions, end with it (checked by the fixture)."""
    run = program.act(2, "0:forks=500", "say=ready", end)
    if end == "sleep":
        run.wait_for("ready", times=2)
        run.send(signal.SIGTERM)

    assert {"exit=0": 0, "exit=3": 3, "sleep": 143}[end] == run.finish()


@pytest.mark.deep
def test_fork_bomb_of_a_killed_runner(program: Program) -> None:
    """The guardian kills all of them as well."""
    run = program.act(2, "0:forks=500", "say=ready", "sleep")
    run.wait_for("ready", times=2)
    os.kill(run.runner_pid, signal.SIGKILL)

    assert 137 == run.finish()


def test_grandchild_that_keeps_the_pipe(program: Program) -> None:
    """A child in another session that holds the rank's output open is killed, and the log is complete."""
    child = "setsid sh -c 'echo from the child; touch said; exec sleep 1000'"
    script = f"{child} & until [ -e said ]; do sleep 0.01; done; echo from the rank"
    run = program.start("--nproc-per-node", "1", "sh", "-c", script)

    assert 0 == run.finish()
    assert b"from the child\nfrom the rank\n" == program.log(0)


# --- Containers -------------------------------------------------------------------------------------------------------


@pytest.mark.deep
def test_first_process_of_a_container_reaps_all_orphans(program: Program) -> None:
    """As PID 1 the guardian reaps 1,000 orphans while the job runs."""
    namespace = permitted("unshare", "--pid", "--fork", "--mount-proc")
    actor = ("orphans=1000", "say=all are reaped")
    run = program.act(1, *actor, under=namespace)

    assert 0 == run.finish()
    assert b"all are reaped\n" == program.log(0)


def test_framework_that_recovers_by_itself(program: Program) -> None:
    """With MS_ENABLE_TFT a rank that fails stops no other: those save, and the first failure is still the job's."""
    steps = ["0:await=up", "0:exit=7", "1:touch=up", "await=go", "say=saved"]
    run = program.start("--nproc-per-node", "2", *ACTOR, *steps, env={"MS_ENABLE_TFT": "{TTP:1}"})
    run.wait_for("the framework has up to 750 s to recover")
    (program.folder / "go").touch()

    assert 7 == run.finish()
    assert b"saved\n" == program.log(1)
    assert "MS_ENABLE_TFT is set, so the framework recovers by itself" in run.screen
    assert "stopping the other" not in run.screen


def test_report_of_hccl_is_waited_for(program: Program) -> None:
    """After EI0006 a long grace leaves the other ranks the time to report where the connection is broken."""
    lost = "say=RuntimeError: EI0006: Getting socket times out."
    steps = ["0:await=up", f"0:{lost}", "0:exit=1", "1:touch=up", "await=go", lost, "exit=1"]
    run = program.act(2, *steps, options=("--grace", "45"))
    run.wait_for("waiting up to 30 s for HCCL to report the cause")
    (program.folder / "go").touch()

    assert 1 == run.finish()
    assert lost[4:].encode() in program.log(1)
    assert "stopping the other" not in run.screen
