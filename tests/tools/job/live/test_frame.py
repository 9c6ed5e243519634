"""Frames of `ascend-job top`: golden ones, and the laws that hold for all of them.

`scripts/generate --pictures` writes the golden frames; read what has changed before it is committed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs
import pytest
from hypothesis import given, strategies

from ascend_runner.node.npu_smi import Figures
from ascend_runner.tools.job.top_frame import (
    HELP,
    Frame,
    JobView,
    Screen,
    State,
    Style,
    frame,
    in_order,
    judged,
    width,
)
from ascend_runner.training.steps import Step
from tests.helpers.live_views import EIGHT, JOBS, LINKED, NOW, SIXTY_FOUR, SIZES, THOUSAND, quiet, rank

GOLDEN: Final = Path(__file__).parents[4] / "fixtures" / "top"


def text(drawn: Frame) -> str:
    """Return a frame as text."""
    return "".join("".join(part for part, _style in line).rstrip() + "\n" for line in drawn.lines)


def drawn(job: JobView, columns: int = 140, rows: int = 24, **chosen: object) -> list[str]:
    """Return the lines of a frame."""
    screen = Screen(columns=columns, rows=rows, **chosen)  # type: ignore[arg-type]  # fields of several types
    return text(frame(job, screen)).splitlines()


def styles(job: JobView, words: str) -> set[Style]:
    """Return how a text is shown."""
    lines = frame(job, Screen(columns=140, rows=24)).lines
    return {style for line in lines for part, style in line if words in part}


@pytest.mark.parametrize("columns", SIZES)
@pytest.mark.parametrize("count", JOBS)
def test_golden_frames(count: int, columns: int) -> None:
    """Jobs of 8, 64 and 1,024 ranks look as they have looked before."""
    screen = Screen(columns=columns, rows=SIZES[columns])

    assert (GOLDEN / f"{count}-ranks-{columns}.txt").read_text(encoding="utf-8") == text(frame(JOBS[count], screen))


def test_help_fits_80_columns() -> None:
    """No line of the help is wrapped in a terminal of 80 columns, of which a view uses 79."""
    assert [] == [line for line in HELP if width(line) > 79]


@given(
    strategies.integers(1, 320),
    strategies.integers(1, 60),
    strategies.sampled_from([*JOBS.values(), LINKED]),
    strategies.booleans(),
)
def test_frame_fits(columns: int, rows: int, job: JobView, shows_all: bool) -> None:  # noqa: FBT001  hypothesis
    """No frame has more lines or columns than the terminal."""
    found = frame(job, Screen(columns=columns, rows=rows, shows_all=shows_all))

    assert rows == len(found.lines)
    for line in found.lines:
        assert sum(width(part) for part, _style in line) <= columns


def test_odd_rank_comes_first() -> None:
    """The rank that differs has the first line, and a sentence above says how."""
    lines = drawn(EIGHT)

    assert " rank 5 has been quiet for 4 min 12 s, the others for at most 2 s  (s: stacks)" == lines[3]
    assert ["▸", "5", "5", "quiet"] == lines[6].split()[:4]
    assert {Style.ODD} == styles(EIGHT, "4 min") - {Style.TITLE}


def test_nodes_of_a_linked_job() -> None:
    """They have rows above the ranks; of many, a quarter of the screen, with those that are missing first."""
    few = drawn(attrs.evolve(LINKED, nodes=LINKED.nodes[2:5]))
    many = drawn(LINKED)

    assert [
        "  node  place     state    alive         step  heard      differs",
        "  2     worker-2  running  8 of 8 ranks  1204  0.4 s ago",
        "  3     worker-3  running  8 of 8 ranks  1204  0.4 s ago  CANN 8.0.RC2",
        "  4     worker-4  running  8 of 8 ranks  1204  0.4 s ago",
        "",
    ] == few[5:10]
    assert ["9", "30", "3"] == [line.split()[0] for line in many[6:9]]
    assert "  and 37 nodes running" == many[9]
    assert {Style.ODD} == styles(LINKED, "unreachable")


def test_rank_that_is_left_alone() -> None:
    """A rank that hangs after the others have succeeded is no longer just running, and comes before them."""
    others = [rank(number, state=State.SUCCEEDED, quiet=None, over=240.0) for number in range(8) if number != 5]
    job = attrs.evolve(EIGHT, ranks=judged([*others, quiet(5)]))
    lines = drawn(job)

    assert " 8 ranks: 1 quiet, 7 succeeded" == lines[2]
    assert lines[3].endswith("; the other 7 ranks succeeded 4 min 0 s ago  (s: stacks)")
    assert ["▸", "5", "5", "quiet"] == lines[6].split()[:4]


def test_running_ranks_come_before_those_that_have_succeeded() -> None:
    """They are what the job still waits for."""
    ranks = [rank(number, state=State.RUNNING if number == 6 else State.SUCCEEDED) for number in range(8)]

    assert [6, 0, 1] == [one.rank_id for one in in_order(ranks)[:3]]


def test_job_in_which_all_ranks_are_quiet() -> None:
    """No rank is an outlier, but it is said; the hint at the stacks is also there on a narrow terminal."""
    ranks = judged([rank(number, quiet=720.0) for number in range(8)])
    line = drawn(attrs.evolve(EIGHT, ranks=ranks), columns=50)[3]

    assert {State.RUNNING} == {one.state for one in ranks}
    assert line.startswith(" no rank has written anything for")
    assert line.endswith("(s: stacks)")
    assert "stacks)" not in drawn(attrs.evolve(EIGHT, ranks=ranks, has_stacks=False))[3]


def test_ranks_that_wait_for_each_other() -> None:
    """Nothing here tells a slow one apart, so no rank is named, and a line says how to find it."""
    job = attrs.evolve(EIGHT, ranks=tuple(map(rank, range(8))))
    hint = " s: see which rank the others wait for"

    assert hint == drawn(job)[3]
    assert hint not in drawn(attrs.evolve(job, has_stacks=False))
    assert hint not in drawn(attrs.evolve(job, ranks=job.ranks[:1]))


def test_rank_that_is_busier() -> None:
    """Its CPU usage is a fact without a judgment: it may be slow, and is not marked as an outlier.

    It is compared with that of all others only if theirs is known: on another machine, it is not.
    """
    ranks = [rank(number, average_cpu=98.0 if number == 5 else 4.0) for number in range(8)]
    job = attrs.evolve(EIGHT, ranks=tuple(ranks))
    line = drawn(job)[3]

    assert line.startswith(" rank 5 used 98% CPU")
    assert line.endswith("(s: stacks)")
    assert {Style.PLAIN} == styles(job, "98%")
    assert " 8 ranks: 8 running" == drawn(job)[2]

    ranks[7] = rank(7)
    assert "CPU" not in drawn(attrs.evolve(job, ranks=tuple(ranks)))[3]


def test_node_of_each_rank() -> None:
    """In a job of several nodes, it is shown on every terminal, as much of its end as there is room for."""
    ranks = tuple(attrs.evolve(one, node=f"modelarts-job-9a11-{one.node}") for one in THOUSAND.ranks)
    lines = drawn(attrs.evolve(THOUSAND, ranks=ranks), columns=80)

    assert "…1-worker-21" == lines[-4].split()[2]
    assert "worker-21" == drawn(THOUSAND, columns=80)[-4].split()[2]
    assert "modelarts-job-9a11-worker-21" == drawn(attrs.evolve(THOUSAND, ranks=ranks), columns=160)[-4].split()[2]


def test_end_of_the_log() -> None:
    """Below the table, as much as there is room for shows what the rank at the cursor has written last."""
    lines, few, none = (drawn(EIGHT, rows=rows) for rows in (24, 19, 18))

    assert ["", " rank 5: end of the log"] == lines[14:16]
    assert "  loading shard 12 of 40" == lines[21]
    assert ["  loading shard 12 of 40", ""] == few[16:18]
    assert not any("end of the log" in line for line in none)
    assert " rank 3: end of the log" in drawn(EIGHT, selected=3)


def test_narrow_title() -> None:
    """Where the times of day do not fit, those from which a user has to calculate are left out."""
    assert [True, False] == ["+0800" in drawn(EIGHT, columns=columns)[0] for columns in (80, 70)]
    assert drawn(EIGHT, columns=70)[0].endswith(", started 2 h 14 min ago")


def test_rank_that_is_behind() -> None:
    """A rank is behind if the others have passed its step long ago, but not at the steps around it."""
    ranks = [rank(number, step=step) for number, step in enumerate((100, 100, 101, 90, 98))]

    assert [State.RUNNING] * 3 + [State.BEHIND, State.RUNNING] == [one.state for one in judged(ranks)]


def test_time_left() -> None:
    """It is shown while the training goes on: not after a rank has failed, nor while no rank runs."""
    failed = attrs.evolve(EIGHT, ranks=(rank(3, state=State.FAILED, ending="failed (exit status 1)"), rank(4)))
    held = attrs.evolve(EIGHT, ranks=(rank(3, state=State.STOPPED),))

    assert [True, False, False] == [" left" in "".join(drawn(job)) for job in (EIGHT, failed, held)]


def test_device_without_npus() -> None:
    """On a machine without NPUs, the column is called as in `status`; figures that come and go change nothing."""
    without = tuple(attrs.evolve(one, device=None) for one in EIGHT.ranks)
    jobs = [
        attrs.evolve(EIGHT, ranks=ranks, has_npus=found) for found in (True, False) for ranks in (EIGHT.ranks, without)
    ]
    heads = [next(line.split() for line in drawn(job) if line.endswith("last line")) for job in jobs]

    assert ["NPU", "NPU", "device", "device"] == [head[1] for head in heads]


@pytest.mark.parametrize("state", [State.ENDED, State.STOPPED])
def test_rank_that_was_behind_when_the_job_ended(state: State) -> None:
    """It has the first line after the rank that caused the end, and is named."""
    ranks = [rank(number, state=state, quiet=None, step=90 if number == 5 else 100) for number in range(8)]
    job = attrs.evolve(EIGHT, ranks=tuple(ranks), cause="the runner (pid 7) was killed", is_over=True)
    failed = attrs.evolve(ranks[6], state=State.FAILED, is_culprit=True)

    assert " the runner (pid 7) was killed; rank 5 was 10 steps behind the others" == drawn(job)[3]
    assert [5, 0, 1] == [one.rank_id for one in in_order(ranks)[:3]]
    assert [6, 5, 0] == [one.rank_id for one in in_order([*ranks[:6], failed])[:3]]


def test_failure() -> None:
    """The cause of a failure stands above the table, in red."""
    cause = "rank 3 failed: ValueError: loss is nan (exit status 1)"
    job = attrs.evolve(
        EIGHT, cause=cause, ranks=(rank(3, state=State.FAILED, ending="failed (exit status 1)"), rank(4))
    )

    assert {Style.BAD} == styles(job, cause)
    assert "failed (exit status 1)" in drawn(job)[6]


def test_outlook() -> None:
    """Below the cause stands how long the node is held, or which attempt follows."""
    job = attrs.evolve(EIGHT, cause="rank 3 failed", outlook="held until 2026-11-22 09:47:36 +0800")

    assert [" rank 3 failed", " held until 2026-11-22 09:47:36 +0800", ""] == drawn(job)[3:6]


def test_keys() -> None:
    """Those that have no effect at the moment, or no room, are left out; how to leave the screen is always shown."""
    ended = attrs.evolve(SIXTY_FOUR, has_stacks=False)
    held = attrs.evolve(EIGHT, ranks=(rank(0, state=State.STOPPED), rank(1, state=State.FAILED)))

    rest = "<> sort   / search   ? help   q quit"
    assert f" enter log   s stacks   e events   {rest}" == drawn(EIGHT)[-1]
    assert f" enter log   e events   a all ranks   {rest}" == drawn(ended)[-1] == drawn(ended, shows_all=True)[-1]
    assert " enter log   s stacks   ? help   q quit" == drawn(EIGHT, columns=45)[-1]
    assert " q quit" == drawn(EIGHT, columns=12)[-1]
    assert f" enter log   e events   {rest}" == drawn(held)[-1]


def test_sorted_ranks() -> None:
    """Figures are sorted from the largest, ranks and steps from the smallest, and unknown values come last."""
    ranks = tuple(rank(number, cpu=cpu, step=step) for number, cpu, step in ((0, 5.0, 9), (1, None, 7), (2, 80.0, 8)))
    job = attrs.evolve(EIGHT, ranks=ranks)

    def order(head: str) -> tuple[int, ...]:
        return frame(job, Screen(columns=140, rows=24, sort=head)).ranks

    assert [(2, 0, 1), (1, 2, 0), (0, 1, 2)] == [order(head) for head in ("CPU", "step", "rank")]


def test_rank_without_output() -> None:
    """Its log says so; of a rank that need not print, why."""
    silent, expected = (attrs.evolve(rank(0), last_lines=(), why_silent=why) for why in ("", "only rank 1 prints"))

    assert "  no output yet" in drawn(attrs.evolve(EIGHT, ranks=(silent,)))
    assert "  only rank 1 prints" in drawn(attrs.evolve(EIGHT, ranks=(expected,)))


def test_silent_ranks_on_a_narrow_terminal() -> None:
    """The column of the last lines says which rank prints, if there is no room for the whole sentence."""
    why = "no output expected: only rank 0 prints"
    silent = attrs.evolve(rank(1), last_lines=(), why_silent=why)
    job = attrs.evolve(EIGHT, ranks=(rank(0), silent))
    wide, narrow = (drawn(job, columns=columns)[7].partition("% ")[2] for columns in (140, 80))

    assert (True, False) == (wide.endswith(f"  {why}"), narrow.endswith(why))
    assert narrow.endswith("  only rank 0 prints")


def test_history_on_a_wide_terminal() -> None:
    """Beside the end of the log of the rank at the cursor are its figures of the last minutes."""
    job = attrs.evolve(EIGHT, ranks=(attrs.evolve(rank(0), history={"CPU": (1, 2, 1)}),))

    assert any("   CPU ▅█▅" in line for line in drawn(job))
    assert not any("   CPU ▅" in line for line in drawn(job, columns=100))


def test_culprit_comes_first() -> None:
    """Of several ranks that have failed, the one that the job failed because of has the first line."""
    failed = [
        rank(number, state=State.FAILED, ending="failed (exit status 1)", is_culprit=number == 5) for number in range(8)
    ]
    lines = drawn(attrs.evolve(EIGHT, cause="rank 5 failed", ranks=tuple(failed)))

    assert ["5", "0", "1"] == [line.lstrip("▸ ").split()[0] for line in lines[6:9]]


def test_missing_old_and_zero() -> None:
    """A figure that is missing is "-", one that is old has a "*", and zero is 0."""
    old = Figures(temperature=40, ai_core=0, memory=None, at=NOW - 60)
    job = attrs.evolve(EIGHT, ranks=(rank(0), rank(1, device=old, cpu=0.0, step=None)))
    cells = drawn(job)[7].split()

    assert ["1", "1", "running", "1", "s", "-", "0%", "3.9", "GiB", "-", "0%*", "40°C*"] == cells[:12]


def test_column_of_which_nothing_is_known() -> None:
    """A column without any figure gives its place to the others."""
    ranks = tuple(attrs.evolve(one, device=None, cpu=None) for one in EIGHT.ranks)
    heads = drawn(attrs.evolve(EIGHT, ranks=ranks))[5].split()

    assert {"memory"} == {"CPU", "memory", "HBM", "core", "temp"} & {*heads}


def test_ranks_like_the_median() -> None:
    """Of 64 ranks on a small screen, those that differ have a line, and the others one for all of them."""
    lines = drawn(SIXTY_FOUR)
    job = drawn(SIXTY_FOUR, shows_all=True, rows=80)

    assert ["63", "5", "44", "60"] == [line.lstrip("▸ ").split()[0] for line in lines[6:10]]
    assert lines[10].startswith("  60 similar (median): quiet for 1 s, step 1204, CPU 103%, HBM 91%, AI core 96%, 54°C")
    assert 64 == sum(line.lstrip("▸ ").split(" ")[0].isdigit() for line in job[6:])


def test_job_without_outliers() -> None:
    """If all of many ranks are alike, the first one stands for them, so that its log can be opened."""
    lines = drawn(attrs.evolve(SIXTY_FOUR, ranks=tuple(map(rank, range(64)))))

    assert ["▸", "0", "0", "running"] == lines[6].split()[:4]
    assert lines[7].startswith("  63 similar (median): ")
    assert lines[7].endswith("; ranks 1-63")


def test_map_of_many_ranks() -> None:
    """Of 1,024 ranks there is a map with 64 in a line, and lines of those that differ."""
    lines = drawn(THOUSAND, rows=32)
    found = [line for line in lines if "···" in line]

    assert 16 == len(found)
    assert ["F", "q", "q"] == [char for line in found for char in line.split()[1] if char != "·"]
    assert ["170", "224", "312"] == [line.lstrip("▸ ").split()[0] for line in lines if "  880  " in line]


def test_map_without_room() -> None:
    """If the map has more lines than there is room for, those with an outlier are among them."""
    lines = drawn(THOUSAND, columns=80, rows=16)

    found = [line.split()[0] for line in lines if "···" in line]

    assert {"128", "192", "256"} <= {*found}
    assert any(f"... {16 - len(found)} more lines without outliers" in line for line in lines)


def test_cursor_stays_in_view() -> None:
    """All ranks can be reached with the cursor, and its line is always shown."""
    found = frame(SIXTY_FOUR, Screen(columns=80, rows=12, shows_all=True, selected=40))

    assert 64 == len(found.ranks)
    assert "▸   40" in text(found)


def test_selected_rank_that_is_gone() -> None:
    """If the rank at the cursor is no longer shown, the cursor is at the first one."""
    assert 5 == frame(EIGHT, Screen(columns=80, rows=24, selected=99)).selected
    assert None is frame(attrs.evolve(EIGHT, ranks=()), Screen(columns=80, rows=24)).selected


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Step(), ""),
        (Step(step=7), " step 7"),
        (Step(step=50, steps=100, seconds=2.0), "2 s per step, about 1 min left"),
        (Step(step=100, steps=100, seconds=2.0), "2 s per step"),
    ],
)
def test_step(step: Step, expected: str) -> None:
    """The line about the training has what its lines say, and the time that is left."""
    line = drawn(attrs.evolve(EIGHT, step=step))[1]

    assert line.endswith(expected) if expected else line.startswith(" 8 ranks")


def test_hostile_texts() -> None:
    """Control characters in a name, a state or a cause are escaped."""
    evil = "\x1b]0;x\x07\u202e[bold]"
    lines = drawn(attrs.evolve(EIGHT, name=evil, headline=evil, cause=evil, place=evil), note=evil)

    assert all(line.isprintable() for line in lines)
    assert "[bold]" in lines[0]
