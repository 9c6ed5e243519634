"""The command line that runs one rank alone again, for a shell. Pure text; nothing here is ever run."""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final

from .secrets import mask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .plan import RankSpec


PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-")


def rerun_command(spec: RankSpec, environ: Mapping[str, str]) -> str:
    """Give one line for bash: into the rank's folder, with the variables that the runner changed, its command.

    `environ` is the caller's environment: what the rank inherited unchanged from it is left out. Secrets are masked.
    """
    changed = {name: value for name, value in spec.env.items() if environ.get(name) != value}
    removed = [f"-u {_quoted(name)}" for name in sorted(environ) if name not in spec.env]
    assigned = [_quoted(f"{name}={value}") for name, value in sorted(mask(changed).items())]
    words = [f"cd {_quoted(spec.cwd)}", "&&", "env", *removed, *assigned, *map(_quoted, spec.argv)]

    return " ".join(words)


def _quoted(word: str) -> str:
    """Quote a word. Control characters and bytes that are no text are spelled out, so that the line stays one line."""
    if word and PLAIN.issuperset(word):
        return word
    if word.isprintable():
        import shlex  # rarely

        return shlex.quote(word)

    spelled = "".join(map(_spelled, word.encode(errors="surrogateescape")))
    return f"$'{spelled}'"


def _spelled(byte: int) -> str:
    is_plain = chr(byte).isascii() and chr(byte).isprintable() and chr(byte) not in "'\\"
    return chr(byte) if is_plain else f"\\x{byte:02x}"
