"""How ranks are grouped by their stacks."""

from __future__ import annotations

from ascend_runner.diagnosis.finding import StackGroup
from ascend_runner.diagnosis.stacks import ProcessStack, RankStack, group

WAITING = ("wait (comm.py:10)", "all_reduce (comm.py:50)", "step (train.py:7)")
LOADING = ("read (data.py:3)", "step (train.py:6)")


def process(frames: tuple[str, ...], state: str = "sleeping", *, is_python: bool = False) -> ProcessStack:
    """Make the stack of a process."""
    return ProcessStack(state=state, frames=frames, is_python=is_python)


def rank(rank_id: int, frames: tuple[str, ...], *, is_python: bool = True) -> RankStack:
    """Make a rank of one process."""
    return RankStack(rank_id, (process(frames, is_python=is_python),))


def test_outlier_first() -> None:
    """A rank with another stack is a group of its own and comes first."""
    groups = group([rank(rank_id, LOADING if rank_id == 5 else WAITING) for rank_id in range(8)])

    assert [(5,), (0, 1, 2, 3, 4, 6, 7)] == [member.rank_ids for member in groups]
    assert LOADING == groups[0].frames


def test_innermost_frames_decide() -> None:
    """Ranks that differ only in outer frames form one group."""
    deep = tuple(f"f{number} (x.py:{number})" for number in range(20))
    groups = group([rank(0, (*deep, "main (a.py:1)")), rank(1, (*deep, "main (b.py:1)"))])

    assert [(0, 1)] == [member.rank_ids for member in groups]


def test_equal_sizes() -> None:
    """Groups of equal size are sorted by rank."""
    groups = group([rank(1, WAITING), rank(0, LOADING)])

    assert [(0,), (1,)] == [member.rank_ids for member in groups]


def test_stuck_in_the_kernel() -> None:
    """A training in state D has only a kernel stack, and represents its rank before its workers do."""
    training = process(("nfs_wait", "read"), "disk sleep")
    found = group([RankStack(0, (process(("do_wait",)), training, process(LOADING, is_python=True)))])

    assert ("disk sleep", ("nfs_wait", "read")) == (found[0].state, found[0].frames)


def test_shell_before_the_training() -> None:
    """For `bash train.sh` the Python below the shell represents the rank, not one of its workers."""
    shell = process(("do_wait",))
    training = process(WAITING, is_python=True)
    worker = process(LOADING, is_python=True)

    assert WAITING == group([RankStack(0, (shell, training, worker))])[0].frames


def test_without_python_stacks() -> None:
    """With kernel stacks only, the first process that does not wait for a child represents the rank."""
    shell = process(("do_wait", "kernel_wait4"))
    training = process(("nfs_wait",), "disk sleep")

    (found,) = group([RankStack(0, (shell, training))])

    assert (("nfs_wait",), "disk sleep") == (found.frames, found.state)


def test_rank_that_has_moved_since() -> None:
    """Among ranks with the same stack, one that was elsewhere before is the outlier."""
    earlier = [rank(rank_id, LOADING if rank_id == 1 else WAITING) for rank_id in range(3)]
    groups = group([rank(rank_id, WAITING) for rank_id in range(3)], earlier)

    assert [((1,), True), ((0, 2), False)] == [(member.rank_ids, member.has_changed) for member in groups]


def test_kernel_stacks_are_not_compared() -> None:
    """A process that makes progress often waits in the same function of the kernel, and may be new."""
    earlier = [rank(0, WAITING, is_python=False), rank(1, WAITING), RankStack(2, ())]
    groups = group([rank(0, WAITING), rank(1, WAITING, is_python=False), rank(2, WAITING), rank(3, WAITING)], earlier)

    assert [((0, 1, 2, 3), None)] == [(member.rank_ids, member.has_changed) for member in groups]


def test_rank_that_has_exited() -> None:
    """A rank whose processes have exited has no frames."""
    assert (StackGroup(rank_ids=(3,), state="gone", frames=()),) == group([RankStack(3, ())])
