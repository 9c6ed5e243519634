"""The stacks of a hang on the screen."""

from __future__ import annotations

import itertools

import attrs
import pytest

from ascend_runner.diagnosis.finding import CollectiveGroup, StackGroup
from ascend_runner.record.facts import Beat, HangSeen
from ascend_runner.record.rank_record import Outcome
from ascend_runner.supervision.causes import HangDetected
from ascend_runner.views import wording


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
    lines = wording.text(hang).splitlines()

    assert [
        "stacks of all ranks, outliers first:",
        "  rank 1 (sleeping, another stack at half of the limit):",
        "      read (data.py:3)",
        "  ranks 0, 2 (sleeping):",
    ] == lines[:4]
    assert [
        f"      ... {30 - wording.FRAMES_SHOWN} outer frames ...",
        "  rank 3 (gone):",
        "      no stack available",
        "  (kernel stacks only: py-spy is not installed)",
        "  last heartbeat of ranks 0, 2: step 7",
        "  last heartbeat of rank 1: step 6, evaluation, \\x1b[2J, checkpoint ckpt/5",
        "  last heartbeat of rank 3: no step given",
    ] == lines[-7:]


def test_ranks_that_have_not_saved() -> None:
    """The title says that the others are left out."""
    assert "stacks of the ranks that have not saved a checkpoint:" == wording.text(HangSeen(()), wording.UNSAVED)


def test_outlier() -> None:
    """A few ranks are singled out if all others are together elsewhere; the first frame that differs names both."""
    one = StackGroup(rank_ids=(2,), state="sleeping", frames=("load_batch (data.py:3)", "main (train.py:9)"))
    others = StackGroup(rank_ids=(0, 1, 3), state="sleeping", frames=("all_reduce (train.py:7)", "main (train.py:8)"))
    alike = StackGroup(rank_ids=(3, 4), state="sleeping", frames=others.frames)

    assert "rank 2 in load_batch (data.py:3); the other 3 ranks are in all_reduce (train.py:7)" == wording.outlier(
        (one, others)
    )
    assert ["", ""] == [wording.outlier(groups) for groups in ((one, one), (alike, others))]


@pytest.mark.parametrize(
    ("collectives", "expected"),
    [
        ([], "2"),
        ([(0, 1, 2, 3)], "2"),  # nobody is missing on this node
        ([(0, 1, 2), (3,)], "3"),
        ([(0, 1, 3), (2,)], "2"),
        ([(0, 1), (2, 3)], "2"),  # the stacks tell which of the two
        ([(2,), (0, 1, 3)], ""),  # three may be waited for
    ],
)
def test_outlier_that_waits(collectives: list[tuple[int, ...]], expected: str) -> None:
    """A rank that is elsewhere in Python, as the one that logs, gives way to the one that it waits for."""
    logging = StackGroup(rank_ids=(2,), state="sleeping", frames=("log (train.py:5)",))
    others = StackGroup(rank_ids=(0, 1, 3), state="sleeping", frames=("all_reduce (train.py:7)",))
    waiting = [
        CollectiveGroup(group="0", rank_ids=ranks, number=7, is_waiting=not number)
        for number, ranks in enumerate(collectives)
    ]
    found = wording.suspects([logging, others], waiting)

    assert expected == "".join(str(rank_id) for group in found for rank_id in group.rank_ids)


def test_outlier_in_the_stack_of_others() -> None:
    """A rank that has not joined a collective, though its stack is like those of others, is named without a place."""
    same = StackGroup(rank_ids=(0, 1, 2), state="sleeping", frames=("all_reduce (train.py:7)",))
    other = StackGroup(rank_ids=(3,), state="sleeping", frames=("barrier (train.py:9)",))
    waiting = [CollectiveGroup(group="0", rank_ids=(0, 1, 3), number=7, is_waiting=True)]
    absent = CollectiveGroup(group="0", rank_ids=(2,), number=6)

    early = [attrs.evolve(group, is_early=True) for group in (*waiting, absent)]
    named = "rank 3 in barrier (train.py:9); the other 3 ranks are in all_reduce (train.py:7)"

    assert "" == wording.outlier([other, same], [*waiting, absent])
    assert named == wording.outlier([other, same], [*waiting, attrs.evolve(absent, rank_ids=(3,))])
    assert named == wording.outlier([other, same], early), "that was before the stacks were read"


def test_outliers_in_several_places() -> None:
    """If most ranks are in collectives, those that are not are named, each with its place."""
    loading = StackGroup(rank_ids=(2,), state="sleeping", frames=("load_batch (data.py:3)",))
    saving = StackGroup(rank_ids=(5,), state="disk sleep", frames=("nfs_wait",))
    reducing = StackGroup(rank_ids=(0, 1, 3), state="sleeping", frames=("all_reduce (train.py:7)",))
    waiting = StackGroup(rank_ids=(4, 6), state="sleeping", frames=("barrier (train.py:9)",))
    outcome = Outcome(cause=HangDetected(60.0), hang=(loading, saving, waiting, reducing))

    assert "rank 2 in load_batch (data.py:3); the other 5 ranks are in collectives" == wording.outlier(
        (loading, waiting, reducing)
    )
    place = "rank 2 in load_batch (data.py:3) or rank 5 in nfs_wait; the other 5 ranks are in collectives"
    assert place == wording.outlier(outcome.hang)
    assert wording.sentence(outcome).endswith(f"; the cause may be {place}")


def test_two_outliers_without_a_collective() -> None:
    """If most ranks are in the same place, such as the backward pass, the others are named, unless most go on."""
    loading = StackGroup(rank_ids=(2,), state="sleeping", frames=("load_batch (data.py:3)",))
    saving = StackGroup(rank_ids=(5,), state="sleeping", frames=("save (train.py:5)",))
    backward = StackGroup(rank_ids=(0, 1, 3, 4, 6, 7), state="sleeping", frames=("backward (_tensor.py:7)",))

    going_on = attrs.evolve(backward, has_changed=True)
    few = "rank 2 in load_batch (data.py:3) or rank 5 in save (train.py:5)"
    assert f"{few}; the other 6 ranks are in backward (_tensor.py:7)" == wording.outlier((loading, saving, backward))
    assert "" == wording.outlier((loading, saving, going_on))


IMPORTING = "_find_and_load (<frozen importlib._bootstrap>:1176)"


def places(*frames: str) -> list[StackGroup]:
    """Return groups of one, two, three ... ranks that are in these functions."""
    sizes = itertools.accumulate(range(len(frames) + 1))
    return [
        StackGroup(rank_ids=(*range(start, start + number + 1),), state="sleeping", frames=(frame,) if frame else ())
        for number, (start, frame) in enumerate(zip(sizes, frames))
    ]


@pytest.mark.parametrize(
    ("expected", "frames"),
    [
        (1, ("load (data.py:3)", "all_reduce (train.py:7)")),
        (1, ("load (data.py:3)", "run (train.py:7)")),
        (1, ("load (data.py:3)", "barrier (train.py:7)", "all_reduce (train.py:7)")),
        (1, ("barrier (train.py:7)", "load (data.py:3)", "all_gather_into_tensor (c.py:7)")),
        (2, ("load (data.py:3)", "wait (threading.py:3)", "barrier (c.py:7)", "synchronize (streams.py:7)")),
        (0, ("load (data.py:3)", "run (train.py:7)", "step (train.py:8)")),
        (0, ("broadcast (c.py:3)", "barrier (train.py:7)", "all_reduce (train.py:7)")),
        (0, ("all_reduce (train.py:7)", "load (data.py:3)", "step (train.py:8)")),
        (0, ("", "barrier (train.py:7)", "all_reduce (train.py:7)")),
        (0, ("reduce_scatter_loss", "all_reduce", "barrier")),
        (0, ("a (x.py:1)", "b (x.py:1)", "c (x.py:1)", "d (x.py:1)", *["send (c.py:7)"] * 4)),
        (0, ("load (data.py:3)",)),
        (0, ("all_reduce (train.py:7)", "load (data.py:3)")),
        (0, ("_compile (re.py:3)", IMPORTING)),
        (1, (IMPORTING, "barrier (c.py:7)")),
        (0, ("do_poll", "futex_wait_queue")),
    ],
)
def test_suspects(expected: int, frames: tuple[str, ...]) -> None:
    """The others may wait for the few ranks that are in no collective; not while they import modules."""
    assert expected == len(wording.suspects(places(*frames)))


def at(ranks: tuple[int, ...], number: int, name: str = "all_reduce", **others: object) -> CollectiveGroup:
    """Return ranks that wait in a collective of the default process group, unless `others` say otherwise."""
    known = {"group": "0 (default_pg)", "is_waiting": True, **others}
    return CollectiveGroup(rank_ids=ranks, number=number, name=name, **known)  # type: ignore[arg-type]  # by name


MOST = at((0, 1, 2, 4), 7)
TOLD = "ranks 0-2, 4 wait in all_reduce #7 of process group 0 (default_pg)"


RECV = "waits in recv 3<-1 #12 of process group pp"


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], []),
        ([MOST], [TOLD]),
        (
            [MOST, at((3, 5), 6, is_waiting=False)],
            [f"{TOLD}; ranks 3, 5 have not joined it (their last one is all_reduce #6)"],
        ),
        ([MOST, at((3,), 0, "", is_waiting=False)], [f"{TOLD}; rank 3 has not joined it"]),
        ([MOST, at((3,), 7, "broadcast")], [f"{TOLD}; rank 3 waits in broadcast #7 instead"]),
        ([MOST, at((3,), 7, "")], [f"{TOLD}; rank 3 waits in collective #7"]),
        ([MOST, at((3,), 5, "reduce")], [f"{TOLD}; rank 3 waits in reduce #5"]),
        ([MOST, at((3,), 8, "reduce")], [f"{TOLD}; rank 3 waits in reduce #8"]),
        ([MOST, at((3,), 7, is_waiting=False)], [f"{TOLD}; rank 3 has completed it"]),
        (
            [at((0, 1), 7, "sum", elements=9, group="x"), at((3,), 7, "sum", elements=1, group="x")],
            ["ranks 0, 1 wait in sum #7 (9 elements) of process group x; rank 3 waits in sum #7 (1 element) instead"],
        ),
        (
            [MOST, at((3,), 6, is_waiting=False), at((3,), 12, "recv 3<-1", group="pp", is_transfer=True)],
            [f"{TOLD}; rank 3 has not joined it (its last one is all_reduce #6; it {RECV})", f"rank 3 {RECV}"],
        ),
        ([attrs.evolve(MOST, is_early=True)], [f"shortly before the limit: {TOLD}"]),
        ([MOST, CollectiveGroup(rank_ids=(3,))], [TOLD, "rank 3 has not dumped its flight recorder"]),
        ([MOST, CollectiveGroup(rank_ids=(3, 5))], [TOLD, "ranks 3, 5 have not dumped their flight recorders"]),
        (
            [MOST, *(at((rank,), 2 * rank) for rank in range(8, 20)), at((3,), 6, is_waiting=False)],
            [
                f"{TOLD}; rank 3 has not joined it (its last one is all_reduce #6); "
                + "".join(f"rank {rank} waits in all_reduce #{2 * rank}; " for rank in range(8, 15))
                + "see the report for ranks 15-19"
            ],
        ),
        (
            [at((3,), 2, "\x1b[2J", group="\x1b]0")],
            ["rank 3 waits in \\x1b[2J #2 of process group \\x1b]0"],
        ),
    ],
)
def test_collectives(groups: list[CollectiveGroup], expected: list[str]) -> None:
    """There is a sentence for each process group: where most of its ranks wait, and where the others are."""
    assert expected == wording.of_collectives(groups)
