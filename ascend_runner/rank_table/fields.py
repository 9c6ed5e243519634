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
from ascend_runner.rank_table.findings import BAD_TABLE, BAD_VALUE, MISSING_FIELD, WARNING, Finding
from ascend_runner.rank_table.pieces import Pieces

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

ALONE: Final = -1
UNREADABLE: Final = -1  # stands for a whole number that could not be read: no number of a rank table is negative
MOST_DIGITS: Final = 18  # fits 64 bits, and keeps int() away from its quadratic time
BEYOND_NUMBERS: Final = 10**MOST_DIGITS
MOST_SHOWN: Final = 60  # characters of a wrong value in a sentence


@attrs.define
class Problems:
    """What is wrong with one document. The first complaint about a place stands; later ones follow from it."""

    source: str
    # Whether a count that contradicts its list is noted only.
    lists_decide: bool = False
    miscounts: list[Finding] = attrs.field(factory=list)
    _found: dict[str, RankTableFormatError] = attrs.field(factory=dict)
    # Arrays that could not be read, or of which an item could not: what they hold cannot be counted.
    gaps: list[str] = attrs.field(factory=list)
    # Where the first value stood that a dialect wants as a string and that was none, and likewise for a number.
    first_non_text: str = ""
    first_non_number: str = ""

    def add(self, sentence: str, path: str, code: str) -> None:
        """Note what is wrong in `path`, and what HCCL calls it."""
        self._found.setdefault(path, RankTableFormatError(sentence, path=path, source=self.source, code=code))

    def extend(self, problems: Iterable[RankTableFormatError]) -> None:
        """Note what was found elsewhere about the same document."""
        for problem in problems:
            self.add(problem.sentence, problem.path, problem.code)

    def found(self) -> tuple[RankTableFormatError, ...]:
        """Give all that is wrong so far, in the order in which it was met."""
        return tuple(self._found.values())


@attrs.define
class Fields:
    """One JSON object of a document, and the way to it."""

    problems: Problems
    values: dict[str, object]
    _parent: Fields | None = None
    _key: str = ""
    index: int = 0  # ALONE where the object is no item of an array

    def path(self, key: str = "") -> str:
        """Name this object, or one of its keys, from the top of the document."""
        here = self._parent.path(self._key) if self._parent else ""
        if here and self.index != ALONE:
            here += f"[{self.index}]"
        if not key:
            return here

        return f"{here}.{key}" if here else key

    def refuse(self, sentence: str, key: str = "", *, code: str = BAD_VALUE) -> None:
        """Note what is wrong with this object, or with one of its keys."""
        self.problems.add(sentence, self.path(key), code)

    def text(self, key: str, *, default: str | None = None) -> str:
        """Read a string, or a whole number as one; without a `default` it must be there and not be empty."""
        value = self.values.get(key)
        if isinstance(value, str) and (value or default is not None):
            return value

        if isinstance(value, int) and not isinstance(value, bool):
            self.problems.first_non_text = self.problems.first_non_text or self.path(key)
            return str(value)

        if value is None and default is not None:
            if key in self.values:
                self.problems.first_non_text = self.problems.first_non_text or self.path(key)
            return default

        self._refuse_value(key, "a non-empty string" if default is None else "a string")
        return ""

    def version(self, *, default: str | None = None) -> str:
        """Read the version: a text like "1.0", or that number, which some programs write as 1."""
        value = self.values.get("version")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self.problems.first_non_text = self.problems.first_non_text or self.path("version")
            return str(float(value))

        return self.text("version", default=default)

    def whole_number(self, key: str) -> int:
        """Read a number from 0, written as one or as a string of digits; UNREADABLE where it is none."""
        value = self.values.get(key)
        # Strictly: int() would take "+1", " 1", "1_0", and digits of other scripts.
        if isinstance(value, str) and value.isdigit() and value.isascii() and len(value) <= MOST_DIGITS:
            self.problems.first_non_number = self.problems.first_non_number or self.path(key)
            return int(value)

        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < BEYOND_NUMBERS:
            self.problems.first_non_text = self.problems.first_non_text or self.path(key)
            return value

        self._refuse_value(key, "a whole number")
        return UNREADABLE

    def check_count(self, key: str, actual: int, noun: str, *, of: str) -> None:
        """Refuse a count that contradicts what the array `of` holds, or note it; a document may leave it out."""
        if self.values.get(key) is None:
            return

        count = self.whole_number(key)
        array = self.path(of)
        if count in {actual, UNREADABLE} or any(gap.startswith(array) for gap in self.problems.gaps):
            return

        sentence = f"{key} is {count}, but {counted(actual, noun)} {'is' if actual == 1 else 'are'} listed"
        if not self.problems.lists_decide:
            self.refuse(sentence, key)
            return

        note = Finding(
            severity=WARNING,
            sentence=f"{sentence}: the list decides",
            path=self.path(key),
            source=self.problems.source,
            code=BAD_VALUE,
        )
        self.problems.miscounts.append(note)

    def check_length(self, key: str, expected: int, why: str) -> None:
        """Refuse an array that does not hold as many items as it must; one that is none has been told of."""
        value = self.values.get(key)
        if isinstance(value, list) and len(value) != expected:
            self.refuse(f"{key} holds {counted(len(value), 'item')}, expected {expected}, {why}", key)

    def objects(self, key: str, *, is_needed: bool = True) -> list[Fields]:
        """Read an array of objects. Where it is not needed, a missing one and null are an empty one."""
        return list(self.each(key, is_needed=is_needed))

    def each(self, key: str, *, is_needed: bool = True) -> Iterator[Fields]:
        """Read an array of objects one by one: a long one may never be there as a whole."""
        value = self.values.get(key)
        if isinstance(value, (list, Pieces)):
            for index, item in enumerate(value):
                if isinstance(item, dict) or self._refuse_item(item, key, index):
                    yield Fields(self.problems, item, self, key, index)
        elif value is not None or is_needed:
            self._refuse_value(key, "an array", code=BAD_TABLE)
            self.problems.gaps.append(self.path(key))

    def member(self, key: str) -> Fields | None:
        """Read an object that is the value of a key."""
        value = self.values.get(key)
        if isinstance(value, dict):
            return Fields(self.problems, value, self, key, ALONE)

        self._refuse_value(key, "an object", code=BAD_TABLE)
        return None

    def rest(self, known: Collection[str]) -> dict[str, object]:
        """Give the other keys as they stand in the document. To be asked last: the known ones are taken out of it.

        It is the document's own object: copies would be a third of the memory that a large table takes.
        """
        for key in known:
            self.values.pop(key, None)

        return self.values

    def _refuse_item(self, item: object, key: str, index: int) -> bool:
        path = f"{self.path(key)}[{index}]"
        self.problems.add(f"{key}[{index}] is {shown(item)}, expected an object", path, BAD_TABLE)
        self.problems.gaps.append(path)

        return False

    def _refuse_value(self, key: str, expected: str, *, code: str = BAD_VALUE) -> None:
        if key in self.values:
            self.refuse(f"{key} is {shown(self.values[key])}, expected {expected}", key, code=code)
        else:
            self.refuse(f"{key} is missing, expected {expected}", key, code=MISSING_FIELD)


def counted(number: int, noun: str) -> str:
    """Say a number of things: "1 device", "2 devices", "2 addresses"."""
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


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

    if isinstance(value, str):
        return f"{value[:MOST_SHOWN]!r}..." if len(value) > MOST_SHOWN else repr(value)

    number = repr(value)
    return f"{number[:MOST_SHOWN]}..." if len(number) > MOST_SHOWN else number
