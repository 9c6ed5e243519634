"""What --perf-* needs and no line of a job has is told in one sentence."""

from __future__ import annotations

import pytest

from ascend_runner.services.matching import Matcher
from ascend_runner.services.pace import Unmatched
from ascend_runner.supervision.performance import Performance
from ascend_runner.training.steps import Step
from tests.helpers.plans import job_spec, rank_spec

PATTERN = r"step (?P<step>\d+) took"


def sentence(
    *, pattern: str = "", threshold: float | None = None, drop: float | None = None, step: Step | None = None
) -> str:
    """Return what is told about a job after a step that was not found by the pattern."""
    performance = Performance(threshold=threshold, drop=drop)
    if step:
        performance.note(0, step)
    job = job_spec([rank_spec(0)], perf_pattern=pattern or None)
    return Unmatched(job, Matcher(pattern, print), performance).sentence()


def test_pattern() -> None:
    """The pattern is named as the user wrote it, with the options that depend on it."""
    assert rf"no line of output has matched --perf-pattern '{PATTERN}', so --perf-drop has no effect" == sentence(
        pattern=PATTERN, drop=0.3
    )


def test_options_without_a_pattern() -> None:
    """An option is without effect if no step has its figures, even if there are others."""
    assert (
        "--perf-threshold has no effect: no line of output reports hardware and end-to-end times in a known format"
        " (--perf-pattern adds one)"
    ) == sentence(threshold=0.8, drop=0.3, step=Step(step=7))


@pytest.mark.parametrize("step", [Step(step=7), Step(throughput=3.0, unit="tokens/s"), Step(seconds=1.0)])
def test_enough_figures(step: Step) -> None:
    """Whatever gives a speed is enough for --perf-drop."""
    assert "" == sentence(drop=0.3, step=step)


def test_match() -> None:
    """One line is enough."""
    matcher = Matcher(PATTERN, print)
    unmatched = Unmatched(job_spec([rank_spec(0)], perf_pattern=PATTERN), matcher, Performance())
    unmatched.note(None)
    before = unmatched.sentence()
    unmatched.note({"step": b"7"})

    assert (True, "") == (bool(before), unmatched.sentence())


def test_pattern_that_was_given_up() -> None:
    """There was a warning about it."""
    matcher = Matcher(PATTERN, lambda _warning: None)
    unmatched = Unmatched(job_spec([rank_spec(0)], perf_pattern=PATTERN), matcher, Performance())
    matcher.give_up("it is slow")

    assert "" == unmatched.sentence()


@pytest.mark.parametrize(("rank_id", "is_told"), [(0, True), (3, False), (7, True)])
def test_several_nodes(rank_id: int, is_told: bool) -> None:  # noqa: FBT001  a parameter of the test
    """Most software prints its steps on the first or the last rank, so other nodes say nothing."""
    matcher = Matcher(PATTERN, print)
    job = job_spec([rank_spec(rank_id)], perf_pattern=PATTERN, rank_size=8, node_number=1)

    assert is_told is ("on this node" in Unmatched(job, matcher, Performance()).sentence())
