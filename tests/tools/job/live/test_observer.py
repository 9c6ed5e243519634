"""What `ascend-job top` finds out about jobs: real ones, and those of which only the logs are seen."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from ascend_runner.tools.job import jobs
from ascend_runner.tools.job.jobs import Snapshot
from ascend_runner.tools.job.top import Histories, Observer, ranks_of
from ascend_runner.tools.job.top_frame import JobView, State
from tests.helpers.live_views import rank
from tests.helpers.npu_tools import fake_npu_smi
from tests.helpers.program import Program
from tests.helpers.waiting import wait_until
from tests.tools.job.conftest import JOB, Start, Tool, record_of

STEPS = "echo step=3, skipped=0; echo 'PASSWORD=hunter2 \x1b]0;title\x07x'; exec sleep 100"
LAST = "PASSWORD=*** x"  # as it is shown
NPU_SMI = """\
if [ "$2" = watch ]; then echo "NpuID(Idx) ChipId(Idx) Temp(C) AI Core(%) Memory(%)"; echo 1 0 61 97 88; exec sleep 100
fi
echo "| 1     910B3               | OK            | 93.6        38                0    / 0             |"
echo "| 0                         | 0000:C1:00.0  | 0           0    / 0          3349 / 65536         |"
"""


def seen(observer: Observer) -> dict[int, State]:
    """Return the states of the ranks."""
    return {rank.rank_id: rank.state for rank in observer.look(()).ranks}


def test_running_job(start: Start, tmp_path: Path) -> None:
    """Steps, last lines without secrets and escapes, processes and NPUs of a job that runs; and its end."""
    folder = fake_npu_smi(tmp_path, NPU_SMI)
    run = start(f"echo begun; {STEPS}", ranks=2)
    run.wait_for("begun", times=2)
    observer = Observer(jobs.find(None, os.environ), {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
    views: list[JobView] = []

    def is_complete() -> bool:
        views.append(observer.look(()))
        ranks = {rank.rank_id: rank for rank in views[-1].ranks}
        is_measured = len(ranks) == 2 and ranks[1].device and ranks[0].cpu is not None
        return bool(is_measured and ranks[0].step and ranks[0].last_line == LAST)

    wait_until(is_complete)
    rank, other = views[-1].ranks
    run.send(signal.SIGTERM)
    run.finish()
    wait_until(lambda: observer.look(()).is_over)

    assert (State.RUNNING, 3) == (rank.state, rank.step)
    assert rank.memory is not None
    assert rank.quiet is not None
    assert other.device is not None
    assert (61, 97, 88) == (other.device.temperature, other.device.ai_core, other.device.memory)
    assert rank.device is None
    assert os.path.isfile(observer.log_path(1))
    assert {0: State.STOPPED, 1: State.STOPPED} == seen(observer)
    observer.close()
    observer.close()


@pytest.mark.deep
def test_hang(program: Program, start: Start, tool: Tool) -> None:
    """Both ranks that the warning of a hang names are shown by all views until one has written something."""
    (program.folder / "train.py").write_text(HANGS)
    run = start(f"exec {program.python} {program.folder}/train.py", *WARNS, ranks=6)
    run.wait_for("starting ranks")
    with closing(Observer(jobs.find(None, os.environ), os.environ)) as observer:
        wait_until(lambda: State.OUTLIER in seen(observer).values())
        states, condition = seen(observer), observer.look(()).condition
        status = tool("status")[1]
        tool("report", "-o", str(program.folder / "page.html"))
        (program.folder / "go").touch()
        wait_until(lambda: State.OUTLIER not in seen(observer).values())
        has_condition = bool(observer.look(()).condition)
        later = tool("status")[1]
        tool("report", "-o", str(program.folder / "later.html"))
    run.send(signal.SIGTERM)
    run.finish()

    assert [2, 5] == [rank_id for rank_id, state in states.items() if state is State.OUTLIER]
    assert condition.startswith("hanging: ranks 2, 5 in load_batch (train.py:")
    assert 2 == status.count("running, outlier")
    assert 4 == (program.folder / "page.html").read_text().count(">hangs elsewhere</em>")  # timeline and table
    assert not has_condition
    assert "outlier" not in later
    assert ">hangs elsewhere</em>" not in (program.folder / "later.html").read_text()


HANGS = """
import os, time


def all_reduce():
    time.sleep(1000)


def load_batch():
    for _ in range(10000):
        time.sleep(0.1)
        if os.path.exists("go"):
            print("step", flush=True)


load_batch() if os.environ["RANK"] in "25" else all_reduce()
"""


def test_slow_rank() -> None:
    """A rank that a slow training singles out is marked while it runs."""
    slow = {"condition": "slow", "rule": "straggler", "rank_id": 1, "sentence": "rank 1 is slow"}
    ranks = [{"rank_id": one, "local_rank": one, "state": "running"} for one in range(2)]
    views = ranks_of(Snapshot(job=JOB, is_alive=True, record=record_of({"conditions": [slow], "ranks": ranks})))

    assert [State.RUNNING, State.SLOW] == [view.state for view in views]


def test_ranks_that_never_print(start: Start, tool: Tool, program: Program) -> None:
    """No view takes them for quiet, and each says why."""
    run = start("[ $RANK = 0 ] && echo begun; exec sleep 1000", ranks=4)
    run.wait_for("begun")
    with closing(Observer(jobs.find(None, os.environ), os.environ)) as observer:
        wait_until(lambda: observer.look(()).ranks[1:] and observer.look(()).ranks[3].why_silent)
        views = observer.look(()).ranks
        status = tool("status")[1]
        tool("report", "-o", str(program.folder / "page.html"))
    run.send(signal.SIGTERM)
    run.finish()

    assert ["begun", *["no output expected: only rank 0 prints"] * 3] == [view.last_line for view in views]
    assert [False, True, True, True] == [view.quiet is None for view in views]
    assert 3 == status.count("no output expected: only rank 0 prints\n")
    assert "quiet</em>" not in (program.folder / "page.html").read_text()


def test_figures_of_the_last_looks() -> None:
    """CPU usage and memory are kept as they were, steps as those between two looks; what is unknown is left out."""
    histories = Histories()
    for cpu, memory, step in ((50.0, 7, 3), (None, 8, None), (70.0, 9, 5), (0.0, 9, 5)):
        view = histories.look(rank(0, cpu=cpu, memory=memory, step=step))
    other = histories.look(rank(1, cpu=0.0, memory=None, step=None))

    assert {"CPU": (50, 70, 0), "memory": (7, 8, 9, 9), "steps": (2, 0)} == view.history
    assert {} == other.history


WARNS = ("--hang-timeout", "2", "--hang-action", "warn")


def test_runner_that_was_killed(start: Start) -> None:
    """Ranks of a runner that was killed are shown as they are."""
    run = start("echo begun; exec sleep 100", ranks=2)
    run.wait_for("begun", times=2)
    observer = Observer(jobs.find(None, os.environ), os.environ)
    wait_until(lambda: seen(observer) == {0: State.RUNNING, 1: State.RUNNING})
    os.kill(jobs.find(None, os.environ).runner_pid, signal.SIGKILL)
    run.finish()
    wait_until(lambda: observer.look(()).is_over)
    view = observer.look(())

    assert view.headline.startswith("runner killed ")
    assert re.search(r"\bpid \d+\b", view.cause)
    assert State.RUNNING not in {rank.state for rank in view.ranks}


def test_failed_job(start: Start) -> None:
    """The sentence above the table says how certain the cause is."""
    start("[ $RANK = 1 ] && exit 7; exec sleep 100", ranks=2).finish()
    with closing(Observer(jobs.find(None, os.environ), os.environ)) as observer:
        view = observer.look(())

    assert "rank 1 failed: exit status 7 (likely the cause)" == view.cause


def test_job_of_which_only_the_logs_are_seen(start: Start, run_dir: Path) -> None:
    """On another machine, the sizes and times of the logs show which ranks are alive."""
    run = start(f"echo begun; {STEPS}", ranks=3)
    run.wait_for("begun", times=3)
    here = jobs.find(None, os.environ)
    elsewhere = attrs.evolve(here, host="another", run_folder=str(run_dir / "nowhere"))
    observer = Observer(here, os.environ)
    observer._parts = [type(observer._parts[0])(elsewhere, observer._host)]  # noqa: SLF001  this machine cannot be two
    wait_until(lambda: {(rank.step, rank.last_line) for rank in observer.look(()).ranks} == {(3, LAST)})
    rank = observer.look(()).ranks[0]
    old = Path(observer.log_path(0))
    os.utime(old, (old.stat().st_atime, old.stat().st_mtime - 600))
    states = seen(observer)
    run.send(signal.SIGTERM)
    run.finish()

    assert (None, None, None) == (rank.cpu, rank.memory, rank.device)
    assert {0: State.QUIET, 1: State.RUNNING, 2: State.RUNNING} == states


def test_without_a_terminal(start: Start, tool: Tool) -> None:
    """Where no screen can be drawn, `top` prints what `status` does."""
    start("true").finish()

    assert tool("status") == tool("top")


def test_without_the_extra() -> None:
    """Without textual, one sentence says how to install it."""
    script = """
import sys
sys.modules["textual"] = None
from argparse import Namespace
from ascend_runner.errors import SettingsError
from ascend_runner.tools.job import commands
commands.terminal.can_move_cursor = lambda environ: True
try:
    commands.top(Namespace(job=None, environ={}))
except SettingsError as error:
    print(error)
"""
    shown = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True, timeout=60)

    assert shown.stdout.startswith("top requires the package textual: ")


def test_what_else_needs_the_extra() -> None:
    """No other command loads textual or rich."""
    modules = "batch, jobs, logs, processes, reports, screens"
    script = f"import sys; from ascend_runner.tools.job import main, {modules}; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True, timeout=60)

    assert set() == {"textual", "rich"} & {*shown.stdout.split()}
