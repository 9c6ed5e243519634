"""Which words of a command name a script that must exist where the command runs."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from typing import Final

INTERPRETERS: Final = ("python", "pypy", "bash", "sh", "dash", "zsh", "perl")  # prefixes of their names
VALUED: Final = frozenset({"-W", "-X", "-O", "-o"})  # options whose value is the next word
WITHOUT_SCRIPT: Final = frozenset({"-m", "-c"})


def relative_script(argv: Sequence[str]) -> str:
    """Return the relative path that a command runs: the command itself or an interpreter's script; "" if none."""
    if "/" in argv[0] and not os.path.isabs(argv[0]):
        return argv[0]
    program = os.path.basename(argv[0])
    if not program.startswith(INTERPRETERS):
        return ""

    words = iter(argv[1:])
    for word in words:
        if word in WITHOUT_SCRIPT:
            return ""
        if word in VALUED:
            next(words, None)
        elif not word.startswith("-"):
            return "" if os.path.isabs(word) else word
    return ""
