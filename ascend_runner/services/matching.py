"""Searches lines for the user's regular expression, in a child process that can be killed within a search.

Python's `re` may take exponential time, and holds the interpreter's lock meanwhile: 26 letters can take 4 seconds.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Optional

from ascend_runner.settings.parsing import fixed_text

CPU_LIMIT: Final = 1.0  # seconds of CPU time for a search
ANSWER_LIMIT: Final = 30.0  # seconds for an answer, and for the start of the child; a machine may be overloaded
MOST_AT_ONCE: Final = 16  # lines of a request, so that an answer takes less than ANSWER_LIMIT

Match = Optional[Mapping[str, bytes]]  # the groups of the expression in a line that it matches


class Matcher:
    """The user's expression, while it is in use, and the child that searches for it, once a line may match."""

    def __init__(self, pattern: str | None, warn: Callable[[str], object]) -> None:
        self.pattern = pattern or ""  # "": there is none, or it was given up
        self.literal = fixed_text(self.pattern)  # a text in every line that it matches
        self._warn = warn
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def search(self, lines: Sequence[bytes]) -> list[Match]:
        """Return the match of each line. At most MOST_AT_ONCE lines may be passed, without their ends.

        An expression that takes too long is given up, and matches none of the lines.
        """
        matches: list[Match] = [None] * len(lines)
        numbers = [i for i, line in enumerate(lines) if self.pattern and self.literal in line]
        try:
            answers = self._ask([lines[i] for i in numbers]) if numbers else []
        except OSError as error:
            self.give_up(str(error))
            return matches
        for i, groups in zip(numbers, answers):
            if groups is not None:
                matches[i] = {name: value.encode("latin-1") for name, value in groups.items()}
        return matches

    def give_up(self, why: str) -> None:
        """Stop using the expression, with a warning the first time."""
        with self._lock:
            if self._is_closed or not self.pattern:
                return
            self._end_child()
            pattern, self.pattern = self.pattern, ""
        self._warn(f"--perf-pattern '{pattern}' is no longer used: {why}")

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

    def _ask(self, lines: Sequence[bytes]) -> list[Mapping[str, str] | None]:
        """Let the child search lines, and return the groups of each match.

        Raises:
            OSError: There is no answer.
        """
        child = self._started_child()
        if not (child and child.stdin and child.stdout):
            return []
        child.stdin.write(json.dumps([line.decode("latin-1") for line in lines]).encode() + b"\n")
        child.stdin.flush()
        poll = select.poll()
        poll.register(child.stdout, select.POLLIN)
        answer = child.stdout.readline() if poll.poll(ANSWER_LIMIT * 1000) else b""
        if not answer.endswith(b"\n"):
            raise TimeoutError(f"a search took more than {CPU_LIMIT:g} s")
        answers: list[Mapping[str, str] | None] = json.loads(answer)
        return answers

    def _started_child(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._is_closed or self._child:
                return self._child
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", program(self.pattern)],
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


def program(pattern: str) -> str:
    """Return the program of the child; it is on its own, since importing the package would take longer."""
    source = inspect.getsource(answer_requests)
    return f"import json, re, signal, sys\n\n{source}\nanswer_requests({os.fsencode(pattern)!r}, {CPU_LIMIT})\n"


def answer_requests(pattern: bytes, seconds: float) -> None:
    """Answer requests, lines on stdin, in the child. The kernel kills it if a search takes longer in CPU time."""
    expression = re.compile(pattern)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for request in sys.stdin:
        answers = []
        for line in json.loads(request):
            signal.setitimer(signal.ITIMER_PROF, seconds)
            match = expression.search(line.encode("latin-1"))
            found = match.groupdict() if match else {}
            answer = {name: value.decode("latin-1") for name, value in found.items() if value is not None}
            answers.append(answer if match else None)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        sys.stdout.write(json.dumps(answers) + "\n")
        sys.stdout.flush()
