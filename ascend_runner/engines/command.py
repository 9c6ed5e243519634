"""Takes a Python command apart: interpreter, options, script or module, and its arguments."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from typing import Final

import attrs

from ascend_runner.errors import SettingsError

VALUED: Final = "cmWX"  # options of python(1) that take a value: the rest of the word, or the next word


@attrs.frozen
class PythonCommand:
    """A command that runs a Python script or module: `interpreter` `options` [-m] `target` `arguments`."""

    interpreter: str
    options: tuple[str, ...]
    is_module: bool
    target: str
    arguments: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The script, or -m and the module, and the arguments."""
        return (*(("-m",) if self.is_module else ()), self.target, *self.arguments)


def is_python(word: str) -> bool:
    """Whether a word is the name of a Python, with or without a path: python, python3, python3.9."""
    name = os.path.basename(word)
    return name.startswith("python") and not name[len("python") :].replace(".", "").strip("0123456789")


def python_command(argv: Sequence[str]) -> PythonCommand | None:
    """Take a Python command apart; None if it has no script or module (another program, or python -c)."""
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


def calls(argv: Sequence[str], program: str, module: str) -> bool:
    """Whether a command calls a program by its name, or as a script or module of Python.

    An argument with that name does not count: python train.py --engine torchrun.
    """
    command = python_command(argv)
    if command is None:
        return os.path.basename(argv[0]) == program

    return command.target == module if command.is_module else os.path.basename(command.target) == program


def refuse_python_options(command: PythonCommand, engine: str) -> None:
    """Refuse options for Python: an engine that starts the script itself would lose them.

    Raises:
        SettingsError: the command has options other than -u.
    """
    if {*command.options} - {"-u"}:
        raise SettingsError(
            f"the command has Python options ({' '.join(command.options)}), but only -u is supported: {engine}"
            " starts the script with its own options"
        )


def _cut(word: str) -> tuple[str, str, str]:
    """Split an option into its flags, the letter that takes a value, and the value: -u, -uWignore, -um, --version."""
    letter = next((letter for letter in word[1:] if letter in VALUED), "") if word[:2] != "--" else ""
    return word.partition(letter) if letter else (word, "", "")
