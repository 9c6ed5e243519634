"""Compares two samples of memory, to find the OOM kills that belong to this job."""

from __future__ import annotations

from ascend_runner.diagnosis.endings import Circumstances
from ascend_runner.host.memory import MemorySample


def between(before: MemorySample, now: MemorySample) -> Circumstances:
    """Return the OOM kills since `before`, and the limits and uses as they are now."""
    return Circumstances(
        own_oom_kills=_difference(before.own_oom_kills, now.own_oom_kills),
        machine_oom_kills=_difference(before.machine_oom_kills, now.machine_oom_kills),
        memory_limit=now.limit,
        memory_peak=now.peak,
        shm_size=now.shm_size,
        shm_used=now.shm_used,
    )


def _difference(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else max(0, now - before)
