"""Checks of the datasets to stage: whether each can be read, and whether its copy can be where it should."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from ascend_runner.errors import AscendRunnerError, SettingsError, reason
from ascend_runner.node import bounded, disks
from ascend_runner.plan.ranks import PlanContext, Stage, with_places
from ascend_runner.services import staging

LIMIT: Final = 10.0  # seconds for the disks to answer


def placed(context: PlanContext, pause: Callable[[float], None]) -> PlanContext:
    """Return the context with the stages of --stage, and with their places in the command.

    Stages that are known from an earlier attempt are not checked again.

    Raises:
        AscendRunnerError: One of them is impossible, or the command names another one.
        StopRequestedError: A stop signal arrived.
    """
    stages = context.stages or find(context.settings.stage, pause)
    return attrs.evolve(context, stages=stages, command=with_places(context.command, stages))


def stage_of(source: str, folder: str) -> Stage:
    """Return the stage that copies a source into a directory.

    Raises:
        AscendRunnerError: It is impossible, or would do harm.
    """
    try:
        status = os.stat(source)
        stage = Stage(source, folder, "" if stat.S_ISDIR(status.st_mode) else os.path.basename(source))
        if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
            raise SettingsError(f"cannot stage {source!r}: it is neither a directory nor a file")
        if not os.access(source, os.R_OK | (0 if stage.name else os.X_OK)):
            raise SettingsError(f"cannot stage {source!r}: permission denied")
        disks.check_folders([folder])
        problem = _overlap(stage) or _conflict(stage)
    except OSError as error:
        raise SettingsError(f"cannot stage {error.filename or source!r}: {reason(error)}") from error
    if problem:
        raise SettingsError(f"cannot stage {source!r} to {folder!r}: {problem}")
    return stage


def find(
    named: Sequence[tuple[str, str]], pause: Callable[[float], None], look: Callable[[str, str], Stage] = stage_of
) -> tuple[Stage, ...]:
    """Return the stages for pairs of a source and a directory. The disks are read in a thread, since they may hang.

    Raises:
        AscendRunnerError: One of them is impossible.
        StopRequestedError: A stop signal arrived.
    """
    stages: list[Stage] = []
    failures: list[AscendRunnerError] = []

    def ask() -> None:
        try:
            for source, folder in named:
                stages.append(look(source, folder))
            _refuse_overlaps(stages)
        except AscendRunnerError as error:
            failures.append(error)

    def check_stop() -> bool:
        pause(0.0)
        return False

    if not bounded.call(LIMIT, ask, check_stop):
        source, folder = named[min(len(stages), len(named) - 1)]
        raise SettingsError(f"cannot stage {source!r} to {folder!r}: no response from a disk within {LIMIT:g} s")
    if failures:
        raise failures[0]
    return tuple(stages)


def _overlap(stage: Stage) -> str:
    """Return why a copy would be read while it is written; "" if it would not."""
    source, folder, place = map(os.path.realpath, (stage.source, stage.folder, stage.place))
    if source == place or (os.path.exists(place) and os.path.samefile(source, place)):
        return "source and destination are the same; use another directory"
    if _is_below(folder, source):
        return "the copy would be inside the dataset; use another directory"
    return "the dataset is inside that directory; use another one" if _is_below(source, folder) else ""


def _conflict(stage: Stage) -> str:
    """Return why the copy cannot be written, or would be mixed with files of others; "" if neither holds."""
    folder = disks.nearest(stage.folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"no permission to write to {folder!r}"
    if folder != os.path.abspath(stage.folder):  # it does not exist
        return ""
    manifest, complete = (staging.summary(os.path.join(folder, name)) for name in (staging.MANIFEST, staging.COMPLETE))
    former = (manifest or complete).get("source")
    if former not in {None, stage.source}:
        return f"the directory has a copy of {former!r}; remove it or use another directory"
    # A crash of the machine may have left a copy with nothing but the lock.
    is_copy = former or os.path.lexists(os.path.join(folder, staging.LOCK))
    is_free = is_copy or not staging.has_contents(folder)
    return "" if is_free else "the directory has other files; use an empty or a new directory"


def _refuse_overlaps(stages: Sequence[Stage]) -> None:
    for number, stage in enumerate(stages):
        for other in stages[:number]:
            one, two = os.path.realpath(stage.folder), os.path.realpath(other.folder)
            if one == two or _is_below(one, two) or _is_below(two, one):
                raise SettingsError(
                    f"cannot stage both {other.source!r} to {other.folder!r} and {stage.source!r} to {stage.folder!r}:"
                    " each dataset needs a directory of its own"
                )


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(os.path.join(folder, ""))
