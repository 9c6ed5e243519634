"""How problems are worded and collected."""

from __future__ import annotations

import attrs
import pytest

from ascend_runner.errors import CommandError, SettingsError, StopRequestedError
from ascend_runner.problems import (
    Collector,
    Problem,
    RankTableFormatError,
    Severity,
    Subject,
    error,
    problems_of,
    warning,
    without_repeated_remedies,
)

TABLE_PROBLEM = Problem(
    severity=Severity.ERROR,
    sentence="duplicate rank_id 3",
    path="a[1]",
    source="t.json",
    code="EI0014",
    remedy="mend it",
)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (error("odd"), "odd"),
        (warning("odd", "mend it"), "odd; mend it"),
        (TABLE_PROBLEM, "duplicate rank_id 3, in 'a[1]' of t.json (EI0014); mend it"),
        (attrs.evolve(TABLE_PROBLEM, path=""), "duplicate rank_id 3, in t.json (EI0014); mend it"),
    ],
)
def test_wording(problem: Problem, expected: str) -> None:
    """A problem says what is wrong, where, with which code of HCCL, and what to do."""
    assert expected == str(problem)


def test_repeated_remedies() -> None:
    """Of several problems in a row with one remedy, only the last one gives it."""
    problems = [error("a", "x"), error("b", "x"), error("c"), error("d", "x")]

    assert ["", "x", "", "x"] == [problem.remedy for problem in without_repeated_remedies(problems)]


def test_error_of_a_table_has_several_problems() -> None:
    """An error of a rank table is all its problems; any other error is one problem with its exit status."""
    assert (TABLE_PROBLEM, error("b")) == problems_of(RankTableFormatError([TABLE_PROBLEM, error("b")]))
    assert [127] == [problem.exit_status for problem in problems_of(CommandError("x", exit_status=127))]


def test_collector() -> None:
    """Answers are returned, errors collected once with their subject, and the first one is kept as an exception."""
    collector = Collector()

    def fail(sentence: str) -> str:
        raise SettingsError(sentence)

    assert 3 == collector.ask(Subject.COMMAND, len, "abc")
    assert collector.ask(Subject.SETTINGS, fail, "a") is None
    assert collector.ask(Subject.VARIABLES, fail, "a") is None
    assert collector.ask(Subject.VARIABLES, fail, "b") is None
    assert [("a", Subject.SETTINGS), ("b", Subject.VARIABLES)] == [
        (problem.sentence, problem.subject) for problem in collector.problems
    ]
    assert "a" == str(collector.error)


def test_stop_signal_is_not_collected() -> None:
    """A stop signal ends the questions."""

    def stop() -> None:
        raise StopRequestedError(15, "SIGTERM")

    with pytest.raises(StopRequestedError):
        Collector().ask(Subject.COMMAND, stop)
