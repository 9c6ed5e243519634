"""Records of different types are never equal, regardless of their fields."""

from __future__ import annotations

from itertools import combinations

import pytest

from ascend_runner.supervision.causes import HangDetected, SignalReceived
from ascend_runner.supervision.events import DeadlineReached, Emptied, Spawned
from ascend_runner.supervision.state import AskToStop, Notify, SetDeadline, SignalGroup, Spawn

EQUAL_FIELDS = [
    [Emptied(15), SignalReceived(15), HangDetected(15), Spawn(15), SetDeadline(15)],
    [Spawned(1, 15), AskToStop(1, 15), Notify(1, 15), SignalGroup(1, 15), (1, 15)],
]


@pytest.mark.parametrize("records", EQUAL_FIELDS)
def test_records_of_different_types_are_never_equal(records: list[object]) -> None:
    """Events and actions with equal fields are different things."""
    assert [] == [pair for pair in combinations(records, 2) if pair[0] == pair[1]]


def test_record_without_fields_is_true() -> None:
    """`if event` asks whether there is an event, not whether it has fields."""
    assert DeadlineReached()
