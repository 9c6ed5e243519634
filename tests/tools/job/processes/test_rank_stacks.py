"""`ascend-job stacks`: where the ranks of a running job are."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

import pytest

from ascend_runner.diagnosis import stacks
from ascend_runner.diagnosis.finding import StackGroup
from ascend_runner.diagnosis.stacks import ProcessStack, RankStack
from ascend_runner.members import Members
from ascend_runner.record.job_record import JobRecord
from ascend_runner.tools.job import processes
from ascend_runner.tools.job.jobs import Snapshot
from ascend_runner.tools.job.processes import compared, leaders
from tests.helpers.program import Program
from tests.helpers.waiting import wait_until
from tests.tools.job.conftest import JOB, Start, Tool

SCRIPT = """\
import os, time
def elsewhere():
    time.sleep(1000)
def in_collective():
    time.sleep(1000)
print("begun", flush=True)
elsewhere() if os.environ["RANK"] == "2" else in_collective()
"""


def test_outlier_comes_first(program: Program, start: Start, tool: Tool) -> None:
    """Equal stacks are shown once; ranks can be chosen; the ranks go on. One that stays elsewhere is named."""
    (program.folder / "train.py").write_text(SCRIPT)
    run = start(f"exec {program.python} {program.folder}/train.py", ranks=3)
    run.wait_for("begun", times=3)
    look, places = ("stacks", "--for", "0"), ("elsewhere (train.py:", "in_collective (train.py:", "  ranks 0, 1 (")

    def all_stay() -> bool:
        screen = tool(*look)[1]
        return all(place in screen for place in places)

    wait_until(all_stay)
    (status, screen), chosen, wrong = tool(*look), tool(*look, "-r", "0,1"), tool(*look, "-r", "0,7,8")
    compared_ranks = tool("stacks", "--for", "1h")[1]
    run.send(signal.SIGTERM)
    run.finish()

    assert 0 == status
    assert screen.startswith("stacks of ranks 0-2, outliers first:\n  rank 2 (")
    assert compared_ranks.startswith("rank 2 stood out in 6 of 6 samples")
    assert screen.index("elsewhere") < screen.index("ranks 0, 1 (") < screen.index("in_collective")
    assert (True, False) == ("in_collective" in chosen[1], "elsewhere" in chosen[1])
    assert (2, "ascend-job: job has no ranks 7, 8 on this node; it has ranks 0-2\n") == wrong
    assert (1, "ascend-job: job is not running\n") == tool("stacks")


def test_stacks_of_a_rank_that_has_ended(start: Start, tool: Tool) -> None:
    """A rank that has ended is refused as a job that has ended is, unlike one that the job does not have."""
    run = start('[ "$RANK" = 1 ] || exec sleep 1000; echo over', ranks=2)
    run.wait_for("over")
    wait_until(lambda: (1, "ascend-job: rank 1 of job is not running\n") == tool("stacks", "-r", "0,1"))
    run.send(signal.SIGTERM)

    assert 143 == run.finish()


def look(*slow: int, early: tuple[int, ...] = ()) -> tuple[StackGroup, ...]:
    """Return a look at 8 ranks: some still compute, and the others wait; or some wait already, and the others compute.

    Without any, all compute.
    """
    step, waiting = "step (train.py:3)", "all_reduce (train.py:7)"
    few, most = (step, waiting) if slow else (waiting, step)
    frames = {rank_id: few if rank_id in {*slow, *early} else most for rank_id in range(8)}
    return stacks.group(
        [RankStack(rank_id, (ProcessStack(state="running", frames=(frame,)),)) for rank_id, frame in frames.items()]
    )


COMPARISONS = [
    pytest.param([look(5)] * 2, "", id="a few looks say nothing"),
    pytest.param([look(5), look(), look(early=(6,))] * 3, "rank 5 stood out in 3 of 9 samples", id="slow"),
    pytest.param([look(early=(6,))] * 9, "no rank stood out in 9 samples", id="first in the collective"),
    pytest.param([look(rank_id) for rank_id in range(8)], "no rank stood out in 8 samples", id="each one once"),
    pytest.param([look(5), look(5, 6), look(5), look()], "rank 5 stood out in 3 of 4 samples", id="also another one"),
    pytest.param([look(2, 3)] * 3, "ranks 2, 3 stood out in 3 of 3 samples", id="two"),
]


@pytest.mark.parametrize(("looks", "expected"), COMPARISONS)
def test_rank_that_the_others_wait_for(looks: Sequence[tuple[StackGroup, ...]], expected: str) -> None:
    """A rank is named if it is often the one that the others wait for; one that waits for the others is not."""
    verdict, groups = compared(looks)

    assert expected == verdict.partition(", and ")[0]
    assert "rank 5" not in verdict or (5,) == groups[0].rank_ids


def test_without_py_spy() -> None:
    """Kernel stacks accuse no rank, however they differ; the first line says so if the ranks were to be compared."""
    with subprocess.Popen(["/bin/sleep", "60"]) as one, subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as other:
        pids = {0: one.pid, 1: other.pid}
        compared_ranks, sample = (processes.text(pids, "", seconds).splitlines() for seconds in (60.0, 0.0))
        one.kill()
        other.kill()

    assert [processes.NOT_COMPARED, sample[0]] == compared_ranks[:2]


def test_pids_of_other_processes() -> None:
    """A report that names a process that is not the job's gives no access to it."""
    child = subprocess.Popen(["/bin/sleep", "60"])
    pids = {0: child.pid, 1: 1, 2: os.getppid(), 3: "x", 4: None}
    ranks = [{"rank_id": rank_id, "state": "running", "pid": pid} for rank_id, pid in pids.items()]
    found = leaders(Snapshot(job=JOB, is_alive=True, record=JobRecord.decode(Members({"ranks": ranks}))))
    child.kill()
    child.wait()

    assert {0: child.pid} == found
