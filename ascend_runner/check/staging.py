"""The data sets that a job would copy to this node: their size, and whether there is room for them."""

from __future__ import annotations

import functools
import time

import attrs

from ascend_runner.check.context import CheckContext, Findings
from ascend_runner.errors import OutputError, reason
from ascend_runner.host import bounded
from ascend_runner.plan.staging import Stage
from ascend_runner.problems import Problem, problems_of, warning
from ascend_runner.services.surveys import Survey, check_room, surveying
from ascend_runner.text import counted, size


@attrs.define
class Answer:
    """What was found of a data set within the time for it."""

    survey: Survey = attrs.field(factory=Survey)
    is_whole: bool = False
    problems: tuple[Problem, ...] = ()


def data_sets(context: CheckContext) -> Findings:
    """Report what would be copied, as far as it can be counted in time."""
    for stage in context.prepared.context.stages:
        answer = Answer()
        bounded.call(context.patience, functools.partial(_look, stage, answer, context.patience))
        yield from answer.problems
        if not answer.problems:
            yield _sentence(stage, answer)


def _look(stage: Stage, answer: Answer, seconds: float) -> None:
    deadline = time.monotonic() + seconds / 2
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


def _sentence(stage: Stage, answer: Answer) -> str:
    """Say how much of a data set is to be copied."""
    missing = answer.survey.missing
    title = f"{stage.source} to {stage.place}"
    if not answer.is_whole:
        return f"{title}: more than {counted(missing.files, 'file')} ({size(missing.size)}) to copy"
    if not missing.entries:
        return f"{title}: nothing to copy"
    return f"{title}: {counted(missing.files, 'file')} ({size(missing.size)}) to copy"
