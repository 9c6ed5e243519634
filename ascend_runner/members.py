"""Records as members of JSON objects, and back from untrusted sources: a value of another type counts as missing. Pure.

A record is encoded and decoded by the names and types of its fields; what is written in another way, such as a time,
is up to the record's own `encode` and `decode`.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

import attrs

from ascend_runner.text import number_within

LARGEST: Final = float(1 << 53)  # whole numbers up to here are exact, and can be formatted
LATEST: Final = float(1 << 33)  # seconds since the epoch: the year 2242

LOCAL: Final = len("2026-11-22T09:47:36")  # characters of a time before its offset

Count = int  # the type of a field that is not negative
Choice = TypeVar("Choice", bound=enum.Enum)
Record = TypeVar("Record", bound=type)

# How help() shows that a record is made from its fields. Their types and defaults would take a screen, twice.
_FROM_FIELDS: Final = inspect.signature(lambda self, **fields: None)  # noqa: ARG005


def documented(record: Record) -> Record:
    """Let help() of a record begin with its docstring, for a public record that users read and never make."""
    vars(record)["__init__"].__signature__ = _FROM_FIELDS
    return record


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

    def signed(self, name: str) -> float | None:
        """Return a number, or None if it is missing or out of range."""
        return number_within(self.members.get(name), LARGEST, -LARGEST)

    def choice(self, name: str, choices: type[Choice]) -> Choice | None:
        """Return one of the choices by its value, or None if it is missing or unknown."""
        return next((choice for choice in choices if choice.value == self.members.get(name)), None)

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
        return tuple([item for item in self._items(name) if type(item) is int and -LARGEST <= item <= LARGEST])

    def child(self, name: str) -> Members:
        """Return an object, or an empty one if it is missing."""
        value = self.members.get(name)
        return Members(value) if isinstance(value, dict) else Members()

    def children(self, name: str) -> tuple[Members, ...]:
        """Return the objects of an array."""
        return tuple(Members(item) for item in self._items(name) if isinstance(item, dict))

    def pairs(self, name: str) -> tuple[Members, ...]:
        """Return the arrays of an array; its members are called "0", "1" and so on."""
        items = (item for item in self._items(name) if isinstance(item, (list, tuple)))
        return tuple(Members({str(index): value for index, value in enumerate(item)}) for item in items)

    def fields(self, record: type) -> dict[str, Any]:
        """Return the members that a record has as fields of a plain type. A member without a value is 0, "" or None."""
        kinds = field_types(record).items()
        return {name: _READERS[kind](self, name) for name, kind in kinds if kind in _READERS}

    def _items(self, name: str) -> tuple[object, ...]:
        value = self.members.get(name)
        return tuple(value) if isinstance(value, (list, tuple)) else ()


def field_types(record: type) -> Mapping[str, str]:
    """Return the types of the fields of a record as text; in Python 3.9, one without fields has no annotations."""
    return getattr(record, "__annotations__", {})


def _whole(value: object) -> int | None:
    return value if type(value) is int and abs(value) <= LARGEST else None


_READERS: Final[Mapping[str, Callable[[Members, str], object]]] = {
    "str": Members.text,
    "bool": Members.flag,
    "bool | None": lambda members, name: members.flag(name) if type(members.members.get(name)) is bool else None,
    "int": lambda members, name: members.whole(name) or 0,
    "int | None": Members.whole,
    "Count": lambda members, name: members.count(name) or 0,
    "Count | None": Members.count,
    "float": lambda members, name: members.number(name) or 0.0,
    "float | None": Members.number,
    "tuple[str, ...]": Members.texts,
    "tuple[int, ...]": Members.wholes,
}


def milliseconds(seconds: float) -> float:
    """Round to milliseconds as `iso` does: round(seconds, 3) may be one millisecond off."""
    return round(seconds * 1000) / 1000


def iso(epoch: float | None) -> str:
    """Format a time in ISO 8601 with milliseconds, to which it is rounded, and the local offset; None is ""."""
    if epoch is None:
        return ""
    seconds, milliseconds = divmod(round(epoch * 1000), 1000)
    return f"{_local(seconds)}.{milliseconds:03}{_offset(seconds)}"


@functools.lru_cache(64)  # thousands of times of a few seconds are formatted at once
def _local(seconds: int) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")[:LOCAL]


@functools.lru_cache(64)
def _offset(seconds: int) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")[LOCAL:]


def plain(value: object) -> Any:  # JSON
    """Convert records to objects, and escape bytes of names and paths that are not UTF-8: JSON has neither."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(member) for name, member in value.items()}
    if isinstance(value, Iterable):
        return list(map(plain, value))
    return plain(attrs.asdict(value, recurse=False))  # type: ignore[arg-type]  # a record
