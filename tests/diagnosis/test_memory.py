"""The events between two samples of memory."""

from __future__ import annotations

from ascend_runner.diagnosis import oom
from ascend_runner.diagnosis.endings import Circumstances
from ascend_runner.node.memory import MemorySample


def test_between() -> None:
    """OOM kills count from the first sample on; limits and uses are those of the second."""
    before = MemorySample(own_oom_kills=1, machine_oom_kills=1, limit=1, peak=1, shm_size=1, shm_used=1)
    now = MemorySample(own_oom_kills=2, machine_oom_kills=4, limit=20, peak=19, shm_size=8, shm_used=7)

    assert oom.between(before, now) == Circumstances(
        own_oom_kills=1, machine_oom_kills=3, memory_limit=20, memory_peak=19, shm_size=8, shm_used=7
    )


def test_unknown_stays_unknown() -> None:
    """A counter that one of the samples lacks has no difference."""
    known = MemorySample(own_oom_kills=1, machine_oom_kills=1)

    assert Circumstances() == oom.between(MemorySample(), known) == oom.between(known, MemorySample())
