"""Which facts are shown while a job runs."""

from __future__ import annotations

import attrs
import pytest

from ascend_runner import facts
from ascend_runner.facts import Fact, RankOutput, Survivor, Usage
from ascend_runner.report.progress import Progress
from ascend_runner.supervision.events import Ending
from ascend_runner.supervision.outcome import AttemptOutcome
from tests.helpers.plans import job_spec, rank_spec

ENDED = facts.JobEnded(AttemptOutcome(None, ()), 2.0)
LOST = facts.OutputComplete(0, RankOutput(size=100, lost=10, lost_from=5))
JOB = job_spec([rank_spec(log_path="/log/0")], has_own_process_logs=True)


@attrs.frozen
class Lines:
    """Collects the level and text of each message."""

    said: list[tuple[str, str]] = attrs.field(factory=list)

    def debug(self, sentence: str) -> None:
        """Collect a detail."""
        self.said.append(("debug", sentence))

    def info(self, sentence: str) -> None:
        """Collect progress."""
        self.said.append(("info", sentence))

    def warning(self, sentence: str) -> None:
        """Collect a warning."""
        self.said.append(("warning", sentence))

    def error(self, text: str) -> None:
        """Collect a failure."""
        self.said.append(("error", text))


@pytest.mark.parametrize(
    ("levels", "seen"),
    [
        (["info"], [facts.JobStarting(1.0)]),
        (["warning", "info"], [facts.JobStarting(1.0, is_proc_hidden=True)]),
        (["debug"], [facts.RankStarted(0, 4711, 1.0)]),
        (["debug"], [facts.RankExited(rank_id=0, ending=Ending(), at=2.0)]),
        ([], [facts.RankReaped(0, Usage(max_rss=1, user_seconds=0.0, system_seconds=0.0))]),
        (["error"], [facts.HangSeen((), "py-spy is not installed")]),
        (["warning"], [facts.EscapedKilled({5: "sleep"})]),
        (["warning"], [facts.ProcessesSurvived((Survivor(0, "pid 5 (x)"), Survivor(None, "pid 6 (y)")))]),
        ([], [facts.OutputComplete(0, RankOutput()), ENDED]),
        (["warning"], [LOST, ENDED]),
        (["warning"], [facts.OutputComplete(0, RankOutput(), is_cut_off=True), ENDED]),
    ],
)
def test_levels(levels: list[str], seen: list[Fact]) -> None:
    """A fact is shown with the level that it deserves, and what happens in every job is shown by --verbose only."""
    lines = Lines()
    progress = Progress(JOB, lines)
    for fact in seen:
        progress.observe(fact)

    assert levels == [level for level, _sentence in lines.said]


def test_output_cut_off_for_one_rank() -> None:
    """Output that was cut off is reported, whichever rank's output completed last."""
    lines = Lines()
    progress = Progress(JOB, lines)
    for fact in (facts.OutputComplete(0, RankOutput(), is_cut_off=True), facts.OutputComplete(1, RankOutput()), ENDED):
        progress.observe(fact)

    assert 1 == len(lines.said)
