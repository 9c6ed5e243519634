"""The line about a running job that `--summary` writes at intervals."""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from signal import SIGTERM
from typing import Final

import attrs
import pytest

from ascend_runner.record.job_record import StepRecord
from ascend_runner.record.rank_record import RankRecord, RankState
from ascend_runner.report.recorder import Recorder
from ascend_runner.services import live
from ascend_runner.services.live import Live, View
from ascend_runner.supervision.causes import Ending
from ascend_runner.supervision.state import Phase
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.program import Program

NOW: Final = 7200.0  # seconds since the start of the attempt
INTERVAL: Final = 600.0  # seconds
STEP: Final = StepRecord(step=1204, steps=1563, seconds=4.1, at=NOW - 4.0)
VIEW: Final = View(
    phase=Phase.RUNNING,
    began=0.0,
    seconds=NOW,
    last_step=STEP,
)


def running(rank_id: int, last: float | None = NOW - 1) -> RankRecord:
    """Return a rank that has last written then."""
    return RankRecord(rank_id=rank_id, state=RankState.RUNNING, last_output_after=last, log_size=0)


@attrs.frozen
class FakeSteps:
    """Steps of a training with this loss, and of ranks of which the first running one is behind."""

    loss: object = None
    has_slow_rank: bool = False

    def last_step(self) -> Mapping[str, object]:
        """Return the last figures."""
        return {"loss": self.loss}

    def behind_others(self, running: Collection[int]) -> str:
        """Name the first rank."""
        return f"rank {min(running)} is 18 steps behind the others" if self.has_slow_rank else ""


def line(ranks: Sequence[RankRecord], step: StepRecord | None = None, steps: FakeSteps = FakeSteps()) -> str:
    """Return the line about a job after two hours."""
    return live.sentence(attrs.evolve(VIEW, ranks=tuple(ranks), last_step=step), steps, INTERVAL)


def test_running_job() -> None:
    """It says how many ranks run and for how long, the last step with its loss, and which rank is quiet."""
    text = line([*map(running, (-1, 0, 1, 2)), running(3, NOW - 252)], STEP, FakeSteps(2.3125))

    assert (
        "all 4 ranks have been running for 2 h 0 min; step 1204 of 1563, 4.1 s per step, loss 2.312;"
        " rank 3 has been quiet for 4 min 12 s, the others for at most 1 s"
    ) == text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([running(0)], "rank 0 has been running for 2 h 0 min"),
        ([running(0), running(1, None), running(2, None)], "all 3 ranks have been running for 2 h 0 min"),
        (
            [running(0), RankRecord(rank_id=1, ending=Ending())],
            "1 of 2 ranks has been running for 2 h 0 min",
        ),
        (
            [running(0, 100.0), RankRecord(rank_id=1, ending=Ending(), seconds=NOW - 120)],
            (
                "1 of 2 ranks has been running for 2 h 0 min;"
                " rank 0 has been quiet for 1 h 58 min; the other rank succeeded 2 min 0 s ago"
            ),
        ),
        (
            [running(0, 100.0), running(1, 120.0)],
            "both ranks have been running for 2 h 0 min; no rank has written anything for 1 h 58 min",
        ),
    ],
)
def test_ranks(ranks: Sequence[RankRecord], text: str) -> None:
    """It counts those that run, says whether none of them writes, and names one that is left alone."""
    assert text == line(ranks)


@pytest.mark.parametrize(
    ("step", "loss", "text"),
    [
        (attrs.evolve(STEP, steps=None), float("nan"), "; step 1204, 4.1 s per step, loss nan"),
        (attrs.evolve(STEP, at=5000.0), None, "; step 1204 of 1563, 4.1 s per step, 36 min 40 s ago"),
        (attrs.evolve(STEP, step=None), 2.31, ""),
    ],
)
def test_steps(step: StepRecord, loss: object, text: str) -> None:
    """What is unknown is left out, and a step that is older than the interval has its age."""
    assert f"rank 0 has been running for 2 h 0 min{text}" == line([running(0)], step, FakeSteps(loss))


def test_rank_that_is_behind() -> None:
    """It is named, and ranks that have ended are not compared."""
    text = line([RankRecord(rank_id=0, ending=Ending()), running(1), running(2)], STEP, FakeSteps(has_slow_rank=True))

    assert text.endswith("; step 1204 of 1563, 4.1 s per step; rank 1 is 18 steps behind the others")


def test_job_that_is_being_stopped() -> None:
    """The messages about a stop say more, so there is no line."""
    assert "" == live.sentence(attrs.evolve(VIEW, phase=Phase.TERMINATING), FakeSteps(), INTERVAL)


def test_without_the_option() -> None:
    """There is no thread, so that nothing wakes an idle runner."""
    job = job_spec([rank_spec(0)])
    shown = Live(job, Recorder(job), lambda: None)
    before = {*threading.enumerate()}
    with live.writing(job, shown, FakeSteps(), pytest.fail):
        threads = {*threading.enumerate()}

    assert before >= threads


def test_steps_in_the_output(program: Program) -> None:
    """They are in the lines without any other option, with the rank that is behind; there is no warning."""
    guide = "this iteration hardware time is $((RANK ? 100 : 900)).5 and e2e time is 1000.5 ms."
    script = f"i=0; while [ $i -lt 60 ]; do i=$((i + 1)); echo {guide}; done; echo X_STEP=$((RANK * 40));"
    script += " [ $RANK = 1 ] || echo ' 12%|#   | 120/1000 [00:10<01:20,  2.00s/it, loss=2.5]'; exec sleep 600"
    run = program.start("--nproc-per-node", "4", "--summary", "0.1", "sh", "-c", script)
    run.wait_for("; step 120 of 1000, 2 s per step, loss 2.5")
    run.wait_for("; rank 1 is 80 steps behind the others")
    run.send(SIGTERM)

    assert 128 + SIGTERM == run.finish()
    assert "WARNING" not in run.screen


def test_lines_of_a_job(program: Program) -> None:
    """A running job writes such lines, with the steps that its ranks send, until it is stopped."""
    script = "import os, socket, time; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM);"
    script += " s.sendto(b'WATCHDOG=1\\nX_STEP=7', os.environ['NOTIFY_SOCKET']); time.sleep(600)"
    run = program.start("--nproc-per-node", "2", "--summary", "0.1", sys.executable, "-c", script)
    run.wait_for("INFO both ranks have been running for")
    run.wait_for("; step 7")
    run.send(SIGTERM)

    assert 128 + SIGTERM == run.finish()
