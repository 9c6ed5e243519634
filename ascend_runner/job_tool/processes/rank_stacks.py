"""Reads the stacks of the ranks of a running job, without pausing them, and shows equal ones together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ascend_runner.diagnosis import stack_groups
from ascend_runner.evidence.stacks import StackCollector
from ascend_runner.guardian import process_tree
from ascend_runner.host import executables
from ascend_runner.job_tool.job.snapshot import Snapshot
from ascend_runner.observations.facts import HangSeen
from ascend_runner.report import stacks

LIMIT: Final = 60.0  # seconds for all ranks; only the user waits for them


def leaders(seen: Snapshot) -> dict[int, int]:
    """Return the pids of the running ranks by their numbers.

    They come from a report that anybody may have written, so only descendants of the job's first process count.
    """
    below = {found.pid for found in process_tree.descendants(seen.job.pid) if not found.is_zombie}
    return {rank_id: pid for rank_id, pid in seen.running_pids.items() if pid in below}


def text(pids: Mapping[int, int], title: str, search_path: str) -> str:
    """Show the stacks of these ranks. Their processes are not paused, so those that run may be inexact."""
    collector = StackCollector(executables.find_py_spy(search_path), may_pause=False)
    groups = stack_groups.group(collector.collect(pids, LIMIT))
    return stacks.text(HangSeen(groups, collector.refusal), title)
