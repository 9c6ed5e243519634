"""The state diagram (Mermaid) of a job, from the transition table of `lifecycle`. `state_diagram.py` writes it.

The machine is walked through every event with every combination of values that may decide something: an edge is drawn
because a transition took it. States that an attempt ends in are drawn in one box, whose edges hold for all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import attrs

from ascend_runner.supervision.causes import Restart
from ascend_runner.supervision.cloud_events import NAMES
from ascend_runner.supervision.job_machine import (
    EVENTS,
    TRANSITIONS,
    AnyState,
    Ended,
    Event,
    Failed,
    Job,
    JobState,
    Policy,
    transition,
)

# The values that a field takes, by its type; a field of any other type keeps its default.
VALUES: Final[Mapping[str, tuple[object, ...]]] = {
    "bool": (False, True),
    "bool | None": (False, True),
    "int": (0, 1),
    "float": (0.0, 1.0),
    "float | None": (None, 0.0),
    "Restart": tuple(Restart),
}
ATTEMPT: Final = "attempt"  # the box
Edges = dict[tuple[str, str], list[str]]  # the labels, by the names of the two states
Record = TypeVar("Record", bound=attrs.AttrsInstance)


def combinations(cls: type[Record]) -> Iterator[Record]:
    """Return the records of a class with every combination of values."""
    fields = [field for field in attrs.fields(cls) if field.type in VALUES]
    for values in itertools.product(*(VALUES[str(field.type)] for field in fields)):
        named: dict[str, Any] = {field.name: value for field, value in zip(fields, values)}
        yield cls(**named)


def walk() -> Iterator[tuple[AnyState, type[Event], AnyState]]:
    """Take every transition that changes the state of a job."""
    events = [event for kind in EVENTS for event in combinations(kind)]
    to_visit = [Job(policy=policy) for policy in combinations(Policy)]
    visited = set(to_visit)
    while to_visit:
        job = to_visit.pop()
        for event in events:
            after, _actions = transition(job, event)
            if after.state is not job.state:
                yield job.state, type(event), after.state
                if after not in visited:
                    visited.add(after)
                    to_visit.append(after)


def edges() -> tuple[Edges, list[str]]:
    """Return the edges in the order of the states, and the states that are in the box."""
    states = list(TRANSITIONS)
    seen = sorted(set(walk()), key=lambda one: (states.index(one[0]), states.index(one[2]), EVENTS.index(one[1])))
    inside = {before for before, kind, _after in seen if kind in {Ended, Failed}}
    found: Edges = {}
    for before, kind, after in seen:
        is_shared = before in inside and all((other, kind, after) in seen for other in inside)
        labels = found.setdefault((ATTEMPT if is_shared else before.value, after.value), [])
        label = NAMES[kind].replace("_", " ")
        if label not in labels:
            labels.append(label)
    return found, [state.value for state in states if state in inside]


def diagram() -> str:
    """Return the diagram as the README holds it."""
    found, inside = edges()
    box, outer = [], []
    for (before, after), labels in found.items():
        words = "<br/>".join(labels)
        if {before, after} <= {*inside}:
            box.append(f"        {before} --> {after}: {words}")
        else:
            outer.append(f"    {before} --> {ATTEMPT if after == inside[0] else after}: {words}")
    begin = [f"    [*] --> {next(iter(JobState)).value}", f"    state {ATTEMPT} {{", f"        [*] --> {inside[0]}"]
    final = [f"    {state.value} --> [*]" for state in JobState if state.is_final]
    return "\n".join(["```mermaid", "stateDiagram-v2", *begin, *box, "    }", *outer, *final, "```", ""])
