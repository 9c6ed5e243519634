"""The stacks of a hang on the screen."""

from __future__ import annotations

from ascend_runner.diagnosis.finding import StackGroup
from ascend_runner.observations.facts import Beat, HangSeen
from ascend_runner.report import stacks


def test_text() -> None:
    """Each group has its ranks, its state and its innermost frames; heartbeats show which rank is behind."""
    hang = HangSeen(
        (
            StackGroup(rank_ids=(1,), state="sleeping", frames=("read (data.py:3)",), has_changed=True),
            StackGroup(rank_ids=(0, 2), state="sleeping", frames=tuple(f"f{number} (x.py:1)" for number in range(30))),
            StackGroup(rank_ids=(3,), state="gone", frames=()),
        ),
        refusal="py-spy is not installed",
        beats={
            0: Beat(at=0.0, step=7),
            1: Beat(at=0.0, step=6, section="evaluation", status="\x1b[2J", checkpoint="ckpt/5"),
            2: Beat(at=9.0, step=7),
            3: Beat(at=9.0),
        },
    )
    lines = stacks.text(hang).splitlines()

    assert [
        "stacks of all ranks, outliers first:",
        "  rank 1 (sleeping, another stack at half of the limit):",
        "      read (data.py:3)",
        "  ranks 0, 2 (sleeping):",
    ] == lines[:4]
    assert [
        f"      ... {30 - stacks.FRAMES_SHOWN} outer frames ...",
        "  rank 3 (gone):",
        "      no stack available",
        "  (kernel stacks only: py-spy is not installed)",
        "  last heartbeat of ranks 0, 2: step 7",
        "  last heartbeat of rank 1: step 6, evaluation, \\x1b[2J, checkpoint ckpt/5",
        "  last heartbeat of rank 3: no step given",
    ] == lines[-7:]


def test_ranks_that_have_not_saved() -> None:
    """The title says that the others are left out."""
    assert "stacks of the ranks that have not saved a checkpoint:" == stacks.text(HangSeen(()), stacks.UNSAVED)


def test_outlier() -> None:
    """A few ranks are singled out if all others are together elsewhere; the first frame that differs names both."""
    one = StackGroup(rank_ids=(2,), state="sleeping", frames=("load_batch (data.py:3)", "main (train.py:9)"))
    others = StackGroup(rank_ids=(0, 1, 3), state="sleeping", frames=("all_reduce (train.py:7)", "main (train.py:8)"))
    alike = StackGroup(rank_ids=(3, 4), state="sleeping", frames=others.frames)

    assert "rank 2 in load_batch (data.py:3); the other 3 ranks are in all_reduce (train.py:7)" == stacks.outlier(
        (one, others)
    )
    assert ["", "", ""] == [stacks.outlier(groups) for groups in ((one, one), (alike, others), (one, one, others))]
