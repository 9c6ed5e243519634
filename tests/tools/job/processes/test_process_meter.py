"""What the processes of ranks use, measured of real ones."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil
import pytest

from ascend_runner.guardian import process_tree
from ascend_runner.tools.job.processes import ProcessMeter, Usage
from tests.helpers import disk
from tests.helpers.waiting import wait_until


def test_sums_of_ranks() -> None:
    """The figures are those of a rank's first process and of all below it; a percentage needs a second look."""
    with (
        subprocess.Popen(["/bin/sleep", "60"]) as single,
        subprocess.Popen(["/bin/sh", "-c", "sleep 1000 & wait"]) as parent,
    ):
        leaders = {0: single.pid, 1: parent.pid}

        def both_run() -> bool:
            return ProcessMeter(os.getpid()).look(leaders, 0.0).get(1, Usage()).processes == 2

        try:
            wait_until(both_run)
            meter = ProcessMeter(os.getpid())
            first, second = meter.look(leaders, 1.0), meter.look(leaders, 2.0)
        finally:
            for process in psutil.Process(parent.pid).children():
                process.kill()
            single.kill()

    assert {0: 1, 1: 2} == {rank_id: usage.processes for rank_id, usage in first.items()}
    assert all(usage.resident > 0 and usage.cpu_seconds >= 0 for usage in first.values())
    assert [None, None] == [usage.cpu for usage in first.values()]
    assert None not in [usage.cpu for usage in second.values()]


@pytest.mark.skipif(not disk.is_possible(), reason="a disk that hangs needs bindfs(1), /dev/fuse and root")
def test_rank_that_hangs_in_exec(tmp_path: Path) -> None:
    """Its figures are not read, as that would hang as well."""
    with disk.child_in_exec(tmp_path) as (parent, pid):
        wait_until(lambda: process_tree.is_in_exec(pid))
        usages = ProcessMeter(parent).look({0: pid}, 0.0)

    assert {0: (1, None)} == {rank_id: (usage.processes, usage.cpu) for rank_id, usage in usages.items()}
