"""Draw the state diagrams (Mermaid) of supervision, and of a job, from their tables. Called by `scripts/generate`.

Supervision is walked through everything that can happen to a few ranks: an edge is drawn because a transition took it.
Its label names the events and, after a slash, the signals that the transition sent. Events that change no phase are
left out, except deadlines that send signals.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from signal import SIGTERM, Signals
from typing import Final

import attrs
import lifecycle_diagram

from ascend_runner.supervision import machine
from ascend_runner.supervision.causes import Ending, Exited, SignalReceived, SpawnFailed
from ascend_runner.supervision.events import (
    AskedToSave,
    CheckpointRequested,
    DeadlineReached,
    Emptied,
    Event,
    Saved,
    Spawned,
)
from ascend_runner.supervision.state import CheckpointRequest, Phase, SetDeadline, SignalGroup, State

README: Final = Path(machine.__file__).with_name("README.md")
RANKS: Final = (0, 1, 2)  # a fourth adds no edge
RANKS_THAT_SAVE: Final = (0, 1)  # a third adds no edge
CHECKPOINT_GRACE: Final = 60.0
GRACE: Final = 15.0


@attrs.frozen
class Words:
    """The names of an event on an edge; `often` is used where the same event may also leave the phase unchanged."""

    plain: str
    often: str


START: Final = Words("rank started", "last rank started")
NO_START: Final = Words("start fails", "start fails")
SUCCESS: Final = Words("rank exits 0", "only stragglers left")
FAILURE: Final = Words("rank fails", "last rank fails")
LOST: Final = Words("rank loses a peer", "rank loses a peer")
EMPTY: Final = Words("straggler ends", "last straggler ends")
STOP: Final = Words("stop signal", "second stop signal")
DEADLINE: Final = Words("deadline", "last deadline")
CHECKPOINT: Final = Words("checkpoint requested", "checkpoint requested")
REACHED: Final = Words("ranks are reached", "no rank is reached")
SAVED: Final = Words("rank has saved", "last rank has saved")
IN_ORDER: Final = (START, SUCCESS, NO_START, FAILURE, LOST, CHECKPOINT, REACHED, SAVED, EMPTY, STOP, DEADLINE)


@attrs.frozen
class Seen:
    """One transition: the phases before and after it, its event, and the signals that it sent."""

    before: Phase
    after: Phase
    words: Words
    signums: frozenset[int]
    is_none_left: bool


def possible(state: State, *, has_deadline: bool) -> Iterator[tuple[Words, Event]]:
    """Return every event that can happen next."""
    if state.spawning is not None:
        yield START, Spawned(state.spawning, 1)
        yield NO_START, SpawnFailed(state.spawning, "no memory", 125)
    for rank_id in sorted(state.leaders):
        for words, ending in ((SUCCESS, Ending()), (FAILURE, Ending(exit_code=1))):
            yield words, Exited(rank_id, ending)
            if not state.checkpoint_grace:
                yield words, Exited(rank_id, ending, has_stragglers=True)
        if state.phase in {Phase.RUNNING, Phase.CHECKPOINTING} and len(state.leaders) > 1:
            yield LOST, Exited(rank_id, Ending(exit_code=1), is_consequence=True)
    for rank_id in sorted(state.stragglers):
        yield EMPTY, Emptied(rank_id)
    yield from about_checkpoints(state)
    yield STOP, SignalReceived(SIGTERM)
    if has_deadline:
        yield DEADLINE, DeadlineReached()


def about_checkpoints(state: State) -> Iterator[tuple[Words, Event]]:
    """Return every request and answer that can come next, in a job that is asked for checkpoints."""
    if state.phase is Phase.RUNNING and state.checkpoint_grace:
        yield CHECKPOINT, CheckpointRequested()
    if state.phase is Phase.CHECKPOINTING and state.checkpoint.is_being_sent:
        yield REACHED, AskedToSave(frozenset())
        yield REACHED, AskedToSave(state.alive, can_report=state.alive)
    elif state.phase is Phase.CHECKPOINTING:
        yield from ((SAVED, Saved(rank_id)) for rank_id in sorted(state.checkpoint.unsaved))


def walk() -> list[Seen]:
    """Take every transition that a job of these ranks can take; each kind once, in the order of phases and words."""
    to_visit = [
        (machine.start(RANKS, GRACE)[0], False),
        (machine.start(RANKS_THAT_SAVE, GRACE, checkpoint_grace=CHECKPOINT_GRACE)[0], False),
    ]
    visited = set()
    found: dict[Seen, None] = {}
    while to_visit:
        state, has_deadline = to_visit.pop()
        for words, event in possible(state, has_deadline=has_deadline):
            after, actions = machine.transition(state, event)
            signums = frozenset(action.signum for action in actions if isinstance(action, SignalGroup))
            is_none_left = not after.alive and after.spawning is None
            found[Seen(state.phase, after.phase, words, signums, is_none_left)] = None

            is_set = any(isinstance(action, SetDeadline) for action in actions)
            following = (after, is_set or (has_deadline and words is not DEADLINE))
            is_saving = after.phase is Phase.CHECKPOINTING
            # Statuses, and a checkpoint that is over, decide nothing from here on.
            checkpoint = after.checkpoint if is_saving else CheckpointRequest()
            key = (repr(attrs.evolve(after, endings={}, checkpoint=checkpoint)), following[1])
            if after.phase != Phase.DONE and key not in visited:
                visited.add(key)
                to_visit.append(following)

    phases = list(Phase)
    return sorted(found, key=lambda one: (phases.index(one.before), phases.index(one.after), IN_ORDER.index(one.words)))


def diagram() -> str:
    """Return the diagram as the README holds it."""
    seen = walk()
    idle = {(one.before, one.words) for one in seen if one.after == one.before}
    edges: dict[tuple[Phase, Phase], dict[str, frozenset[int]]] = {}
    for one in seen:
        if one.after != one.before or (one.words is DEADLINE and one.signums):
            events = edges.setdefault((one.before, one.after), {})
            event = _event(one, is_often_idle=(one.before, one.words) in idle)
            events[event] = events.get(event, frozenset()) | one.signums

    lines = ["stateDiagram-v2", "    direction LR", f"    [*] --> {Phase.STARTING.value}"]
    for (before, after), events in edges.items():
        # Events within a phase are written into its box: the label of a loop would cover others.
        arrow = f"{before.value}: {before.value}<br/>" if before is after else f"{before.value} --> {after.value}: "
        lines.append(f"    {arrow}{_label(events)}")
    lines.append(f"    {Phase.DONE.value} --> [*]")
    return "```mermaid\n" + "\n".join(lines) + "\n```\n"


def _event(one: Seen, *, is_often_idle: bool) -> str:
    if one.after is Phase.DONE and one.is_none_left:
        return "no process is left"
    return one.words.often if is_often_idle and one.after != one.before else one.words.plain


def _label(events: Mapping[str, frozenset[int]]) -> str:
    """Word an edge: its events, one per line, and the signals that they send."""
    sent = ", ".join(Signals(signum).name for signum in sorted(frozenset().union(*events.values())))
    lines = [*events, f"/ {sent}"] if sent else [*events]
    return (" " if len(events) == 1 else "<br/>").join(lines)


def main() -> int:
    """Write the README, or with --check only compare; return the exit status."""
    diagrams = {"states": diagram, "job states": lifecycle_diagram.diagram}
    wrong = [_update(place, draw()) for place, draw in diagrams.items()]
    return int(any(wrong))


def _update(place: str, drawn: str) -> bool:
    """Write a diagram to its place in the README; return whether that is wrong."""
    text = README.read_text(encoding="utf-8")
    opening, closing = f"<!-- {place} -->\n", f"<!-- /{place} -->"
    before, begin, rest = text.partition(opening)
    _old, end, after = rest.partition(closing)
    if not begin or not end:
        sys.stderr.write(f"{README} has no place for the diagram, expected {opening.strip()} and {closing}\n")
        return True

    updated = before + begin + drawn + end + after
    if updated == text:
        return False
    if "--check" in sys.argv[1:]:
        sys.stderr.write(f"the diagram of {place} in {README} is out of date: run scripts/generate\n")
        return True
    README.write_text(updated, encoding="utf-8")
    return False


if __name__ == "__main__":
    sys.exit(main())
