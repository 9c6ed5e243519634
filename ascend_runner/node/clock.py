"""Reads how far the clock of this machine may be from true time, and from the clock of a shared disk."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Final

import attrs

from ascend_runner.node import disks

# The kernel lets the error of a clock that nothing sets grow by 500 ppm, up to 16 s (adjtimex(2), NTP_PHASE_LIMIT). Its
# flag STA_UNSYNC is less reliable: some programs that set the clock never clear it.
LARGEST_ERROR: Final = 16.0


@attrs.frozen(kw_only=True)
class Clock:
    """The clock of a machine during a job.

    `wall_start` and `wall_end` are in seconds since the epoch, `monotonic_start` and `monotonic_end` are the same
    moments in seconds of the monotonic clock: if the durations differ, the wall clock was set meanwhile. At the end it
    was at most `max_error` seconds from true time (None: unknown). The clock of the disk with the logs was then
    `disk_offset` seconds ahead, measured within `disk_round_trip` seconds (None: it has no clock of its own).
    """

    wall_start: float
    monotonic_start: float
    wall_end: float
    monotonic_end: float
    max_error: float | None = None
    disk_offset: float | None = None
    disk_round_trip: float | None = None

    @property
    def is_synchronized(self) -> bool:
        """Whether the clock was synchronized recently."""
        return self.max_error is not None and self.max_error < LARGEST_ERROR


class _Timex(ctypes.Structure):
    """The first members of a struct timex (adjtimex(2)), and room for the others."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("others", ctypes.c_char * 256),
    )


def since(wall: float, monotonic: float) -> Clock:
    """Return the clock since a moment, given by the wall clock and the monotonic clock. It takes two system calls."""
    return Clock(
        wall_start=wall,
        monotonic_start=monotonic,
        wall_end=time.time(),
        monotonic_end=time.monotonic(),
        max_error=_max_error(),
    )


def _max_error() -> float | None:
    """Return how far the clock may be from true time, in seconds, or None if the kernel does not report it."""
    timex = _Timex(modes=0)  # changes nothing, and requires no privileges
    if ctypes.CDLL(None).adjtimex(ctypes.byref(timex)) < 0:
        return None
    return float(timex.maxerror) / 1e6


def is_of_disk(path: str) -> bool:
    """Whether a file gets its times from a server, as on NFS. Other disks may take them from this machine."""
    return disks.type_of(path) == disks.NFS


def compare_with_disk(path: str) -> tuple[float, float]:
    """Return how far the clock of the disk with a file is ahead, and how long that took to measure, in seconds.

    The file gets a new time of modification.

    Raises:
        OSError: The file does not exist, or may not be changed.
    """
    before = time.time()
    os.utime(path, follow_symlinks=False)  # the server takes its own time (RFC 1813, SET_TO_SERVER_TIME)
    changed = os.stat(path, follow_symlinks=False).st_mtime
    after = time.time()
    return changed - (before + after) / 2, after - before
