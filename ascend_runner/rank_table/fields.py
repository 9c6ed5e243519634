"""Typed readers of a JSON object that know where they stand, so that the sentence of an error writes itself.

The only place that builds error paths ("server_list[1].device[0].rank_id"). They are built when something is wrong and
not before: a table has up to 65,536 devices.

A reader that meets a wrong value notes it and gives a stand-in, so that one look at a document tells all that is wrong
with it. Whoever started the reading asks `Problems` at its end. Knows no dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.errors import RankTableFormatError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

UNREADABLE: Final = -1  # stands for a whole number that could not be read: no number of a rank table is negative
MOST_DIGITS: Final = 18  # fits 64 bits, and keeps int() away from its quadratic time
MOST_SHOWN: Final = 60  # characters of a wrong value in a sentence


@attrs.define
class Problems:
    """What is wrong with one document. The first complaint about a place stands; later ones follow from it."""

    source: str
    _found: dict[str, RankTableFormatError] = attrs.field(factory=dict)
    # Arrays that could not be read, or of which an item could not: what they hold cannot be counted.
    gaps: list[str] = attrs.field(factory=list)
    # Whether a number stood where HCCL wants a string.
    has_numbers: bool = False

    def add(self, sentence: str, path: str) -> None:
        """Note what is wrong in `path`."""
        self._found.setdefault(path, RankTableFormatError(sentence, path=path, source=self.source))

    def extend(self, problems: Iterable[RankTableFormatError]) -> None:
        """Note what was found elsewhere about the same document."""
        for problem in problems:
            self.add(problem.sentence, problem.path)

    def is_empty(self) -> bool:
        """Whether nothing is wrong so far."""
        return not self._found

    def as_error(self) -> RankTableFormatError:
        """Give all that is wrong as one error; there must be something."""
        first, *others = self._found.values()

        return RankTableFormatError(first.sentence, path=first.path, source=self.source, others=others)


@attrs.define
class Fields:
    """One JSON object of a document, and the way to it."""

    problems: Problems
    values: Mapping[str, object]
    _parent: Fields | None = None
    _key: str = ""
    _index: int = 0

    def path(self, key: str = "") -> str:
        """Name this object, or one of its keys, from the top of the document."""
        here = f"{self._parent.path(self._key)}[{self._index}]" if self._parent else ""
        if not key:
            return here

        return f"{here}.{key}" if here else key

    def refuse(self, sentence: str, key: str = "") -> None:
        """Note what is wrong with this object, or with one of its keys."""
        self.problems.add(sentence, self.path(key))

    def text(self, key: str, *, default: str | None = None) -> str:
        """Read a string, or a whole number as one; without a `default` it must be there and not be empty."""
        value = self.values.get(key)
        if isinstance(value, str) and (value or default is not None):
            return value

        if isinstance(value, int) and not isinstance(value, bool):
            self.problems.has_numbers = True
            return str(value)

        if value is None and default is not None:
            return default

        self._refuse_value(key, "a non-empty string" if default is None else "a string")
        return ""

    def whole_number(self, key: str) -> int:
        """Read a number from 0, written as one or as a string of digits; UNREADABLE where it is none."""
        value = self.values.get(key)
        # Strictly: int() would take "+1", " 1", "1_0", and digits of other scripts.
        if isinstance(value, str) and value.isdigit() and value.isascii() and len(value) <= MOST_DIGITS:
            return int(value)

        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            self.problems.has_numbers = True
            return value

        self._refuse_value(key, "a whole number")
        return UNREADABLE

    def check_count(self, key: str, actual: int, noun: str, *, of: str) -> None:
        """Refuse a count that contradicts what the array `of` holds; a document may leave it out."""
        if self.values.get(key) is None:
            return

        count = self.whole_number(key)
        array = self.path(of)
        if count in {actual, UNREADABLE} or any(gap.startswith(array) for gap in self.problems.gaps):
            return

        self.refuse(f"{key} is {count}, but {counted(actual, noun)} {'is' if actual == 1 else 'are'} listed", key)

    def objects(self, key: str, *, is_needed: bool = True) -> list[Fields]:
        """Read an array of objects. Where it is not needed, a missing one and null are an empty one."""
        value = self.values.get(key)
        if isinstance(value, list):
            return [
                Fields(self.problems, item, self, key, index)
                for index, item in enumerate(value)
                if isinstance(item, dict) or self._refuse_item(item, key, index)
            ]

        if value is not None or is_needed:
            self._refuse_value(key, "an array")
            self.problems.gaps.append(self.path(key))
        return []

    def rest(self, known: Collection[str]) -> dict[str, object]:
        """Give the other keys as they stand in the document."""
        return {key: value for key, value in self.values.items() if key not in known}

    def _refuse_item(self, item: object, key: str, index: int) -> bool:
        path = f"{self.path(key)}[{index}]"
        self.problems.add(f"{key}[{index}] is {shown(item)}, expected an object", path)
        self.problems.gaps.append(path)

        return False

    def _refuse_value(self, key: str, expected: str) -> None:
        if key in self.values:
            self.refuse(f"{key} is {shown(self.values[key])}, expected {expected}", key)
        else:
            self.refuse(f"{key} is missing, expected {expected}", key)


def counted(number: int, noun: str) -> str:
    """Say a number of things: "1 device", "2 devices"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shown(value: object) -> str:
    """Say a JSON value in a sentence: 'x', 3, true, null, an array, an object."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"

    if isinstance(value, str) and len(value) > MOST_SHOWN:
        return f"{value[:MOST_SHOWN]!r}..."

    return repr(value)
