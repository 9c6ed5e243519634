"""Analyzes regular expressions: the text that every match contains, and how long a search may take.

Knows nothing about their purpose.
"""

from __future__ import annotations

import itertools
import re
import string
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

if sys.version_info >= (3, 11):
    from re import _parser
else:
    import sre_parse as _parser

Item = tuple[Any, Any]  # from the parser: a code and its arguments, of types that depend on the code
Characters = frozenset[str]

_TOKEN: Final = re.compile(
    r"(?P<group>\((?:[^()\[\]\\]|\\.)*\))|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|\\(?P<escaped>x..|u....|\d+|.)"
    r"|(?P<open>\((?:\?(?:P?<\w+>|<?[=!]|:|>))?)|(?P<close>\))|(?P<bar>\|)|(?P<repeat>[*+?]\??|\{\d*,?\d*\}\??)|(?P<other>[.^$])|(?P<text>[^\\\[\](){}|*+?.^$]+)"
)


def literals(pattern: str) -> Iterator[str]:
    """Yield, for each alternative of an expression, the longest text that every match contains, in lower case.

    Groups are skipped, which takes a tenth of the time of compiling the expression.
    """
    best, run, depth = "", "", 0
    for token in _TOKEN.finditer(f"{pattern}|"):
        kind, text = token.lastgroup, token[0]
        if not depth and (kind == "text" or (kind == "escaped" and not text[1].isalnum())):
            run += text if kind == "text" else text[1]
            continue
        if kind == "repeat" and text[0] != "+":
            run = run[:-1]  # the last character may be missing
        best, run = max(best, run, key=len), ""
        depth += (kind == "open") - (kind == "close")
        if kind == "bar" and not depth:
            yield best.lower()
            best = ""


def faults(pattern: str) -> Iterator[str]:
    """Yield the faults of an expression that do not depend on its purpose."""
    try:
        tree = _parser.parse(pattern, re.IGNORECASE)
    except re.error as error:
        yield f"it is invalid: {error}"
        return
    if re.search(r"\(\?[aiLmsux-]+[:)]", pattern):
        yield "it sets flags"
    if re.search(pattern, ""):
        yield "it matches an empty line"
    if reason := _ambiguity(tree.data, frozenset(), is_repeated=False):
        yield f"it may take exponential time: {reason}"


_FOREIGN: Final = "\u4e2d"  # stands for all characters outside of ASCII
_ALL: Final = frozenset({*map(chr, range(128)), _FOREIGN}) - frozenset(string.ascii_uppercase)
_CATEGORIES: Final = {"CATEGORY_DIGIT": r"\d", "CATEGORY_SPACE": r"\s", "CATEGORY_WORD": r"\w"}
_SINGLE: Final = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN"})  # items of one character


def _ambiguity(items: Sequence[Item], following: Characters, *, is_repeated: bool) -> str:
    """Return why backtracking in a repeated group may take exponential time, "" if it does not.

    It does if the group can match one text in many ways: if a repetition inside it also matches the character that may
    come next, or if two of its alternatives begin with the same character.
    """
    for name, value, after in _in_context(items, following):
        for part, repeats in _parts(name, value):
            begins = _beginnings(part)[0]
            if is_repeated and name.endswith("_REPEAT") and value[0] != value[1] and begins & after:
                return "a repetition in a repeated group also matches the character that may follow it"
            is_inside = repeats or (is_repeated and not name.startswith("ASSERT"))
            if reason := _ambiguity(part, begins if repeats else after, is_repeated=is_inside):
                return reason
        if is_repeated and name == "BRANCH":
            firsts = [_beginnings(part) for part in value[1]]
            if any(one[0] & other[0] or one[1] is other[1] is True for one, other in itertools.combinations(firsts, 2)):
                return "two alternatives in a repeated group begin with the same character"
    return ""


def open_ends(pattern: str) -> int:
    """Return the largest number of repetitions in one alternative that also match the character that may come next.

    Backtracking tries every length of such a repetition. With n of them, the time of a search may grow with the length
    of a line to the power of n + 1.
    """
    return _open_ends(_parser.parse(pattern, re.IGNORECASE).data, frozenset())


FEW: Final = 10  # a repetition with fewer lengths to try takes no noticeable time


def _open_ends(items: Sequence[Item], following: Characters) -> int:
    found = 0
    for name, value, after in _in_context(items, following):
        if name.endswith("_REPEAT") and value[1] - value[0] >= FEW:
            found += bool(_beginnings(value[2])[0] & after)
        found += max((_open_ends(part, after) for part, _repeats in _parts(name, value)), default=0)
    return found


def _in_context(items: Sequence[Item], following: Characters) -> Iterator[tuple[str, Any, Characters]]:
    """Yield the name and the arguments of each item, and the characters that may come next.

    `following` are the characters that may follow the last item.
    """
    for at, (code, value) in enumerate(items):
        after, may_be_empty = _beginnings(items[at + 1 :])
        yield str(code), value, after | following if may_be_empty else after


def _parts(name: str, value: Any) -> Iterator[tuple[Sequence[Item], bool]]:
    """Yield the sequences in an item, and whether each may be repeated and is more than a single character."""
    if name.endswith("_REPEAT"):
        is_single = len(value[2]) == 1 and str(value[2][0][0]) in _SINGLE
        yield list(value[2]), value[1] > 1 and not is_single
    elif name == "BRANCH":
        yield from ((list(part), False) for part in value[1])
    elif name in {"SUBPATTERN", "ASSERT", "ASSERT_NOT"}:
        yield list(value[-1]), False
    elif name == "ATOMIC_GROUP":
        yield list(value), False


def _beginnings(items: Iterable[Item]) -> tuple[Characters, bool]:
    """Return the characters with which a sequence may begin, and whether it may be empty."""
    found: Characters = frozenset()
    for code, value in items:
        name = str(code)
        if name in _SINGLE:
            return found | _characters(name, value), False
        if name in {"AT", "ASSERT", "ASSERT_NOT"}:
            continue
        parts = [_beginnings(part) for part, _repeats in _parts(name, value)]
        found = found.union(*(begins for begins, _may_be_empty in parts)) if parts else _ALL
        may_be_empty = any(may_be_empty for _begins, may_be_empty in parts) or not parts
        if not may_be_empty and not (name.endswith("_REPEAT") and value[0] == 0):
            return found, False
    return found, True


def _characters(name: str, value: Any) -> Characters:
    """Return the characters that an item matches, ignoring case."""
    if name == "LITERAL":
        return frozenset({char if (char := chr(value).lower()) in _ALL else _FOREIGN})
    if name == "NOT_LITERAL":
        return _ALL - _characters("LITERAL", value)
    if name == "ANY":
        return _ALL - {"\n"}
    if name == "RANGE":
        return frozenset().union(*(_characters("LITERAL", char) for char in {*range(value[0], value[1] + 1)}))
    if name == "CATEGORY":
        positive = str(value).replace("NOT_", "")
        chars = frozenset(char for char in _ALL if re.match(_CATEGORIES[positive], char))
        return chars if positive == str(value) else _ALL - chars
    is_negated = str(value[0][0]) == "NEGATE"
    chars = frozenset().union(*(_characters(str(code), one) for code, one in value[is_negated:]))
    return _ALL - chars if is_negated else chars
