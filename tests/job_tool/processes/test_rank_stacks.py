"""`ascend-job stacks`: where the ranks of a running job are."""

from __future__ import annotations

import os
import signal
import subprocess

from ascend_runner.job_tool.job.snapshot import Snapshot
from ascend_runner.job_tool.processes.rank_stacks import leaders
from ascend_runner.members import Members
from tests.helpers.program import Program
from tests.helpers.waiting import wait_until
from tests.job_tool.conftest import JOB, Start, Tool

SCRIPT = """\
import os, time
def elsewhere():
    time.sleep(60)
def in_collective():
    time.sleep(60)
print("begun", flush=True)
elsewhere() if os.environ["RANK"] == "2" else in_collective()
"""


def test_outlier_comes_first(program: Program, start: Start, tool: Tool) -> None:
    """Equal stacks are shown once; ranks can be chosen; the ranks go on."""
    (program.folder / "train.py").write_text(SCRIPT)
    run = start(f"exec {program.python} {program.folder}/train.py", ranks=3)
    run.wait_for("begun", times=3)
    wait_until(lambda: all(name in tool("stacks")[1] for name in ("elsewhere (train.py:", "in_collective (train.py:")))
    (status, screen), chosen, wrong = tool("stacks"), tool("stacks", "-r", "0,1"), tool("stacks", "-r", "0,7,8")
    run.send(signal.SIGTERM)
    run.finish()

    assert 0 == status
    assert screen.startswith("stacks of ranks 0-2, outliers first:\n  rank 2 (")
    assert screen.index("elsewhere") < screen.index("ranks 0, 1 (") < screen.index("in_collective")
    assert (True, False) == ("in_collective" in chosen[1], "elsewhere" in chosen[1])
    assert (2, "ascend-job: job has no ranks 7, 8 on this node; it has ranks 0-2\n") == wrong
    assert (1, "ascend-job: job is not running\n") == tool("stacks")


def test_stacks_of_a_rank_that_has_ended(start: Start, tool: Tool) -> None:
    """A rank that has ended is refused as a job that has ended is, unlike one that the job does not have."""
    run = start('[ "$RANK" = 1 ] || exec sleep 60; echo over', ranks=2)
    run.wait_for("over")
    wait_until(lambda: (1, "ascend-job: rank 1 of job is not running\n") == tool("stacks", "-r", "0,1"))
    run.send(signal.SIGTERM)

    assert 143 == run.finish()


def test_pids_of_other_processes() -> None:
    """A report that names a process that is not the job's gives no access to it."""
    child = subprocess.Popen(["/bin/sleep", "60"])
    pids = {0: child.pid, 1: 1, 2: os.getppid(), 3: "x", 4: None}
    ranks = [{"rank_id": rank_id, "state": "running", "pid": pid} for rank_id, pid in pids.items()]
    found = leaders(Snapshot(job=JOB, is_alive=True, report=Members({"ranks": ranks})))
    child.kill()
    child.wait()

    assert {0: child.pid} == found
