"""The stacks of a hang in the words of the screen. Pure: a record in, text out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ascend_runner.observations.facts import Beat, HangSeen
from ascend_runner.text import printable, rank_list

if TYPE_CHECKING:
    from ascend_runner.diagnosis.finding import StackGroup

FRAMES_SHOWN: Final = 12
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


def outlier(groups: Sequence[StackGroup]) -> str:
    """Describe the few ranks that are elsewhere than all others, or return "" if the stacks do not single out any.

    For example "rank 2 in load_batch (data.py:3); the other 3 ranks are in all_reduce (train.py:7)".
    """
    if len(groups) != 2 or len(groups[0].rank_ids) >= len(groups[1].rank_ids):  # noqa: PLR2004  it and the others
        return ""
    few, most = groups
    place, usual = next(((one, other) for one, other in zip(few.frames, most.frames) if one != other), ("", ""))
    count = len(most.rank_ids)
    others = f"the other {count} ranks are in {usual}"
    return printable(f"{rank_list(few.rank_ids)} in {place}; {others}") if place else ""


def _beat(beat: Beat) -> str:
    step = "" if beat.step is None else f"step {beat.step}"
    checkpoint = f"checkpoint {beat.checkpoint}" if beat.checkpoint else ""
    texts = (step, beat.section, beat.status, checkpoint)
    return ", ".join(printable(text) for text in texts if text) or "no step given"
