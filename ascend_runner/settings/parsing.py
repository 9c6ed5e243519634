"""Parses the values of options, and suggests known words for unknown ones. Pure.

Each parser names the expected form in a ValueError: "a number of seconds".
"""

from __future__ import annotations

import math
import os.path
import re
import signal
from collections.abc import Callable, Collection, Iterable
from typing import Final

from ascend_runner.platforms.node import MOST
from ascend_runner.text import LONGEST_DURATION, MOST_NUMBERS, RANK_DIGITS, is_whole_number, parse_numbers

SIZE_UNITS: Final = {unit: 1 << (10 * power) for power, unit in enumerate("BKMGTPE")}
SIZE: Final = r"(?i)(?P<number>[0-9]{1,20}(\.[0-9]{1,20})?) ?((?P<unit>[KMGTPE])(i?B)?|B)"
SECONDS_OF: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LARGEST_STATUS: Final = 255
OR_DURATION: Final = "or a duration such as 15m, 72h or 7d"
ALL: Final = "all"
NONE: Final = "none"
AUTO: Final = "auto"
OFF: Final = "off"
HOOKS: Final = ("before-start", "checkpoint", "slow", "hanging", "unhealthy", "after-attempt", "before-exit")
SIMULATED_NODES: Final = 250  # each needs an address of its own in one network of 24 bits
SIMULATED_RANKS: Final = 16  # the devices of the largest server that HCCL accepts
STEP_GROUPS: Final = ("step", "seconds", "ms", "hardware", "e2e")  # see `training.steps.step_of`
FEWEST_LITERALS: Final = 3  # characters in a row
LONGEST_PATTERN: Final = 1000  # characters
# The parts of a regular expression: an escape, a character class, a repetition, any other character.
PATTERN_PART: Final = (
    r"\\(?:x[0-9A-Fa-f]{2}|[0-9]{1,3}|(?P<escaped>.))|\[\^?\]?(?:\\.|[^\]\\])*\]"
    r"|(?P<repeated>[*?]|\{\d*(?:,\d*)?\})|(?P<other>.)"
)


def switch(text: str) -> bool:
    """Parse a boolean, such as "1", "yes" or "off"."""
    if text.lower() in {"1", "true", "yes", "on"}:
        return True
    if text.lower() in {"0", "false", "no", "off"}:
        return False
    raise ValueError("1 or 0")


def path(text: str) -> str:
    """Read a path, which cannot contain NUL."""
    if not text or "\0" in text:
        raise ValueError("a path")
    return text


def job_name(text: str) -> str:
    """Read a name that file names and shells accept as it is."""
    if not re.fullmatch(r"\w[\w.+@-]*", text):
        raise ValueError("letters, digits and any of _.+@-, beginning with a letter, a digit or _")
    return text


def directory_or(*words: str) -> Callable[[str], str]:
    """Return a parser for a directory that also accepts some words."""

    def parse(text: str) -> str:
        if not text or "\0" in text:
            raise ValueError(f"{', '.join(map(repr, words))} or a directory")
        return text

    return parse


def seconds(text: str) -> float:
    """Read a duration in seconds, with or without a unit."""
    number = _duration(text)
    if not number >= 0:
        raise ValueError(f"a number of seconds, 0 or more, {OR_DURATION}")
    return number


def positive_seconds(text: str) -> float:
    """Read a duration in seconds that is not zero."""
    number = _duration(text)
    if not number > 0:
        raise ValueError(f"a number of seconds above 0, {OR_DURATION}")
    return number


def _duration(text: str) -> float:
    """Read a number with or without a unit; NaN if the text is something else."""
    digits, unit = (text[:-1], SECONDS_OF[text[-1]]) if text[-1:] in SECONDS_OF else (text, 1)
    try:
        number = float(digits) * unit
    except ValueError:
        return math.nan
    if number > LONGEST_DURATION:
        raise ValueError("a duration of at most 10 years")
    return number


def seconds_or_auto(text: str) -> float | str:
    """Read a duration that is not zero; "auto" and "off" stay."""
    try:
        return text if text in {AUTO, OFF} else positive_seconds(text)
    except ValueError as error:
        raise ValueError(f"'{AUTO}', '{OFF}' or {error}") from None


def number(text: str) -> int:
    """Read a whole number, 0 or more."""
    if not is_whole_number(text, RANK_DIGITS):
        raise ValueError(f"a whole number from 0 to {MOST_NUMBERS - 1}")
    return int(text)


def count(text: str, most: int = MOST_NUMBERS - 1) -> int:
    """Read a whole number, 1 or more."""
    if not is_whole_number(text, RANK_DIGITS) or not 1 <= int(text) <= most:
        raise ValueError(f"a whole number from 1 to {most}")
    return int(text)


def devices(text: str) -> int:
    """Read the number of devices of a node, with the limit of the platforms' variables: each rank takes some memory."""
    return count(text, MOST)


def grid(text: str) -> tuple[int, int]:
    """Read a number of simulated nodes, and of ranks on each: "4x8"."""
    nodes, _, ranks = text.partition("x")
    is_valid = is_whole_number(nodes, RANK_DIGITS) and is_whole_number(ranks, RANK_DIGITS)
    if not is_valid or not 1 <= int(nodes) <= SIMULATED_NODES or not 1 <= int(ranks) <= SIMULATED_RANKS:
        raise ValueError(f"1 to {SIMULATED_NODES} nodes and 1 to {SIMULATED_RANKS} ranks on each of them, such as 4x8")
    return int(nodes), int(ranks)


def size(text: str) -> int:
    """Read a number of bytes with a unit: "500M", "1.5 GiB". All units are powers of 1024."""
    if text == "0":
        return 0
    found = re.fullmatch(SIZE, text)
    if not found:
        raise ValueError("a size with a unit, such as 500M or 1.5G, or 0 for no limit")
    number, unit = found["number"], (found["unit"] or "B").upper()
    return math.ceil(float(number) * SIZE_UNITS[unit])


def statuses(text: str) -> frozenset[int]:
    """Read exit statuses and signals as exit statuses: "2,SIGSEGV" is 2 and 139."""
    if text == NONE:
        return frozenset()
    return frozenset(map(_status, text.split(",")))


def _status(word: str) -> int:
    name = word.strip().upper()
    found = signal.Signals.__members__.get(name if name.startswith("SIG") else f"SIG{name}")
    if found:
        return 128 + found
    if not is_whole_number(name, RANK_DIGITS) or not 1 <= int(name) <= LARGEST_STATUS:
        raise ValueError("exit statuses from 1 to 255 and names of signals, such as 2,SIGSEGV")
    return int(name)


def ranks(text: str) -> frozenset[int] | None:
    """Read a set of ranks; None: all of them."""
    if text == ALL:
        return None
    if text == NONE:
        return frozenset()
    try:
        return frozenset(parse_numbers(text))
    except ValueError:
        raise ValueError(f"'{ALL}', '{NONE}' or ranks such as '0,8-15'") from None


def rank_or_none(text: str) -> int | None:
    """Read a rank, or "none" as None."""
    if text == NONE:
        return None
    if not is_whole_number(text, RANK_DIGITS):
        raise ValueError(f"'{NONE}' or a rank, 0 or more")
    return int(text)


def one_of(choices: Collection[str]) -> Callable[[str], str]:
    """Return a parser that accepts these words only."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return parse


def signal_of(choices: Collection[str]) -> Callable[[str], str]:
    """Return a parser that accepts these names of signals, with or without SIG in front."""
    parse_word = one_of(choices)

    def parse(text: str) -> str:
        return parse_word(text.removeprefix("SIG"))

    return parse


def one_or_none(choices: Collection[str]) -> Callable[[str], str | None]:
    """Return a parser that accepts these words only, and returns None for "none"."""
    parse_word = one_of(choices)

    def parse(text: str) -> str | None:
        return None if parse_word(text) == NONE else text

    return parse


def stage(text: str) -> tuple[str, str]:
    """Read two absolute paths, separated by a colon, without their trailing slashes."""
    source, colon, folder = text.partition(":")
    if not (colon and os.path.isabs(source) and os.path.isabs(folder)) or ":" in folder or "\0" in text:
        raise ValueError("SRC:DST, two absolute paths without colons")
    return source.rstrip("/") or "/", folder.rstrip("/") or "/"


def hook(text: str) -> tuple[str, str]:
    """Read an event and the shell command to run then: "before-exit=cp ..."."""
    event, _equals, command = text.partition("=")
    if event not in HOOKS or not command.strip():
        raise ValueError(f"EVENT=CMD with a shell command CMD, and EVENT one of {', '.join(HOOKS)}")
    return event, command


def ratio(text: str) -> float:
    """Read a number between 0 and 1."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < 1:
        raise ValueError("a number above 0 and below 1, such as 0.3")
    return number


def hosts(text: str) -> tuple[tuple[str, int], ...]:
    """Read host names with their numbers of slots: "a,b:8". A host without a number has 0."""
    found: dict[str, int] = {}
    for entry in text.split(","):
        name, _, slots = entry.partition(":")
        is_name = name.isascii() and name.isprintable() and not set(name) & set(" /#=")
        if not name or not is_name or name in found or (":" in entry and not is_whole_number(slots, RANK_DIGITS)):
            raise ValueError("distinct host names, optionally with their numbers of devices, such as a,b or a:8,b:8")
        found[name] = int(slots or 0)
    return tuple(found.items())


def word(expected: str) -> Callable[[str], str]:
    """Return a parser that accepts one printable word without spaces."""

    def parse(text: str) -> str:
        if not text or not text.isprintable() or " " in text:
            raise ValueError(expected)
        return text

    return parse


def step_pattern(text: str) -> str:
    """Return a regular expression for lines about a step.

    Raises:
        ValueError: It is not valid; the message is the expected form.
    """
    if len(text) > LONGEST_PATTERN:
        raise ValueError(f"a regular expression of at most {LONGEST_PATTERN} characters")
    try:
        groups = re.compile(text.encode(errors="surrogateescape")).groupindex.keys()
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"a valid regular expression: {error}") from None
    if not groups or groups - set(STEP_GROUPS):
        named = ", ".join(STEP_GROUPS)
        raise ValueError(f"a regular expression with one or more of the named groups {named} and no others")
    if not fixed_text(text):
        raise ValueError(
            f"a regular expression with at least {FEWEST_LITERALS} fixed characters in a row outside of groups, such as"
            " 'step time'"
        )
    return text


def fixed_text(pattern: str) -> bytes:
    """Return the longest text that every match of a regular expression contains outside of groups; b"" without any.

    Text in groups may be optional, or one of several alternatives, so it is left out.
    """
    if re.search(r"\(\?[a-zA-Z]*[ix]", pattern):  # flags: letters of any case, or spaces and comments
        return b""
    runs, depth = [""], 0
    for part in re.finditer(PATTERN_PART, pattern, re.DOTALL):
        escaped, other = part["escaped"], part["other"]
        depth += {"(": 1, ")": -1}.get(other or "", 0)
        if depth:
            continue
        if other == "|":
            return b""
        if part["repeated"]:
            runs[-1] = runs[-1][:-1]  # the character may be missing
        literal = ""
        if other and other not in "()^$.+":
            literal = other
        elif escaped and not escaped.isalnum():
            literal = escaped
        runs[-1] += literal
        if not literal:
            runs.append("")
    longest = max(runs, key=len)
    return longest.encode(errors="surrogateescape") if len(longest) >= FEWEST_LITERALS else b""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the known word that an unknown one may stand for, in parentheses, or "" if none is near."""
    near = nearest(word, known)
    return f" (did you mean {near}?)" if near else ""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word nearest to a word, else one that begins with it, or "" if there is neither."""
    import difflib  # noqa: PLC0415  3 ms that only a mistake needs

    words = sorted(known)
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.75)
    return next(iter([*near, *(longer for longer in words if longer.startswith(f"{word}-"))]), "")
