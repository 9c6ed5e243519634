"""Problems of a rank table, and the error that carries them."""

from __future__ import annotations

from ascend_runner.errors import SettingsError
from ascend_runner.problems import Problem, RankTableFormatError, Severity, problems_of
from ascend_runner.rank_table.fields import BAD_VALUE


def _problem(sentence: str, path: str = "", source: str = "") -> Problem:
    return Problem(severity=Severity.ERROR, sentence=sentence, path=path, source=source, code=BAD_VALUE)


def test_problem_names_its_place() -> None:
    """The text ends with the place, as far as it is known, and HCCL's code."""
    assert "it is odd, in 'a[0].b' of t.json (EI0014)" == str(_problem("it is odd", "a[0].b", "t.json"))
    assert "it is odd, in t.json (EI0014)" == str(_problem("it is odd", source="t.json"))
    assert "it is odd, in 'a' (EI0014)" == str(_problem("it is odd", "a"))
    assert "it is odd (EI0014)" == str(_problem("it is odd"))


def test_error_carries_all_problems() -> None:
    """The text of the error is the first problem and the number of the others."""
    problems = (_problem("one", "a", "t.json"), _problem("two", "b", "t.json"))
    raised = RankTableFormatError(problems)

    assert "one, in 'a' of t.json (EI0014) (and 1 more)" == str(raised)
    assert problems == problems_of(raised)
    assert "one (EI0014)" == str(RankTableFormatError([_problem("one")]))


def test_any_error_is_a_problem() -> None:
    """An error of another kind is one problem with its sentence."""
    assert ["it is odd"] == [str(problem) for problem in problems_of(SettingsError("it is odd"))]
