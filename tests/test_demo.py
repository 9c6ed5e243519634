"""The training of scripts/demo: ranks that exchange gradients until the end, or until one of them fails."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.helpers.program import Program, Run
from tests.helpers.surroundings import bound_to_free_port

ROOT = Path(__file__).parents[1]
RANKS = 4


def train(program: Program, *options: str, **env: str) -> Run:
    """Start the training of the demo on a free port."""
    with bound_to_free_port() as free:
        port = str(free.getsockname()[1])
    script = str(ROOT / "fixtures" / "demo" / "train.py")
    words = ("--nproc-per-node", str(RANKS), *options, sys.executable, script)
    return program.start(*words, env={"MASTER_PORT": port, **env})


@pytest.mark.deep
def test_ranks_learn_from_each_other(program: Program) -> None:
    """Every rank has data for one weight only, and together they learn all weights."""
    assert 0 == train(program).finish()
    assert all(b"examples for weight %d\n" % rank in program.log(rank) for rank in range(RANKS))
    assert b"learned all %d weights" % RANKS in program.log(0)


def test_failure_of_one_rank_stops_all(program: Program) -> None:
    """The other ranks would wait without end: they are stopped, and the exit status is that of the failed rank."""
    run = train(program, DEMO_FAIL_RANK="2")

    assert 1 == run.finish()
    assert " ERROR rank 2 failed: ValueError: " in run.screen


@pytest.mark.deep
def test_restart_resumes(program: Program) -> None:
    """After the failure the ranks go on from the last checkpoint, and learn all weights."""
    saved = program.folder / "saved"
    saved.mkdir()
    options = ("--max-restarts", "1", "--checkpoint-dir", str(saved))
    run = train(program, *options, DEMO_FAIL_RANK="2", DEMO_CHECKPOINT_DIR=str(saved))

    assert 0 == run.finish()
    assert b"resuming from checkpoint-15.pt\nstep 30 " in program.log(0)
    assert b"learned all %d weights" % RANKS in program.log(0)


@pytest.mark.deep
def test_checkpoint_on_request(program: Program) -> None:
    """All ranks report the checkpoint that rank 0 saves, and the training continues."""
    saved = program.folder / "saved"
    saved.mkdir()
    run = train(program, DEMO_STEP_SECONDS="0.5", DEMO_CHECKPOINT_DIR=str(saved))
    run.wait_for("examples for weight", times=RANKS)
    run.send(signal.SIGUSR1)
    run.wait_for("by ranks 0-3 in ")
    run.wait_for("step 15 ")
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert Path(program.report()["last_checkpoint"]["path"]) in saved.iterdir()


def test_dataset_that_is_staged(program: Program) -> None:
    """Every rank reads its inputs from the copy."""
    (program.folder / "data").mkdir()
    for rank in range(RANKS):
        (program.folder / "data" / f"rank-{rank}.txt").write_text("".join(f"{x / 100}\n" for x in range(-100, 100)))
    run = train(program, "--stage", f"{program.folder / 'data'}:{program.folder / 'cache'}")

    assert 0 == run.finish()
    assert all(b"200 examples for weight %d from " % rank in program.log(rank) for rank in range(RANKS))


@pytest.mark.deep
def test_hang_of_one_rank_stops_all(program: Program) -> None:
    """A rank whose data does not arrive keeps all of them waiting."""
    run = train(program, "--hang-timeout", "3", DEMO_HANG_RANK="2")

    assert 124 == run.finish()
    assert "hang" == program.report()["cause"]["kind"]
