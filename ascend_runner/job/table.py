"""The rank table of a job: where it is, what HCCL would reject, and how it is written.

Only a job that needs a rank table imports this module, and with it everything that reads one.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import attrs

from ascend_runner import files
from ascend_runner.errors import OutputError, RankTableError, RankTableNotReadyError, reason
from ascend_runner.node import disks
from ascend_runner.plan.ranks import PlanContext
from ascend_runner.plan.spec import TableFile
from ascend_runner.platforms import chips
from ascend_runner.platforms import places as platform_table
from ascend_runner.problems import Problem, RankTableFormatError, Severity
from ascend_runner.rank_table import RankTable, checks, codec, source
from ascend_runner.rank_table.fields import Document
from ascend_runner.ranks.message_format import FURTHER_LINE
from ascend_runner.text import counted

NO_TABLE_CHECKS: Final = "use --no-table-checks to start the job anyway"
MOST_LINES: Final = 2_000  # of a table that is shown; about 400 devices
MOST_PLACES: Final = 100  # of jobs with different tables that run at the same time
WRITING: Final = 5.0  # seconds for which another process may hold the lock while it writes the table


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


def newest(context: PlanContext) -> RankTable | None:
    """Read the rank table without waiting, None if it is not completed or cannot be used; it may be written again."""
    try:
        found = read(context)
    except RankTableError:
        return None
    return None if isinstance(found, Problem) else found


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
    rejected = checks.check(
        table,
        path=os.path.realpath(file.path),  # as HCCL does before it checks the name
        size=len(file.data),
        chip=context.settings.chip or chips.chip_of(context.environ),
        is_roce_wanted=checks.wants_roce(context.environ),
    )
    return _with_remedy([*rejected, *checks.check_retry(table, context.environ.get(checks.RETRY, ""))])


def placed(table: RankTable, context: PlanContext) -> TableFile:
    """Return the file of a rank table as HCCL reads it."""
    return context.place_table(codec.to_hccl_bytes(table), table.data)


def texts(table: RankTable) -> Iterator[str]:
    """Yield the rank table as it was read and, unless it is the same, as HCCL will read it, for people."""
    written = codec.to_hccl_bytes(table)
    yield _text(f"the rank table {table.source} as it was read:", table.data)
    if written != table.data:
        yield _text("the rank table after its conversion:", written)


def _text(head: str, data: bytes) -> str:
    lines = json.dumps(codec.parse(data, Document("")), indent=2, ensure_ascii=False).split("\n")
    more = [f"... ({counted(len(lines) - MOST_LINES, 'more line')})"] if len(lines) > MOST_LINES else []
    return FURTHER_LINE.join([head, *lines[:MOST_LINES], *more])


def write(table: TableFile, warn: Callable[[str], None], *, is_checked: bool) -> tuple[TableFile, int]:
    """Write the rank table, and return it with its path, and a lock: it is not replaced until the descriptor is closed.

    It goes to its path, unless another job that is running has a different one there or, with a warning, it cannot be
    written. Else it goes to its fallback path, or beside that for the same reasons.

    Raises:
        OutputError: It can be written nowhere.
        RankTableError: HCCL would not read it at the only path left (with `is_checked`).
    """
    try:
        lock = _claim(table.path, table.data)
        problem = f"another job is using the rank table {table.path!r}"
    except OutputError as error:
        lock, problem = None, str(error)
    if lock is not None:
        return table, lock

    for path in _places(table.fallback_path):
        unreadable = checks.name_problem(os.path.realpath(path)) if is_checked else ""
        if unreadable:
            raise RankTableError(f"{unreadable}; {NO_TABLE_CHECKS}")
        lock = _claim(path, table.data)
        if lock is not None:
            warn(f"{problem}; writing the rank table to {path!r} instead")
            return attrs.evolve(table, path=path), lock
    raise OutputError(
        f"{problem}; the {MOST_PLACES} fallback paths, such as {table.fallback_path!r}, cannot be used either"
    )


def _places(path: str) -> Iterator[str]:
    yield path
    folder, name = os.path.split(path)
    yield from (os.path.join(f"{folder}-{number}", name) for number in range(2, MOST_PLACES + 1))


def _claim(path: str, data: bytes) -> int | None:
    """Write a table unless a different one is in use at its path; return the descriptor of the lock.

    The nodes of a job and other jobs with the same table share it.
    """
    files.make_folder(os.path.dirname(path))
    name = f"{path}.lock"
    try:
        lock = files.open_lock(name)
    except OSError as error:
        raise OutputError(f"cannot create {name!r}: {reason(error)}") from error
    with ExitStack() as unless_claimed:
        unless_claimed.callback(disks.release, lock)
        deadline = time.monotonic() + WRITING
        while True:
            if files.try_lock(lock):
                files.write_atomically(path, data)
            # Between the two locks another job may have written its own (flock(2)).
            if files.try_lock(lock, fcntl.LOCK_SH):
                break
            if time.monotonic() > deadline:
                return None
            time.sleep(0.01)
        if files.read_end(path, len(data) + 1) == data:
            unless_claimed.pop_all()
            return lock
    return None
