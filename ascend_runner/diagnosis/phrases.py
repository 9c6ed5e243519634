"""Telling phrases of errors without a code: their meanings, and where their causes usually lie."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Final

from ascend_runner.diagnosis.chinese_phrases import CHINESE
from ascend_runner.diagnosis.class_phrases import CLASSES
from ascend_runner.diagnosis.codes import KINDS, Code, Found, Kind
from ascend_runner.diagnosis.framework_phrases import FRAMEWORKS
from ascend_runner.diagnosis.mindspore_phrases import MINDSPORE
from ascend_runner.diagnosis.own_phrases import OWN
from ascend_runner.diagnosis.peer_phrases import PEERS
from ascend_runner.diagnosis.setup_phrases import SETUP

BEGINNING: Final = 1000  # characters; the time that some rules for classes take grows with their square


def first_phrase(lines: Sequence[str]) -> Found | None:
    """Find a telling phrase, the most specific first. Meant for the lines around a failure only."""
    return _first(PHRASES, lines)


def class_of(message: Sequence[str], *, is_own: bool = False) -> Found | None:
    """Find the class of an error whose message no rule knows, by the beginnings of its lines.

    With `is_own`, the user's program has chosen the words, not a package.
    """
    return _first(_classes(is_own=is_own), [line[:BEGINNING] for line in message])


def _first(rules: Sequence[tuple[re.Pattern[str], Code]], lines: Sequence[str]) -> Found | None:
    lowered = [line.lower() for line in lines]
    for pattern, code in rules:
        for line, text in zip(lines, lowered):
            if pattern.search(text):
                return Found(code, line)
    return None


# A rule takes two lines: kind, name and meaning, then the pattern. The first rule that matches counts: errors of a rank
# itself precede those that it reports about others.
_KINDS: Final = {**KINDS, "lost": Kind.EITHER, "words": Kind.ROOT}
_RULE: Final = r"^(\w+)(\*?) (.+?) = (.+)\n((?: {4}.+\n)+)"
_WORDS: Final = re.compile(_RULE.replace(r"(\w+)", "words"), re.MULTILINE)


def _parsed(table: str) -> Iterator[tuple[re.Pattern[str], Code]]:
    rules = re.findall(_RULE, table, re.MULTILINE)
    for kind, star, name, meaning, pattern in rules:
        # Case does not matter. With re.IGNORECASE, a search cannot skip to the first letters of a pattern and takes
        # almost three times as long. A letter after a backslash is a class of characters.
        expression = re.sub(r"(?<!\\)[A-Z]", lambda found: found[0].lower(), pattern[4:-1].replace("\n    ", ""))
        expression = f"{expression}|{CHINESE[name]}" if name in CHINESE else expression
        yield (
            re.compile(expression),
            Code(name, meaning, _KINDS[kind], is_wrapper=bool(star), is_connection=kind == "lost"),
        )


PHRASES: Final = tuple(_parsed(OWN + SETUP + PEERS))


@functools.cache  # only errors that no other rule knows need them
def _classes(*, is_own: bool) -> tuple[tuple[re.Pattern[str], Code], ...]:
    table = CLASSES + MINDSPORE + FRAMEWORKS
    return tuple(_parsed(re.sub(_WORDS, "", table) if is_own else table))
