"""Looks for checkpoints in the directory of a training, on a disk that may hang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ascend_runner.node import bounded
from ascend_runner.node.bounded import Patience

if TYPE_CHECKING:
    from ascend_runner.training.checkpoints import Checkpoints

LIMITS: Final = (12.0, 3.0)  # seconds; a search takes at most 10 s if the disk responds


def look(folder: str, patience: Patience, limits: tuple[float, float] = LIMITS) -> Checkpoints | None:
    """Return the checkpoints in a directory, or None if there is no directory or its disk does not respond.

    The next stop signal cuts that short. The second of the `limits` holds once the job was stopped.
    """
    if not folder:
        return None
    from ascend_runner.training import checkpoints  # noqa: PLC0415  only --checkpoint-dir needs it

    found: list[Checkpoints] = []
    is_stopped = patience.is_stopped()
    is_cut = patience.is_hurried if is_stopped else patience.is_stopped
    bounded.call(limits[is_stopped], lambda: found.append(checkpoints.look(folder)), is_cut)
    return found[0] if found else None
