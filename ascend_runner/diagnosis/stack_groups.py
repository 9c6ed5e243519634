"""Which ranks stand where: ranks with equal innermost frames form one group, so that the odd one stands out."""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple
from ascend_runner.text import printable, rank_list

if TYPE_CHECKING:
    from collections.abc import Sequence

INNERMOST: Final = 8  # frames that must be equal; further out, ranks of one program differ in nothing that matters
FRAMES_SHOWN: Final = 12


class ProcessStack(NamedTuple):
    """Where one process stood: "all_reduce (distributed_c10d.py:2501)", the innermost first.

    Without `is_python` the frames are the kernel's ("futex_wait_queue"). `state` is proc(5)'s word, such as "sleeping".
    """

    pid: int
    name: str
    state: str
    frames: tuple[str, ...]
    is_python: bool = False


class RankStack(NamedTuple):
    """The processes of one rank that were looked at, its leader first. Empty where all had gone."""

    rank_id: int
    processes: tuple[ProcessStack, ...]

    @property
    def main(self) -> ProcessStack | None:
        """The process that stands for the rank: the first Python, else the first that does not wait for a child.

        So neither the shell of `bash train.sh` is taken for the training, nor a data loader's worker.
        """
        pythons = [process for process in self.processes if process.is_python]
        working = [process for process in self.processes if process.frames[:1] != ("do_wait",)]
        return next(iter((*pythons, *working, *self.processes)), None)


class StackGroup(NamedTuple):
    """Ranks that stand at the same place; `frames` are those of the first of them."""

    rank_ids: tuple[int, ...]
    state: str
    frames: tuple[str, ...]


def group(stacks: Sequence[RankStack]) -> tuple[StackGroup, ...]:
    """Group ranks by the innermost frames, the smallest group first, since it is the odd rank that the others await."""
    groups: dict[tuple[str, ...], list[RankStack]] = {}
    for stack in stacks:
        frames = stack.main.frames if stack.main else ()
        groups.setdefault(frames[:INNERMOST], []).append(stack)

    found = [
        StackGroup(
            rank_ids=tuple(sorted(stack.rank_id for stack in members)),
            state=members[0].main.state if members[0].main else "gone",
            frames=members[0].main.frames if members[0].main else (),
        )
        for members in groups.values()
    ]
    return tuple(sorted(found, key=lambda member: (len(member.rank_ids), member.rank_ids)))


def lines(groups: Sequence[StackGroup]) -> list[str]:
    """Say where the ranks stand, for the screen and the log."""
    text: list[str] = []
    for member in groups:
        text.append(f"{rank_list(list(member.rank_ids))} ({member.state}):")
        text += [f"    {printable(frame)}" for frame in member.frames[:FRAMES_SHOWN]] or ["    nothing to be seen"]
        if len(member.frames) > FRAMES_SHOWN:
            text.append(f"    ... {len(member.frames) - FRAMES_SHOWN} outer frames ...")
    return text
