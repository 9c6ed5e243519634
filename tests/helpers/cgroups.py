"""Control groups of a test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ascend_runner.node import cores
from ascend_runner.node.host import Host
from tests.helpers.waiting import wait_until


@contextmanager
def memory_cgroup(limit: int) -> Iterator[Path]:
    """Yield the file that moves processes to a memory cgroup with a limit; skip where none can be created."""
    found = cores.find_cgroup(Host(), "memory", "memory.oom_control", "memory.events")
    if found is None or os.geteuid() != 0:
        pytest.skip("no memory cgroup of our own to be had")
    folder = Path(found.folders[0]) / f"test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.limit_in_bytes" if found.is_v1 else "memory.max")).write_text(str(limit))
    except OSError as error:
        if folder.exists():
            folder.rmdir()
        pytest.skip(f"no memory cgroup of our own to be had: {error}")
    members = folder / "cgroup.procs"
    try:
        yield members
    finally:
        wait_until(lambda: not members.read_text())
        folder.rmdir()
