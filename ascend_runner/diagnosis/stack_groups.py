"""Groups ranks by their innermost stack frames, so that an outlier stands out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from ascend_runner.diagnosis.finding import StackGroup

STUCK: Final = "disk sleep"  # state D of proc(5): it reacts to no signal
INNERMOST: Final = 8  # frames that must be equal; outer frames rarely differ between ranks of one program


@attrs.frozen(kw_only=True)
class ProcessStack:
    """The stack of one process, innermost frame first: "all_reduce (distributed_c10d.py:2501)".

    Unless `is_python`, the frames are the kernel's ("futex_wait_queue"). `state` is from proc(5), such as "sleeping".
    """

    state: str
    frames: tuple[str, ...]
    is_python: bool = False


@attrs.frozen
class RankStack:
    """The stacks of one rank's processes, its leader first. Empty if all of them have exited."""

    rank_id: int
    processes: tuple[ProcessStack, ...]

    @property
    def main(self) -> ProcessStack | None:
        """The process that represents the rank: the first Python, else the first that does not wait for a child.

        This skips the shell of `bash train.sh` and the workers of a data loader. A process that is stuck in the kernel
        has no Python stack, because no process can trace it, and precedes its children.
        """
        pythons = [process for process in self.processes if process.is_python or process.state == STUCK]
        working = [process for process in self.processes if process.frames[:1] != ("do_wait",)]
        return next(iter((*pythons, *working, *self.processes)), None)


def group(stacks: Sequence[RankStack], earlier: Sequence[RankStack] = ()) -> tuple[StackGroup, ...]:
    """Group ranks by innermost frames, smallest group first: the others usually wait for the outlier.

    Ranks whose stacks are the same as `earlier` are not in a group with ranks whose stacks have changed.
    """
    before = {stack.rank_id: stack.main for stack in earlier}
    groups: dict[tuple[tuple[str, ...], bool | None], list[RankStack]] = {}
    for stack in stacks:
        has_changed = _has_changed(stack.main, before.get(stack.rank_id))
        groups.setdefault((_innermost(stack.main), has_changed), []).append(stack)

    found = [
        StackGroup(
            rank_ids=tuple(sorted(stack.rank_id for stack in members)),
            state=members[0].main.state if members[0].main else "gone",
            frames=members[0].main.frames if members[0].main else (),
            has_changed=has_changed,
        )
        for (_frames, has_changed), members in groups.items()
    ]
    return tuple(sorted(found, key=lambda member: (len(member.rank_ids), member.rank_ids)))


def _innermost(process: ProcessStack | None) -> tuple[str, ...]:
    return process.frames[:INNERMOST] if process else ()


def _has_changed(now: ProcessStack | None, before: ProcessStack | None) -> bool | None:
    """Compare Python stacks; those of the kernel are often the same in processes that make progress."""
    if not (now and before and now.is_python and before.is_python):
        return None
    return _innermost(now) != _innermost(before)
