"""The stacks of a hang in the words of the screen. Pure: a record in, text out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ascend_runner.observations.facts import Beat, HangSeen
from ascend_runner.text import printable, rank_list

if TYPE_CHECKING:
    from ascend_runner.diagnosis.finding import StackGroup

FRAMES_SHOWN: Final = 12
INNERMOST: Final = 8  # frames of a stack that show what it waits for
MOST_SUSPECTS: Final = 3  # groups; if more are elsewhere, the stacks single out none
# A function of Python that waits for other ranks, or for the NPU that does. Not `wait`, which a data loader calls, too.
_COLLECTIVE: Final = (
    r"(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|(?:monitored_)?barrier|reduce|i?send|i?recv"
    r"|batch_isend_irecv|scatter|gather|synchronize)(?:_[a-z_]+)? \("
)
ALL: Final = "stacks of all ranks, outliers first:"
UNSAVED: Final = "stacks of the ranks that have not saved a checkpoint:"
_CHANGES: Final = {
    None: "",
    False: ", same stack at half of the limit",
    True: ", another stack at half of the limit",
}


def text(hang: HangSeen, title: str = ALL) -> str:
    """Describe where these ranks are."""
    lines = [title]
    for group in hang.stacks:
        lines.append(f"{rank_list(group.rank_ids)} ({group.state}{_CHANGES[group.has_changed]}):")
        lines += [f"    {printable(frame)}" for frame in group.frames[:FRAMES_SHOWN]] or ["    no stack available"]
        if len(group.frames) > FRAMES_SHOWN:
            lines.append(f"    ... {len(group.frames) - FRAMES_SHOWN} outer frames ...")
    if hang.refusal:
        lines.append(f"(kernel stacks only: {hang.refusal})")
    ranks_by_beat: dict[str, list[int]] = {}
    for rank_id, beat in sorted(hang.beats.items()):
        ranks_by_beat.setdefault(_beat(beat), []).append(rank_id)
    lines += [f"last heartbeat of {rank_list(ranks)}: {text}" for text, ranks in ranks_by_beat.items()]
    return "\n  ".join(lines)


def suspects(groups: Sequence[StackGroup]) -> tuple[StackGroup, ...]:
    """Return the few groups that the others may be waiting for, smallest first; none if the stacks do not show it.

    Of two groups, that is the smaller one. Of more, it is those outside of collectives, if most ranks are in one.
    """
    if len(groups) == 2:  # noqa: PLR2004  it and the others
        return tuple(groups[:1]) if len(groups[0].rank_ids) < len(groups[1].rank_ids) else ()
    elsewhere = tuple(one for one in groups if not is_in_collective(one))
    ranks, total = (sum(len(one.rank_ids) for one in part) for part in (elsewhere, groups))
    is_known = all(one.frames for one in elsewhere)
    return elsewhere if is_known and len(elsewhere) <= MOST_SUSPECTS and 2 * ranks < total else ()


def outlier(groups: Sequence[StackGroup]) -> str:
    """Describe the few ranks that are elsewhere than all others, or return "" if the stacks do not single out any.

    For example "rank 2 in load_batch (data.py:3); the other 3 ranks are in all_reduce (train.py:7)".
    """
    few = suspects(groups)
    others = [group for group in groups if group not in few]
    if not few:
        return ""
    most = max(others, key=lambda group: len(group.rank_ids))
    places = [_difference(suspect.frames, most.frames) for suspect in few]
    if not all(place for place, _usual in places):
        return ""
    names = [f"{rank_list(suspect.rank_ids)} in {place}" for suspect, (place, _usual) in zip(few, places)]
    usual = places[0][1] if len(others) == 1 else "collectives"
    count = sum(len(group.rank_ids) for group in others)
    return printable(f"{' or '.join(names)}; the other {count} ranks are in {usual}")


def is_in_collective(group: StackGroup) -> bool:
    """Whether the innermost frames of a group have a call that waits for other ranks."""
    return any(re.match(_COLLECTIVE, frame) for frame in group.frames[:INNERMOST])


def _difference(few: Sequence[str], most: Sequence[str]) -> tuple[str, str]:
    """Return the innermost frames at which two stacks differ, "" if they do not."""
    return next(((one, other) for one, other in zip(few, most) if one != other), ("", ""))


def _beat(beat: Beat) -> str:
    step = "" if beat.step is None else f"step {beat.step}"
    checkpoint = f"checkpoint {beat.checkpoint}" if beat.checkpoint else ""
    texts = (step, beat.section, beat.status, checkpoint)
    return ", ".join(printable(text) for text in texts if text) or "no step given"
