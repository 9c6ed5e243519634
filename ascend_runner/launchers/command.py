"""The words of a training command: what cannot be run without a shell, and what of a Python command is the script.

The command starts with an executable and is no shell line (the task-training platform's guide to run commands).
"""

from __future__ import annotations

import os.path

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple
from ascend_runner.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

SEPARATORS: Final = ("&&", "||")  # no program takes these as an argument; a lone ; or | some do
SHELL: Final = "expected a command and its arguments, or bash -c '...' around a line for a shell"
VALUED: Final = "cmWX"  # options of python(1) whose value is the rest of the word, else the next word


class PythonCommand(NamedTuple):
    """A command that runs a Python script or module: `interpreter` `options` [-m] `target` `arguments`."""

    interpreter: str
    options: tuple[str, ...]
    is_module: bool
    target: str
    arguments: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """What runs, as the interpreter takes it: the script or -m and the module, and the arguments."""
        return (*(("-m",) if self.is_module else ()), self.target, *self.arguments)


def check(argv: Sequence[str]) -> None:
    """Refuse what only a shell could run. Errors: SettingsError."""
    first, *others = argv
    name, equals, _ = first.partition("=")
    if equals and name.isidentifier():
        raise SettingsError(f"the command starts with {first!r}, which sets a variable for a shell: {SHELL}")
    # A path may have spaces in it, but hardly a separator.
    words = first.split() or [""]
    if len(words) > 1 and ("/" not in words[0] or {*words} & {*SEPARATORS}):
        raise SettingsError(f"the command starts with {first!r}, which is a line for a shell: {SHELL}")
    found = next((word for word in others if word in SEPARATORS), None)
    if found:
        raise SettingsError(f"the command has the word {found!r}, which joins commands in a shell: {SHELL}")


def is_python(word: str) -> bool:
    """Whether a word names a Python: python, python3, python3.9, with or without a path."""
    name = os.path.basename(word)
    return name.startswith("python") and not name[len("python") :].replace(".", "").strip("0123456789")


def python_command(argv: Sequence[str]) -> PythonCommand | None:
    """Take a Python command apart; None where there is no script or module in it (another program, python -c)."""
    if not is_python(argv[0]):
        return None

    options: list[str] = []
    words = list(argv[1:])
    while words and words[0].startswith("-") and words[0] != "-":
        flags, letter, value = _cut(words.pop(0))
        if letter == "c":
            return None
        if letter == "m":
            options += [flags] if flags != "-" else []
            words = [value, *words] if value else words
            return PythonCommand(argv[0], tuple(options), True, words[0], tuple(words[1:])) if words else None
        options.append(flags + letter + value)
        if letter and not value and words:
            options.append(words.pop(0))

    if not words or words[0] == "-":
        return None
    return PythonCommand(argv[0], tuple(options), False, words[0], tuple(words[1:]))


def _cut(word: str) -> tuple[str, str, str]:
    """Cut an option into its flags, the letter that takes a value, and the value: -u, -uWignore, -um, --version."""
    letter = next((letter for letter in word[1:] if letter in VALUED), "") if word[:2] != "--" else ""
    return word.partition(letter) if letter else (word, "", "")
