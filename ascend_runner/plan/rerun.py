"""Writes the shell command that runs one rank alone again. The runner itself never executes it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from ascend_runner.plan.job import RankSpec
from ascend_runner.plan.secrets import Masker

PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-")


def rerun_command(spec: RankSpec, environ: Mapping[str, str]) -> str:
    """Return one line for bash that enters the rank's working directory and runs its command with its variables.

    `environ` is the caller's environment; variables that the rank inherited unchanged are left out. Secrets are masked.
    """
    changed = {name: value for name, value in spec.env.items() if environ.get(name) != value}
    removed = [f"-u {_quoted(name)}" for name in sorted(environ) if name not in spec.env]
    assigned = [_quoted(f"{name}={value}") for name, value in sorted(Masker().variables(changed).items())]
    words = [f"cd {_quoted(spec.cwd)}", "&&", "env", *removed, *assigned, *map(_quoted, Masker().arguments(spec.argv))]

    return " ".join(words)


def _quoted(word: str) -> str:
    """Quote a word. Control characters and undecodable bytes are escaped, so that the line stays one line."""
    if word and PLAIN.issuperset(word):
        return word
    if word.isprintable():
        return shlex.quote(word)

    escaped = "".join(map(_escaped, word.encode(errors="surrogateescape")))
    return f"$'{escaped}'"


def _escaped(byte: int) -> str:
    is_plain = chr(byte).isascii() and chr(byte).isprintable() and chr(byte) not in "'\\"
    return chr(byte) if is_plain else f"\\x{byte:02x}"
