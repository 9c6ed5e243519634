"""The node that is inspected, and how its tools are run. A tool that hangs is killed, and its error text is masked."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from typing import Final

import attrs

from ascend_runner.errors import reason
from ascend_runner.host import bounded, executables
from ascend_runner.host.host import Host
from ascend_runner.secrets import Masker
from ascend_runner.supervision.events import Ending
from ascend_runner.text import last_lines

LONGEST_ERROR: Final = 200  # characters that a sentence takes from a tool's error text
MOST_ERROR_TEXT: Final = 1 << 16  # characters at its end that are searched for secrets


class UnusableError(Exception):
    """A probe does not work on this node. Its message is the reason, or "" if there is nothing to report."""


@attrs.frozen(kw_only=True)
class Place:
    """A directory that the job writes to; `name` describes it in messages."""

    name: str
    path: str


@attrs.frozen(kw_only=True)
class Node:
    """The node to inspect. `device_ids` are the NPUs of the job; without any, all that npu-smi lists are inspected."""

    host: Host
    environ: Mapping[str, str]
    device_ids: tuple[int, ...] = ()
    places: tuple[Place, ...] = ()
    seconds: float = 10.0  # the limit for each probe
    has_peers: bool = False  # whether ranks on other nodes need the links from the beginning

    def tool(self, name: str, folders: tuple[str, ...]) -> str:
        """Return the path of a tool.

        Raises:
            UnusableError: It is not installed.
        """
        search_path = self.environ.get("PATH", os.defpath).split(os.pathsep)
        found = executables.find_tool(name, (*search_path, *map(self.host.path, folders)))
        if not found:
            raise UnusableError
        return found


@attrs.define
class Tool:
    """A tool that a probe runs. All its runs in one round share the time of the probe."""

    node: Node
    path: str
    _ends: float = attrs.field(init=False, default=0.0)

    def begin(self) -> None:
        """Begin a round, with new time."""
        self._ends = time.monotonic() + self.node.seconds

    def ask(self, *arguments: str) -> str:
        """Run the tool, and return its output. See `call`."""
        return self.call(*arguments).stdout

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the tool.

        Raises:
            TimeoutError: It does not respond.
            UnusableError: It cannot be run.
        """
        try:
            answer = bounded.run([self.path, *arguments], self._ends - time.monotonic(), self.node.environ)
        except OSError as error:
            raise UnusableError(f"cannot run {self.path}: {reason(error)}") from error
        if answer is None:
            raise TimeoutError
        return answer


def failure(answer: subprocess.CompletedProcess[str]) -> str:
    """Return how a tool failed, such as "exit status 1 (no permission)", or "" if it exited with 0."""
    if not answer.returncode:
        return ""
    last = last_line(answer)
    return f"{Ending.of(answer.returncode)}{f' ({last})' if last else ''}"


def last_line(answer: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of a tool's error text, or else of its output, with secrets masked."""
    text = answer.stderr if answer.stderr.strip() else answer.stdout
    lines = last_lines(Masker().data(text[-MOST_ERROR_TEXT:].encode()))
    return lines[-1].strip()[:LONGEST_ERROR] if lines else ""
