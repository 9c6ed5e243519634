"""How ranks that stand at equal places are grouped."""

from __future__ import annotations

from ascend_runner.diagnosis.stack_groups import FRAMES_SHOWN, ProcessStack, RankStack, group, lines

WAITING = ("wait (comm.py:10)", "all_reduce (comm.py:50)", "step (train.py:7)")
LOADING = ("read (data.py:3)", "step (train.py:6)")


def rank(rank_id: int, frames: tuple[str, ...], *, is_python: bool = True) -> RankStack:
    """Make a rank of one process."""
    return RankStack(rank_id, (ProcessStack(100 + rank_id, "python", "sleeping", frames, is_python),))


def test_odd_rank_first() -> None:
    """The rank that stands elsewhere is its own group and comes first."""
    groups = group([rank(rank_id, LOADING if rank_id == 5 else WAITING) for rank_id in range(8)])

    assert [(5,), (0, 1, 2, 3, 4, 6, 7)] == [member.rank_ids for member in groups]
    assert LOADING == groups[0].frames


def test_innermost_frames_decide() -> None:
    """Ranks that differ only further out than the innermost frames form one group."""
    deep = tuple(f"f{number} (x.py:{number})" for number in range(20))
    groups = group([rank(0, (*deep, "main (a.py:1)")), rank(1, (*deep, "main (b.py:1)"))])

    assert [(0, 1)] == [member.rank_ids for member in groups]


def test_equal_sizes() -> None:
    """Groups of one size come in the order of their ranks."""
    groups = group([rank(1, WAITING), rank(0, LOADING)])

    assert [(0,), (1,)] == [member.rank_ids for member in groups]


def test_shell_before_the_training() -> None:
    """For `bash train.sh` the Python below the shell stands for the rank, and not a worker below that."""
    shell = ProcessStack(1, "bash", "sleeping", ("do_wait",))
    training = ProcessStack(2, "python", "sleeping", WAITING, is_python=True)
    worker = ProcessStack(3, "python", "sleeping", LOADING, is_python=True)

    assert WAITING == group([RankStack(0, (shell, training, worker))])[0].frames


def test_without_python_stacks() -> None:
    """Of the kernel's views the first process that does not wait for a child stands for the rank."""
    shell = ProcessStack(1, "bash", "sleeping", ("do_wait", "kernel_wait4"))
    training = ProcessStack(2, "python", "disk sleep", ("nfs_wait",))

    assert (("nfs_wait",), "disk sleep") == group([RankStack(0, (shell, training))])[0][2:0:-1]


def test_rank_that_has_gone() -> None:
    """A rank whose processes had gone is told as such."""
    assert ["rank 3 (gone):", "    nothing to be seen"] == lines(group([RankStack(3, ())]))


def test_lines() -> None:
    """The text names the ranks of each group and their frames, the innermost first."""
    text = lines(group([rank(0, WAITING), rank(1, LOADING), rank(2, WAITING)]))

    assert [
        "rank 1 (sleeping):",
        "    read (data.py:3)",
        "    step (train.py:6)",
        "ranks 0, 2 (sleeping):",
        "    wait (comm.py:10)",
        "    all_reduce (comm.py:50)",
        "    step (train.py:7)",
    ] == text


def test_deep_stack() -> None:
    """Of a deep stack the innermost frames are shown, and the number of the others."""
    text = lines(group([rank(0, tuple(f"f (x.py:{number})" for number in range(30)))]))

    assert FRAMES_SHOWN + 2 == len(text)
    assert f"    ... {30 - FRAMES_SHOWN} outer frames ..." == text[-1]
