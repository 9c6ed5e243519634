"""Searches lines for the user's regular expressions, in a child process that can be killed within a search.

Python's `re` may take exponential time, and holds the interpreter's lock meanwhile.
"""

from __future__ import annotations

import inspect
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import attrs

from ascend_runner.services import matching_child
from ascend_runner.training.steps import fixed_text

CPU_LIMIT: Final = 1.0  # seconds of CPU time for a search
ANSWER_LIMIT: Final = 30.0  # seconds for an answer, and for the start of the child; a machine may be overloaded
MOST_AT_ONCE: Final = 16  # lines of a request, so that an answer takes less than ANSWER_LIMIT


@attrs.frozen
class Pattern:
    """An expression, and a text that is in every line that it matches."""

    text: str
    literal: bytes


Match = tuple[Pattern, Mapping[str, bytes]]  # an expression, and its groups in a line


class Matcher:
    """The expressions that are still in use, and the child that searches for them, once one is needed."""

    def __init__(self, patterns: Sequence[str], warn: Callable[[str], None]) -> None:
        self.patterns = tuple(Pattern(text, fixed_text(text)) for text in patterns)
        self._warn = warn
        self._child: subprocess.Popen[bytes] | None = None
        self._texts = tuple(patterns)  # as the child knows them
        self._lock = threading.Lock()
        self._is_closed = False

    def search(self, lines: Sequence[bytes]) -> list[Match | None]:
        """Return, for each line, the first expression that matches with its groups, or None if none does.

        At most MOST_AT_ONCE lines may be passed, without their ends. An expression that takes too long is given up, and
        matches none of the lines.
        """
        matches: list[Match | None] = [None] * len(lines)
        for pattern in self.patterns:
            numbers = [i for i, line in enumerate(lines) if matches[i] is None and pattern.literal in line]
            try:
                answers = self._ask(pattern, [lines[i] for i in numbers]) if numbers else []
            except OSError as error:
                self.give_up(pattern, str(error))
                continue
            for i, groups in zip(numbers, answers):
                if groups is not None:
                    matches[i] = (pattern, groups)
        return matches

    def give_up(self, pattern: Pattern, why: str) -> None:
        """Stop using an expression, with a warning the first time."""
        with self._lock:
            if self._is_closed or pattern not in self.patterns:
                return
            self._end_child()
        self.patterns = tuple(one for one in self.patterns if one is not pattern)
        self._warn(f"--perf-pattern '{pattern.text}' is no longer used: {why}")

    def stop(self) -> None:
        """Kill the child, and start no other one. A search in another thread ends then."""
        with self._lock:
            self._is_closed = True
            if self._child:
                self._child.kill()

    def close(self) -> None:
        """End the child. May be called twice."""
        self.stop()
        self._end_child()

    def _ask(self, pattern: Pattern, lines: Sequence[bytes]) -> list[Mapping[str, bytes] | None]:
        """Let the child search lines, and return the groups of each match.

        Raises:
            OSError: There is no answer.
        """
        child = self._started_child()
        if not (child and child.stdin and child.stdout):
            return []
        text = b"\n".join(lines)
        child.stdin.write(matching_child.REQUEST.pack(self._texts.index(pattern.text), len(text)) + text)
        child.stdin.flush()
        poll = select.poll()
        poll.register(child.stdout, select.POLLIN)
        answer = child.stdout.readline() if poll.poll(ANSWER_LIMIT * 1000) else b""
        if not answer.endswith(b"\n"):
            raise TimeoutError(f"a search took more than {CPU_LIMIT:g} s")
        return [
            None if groups is None else {name: value.encode("latin-1") for name, value in groups.items()}
            for groups in json.loads(answer)
        ]

    def _started_child(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._is_closed or self._child:
                return self._child
            self._child = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    "-c",
                    inspect.getsource(matching_child),
                    str(CPU_LIMIT),
                    *map(os.fsencode, self._texts),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            return self._child

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                with suppress(OSError):  # what could not be written is lost
                    if pipe:
                        pipe.close()
