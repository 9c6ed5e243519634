"""The sentences about requests for checkpoints, and the record of the last one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ascend_runner.observations.facts import CheckpointAsked, CheckpointEnded
from ascend_runner.observations.job_record import CheckpointRecord
from ascend_runner.supervision.causes import Ending
from ascend_runner.supervision.state import State
from ascend_runner.text import duration, format_numbers, rank_list


def asked(fact: CheckpointAsked, state: State) -> str:
    """Return the sentence on a request for a checkpoint: its reason, the ranks that were asked, and what follows."""
    limit = state.checkpoint.before_limit
    if state.cause is None:
        reason = f"the time limit of {duration(limit.seconds)} is near; " if limit else ""
        later = "" if fact.reached else f"; ranks that begin to handle it within {fact.seconds:g} s will be asked"
        return f"{reason}{fact}{later}"
    hint = f"{state.cause.to_stop} to stop them now"
    what_follows = f"; stopping them within {fact.seconds:g} s ({hint})" if fact.reached else ""
    return f"{state.cause.reason}; {fact}{what_follows}"


def why(state: State) -> str:
    """Return the reason for a request, for the events, or "" if a user made it."""
    cause = state.cause or state.checkpoint.before_limit
    return cause.why_save if cause else ""


def ended(fact: CheckpointEnded) -> str:
    """Describe the result of a request: "checkpoint at step 1200 by ranks 0-7 in 41 s"."""
    sentences, reports = [], fact.parts or fact.saved
    steps = sorted({saved.step for saved in reports.values() if saved.step is not None})
    named = f" step{'s' if len(steps) > 1 else ''} {format_numbers(steps)}" if steps else ""
    if fact.parts:
        seconds = max(saved.at for saved in fact.parts.values()) - fact.asked_at
        at = f" at{named}" if named else ""
        sentences.append(f"checkpoint{at} by {rank_list(fact.parts)} in {duration(seconds)}")
    elif fact.saved and not fact.missing and not fact.failed:
        sentences.append("no rank has reported a checkpoint" + (f" for{named}" if named else ""))
    if fact.missing:
        sentences.append(f"{rank_list(fact.missing)} {_not_reported(fact)} {duration(fact.seconds)}")
    if fact.unasked:
        was, does = ("was", "it does") if len(fact.unasked) == 1 else ("were", "they do")
        sentences.append(f"{rank_list(fact.unasked)} {was} not asked, because {does} not handle the signal")
    sentences += failed(fact.failed)
    for ending, rank_ids in _by_ending(fact.failed_since):
        they_were = "it was" if len(rank_ids) == 1 else "they were"
        sentences.append(f"{rank_list(rank_ids)} failed after {they_were} asked for a checkpoint ({ending})")
    return "; ".join(sentences)


def _not_reported(fact: CheckpointEnded) -> str:
    if fact.is_cut:
        return "had not reported a checkpoint when the ranks were stopped after"
    return f"{'has' if len(fact.missing) == 1 else 'have'} not reported a checkpoint within"


def failed(endings: Mapping[int, Ending]) -> list[str]:
    """Return a sentence for each way in which ranks failed before they had saved."""
    return [
        f"{rank_list(rank_ids)} failed before {'it' if len(rank_ids) == 1 else 'they'} had saved ({ending})"
        for ending, rank_ids in _by_ending(endings)
    ]


def _by_ending(endings: Mapping[int, Ending]) -> Iterable[tuple[Ending, list[int]]]:
    """Return the ranks that have ended in the same way, in the order of the first of each."""
    found: dict[Ending, list[int]] = {}
    for rank_id, ending in endings.items():
        found.setdefault(ending, []).append(rank_id)
    return found.items()


def record(fact: CheckpointEnded, at: float) -> CheckpointRecord:
    """Return the record of a request that was over `at` seconds since the epoch."""
    steps = [saved.step for saved in fact.parts.values() if saved.step is not None]
    return CheckpointRecord(
        at=at,
        step=max(steps, default=None),
        path=next((saved.path for _rank, saved in sorted(fact.parts.items())), ""),
        ranks=tuple(sorted(fact.parts)),
        missing=tuple(sorted({*fact.missing, *fact.failed, *fact.unasked})),
        seconds=round(fact.seconds, 3),
    )
