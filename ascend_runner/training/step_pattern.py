"""The user's regular expressions for lines about a step, and the text that preselects lines for them. Pure."""

from __future__ import annotations

import re
from typing import Final

GROUPS: Final = ("step", "seconds", "ms", "hardware", "e2e")  # see `steps.step_of`
FEWEST_LITERALS: Final = 3  # characters in a row
LONGEST_PATTERN: Final = 1000  # characters
# The parts of a regular expression: an escape, a character class, a repetition, any other character.
PART: Final = (
    r"\\(?:x[0-9A-Fa-f]{2}|[0-9]{1,3}|(?P<escaped>.))|\[\^?\]?(?:\\.|[^\]\\])*\]"
    r"|(?P<repeated>[*?]|\{\d*(?:,\d*)?\})|(?P<other>.)"
)


def parse(text: str) -> str:
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
    if not groups or groups - set(GROUPS):
        raise ValueError(f"a regular expression with one or more of the named groups {', '.join(GROUPS)} and no others")
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
    for part in re.finditer(PART, pattern, re.DOTALL):
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
