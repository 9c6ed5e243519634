"""Reads members of JSON objects from untrusted sources: a value of another type counts as missing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import attrs

from ascend_runner.text import number_within

LARGEST: Final = float(1 << 53)  # whole numbers up to here are exact, and can be formatted
LATEST: Final = float(1 << 33)  # seconds since the epoch: the year 2242


@attrs.frozen
class Members:
    """The members of one object."""

    members: Mapping[str, object] = {}

    def text(self, name: str) -> str:
        """Return a string, or "" if it is missing."""
        value = self.members.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> float | None:
        """Return a number that is not negative, or None if it is missing or out of range."""
        return number_within(self.members.get(name), LARGEST)

    def whole(self, name: str) -> int | None:
        """Return an integer, or None if it is missing or out of range."""
        return _whole(self.members.get(name))

    def count(self, name: str) -> int | None:
        """Return an integer that is not negative, or None if it is missing or out of range."""
        value = self.whole(name)
        return None if value is None or value < 0 else value

    def seconds(self, name: str) -> float | None:
        """Return a duration, or a time since the epoch, in seconds, or None if it is missing or out of range."""
        return number_within(self.members.get(name), LATEST)

    def flag(self, name: str) -> bool:
        """Return whether a member is true."""
        return self.members.get(name) is True

    def moment(self, name: str) -> float | None:
        """Return a time in ISO 8601 as seconds since the epoch, or None if it is missing or out of range."""
        try:
            return number_within(datetime.fromisoformat(self.text(name)).timestamp(), LATEST)
        except (ValueError, OverflowError, OSError):
            return None

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the strings of an array."""
        return tuple(item for item in self._items(name) if isinstance(item, str))

    def wholes(self, name: str) -> tuple[int, ...]:
        """Return the integers of an array."""
        return tuple(item for item in map(_whole, self._items(name)) if item is not None)

    def child(self, name: str) -> Members:
        """Return an object, or an empty one if it is missing."""
        value = self.members.get(name)
        return Members(value) if isinstance(value, dict) else Members()

    def children(self, name: str) -> tuple[Members, ...]:
        """Return the objects of an array."""
        return tuple(Members(item) for item in self._items(name) if isinstance(item, dict))

    def child_with(self, name: str, key: str, number: int | None) -> Members:
        """Return the first object of an array whose member `key` is this number, or an empty one."""
        found = (child for child in self.children(name) if number is not None and child.whole(key) == number)
        return next(found, Members())

    def pairs(self, name: str) -> tuple[Members, ...]:
        """Return the arrays of an array, whose members are called "0", "1" and so on."""
        items = (item for item in self._items(name) if isinstance(item, (list, tuple)))
        return tuple(Members({str(index): value for index, value in enumerate(item)}) for item in items)

    def _items(self, name: str) -> tuple[object, ...]:
        value = self.members.get(name)
        return tuple(value) if isinstance(value, (list, tuple)) else ()


def _whole(value: object) -> int | None:
    return value if type(value) is int and abs(value) <= LARGEST else None
