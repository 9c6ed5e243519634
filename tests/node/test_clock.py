"""The clock of this machine, and that of a disk."""

from __future__ import annotations

import time
from pathlib import Path

import attrs
import pytest

from ascend_runner.node import clock, disks
from ascend_runner.node.clock import LARGEST_ERROR, Clock

TICK = 0.02  # seconds; file systems take their times from a coarse clock


def test_reading() -> None:
    """The clocks are read without privileges: the end is now, and the error has a bound or is unknown."""
    before = time.time(), time.monotonic()
    found = clock.since(1.0, 2.0)

    assert (1.0, 2.0) == (found.wall_start, found.monotonic_start)
    assert before[0] <= found.wall_end <= time.time()
    assert before[1] <= found.monotonic_end <= time.monotonic()
    assert found.max_error is None or 0 <= found.max_error <= LARGEST_ERROR


@pytest.mark.parametrize(("error", "expected"), [(0.001, True), (15.9, True), (LARGEST_ERROR, False), (None, False)])
def test_synchronization(error: float | None, expected: object) -> None:
    """The error grows while nothing sets the clock; its limit means that nothing has for hours, or ever."""
    found = Clock(wall_start=0.0, monotonic_start=0.0, wall_end=0.0, monotonic_end=0.0)

    assert expected == attrs.evolve(found, max_error=error).is_synchronized


def test_time_of_a_disk(tmp_path: Path) -> None:
    """A local disk takes the time from this machine, and is not asked for it; the measurement itself has a bound."""
    path = tmp_path / "file"
    path.touch()
    offset, round_trip = clock.compare_with_disk(str(path))

    assert not clock.is_of_disk(str(path))
    assert not clock.is_of_disk(str(tmp_path / "missing"))
    assert abs(offset) <= round_trip + TICK


def test_file_systems() -> None:
    """The type of a file system is that of statfs(2)."""
    assert disks.TMPFS == disks.type_of("/dev/shm")
    assert 0 == disks.type_of("/nowhere")
