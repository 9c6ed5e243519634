"""The datasets that a job would copy to this node: their size, and whether there is room for them."""

from __future__ import annotations

import functools
import time

import attrs

from ascend_runner.check.context import CheckContext, Findings
from ascend_runner.errors import OutputError, reason
from ascend_runner.host import bounded
from ascend_runner.plan.staging import Stage
from ascend_runner.problems import Problem, problems_of, warning
from ascend_runner.staging.surveys import Survey, check_room, surveying
from ascend_runner.text import counted, size


@attrs.define
class Answer:
    """What was found out about a dataset within the time limit."""

    survey: Survey = attrs.field(factory=Survey)
    is_whole: bool = False
    problems: tuple[Problem, ...] = ()


def datasets(context: CheckContext) -> Findings:
    """Report what would be copied, as far as it can be counted in time."""
    for stage in context.prepared.context.stages:
        answer = Answer()
        limit = context.patience / 2  # seconds for the listing
        is_in_time = bounded.call(context.patience, functools.partial(_look, stage, answer, limit))
        yield from answer.problems
        if not answer.problems:
            yield _sentence(stage, answer, limit if is_in_time else context.patience)


def _look(stage: Stage, answer: Answer, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    try:
        for _line in surveying(stage, answer.survey):
            if time.monotonic() > deadline:
                return
        answer.is_whole = True
        check_room(stage, answer.survey.missing)
    except OSError as error:
        answer.problems = (warning(f"cannot stage {error.filename or stage.source!r}: {reason(error)}"),)
    except OutputError as error:
        answer.problems = problems_of(error)


def _sentence(stage: Stage, answer: Answer, seconds: float) -> str:
    """Describe how much of a dataset is to be copied; it was listed for `seconds` unless the answer is complete."""
    missing = answer.survey.missing
    title = f"{stage.source} to {stage.place}"
    text = f"{counted(missing.files, 'file')} ({size(missing.size)}) to copy" if missing.entries else "nothing to copy"
    if answer.is_whole:
        return f"{title}: {text}"
    text = f"at least {text}" if missing.entries else f"{text} so far"
    return f"{title}: {text}; listing was cut off after {seconds:g} s"
