"""The words of causes, requests for checkpoints, and the stacks of a hang, in records and in sentences. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.errors import AscendRunnerError, LimitReachedError, StopRequestedError
from ascend_runner.record.facts import Beat, CheckpointAsked, CheckpointEnded, HangSeen
from ascend_runner.record.job_record import CauseRecord, CheckpointRecord
from ascend_runner.record.rank_record import CAUSED, LOST_PEERS, Outcome
from ascend_runner.supervision.causes import Ending, PeerFailed
from ascend_runner.supervision.state import State
from ascend_runner.text import all_of, counted, duration, folded, format_numbers, in_seconds, printable, rank_list

if TYPE_CHECKING:
    from ascend_runner.diagnosis.finding import CollectiveGroup, StackGroup

FRAMES_SHOWN: Final = 12
INNERMOST: Final = 8  # frames of a stack that show what it waits for
MOST_SUSPECTS: Final = 3  # groups; if more are elsewhere, the stacks single out none
# A function of Python that waits for other ranks, or for the NPU that does. Not `wait`, which a data loader calls, too.
_COLLECTIVE: Final = (
    r"(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|(?:monitored_)?barrier|reduce|i?send|i?recv"
    r"|batch_isend_irecv|scatter|gather|synchronize)(?:_[a-z_]+)? \("
)
_IMPORT: Final = "(<frozen importlib."  # in the frames of an import, outside of the code of the module
MOST_PLACES: Final = 8  # of ranks that are not with most of their process group
LONGEST_PLACES: Final = 2000  # characters, so that it fits into a line of the events
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


def places(groups: Sequence[StackGroup]) -> str:
    """Say in one line where ranks are: "rank 2 in load_batch (data.py:3); ranks 0, 1 in all_reduce (train.py:7)"."""
    found = [f"{rank_list(group.rank_ids)} in {(*group.frames, 'no stack')[0]}" for group in groups]
    return printable("; ".join(found))[:LONGEST_PLACES]


def suspects(groups: Sequence[StackGroup], collectives: Sequence[CollectiveGroup] = ()) -> tuple[StackGroup, ...]:
    """Return the few groups that the others may be waiting for, smallest first; none if the stacks do not show it.

    These are the groups outside of collectives, if most ranks are in one. If no group is, or if there are only two and
    both are, the largest group may be waiting for the others. If one of them waits in `collectives` that other ranks
    have not joined, it is these.
    """
    waiting = [one for one in groups if is_in_collective(one)]
    if not waiting or len(waiting) == len(groups) == 2:  # noqa: PLR2004  two groups in different collectives
        waiting = [one for one in groups[-1:] if _may_wait(one)]
    found = _few((one for one in groups if one not in waiting), groups)
    absent = _absent(collectives)
    if not absent or (found and absent.issuperset(rank_id for one in found for rank_id in one.rank_ids)):
        return found
    parts = (attrs.evolve(one, rank_ids=tuple(filter(absent.__contains__, one.rank_ids))) for one in groups)
    return _few(sorted((one for one in parts if one.rank_ids), key=lambda one: len(one.rank_ids)), groups)


def _few(some: Iterable[StackGroup], groups: Sequence[StackGroup]) -> tuple[StackGroup, ...]:
    """Return some of the groups, or nothing if they are unknown, too many or not the smaller part of the ranks."""
    found = tuple(some)
    ranks, total = (sum(len(one.rank_ids) for one in part) for part in (found, groups))
    is_known = all(one.frames for one in found)
    return found if is_known and len(found) <= MOST_SUSPECTS and 2 * ranks < total else ()


def _absent(collectives: Sequence[CollectiveGroup]) -> set[int]:
    """Return the ranks that are missing from a collective and are not waiting in another one."""
    known = [one for one in collectives if one.number is not None and not one.is_early]
    waiting = {rank_id for one in known if one.is_waiting for rank_id in one.rank_ids}
    return {rank_id for one in known for rank_id in one.rank_ids} - waiting


def outlier(groups: Sequence[StackGroup], collectives: Sequence[CollectiveGroup] = ()) -> str:
    """Describe the few ranks that are elsewhere than all others, or return "" if the stacks do not single out any.

    For example "rank 2 in load_batch (data.py:3); the other 3 ranks are in all_reduce (train.py:7)".
    """
    few = suspects(groups, collectives)
    named = {rank_id for group in few for rank_id in group.rank_ids}
    others = [group for group in groups if not named.issuperset(group.rank_ids)]
    if not few:
        return ""
    most = max(others, key=lambda group: len(group.rank_ids))
    places = [_difference(suspect.frames, most.frames) for suspect in few]
    if not all(place for place, _usual in places):
        return ""
    names = [f"{rank_list(suspect.rank_ids)} in {place}" for suspect, (place, _usual) in zip(few, places)]
    usual = places[0][1] if len(others) == 1 else "collectives"
    count = sum(len(group.rank_ids) for group in groups) - len(named)
    return printable(f"{' or '.join(names)}; the other {count} ranks are in {usual}")


def of_collectives(groups: Sequence[CollectiveGroup]) -> list[str]:
    """Say for each process group where its ranks are.

    For example "ranks 0-4, 6, 7 wait in all_reduce #1234 of process group 0 (default_pg); rank 5 has not joined it (its
    last one is all_reduce #1233)".
    """
    channels: dict[tuple[str, bool], list[CollectiveGroup]] = {}
    for group in groups:
        if group.number is not None:
            channels.setdefault((group.group, group.is_transfer), []).append(group)
    sentences = [_of_channel(most, others, groups) for most, *others in channels.values()]
    unknown = [rank_id for group in groups if group.number is None for rank_id in group.rank_ids]
    recorders = (
        f"{_of(unknown, 'has', 'have')} not dumped {_of(unknown, 'its flight recorder', 'their flight recorders')}"
    )
    return [*sentences, f"{rank_list(unknown)} {recorders}"] if unknown else sentences


def _of_channel(most: CollectiveGroup, others: Sequence[CollectiveGroup], groups: Sequence[CollectiveGroup]) -> str:
    others = sorted(others, key=lambda one: one.is_waiting)  # first the ranks that the others may wait for
    when = "shortly before the limit: " if most.is_early else ""
    parts = [f"{when}{_wait(most)} of {_process_group(most)}"]
    parts += [_elsewhere(one, most, groups) for one in others[:MOST_PLACES]]
    rest = [rank_id for one in others[MOST_PLACES:] for rank_id in one.rank_ids]
    return "; ".join([*parts, *([f"see the report for {rank_list(rest)}"] if rest else [])])


def _elsewhere(one: CollectiveGroup, most: CollectiveGroup, groups: Sequence[CollectiveGroup]) -> str:
    """Say where ranks are that are not with most ranks of their process group."""
    number, usual = one.number or 0, most.number or 0
    if one.is_waiting:
        is_another = number == usual and bool(one.name and most.name) and not one.is_transfer
        return f"{_wait(one)}{' instead' if is_another else ''}"
    ranks = f"{rank_list(one.rank_ids)} {_of(one.rank_ids, 'has', 'have')}"
    if number >= usual:
        return f"{ranks} completed it"
    why = [f"{_of(one.rank_ids, 'its', 'their')} last one is {_call(one)}"] if number else []
    elsewhere = (group for group in groups if group.is_waiting and {*group.rank_ids} >= {*one.rank_ids})
    they_wait = _of(one.rank_ids, "it waits", "they wait")
    why += [f"{they_wait} in {_call(group)} of {_process_group(group)}" for group in elsewhere]
    more = "; ".join(why[:2])
    return f"{ranks} not joined it{f' ({more})' if more else ''}"


def _wait(group: CollectiveGroup) -> str:
    size = "" if group.elements is None else f" ({counted(group.elements, 'element')})"
    return f"{rank_list(group.rank_ids)} {_of(group.rank_ids, 'waits', 'wait')} in {_call(group)}{size}"


def _call(group: CollectiveGroup) -> str:
    return f"{printable(group.name) or ('transfer' if group.is_transfer else 'collective')} #{group.number}"


def _process_group(group: CollectiveGroup) -> str:
    return f"process group {printable(group.group)}"


def _of(ranks: Sequence[int], one: str, several: str) -> str:
    return one if len(ranks) == 1 else several


def is_in_collective(group: StackGroup) -> bool:
    """Whether the innermost frames of a group have a call that waits for other ranks."""
    return any(re.match(_COLLECTIVE, frame) for frame in group.frames[:INNERMOST])


def _may_wait(group: StackGroup) -> bool:
    """Whether ranks may be waiting for others: not while they import modules or move on. Kernel stacks do not tell."""
    if is_in_collective(group):
        return True
    is_python = any(" (" in frame for frame in group.frames)
    return is_python and not group.has_changed and not any(_IMPORT in frame for frame in group.frames)


def _difference(few: Sequence[str], most: Sequence[str]) -> tuple[str, str]:
    """Return the innermost frames at which two stacks differ, "" if they do not."""
    return next(((one, other) for one, other in zip(few, most) if one != other), ("", ""))


def _beat(beat: Beat) -> str:
    step = "" if beat.step is None else f"step {beat.step}"
    checkpoint = f"checkpoint {beat.checkpoint}" if beat.checkpoint else ""
    texts = (step, beat.section, beat.status, checkpoint)
    return ", ".join(printable(text) for text in texts if text) or "no step given"


def asked(fact: CheckpointAsked, state: State) -> str:
    """Return the sentence on a request for a checkpoint: its reason, the ranks that were asked, and what follows."""
    limit, time = state.checkpoint.before_limit, in_seconds(fact.seconds)
    if state.cause is None:
        reason = f"the time limit of {duration(limit.seconds)} is near; " if limit else ""
        is_over = fact.reached or not fact.seconds
        later = "" if is_over else f"; ranks that begin to handle it within {time} will be asked"
        return f"{reason}{fact}{later}"
    hint = f"{state.cause.to_stop} to stop them now"
    what_follows = f"; stopping them within {time} ({hint})" if fact.reached else ""
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


def checkpoint_record(fact: CheckpointEnded, at: float) -> CheckpointRecord:
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


def cause_record(outcome: Outcome) -> CauseRecord | None:
    """Return the record of why the job failed, None if it did not."""
    cause, root = outcome.cause, outcome.root
    if cause is None:
        return None
    if outcome.elsewhere:
        kind, certainty = PeerFailed.report_kind, outcome.elsewhere.certainty
        return CauseRecord(kind=kind, sentence=sentence(outcome), certainty=certainty, is_agreed=True)
    verdict = None if outcome.is_from_outside or (outcome.verdict and outcome.verdict.is_alone) else outcome.verdict
    return CauseRecord(
        kind=cause.report_kind,
        sentence=sentence(outcome),
        rank_id=root.rank_id if root else cause.first_exit,
        first_exit=cause.first_exit,
        alike=root.alike if root else (),
        certainty=verdict.certainty if verdict else root.certainty.value if root else "",
        is_agreed=verdict is not None,
        candidates=root.candidates if root else (),
        is_elsewhere=bool(root and root.look_at),
        signal=cause.stop_signal,
        may_be_a_peer=bool(root and root.may_be_a_peer),
        is_a_consequence=bool(root and root.is_a_consequence),
        suspected_peer=outcome.suspected_peer,
    )


def of_error(error: AscendRunnerError) -> CauseRecord:
    """Return the record of an error that kept the runner from running the job."""
    kinds = {StopRequestedError: "interrupted", LimitReachedError: "expired"}
    signum = error.signum if isinstance(error, StopRequestedError) else None
    return CauseRecord(kind=kinds.get(type(error), "runner_failed"), sentence=str(error), signal=signum)


def sentence(outcome: Outcome) -> str:
    """Return a sentence on why the job failed, or "" if it did not."""
    cause, root = outcome.cause, outcome.root
    if outcome.elsewhere and outcome.elsewhere.sentence:
        return str(outcome.elsewhere)
    if root and root.look_at:
        return f"{LOST_PEERS}{root.look_at}"
    if same := alike(outcome):
        return same
    if root and root.summary not in str(cause):
        if cause and cause.ending and root.rank_id != cause.rank_id:
            return f"{outcome.failed.title if outcome.failed else f'rank {root.rank_id}'}{CAUSED}{root.summary}"
        return str(cause.explained(root.summary)) if cause else ""
    likely = "".join(of_hang(outcome, ", likely because of ", "; the cause may be "))
    return "; ".join([f"{cause}{likely}", *failed(outcome.unsaved)]) if cause else ""


def alike(outcome: Outcome) -> str:
    """Return the sentence on a failure of all ranks that report the same error, apart from numbers; else ""."""
    cause, root = outcome.cause, outcome.root
    ranks = [rank for rank in outcome.ranks if not rank.name]
    errors = {folded(rank.finding.summary) if rank.finding else "" for rank in ranks}
    is_one = len(ranks) > 1 and len(errors) == 1 and "" not in errors
    if not (is_one and cause and cause.ending and root):
        return ""
    is_told = cause.ending.is_success or root.summary in str(cause.ending)  # the ending is unknown, or is the summary
    status = "" if is_told else f" ({cause.ending.in_parentheses})"
    verb = "report the same error" if root.is_open else "failed alike"
    return f"{all_of(len(ranks), 'rank')} {verb}: {root.summary}{status}"


def sentence_with_certainty(outcome: Outcome) -> str:
    """Return the sentence on why the job failed, with a note on the certainty."""
    why = cause_record(outcome)
    return why.with_certainty(len(outcome.ranks)) if why else ""


def of_hang(outcome: Outcome, likely: str, possible: str) -> list[str]:
    """Return the ranks that the stacks of a hang single out, or nothing.

    The text begins with `likely` if they are in the same place, else with `possible`.
    """
    seen = outcome.hang, outcome.collectives
    place = outlier(*seen) if outcome.cause and outcome.cause.has_stacks else ""
    beginning = likely if len(suspects(*seen)) == 1 else possible
    return [f"{beginning}{place}"] if place else []
