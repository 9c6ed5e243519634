"""What a probe is given and what it finds: the node and its tools, and the defects of the node.

`--check`, the pre-check and the inspection read the same findings. Knows neither the probes nor the readers.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Union

import attrs

from ascend_runner.errors import reason
from ascend_runner.node import bounded, npu_smi
from ascend_runner.node.host import Host
from ascend_runner.secrets import Masker
from ascend_runner.supervision.causes import Ending
from ascend_runner.text import last_lines

PROBE_LEEWAY: Final = 2.0  # seconds that a probe has in addition, to kill a tool that hangs
LONGEST_ERROR: Final = 200  # characters that a sentence takes from a tool's error text
MOST_ERROR_TEXT: Final = 1 << 16  # characters at its end that are searched for secrets


@attrs.frozen
class Defect:
    """A defect of this node."""

    sentence: str  # also true when it is shown later: "..., 41 s before"
    remedy: str = ""
    is_error: bool = attrs.field(default=False, kw_only=True)
    may_pass: bool = attrs.field(default=False, kw_only=True)  # it often disappears by itself within a minute
    # Identifies it in each round of an inspection.
    subject: str = attrs.field(default=attrs.Factory(lambda self: self.sentence, takes_self=True), kw_only=True)


Finding = Union[str, Defect]  # a good result is a sentence
Findings = Iterator[Finding]


class UnusableError(Exception):
    """A probe does not work on this node. Its message is the reason, or "" if there is nothing to report."""

    def __init__(self, sentence: str = "", *, is_error: bool = False) -> None:
        super().__init__(sentence)
        self.is_error = is_error  # whether a job would fail on a node like this


@attrs.frozen(kw_only=True)
class Place:
    """A directory that the job writes to; `name` describes it in messages."""

    name: str
    path: str
    remedy: str = ""  # against a lack of space


def places(log_dir: str, checkpoint_dir: str, workdir: str = "") -> tuple[Place, ...]:
    """Return the directories that a job writes to; "" is left out."""
    room = "free some space, or use another"
    found = (
        Place(name="log directory", path=log_dir, remedy=f"{room} --log-dir"),
        Place(name="working directory", path=workdir, remedy=f"{room} --workdir"),
        Place(name="checkpoint directory", path=checkpoint_dir, remedy=f"{room} --checkpoint-dir"),
        Place(
            name="shared memory",
            path="/dev/shm",  # noqa: S108  only measured
            remedy="increase it: mount an emptyDir with medium Memory at /dev/shm, or use docker --shm-size",
        ),
    )
    return tuple(place for place in found if place.path)


@attrs.frozen(kw_only=True)
class Node:
    """This node, and what a job needs of it."""

    host: Host
    environ: Mapping[str, str]
    seconds: float = 10.0  # the limit for each probe; a healthy npu-smi takes 1 s for 8 NPUs
    is_running: bool = False  # whether the ranks run, and use NPUs and ports themselves
    ranks: int = 0  # on this node (0: unknown)
    npus: int = 0  # that they need (0: none, or unknown)
    assigned: tuple[int, ...] = ()  # the NPUs that the rank table assigns to them
    device_ids: tuple[int, ...] = ()  # the NPUs that they use; without any, all that npu-smi lists are inspected
    has_peers: bool = False  # whether ranks on other nodes need the links from the beginning
    peers: tuple[str, ...] = ()  # the names of all nodes, as far as they are known
    places: tuple[Place, ...] = ()
    ports: Mapping[int, str] = {}  # ports that the ranks will listen on, with their users

    def tool(self, name: str) -> Tool:
        """Return a tool of the driver for one look of a probe.

        Raises:
            UnusableError: It is not installed.
        """
        path = npu_smi.find(self.host, self.environ, name)
        if not path:
            raise UnusableError
        return Tool(path, self.environ, time.monotonic() + self.seconds)


@attrs.frozen
class Tool:
    """A tool that a probe runs. One that hangs is killed: all runs of one look share the time until `ends`."""

    path: str
    environ: Mapping[str, str]
    ends: float

    def ask(self, *arguments: str) -> str:
        """Run the tool, and return its output. See `run`."""
        return self.run(*arguments).stdout

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the tool.

        Raises:
            TimeoutError: It does not respond.
            UnusableError: It cannot be run.
        """
        try:
            answer = bounded.run([self.path, *arguments], self.ends - time.monotonic(), self.environ)
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


@attrs.define(kw_only=True)
class Probe:
    """One aspect of this node, and its readers. If a look hangs, its thread is left alone and none is added."""

    source: str  # what is looked at, such as "npu-smi"
    look: Callable[[], Findings]  # may raise TimeoutError if a tool hangs, and UnusableError
    subject: str = ""  # in `--check` ("": a single look finds nothing, because only changes are defects)
    heading: str = ""  # before its good results
    remedy: str = ""  # if it does not respond, or does not work
    is_steady: bool = False  # ranks do not change it by starting, as they do ports and the use of NPUs
    is_watched: bool = False  # it is inspected while ranks run
    _is_looking: bool = attrs.field(init=False, default=False)
    _result: tuple[Finding, ...] | UnusableError | TimeoutError = attrs.field(init=False, default=())

    def ask(self, seconds: float) -> tuple[Finding, ...]:
        """Look once, and return what is found.

        Raises:
            TimeoutError: It takes longer than `seconds`, or a tool does not respond.
            UnusableError: The probe does not work on this node.
        """
        if self._is_looking or not bounded.call(seconds, self._look):
            raise TimeoutError
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def _look(self) -> None:
        self._is_looking = True
        try:
            self._result = tuple(self.look())
        except (UnusableError, TimeoutError) as error:
            self._result = error
        except (OSError, ValueError, LookupError, TypeError) as error:  # caused by an unexpected file or output
            self._result = UnusableError(f"{self.source} cannot be read: {error!r}")
        self._is_looking = False
