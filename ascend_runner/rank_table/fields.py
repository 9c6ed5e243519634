"""Typed readers of a JSON object that know its path, so that every problem names its place in the document.

The only module that builds such paths ("server_list[1].device[0].rank_id"), and only when something is wrong: a table
has up to 65,536 devices.

A reader that meets a wrong value records a problem and returns a stand-in, so that one pass over a document finds
everything that is wrong with it. The caller checks the problems at the end. Independent of the dialects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import attrs

from ascend_runner.errors import RankTableNotReadyError
from ascend_runner.problems import Problem, RankTableFormatError, Severity
from ascend_runner.secrets import Masker
from ascend_runner.text import MOST_DIGITS, counted, is_whole_number

BAD_ENVIRONMENT: Final = "EI0001"  # also for addresses of two families
BAD_TABLE: Final = "EI0004"  # the file or its structure
BAD_VALUE: Final = "EI0014"
MISSING_FIELD: Final = "EI0017"  # also for a field of the wrong JSON type


NOT_IN_ARRAY: Final = -1
UNREADABLE: Final = -1  # stands for an unreadable whole number: no number of a rank table is negative
BEYOND_NUMBERS: Final = 10**MOST_DIGITS
MOST_SHOWN: Final = 60  # characters of a wrong value in a sentence
MOST_READ: Final = 1 << 14  # characters of one that are searched for secrets


@attrs.define(eq=False, repr=False)
class Document:
    """The problems of one document; `source` is its name.

    With `lists_decide` a count that contradicts its list becomes a warning instead of an error.
    """

    source: str
    lists_decide: bool = False
    problems: list[Problem] = attrs.field(factory=list)
    # Arrays, or items of arrays, that could not be read: the number of their items is unknown.
    gaps: list[str] = attrs.field(factory=list)
    # The path of the first value that is not a string where the dialect requires one, and likewise for numbers.
    first_non_text: str = ""
    first_non_number: str = ""

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The first error of each path."""
        first: dict[str, Problem] = {}
        for problem in self.problems:
            if problem.severity is Severity.ERROR:
                first.setdefault(problem.path, problem)

        return tuple(first.values())

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """All warnings."""
        return tuple(problem for problem in self.problems if problem.severity is Severity.WARNING)

    def error(self, sentence: str, path: str = "", code: str = BAD_VALUE) -> None:
        """Record an error: HCCL would reject this."""
        self._add(Severity.ERROR, sentence, path, code)

    def warn(self, sentence: str, path: str = "", code: str = "") -> None:
        """Record a warning: this is unusual but works."""
        self._add(Severity.WARNING, sentence, path, code)

    def warn_of_type(self, json_type: str, path: str) -> None:
        """Record that a value has the wrong JSON type, which the rewritten table corrects."""
        self.warn(f"HCCL requires a {json_type} here (ascend-runner corrects it)", path, MISSING_FIELD)

    def refusal(self, sentence: str, path: str = "", code: str = BAD_TABLE) -> RankTableFormatError:
        """Return the error that the document is not a rank table at all."""
        self.error(sentence, path, code)
        return RankTableFormatError(self.problems[-1:])

    def not_ready(self, reason: str, *, is_damaged: bool = False) -> RankTableNotReadyError:
        """Return the error that the document is not completed yet, or is damaged."""
        sentence = f"{self.source} is not a completed rank table: {reason}"
        return RankTableNotReadyError(sentence, reason=reason, is_damaged=is_damaged)

    def _add(self, severity: Severity, sentence: str, path: str, code: str) -> None:
        problem = Problem(severity=severity, sentence=sentence, path=path, source=self.source, code=code)
        self.problems.append(problem)


@attrs.define(eq=False, repr=False)
class Fields:
    """One JSON object of a document, and its path."""

    document: Document
    values: Mapping[str, object]
    _parent: Fields | None = None
    _key: str = ""
    index: int = 0  # NOT_IN_ARRAY where the object is the value of a key

    def path(self, key: str = "") -> str:
        """Return the path of this object, or of one of its keys."""
        here = self._parent.path(self._key) if self._parent else ""
        if here and self.index != NOT_IN_ARRAY:
            here += f"[{self.index}]"
        if not key:
            return here

        return f"{here}.{key}" if here else key

    def refuse(self, sentence: str, key: str, *, code: str = BAD_VALUE) -> None:
        """Record an error of this object, or of one of its keys."""
        self.document.error(sentence, self.path(key), code)

    def refuse_value(self, key: str, expected: str, *, code: str = BAD_VALUE) -> None:
        """Record that a key is missing or has a value that was not expected."""
        if key in self.values:
            self.refuse(f"{key} is {shown(self.values[key])}, expected {expected}", key, code=code)
        else:
            self.refuse(missing(key), key, code=MISSING_FIELD)

    def text(self, key: str, *, default: str | None = None) -> str:
        """Read a string, or a whole number as one; without a `default` it must be present and not empty."""
        value = self.values.get(key)
        if isinstance(value, str) and (value or default is not None):
            return value

        if isinstance(value, int) and not isinstance(value, bool):
            self._note_non_text(key)
            return str(value)

        if value is None and default is not None:
            if key in self.values:
                self._note_non_text(key)
            return default

        self.refuse_value(key, "a non-empty string" if default is None else "a string")
        return ""

    def version(self, *, default: str | None = None) -> str:
        """Read the version: a string like "1.0", or a number, which some programs write."""
        value = self.values.get("version")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self._note_non_text("version")
            return str(float(value))

        return self.text("version", default=default)

    def whole_number(self, key: str) -> int:
        """Read a number from 0, written as a number or as a string of digits; UNREADABLE where it is neither."""
        value = self.values.get(key)
        if isinstance(value, str) and is_whole_number(value):
            self.document.first_non_number = self.document.first_non_number or self.path(key)
            return int(value)

        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < BEYOND_NUMBERS:
            self._note_non_text(key)
            return value

        self.refuse_value(key, "a whole number")
        return UNREADABLE

    def check_count(self, key: str, actual: int, noun: str, *, of: str, is_dropped: bool = False) -> None:
        """Check a count, which may be missing, against the number of entries of the array `of`.

        A wrong one that `is_dropped` is only a warning without HCCL's code, because HCCL never reads it.
        """
        if self.values.get(key) is None:
            return

        count = self.whole_number(key)
        array = self.path(of)
        if count in {actual, UNREADABLE} or any(gap.startswith(array) for gap in self.document.gaps):
            return

        sentence = f"{key} is {count}, but {counted(actual, noun)} {'is' if actual == 1 else 'are'} listed"
        if self.document.lists_decide or is_dropped:
            code = "" if is_dropped else BAD_VALUE
            self.document.warn(f"{sentence} (the count is ignored)", self.path(key), code)
        else:
            self.refuse(sentence, key)

    def objects(self, key: str, *, is_required: bool = True) -> list[Fields]:
        """Read an array of objects. Where it is not required, a missing one and null are empty."""
        value = self.values.get(key)
        if isinstance(value, list):
            return [
                Fields(self.document, item, self, key, index)
                for index, item in enumerate(value)
                if isinstance(item, dict) or self._refuse_item(item, key, index)
            ]

        if value is not None or is_required:
            self.refuse_value(key, "an array", code=BAD_TABLE)
            self.document.gaps.append(self.path(key))
        return []

    def member(self, key: str) -> Fields | None:
        """Read an object that is the value of a key."""
        value = self.values.get(key)
        if isinstance(value, dict):
            return Fields(self.document, value, self, key, NOT_IN_ARRAY)

        self.refuse_value(key, "an object", code=BAD_TABLE)
        return None

    def extra_keys(self, known: Collection[str]) -> dict[str, object]:
        """Return the other keys, as in the document."""
        return {key: value for key, value in self.values.items() if key not in known}

    def _note_non_text(self, key: str) -> None:
        self.document.first_non_text = self.document.first_non_text or self.path(key)

    def _refuse_item(self, item: object, key: str, index: int) -> bool:
        name = f"{key}[{index}]"
        self.refuse(f"{name} is {shown(item)}, expected an object", name, code=BAD_TABLE)
        self.document.gaps.append(self.path(name))

        return False


def missing(key: str) -> str:
    """Say that a field is missing."""
    return f"missing field '{key}'"


def shown(value: object) -> str:
    """Format a JSON value for a sentence: 'x', 3, true, null, an array, an object."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"

    if isinstance(value, str):
        text = Masker().text(value[:MOST_READ])  # first: the beginning of a secret would not be recognized
        return f"{text[:MOST_SHOWN]!r}..." if len(text) > MOST_SHOWN else repr(text)

    number = repr(value)
    return f"{number[:MOST_SHOWN]}..." if len(number) > MOST_SHOWN else number
