"""The stacks of a hang in the words of the screen. Pure: a record in, text out."""

from __future__ import annotations

from typing import Final

from ascend_runner.observations.facts import Beat, HangSeen
from ascend_runner.text import printable, rank_list

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


def _beat(beat: Beat) -> str:
    step = "" if beat.step is None else f"step {beat.step}"
    checkpoint = f"checkpoint {beat.checkpoint}" if beat.checkpoint else ""
    texts = (step, beat.section, beat.status, checkpoint)
    return ", ".join(printable(text) for text in texts if text) or "no step given"
