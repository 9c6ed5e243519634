"""The rank table of a job: where it is, what HCCL would reject, and how it is written.

Only a job that needs a rank table imports this module, and with it everything that reads one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import attrs

from ascend_runner.errors import OutputError, RankTableError, RankTableNotReadyError
from ascend_runner.plan.ranks import PlanContext
from ascend_runner.plan.spec import TableFile
from ascend_runner.platforms import chips
from ascend_runner.platforms import places as platform_table
from ascend_runner.problems import Problem, RankTableFormatError, Severity
from ascend_runner.rank_table import RankTable, checks, codec, source

NO_TABLE_CHECKS: Final = "use --no-table-checks to start the job anyway"


def wait(context: PlanContext, *, pause: Callable[[float], None], say: Callable[[str], None]) -> RankTable:
    """Read the rank table once it is completed.

    Raises:
        RankTableError: Nothing names one, it was not completed in time, or it is not a rank table.
    """
    path = _find(context)
    with _hint(path):
        return source.wait(
            path,
            timeout=context.settings.rank_table_timeout,
            lists_decide=context.settings.no_table_checks,
            pause=pause,
            say=say,
        )


def read(context: PlanContext) -> RankTable | Problem:
    """Read the rank table without waiting; one that is not completed yet is a transient problem.

    Raises:
        RankTableError: Nothing names one, or it is not a rank table.
    """
    path = _find(context)
    try:
        with _hint(path):
            return source.read(path, lists_decide=context.settings.no_table_checks)
    except RankTableNotReadyError as error:
        return Problem(
            severity=Severity.WARNING,
            sentence=str(error),
            remedy=f"a job waits up to {context.settings.rank_table_timeout:g} s for it; if this persists,"
            f" {error.advice}",
        )


@contextmanager
def _hint(path: str) -> Iterator[None]:
    """Name --no-table-checks in the errors of a table that is accepted with it."""
    try:
        yield
    except RankTableFormatError as error:
        try:
            source.read(path, lists_decide=True)
        except RankTableError:
            raise error from None
        raise RankTableFormatError(_with_remedy(error.problems)) from None


def _with_remedy(problems: Iterable[Problem]) -> list[Problem]:
    return [
        attrs.evolve(problem, remedy=NO_TABLE_CHECKS) if problem.severity is Severity.ERROR else problem
        for problem in problems
    ]


def _find(context: PlanContext) -> str:
    place = platform_table.find_table(context.settings.rank_table, context.environ, context.is_folder)
    return os.path.join(context.cwd, place)


def check(table: RankTable, file: TableFile, context: PlanContext) -> list[Problem]:
    """Return the problems of a table that HCCL would report up to half an hour after the start."""
    return _with_remedy(
        checks.check(
            table,
            path=os.path.realpath(file.path),  # as HCCL does before it checks the name
            size=len(file.data),
            chip=context.settings.chip or chips.chip_of(context.environ),
            is_roce_wanted=checks.wants_roce(context.environ),
        )
    )


def placed(table: RankTable, context: PlanContext) -> TableFile:
    """Return the file of a rank table as HCCL reads it."""
    return context.place_table(codec.to_hccl_bytes(table), table.data)


def write(table: TableFile, warn: Callable[[str], None], *, is_checked: bool) -> TableFile:
    """Write the rank table at its path, or else, with a warning, at its fallback path; return it with the path.

    Raises:
        OutputError: It can be written at neither.
        RankTableError: HCCL would not read it at the fallback path (with `is_checked`).
    """
    try:
        source.write(table.path, table.data)
    except OutputError as error:
        warn(f"{error}; writing the rank table to {table.fallback_path!r} instead")
    else:
        return table

    source.write(table.fallback_path, table.data)
    problem = checks.name_problem(os.path.realpath(table.fallback_path))
    if problem and is_checked:
        raise RankTableError(f"{problem}; {NO_TABLE_CHECKS}")
    return attrs.evolve(table, path=table.fallback_path)
