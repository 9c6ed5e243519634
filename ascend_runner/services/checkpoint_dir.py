"""Looks for checkpoints in the directory of a training, on a disk that may hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ascend_runner.node import bounded

if TYPE_CHECKING:
    from ascend_runner.training.checkpoints import Checkpoints

LIMITS: Final = (12.0, 3.0)  # seconds; a search takes at most 10 s if the disk responds


def look(
    folder: str,
    is_stopped: Callable[[], bool],
    is_hurried: Callable[[], bool],
    limits: tuple[float, float] = LIMITS,
) -> Checkpoints | None:
    """Return the checkpoints in a directory, or None if there is no directory or its disk does not respond.

    The next stop signal cuts that short: `is_stopped` returns whether there was one, `is_hurried` whether there was
    another. The second of the `limits` holds once the job was stopped.
    """
    if not folder:
        return None
    from ascend_runner.training import checkpoints  # noqa: PLC0415  only --checkpoint-dir needs it

    found: list[Checkpoints] = []
    limit, is_cut = (limits[1], is_hurried) if is_stopped() else (limits[0], is_stopped)
    bounded.call(limit, lambda: found.append(checkpoints.look(folder)), is_cut)
    return found[0] if found else None
