"""The datasets that are copied to this node before its ranks start: where the ranks find the copies. Pure."""

from __future__ import annotations

import os.path
import re
from collections.abc import Sequence
from typing import Final

import attrs

from ascend_runner.errors import SettingsError
from ascend_runner.text import counted

PLACEHOLDER: Final = re.compile(r"\{stage:([0-9]+)\}")


@attrs.frozen
class Stage:
    """A dataset to copy from `source` into the directory `folder`; `name` is that of a single file, else ""."""

    source: str
    folder: str
    name: str = ""

    @property
    def place(self) -> str:
        """The copy: the directory, or the file in it."""
        return os.path.join(self.folder, self.name) if self.name else self.folder

    @property
    def top(self) -> str:
        """The directory in the source that becomes `folder`."""
        return os.path.dirname(self.source) if self.name else self.source


@attrs.frozen(kw_only=True)
class Staged:
    """The result of a stage. `size` is in bytes, `copied` those that were not there before; `seconds` include waits."""

    source: str
    place: str
    files: int
    size: int
    copied: int
    seconds: float


def without_place(command: Sequence[str]) -> str:
    """Return a warning about a placeholder without a stage, or "" if there is none or another runner may replace it."""
    found = next(filter(None, map(PLACEHOLDER.search, command)), None)
    if not found or any(word.startswith("--stage") for word in command):
        return ""
    return f"the command contains {found[0]}, which is passed on unchanged because --stage is not set"


def with_places(command: Sequence[str], stages: Sequence[Stage]) -> tuple[str, ...]:
    """Return a command with the place of each stage instead of its placeholder {stage:N}.

    Without a stage the command stays as it is: the placeholder may be meant for a runner inside it.

    Raises:
        SettingsError: There is no stage of this number.
    """

    def place(found: re.Match[str]) -> str:
        number = int(found[1])
        if number >= len(stages):
            last = len(stages) - 1
            known = f"{{stage:0}} to {{stage:{last}}}" if last else "{stage:0}"
            times = counted(len(stages), "time") if last else "once"
            raise SettingsError(f"the command contains {found[0]}, but --stage is set only {times}: use {known}")
        return stages[number].place

    return tuple(PLACEHOLDER.sub(place, word) for word in command) if stages else tuple(command)
