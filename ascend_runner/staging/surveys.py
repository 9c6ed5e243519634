"""Surveys a dataset: its contents, the parts missing from the copy, and whether there is room for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import attrs

from ascend_runner.errors import OutputError
from ascend_runner.host import file_system
from ascend_runner.plan.staging import Stage
from ascend_runner.staging import datasets
from ascend_runner.staging.datasets import Kind, Total
from ascend_runner.text import counted, size

LEAST_FREE: Final = 0.1  # fraction of the file system; platforms take a node with a full disk out of service


@attrs.define(kw_only=True)
class Survey:
    """The sizes of a dataset and of what its copy lacks, and the first path that cannot be copied ("": none)."""

    found: Total = attrs.field(factory=Total)
    missing: Total = attrs.field(factory=Total)
    skipped: str = ""


def surveying(stage: Stage, survey: Survey) -> Iterator[bytes]:
    """Survey a source, and yield its entries as lines of a manifest.

    Raises:
        OSError: Something cannot be read; its path is the error's.
        OutputError: A symlink leads back to a directory that contains it.
    """
    for entry in datasets.walk(stage.top, stage.name):
        if entry.kind is Kind.OTHER:
            survey.skipped = survey.skipped or os.path.join(stage.top, entry.path)
            continue
        line = entry.encode()
        survey.found.add(entry, line)
        if not datasets.is_staged(entry, stage.folder):
            survey.missing.add(entry, line)
        yield line


def check_room(stage: Stage, missing: Total) -> None:
    """Check that the file system of a copy has room for the missing files.

    Raises:
        OSError: The file system does not give its size.
        OutputError: Less than a tenth of the file system would stay free.
    """
    disk = os.statvfs(file_system.nearest(stage.folder))
    free = disk.f_bavail * disk.f_frsize - missing.room
    if missing.size and disk.f_blocks and free < LEAST_FREE * disk.f_blocks * disk.f_frsize:
        if free < 0:
            why = f"the copy needs {size(missing.room)}, and its file system has only {size(missing.room + free)} free"
        else:
            why = (
                f"{size(missing.size)} would leave {free / (disk.f_blocks * disk.f_frsize):.0%} of its file system"
                f" free, and at least {LEAST_FREE:.0%} is required"
            )
        raise OutputError(
            f"cannot stage {stage.source!r} to {stage.folder!r}: {why}; free some space or use another directory"
        )
    if disk.f_files and disk.f_favail < missing.entries:
        raise OutputError(
            f"cannot stage {stage.source!r} to {stage.folder!r}: its file system has room for only"
            f" {counted(disk.f_favail, 'more file')}, and {missing.entries} are needed"
        )
