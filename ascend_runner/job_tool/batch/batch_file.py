"""A file of commands to run one after the other, and the file beside it that has the result of each command.

A command is identified by its words, so the file may be edited between two runs: what has succeeded stays so.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError, SettingsError, UnreadableError, reason
from ascend_runner.settings import command_line
from ascend_runner.settings.model import decode

LARGEST: Final = 1 << 20  # bytes of a file of commands
PROGRAM: Final = "ascend-runner"  # a line may begin with it
LOG_DIR: Final = "ASCEND_RUNNER_LOG_DIR"
JOB_NAME: Final = "ASCEND_RUNNER_JOB_NAME"


@attrs.frozen(kw_only=True)
class Result:
    """The result of a command; `seconds` is how long it ran. `cause` is "" after a success."""

    status: int
    state: str
    seconds: float
    cause: str = ""


@attrs.frozen(kw_only=True)
class Entry:
    """A command of the file: `number` distinguishes its logs, `line` is its line in the file."""

    number: int
    line: int
    words: tuple[str, ...]
    result: Result | None = None

    @property
    def text(self) -> str:
        """The command as a shell would read it."""
        return shlex.join(self.words)

    @property
    def has_succeeded(self) -> bool:
        """Whether it need not run again."""
        return self.result is not None and self.result.status == 0


@attrs.frozen
class BatchFile:
    """A file of commands at `path`."""

    path: str

    @property
    def state_path(self) -> str:
        """The file with the results of the commands."""
        return f"{self.path}.state.json"

    def variables(self, number: int) -> dict[str, str]:
        """Return the variables of a command: its logs are beside the file, in a directory of their own."""
        base = os.path.splitext(os.path.abspath(self.path))[0]
        name = re.sub(r"[^\w.+@-]", "_", f"{os.path.basename(base)}-{number}").lstrip(".+@-")
        return {LOG_DIR: f"{base}-{number}", JOB_NAME: name}

    def log_dir(self, entry: Entry, environ: Mapping[str, str]) -> str:
        """Return the log directory of a command, without the path if it is beside the file."""
        own = self.variables(entry.number)
        log_dir = decode(command_line.parse(entry.words).values, {**environ, **own}).log_dir or ""
        return os.path.basename(log_dir) if log_dir == own[LOG_DIR] else log_dir

    def read(self, environ: Mapping[str, str]) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
        """Return the commands with their results so far, and a sentence for each line that is wrong.

        Raises:
            UnreadableError: A file cannot be read.
            SettingsError: There are no commands, or the file beside it is another one.
        """
        commands: list[tuple[int, tuple[str, ...]]] = []
        problems: list[str] = []
        for number, line in enumerate(self._lines(), start=1):
            try:
                words = _words(line, {**environ, **self.variables(number)})
            except AscendRunnerError as error:
                problems.append(f"{self.path}, line {number}: {error}")
            else:
                commands += [(number, words)] if words else []
        if not (commands or problems):
            raise SettingsError(f"{self.path!r} has no commands")
        return self._entries(commands), tuple(problems)

    def write(self, entries: Sequence[Entry]) -> None:
        """Write the results so far.

        Raises:
            OutputError: That is not possible.
        """
        done = [
            {"number": entry.number, "words": entry.words, **attrs.asdict(entry.result)}
            for entry in entries
            if entry.result
        ]
        files.write_atomically(self.state_path, json.dumps(done, indent=1).encode() + b"\n")

    def _lines(self) -> list[str]:
        try:
            with open(self.path, "rb") as file:
                content = file.read(LARGEST + 1)
        except OSError as error:
            raise UnreadableError(f"cannot read {self.path!r}: {reason(error)}") from error
        if len(content) > LARGEST:
            raise UnreadableError(f"cannot read {self.path!r}: it has more than {LARGEST >> 20} MiB")
        return os.fsdecode(content).split("\n")  # not splitlines(): a form feed does not end a line

    def _entries(self, commands: Sequence[tuple[int, tuple[str, ...]]]) -> tuple[Entry, ...]:
        """Number the commands by their place in the file, unless the number is that of another one's logs."""
        known: dict[tuple[str, ...], list[tuple[int, Result]]] = {}
        for number, words, result in self._remembered():
            known.setdefault(words, []).append((number, result))
        found = [(line, words, known[words].pop(0) if known.get(words) else None) for line, words in commands]
        taken = {before[0] for _line, _words, before in found if before}
        entries: list[Entry] = []
        for place, (line, words, before) in enumerate(found, start=1):
            number, last = before or (place, None)
            if before is None and place in taken:
                number = max({*taken, len(found)}) + 1
            taken.add(number)
            entries.append(Entry(number=number, line=line, words=words, result=last))
        return tuple(entries)

    def _remembered(self) -> list[tuple[int, tuple[str, ...], Result]]:
        try:
            with open(self.state_path, "rb") as file:
                document = json.loads(file.read(LARGEST * 16))
            return [
                (
                    int(one["number"]),
                    tuple(map(str, one["words"])),
                    Result(
                        status=int(one["status"]),
                        state=str(one["state"]),
                        seconds=float(one["seconds"]),
                        cause=str(one["cause"]),
                    ),
                )
                for one in document
            ]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UnreadableError(f"cannot read {self.state_path!r}: {reason(error)}") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise SettingsError(
                f"{self.state_path!r} is not the state of a batch; remove it to run all commands"
            ) from error


def _words(line: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words of a line, none for an empty one or a comment.

    Raises:
        AscendRunnerError: `ascend-runner` would refuse them.
    """
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise SettingsError(str(error).lower()) from None
    if words[:1] == [PROGRAM]:
        del words[0]
    elif not words:
        return ()
    parsed = command_line.parse(words)
    if parsed.wants_help or parsed.wants_version or not parsed.command:
        raise SettingsError("no command given")
    command_line.check(parsed.command)
    decode(parsed.values, environ)
    return tuple(words)
