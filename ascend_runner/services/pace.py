"""Reads the lines of the ranks about their steps, and with --perf-* finds out when the training is slow.

The pump passes on what the ranks write. Its thread only searches for fixed texts that every line about a step contains;
another thread does the rest, and sleeps until there is such a line. The user's regular expression is searched for in a
child process that can be killed within a search: Python's `re` may take exponential time (4 s for 26 letters), and
holds the interpreter's lock meanwhile.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Final, Optional

import attrs

from ascend_runner.frameworks import env_patch
from ascend_runner.node import bounded, npu_smi, npus
from ascend_runner.node.host import Host
from ascend_runner.plan.spec import JobSpec
from ascend_runner.record.facts import Fact
from ascend_runner.settings.parsing import fixed_text
from ascend_runner.supervision import outliers
from ascend_runner.supervision.causes import Rule, Slowdown
from ascend_runner.supervision.performance import Performance
from ascend_runner.supervision.state import Phase, State
from ascend_runner.training.steps import FORMS, LONGEST, NO_STEP, Step, is_beside, is_other, joined, parse, step_of

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
                [sys.executable, "-I", "-S", "-c", _program(self.pattern)],
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


def _program(pattern: str) -> str:
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


# What is searched of the output of all ranks, in bytes a second, and at once after a pause: a flood is read in parts,
# so that it costs less than 1 % of a core. Steps that are lost in this way come too fast for a training.
RATE: Final = 1 << 19
BURST: Final = 1 << 18
SHORTEST_BURST: Final = 4 * LONGEST  # bytes for each rank, however many there are
MOST_LINES: Final = 100  # lines of one read: the newest ones
LINE_END: Final = re.compile(rb"[\r\n]")  # a progress bar ends a state with a carriage return


class LineTap:
    """Finds the lines about steps in the output of one rank. Used by the pump's thread only."""

    def __init__(self, literals: tuple[bytes, ...], put: Callable[[bytes], None], share: float) -> None:
        """`put` receives each line. `share` is the part of the limits that this rank has."""
        self._literals = literals
        self._put = put
        self._rate, self._burst = RATE * share, max(BURST * share, SHORTEST_BURST)
        self._allowed, self._at = self._burst, time.monotonic()
        self._rest = b""  # the beginning of an unfinished line

    def __call__(self, data: bytes) -> None:
        """Take what was read."""
        now = time.monotonic()
        self._allowed = min(self._burst, self._allowed + (now - self._at) * self._rate)
        self._at = now
        if len(data) > self._allowed:
            self._rest = b""
            if self._allowed < LONGEST:
                return
            data = data[-int(self._allowed) :].partition(b"\n")[2]
        self._allowed -= len(data)
        if self._rest:
            data = self._rest + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._rest = data[end : end + LONGEST]
        for literal in self._literals:
            if literal in data:
                self._put_lines(data[:end])
                return

    def _put_lines(self, data: bytes) -> None:
        lines = reversed(LINE_END.split(data))
        found = (line for line in lines if any(literal in line for literal in self._literals))
        for line in reversed([*islice(found, MOST_LINES)]):
            self._put(line[:LONGEST])


OPTIONS: Final = {Rule.RATIO: "--perf-threshold", Rule.DROP: "--perf-drop"}
NEEDED: Final = {
    Rule.RATIO: "reports hardware and end-to-end times",
    Rule.DROP: "reports a step",
}


class Unmatched:
    """The pattern and the figures that no line of an attempt has matched so far."""

    def __init__(self, job: JobSpec, matcher: Matcher, performance: Performance) -> None:
        """A pattern that `matcher` has given up is left out: there was a warning about it."""
        self._matcher, self._performance = matcher, performance
        self._has_match = not job.watching.perf_pattern
        # Most software prints its steps on the first or the last rank, so lines on other nodes need not match.
        ranks = {rank.rank_id for rank in job.ranks}
        self._is_expected = job.has_all_ranks or bool(ranks & {0, job.rank_size - 1})
        self._lines = "line of output" if job.has_all_ranks else "line of output on this node"

    def note(self, match: Match) -> None:
        """Record what was found in a line."""
        self._has_match = self._has_match or match is not None

    def sentence(self) -> str:
        """Name the pattern that no line has matched, and the options without effect; "" without any."""
        pattern = "" if self._has_match else self._matcher.pattern
        rules = self._performance.not_applied
        if not (self._is_expected and (pattern or rules)):
            return ""
        options = " and ".join(OPTIONS[rule] for rule in rules)
        verb = "have" if len(rules) > 1 else "has"
        if pattern:
            effect = f", so {options} {verb} no effect" if options else ""
            return f"no {self._lines} has matched --perf-pattern '{pattern}'{effect}"
        needed = " or ".join(NEEDED[rule] for rule in rules)
        return f"{options} {verb} no effect: no {self._lines} {needed} in a known format (--perf-pattern adds one)"


MOST_WAITING: Final = 1000  # lines
PAUSE: Final = 0.75  # seconds in which lines are collected, so that one step of all ranks costs one wake-up
CLOSE_LIMIT: Final = 2.0  # seconds for the thread to end
CHECK_AFTER: Final = 1800.0  # seconds until a line must have matched; graphs may be compiled for almost as long
NPU_SMI_LIMIT: Final = 5.0  # seconds

# Takes the time, the number of a step, the number of all steps, and the seconds of a step; see `live.Live.note_step`.
ShowStep = Callable[[float, Optional[int], Optional[int], Optional[float]], None]


@attrs.frozen
class _Line:
    rank_id: int
    text: bytes
    at: float  # in seconds of the monotonic clock


class StepReader:
    """Reads the steps of one attempt, until its ranks are to be stopped. An observer of the manager's facts.

    `pass_on` is called for each finding, and `show_step` with the time and the figures of each step, both in a thread.
    """

    def __init__(
        self,
        job: JobSpec,
        devices: Devices,
        warn: Callable[[str], None],
        *,
        pass_on: Callable[[Slowdown], None] = lambda _slow: None,
        show_step: ShowStep = lambda *_figures: None,
    ) -> None:
        self._devices, self._pass_on, self._show_step = devices, pass_on, show_step
        self._specs = {spec.rank_id: spec for spec in job.processes}
        performance = Performance(threshold=job.watching.perf_threshold, drop=job.watching.perf_drop)
        self._performance = performance if job.watching.watches_performance else None
        self._matcher = Matcher(job.watching.perf_pattern, warn)
        self._unmatched = Unmatched(job, self._matcher, performance)
        self._warn = warn
        self._lines: queue.SimpleQueue[_Line | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._hurry = threading.Event()  # no more lines are collected
        self._is_check_due = False
        self._is_checked = threading.Event()
        self._has_succeeded = False
        self._thread: threading.Thread | None = None
        self.pause = PAUSE
        self.check_at = time.monotonic() + CHECK_AFTER if self._performance else math.inf
        self._last = Step()
        self._last_at = 0.0  # in seconds since the epoch
        self._of_ranks: dict[int, Step] = {}  # the last step of each rank

    def start(self) -> None:
        """Start the thread.

        Raises:
            AscendRunnerError: The limit of processes is reached.
        """
        self._thread = bounded.start_thread(self._run)

    def tap(self, rank_id: int) -> Callable[[bytes], None]:
        """Return a function that takes the output of a rank, in the pump's thread."""
        own = [self._matcher.literal] if self._matcher.pattern else []
        literals = (*own, *(form.literal for form in FORMS))

        def put(line: bytes) -> None:
            if self.waiting < MOST_WAITING:
                self._lines.put(_Line(rank_id, line, time.monotonic()))

        find_lines = LineTap(tuple(dict.fromkeys(literals)), put, 1 / len(self._specs))

        def take(data: bytes) -> None:
            find_lines(data)
            if time.monotonic() >= self.check_at:
                self.check_at = math.inf
                self._check()

        return take

    def observe(self, fact: Fact, _at: float) -> None:
        """Stop as soon as the ranks are to be stopped. A final state without a cause is a success."""
        if isinstance(fact, State):
            self._has_succeeded = fact.phase is Phase.DONE and not fact.cause
            if fact.cause or (fact.is_tearing_down and not self._has_succeeded):
                self.stop()

    @property
    def waiting(self) -> int:
        """The number of lines that were found but not read yet."""
        return self._lines.qsize()

    def last_step(self) -> Mapping[str, object] | None:
        """Return the last figures of a step for the report, or None before the first ones."""
        if not self._last_at:
            return None
        return {**self._last.figures(), "at": self._last_at}

    def behind_others(self, running: Collection[int]) -> str:
        """Name the running ranks that are behind: "rank 5 is 18 steps behind the others"; "" without any."""
        of_ranks = ((rank_id, one) for rank_id, one in self._of_ranks.copy().items() if not one.is_other)
        steps = {rank_id: one.step for rank_id, one in of_ranks if rank_id in running and one.step is not None}
        return outliers.behind_sentence(outliers.behind(steps), steps)

    def stop(self) -> None:
        """Read no more, and kill the child process if there is one. May be called twice."""
        self._closing.set()
        self._hurry.set()
        self._is_checked.set()
        self._matcher.stop()
        self._lines.put(None)

    def close(self) -> None:
        """Stop, and release everything. May be called twice.

        The lines of a success are read to their end, if none of them has matched so far.
        """
        if self._has_succeeded and self._thread and self._performance and self._unmatched.sentence():
            self._hurry.set()
            self._check()
            self._is_checked.wait(CLOSE_LIMIT)
        self.stop()
        if self._thread:
            self._thread.join(CLOSE_LIMIT)
        if not (self._thread and self._thread.is_alive()):
            self._matcher.close()

    def _check(self) -> None:
        """Let the thread check, after the lines that are waiting, whether any line has matched."""
        self._is_check_due = True
        self._lines.put(None)

    # --- In the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.is_set():
            lines = self._next_lines()
            for line, match in zip(lines, self._matcher.search([line.text for line in lines])):
                self._unmatched.note(match)
                step = parse(line.text) if match is None else self._step(match)
                if step and self._note(step, line):
                    for slow in self._performance.note(line.rank_id, step, line.at) if self._performance else ():
                        self._pass_on(self._placed(slow))
            if self._is_check_due and not self.waiting:
                self._is_check_due = False
                sentence = self._unmatched.sentence()
                if sentence:
                    self._warn(sentence)
                self._is_checked.set()

    def _next_lines(self) -> list[_Line]:
        """Wait for a line, collect others for a moment, and return all lines that can be read at once."""
        lines = [self._lines.get()]
        if self.waiting < MOST_AT_ONCE:
            self._hurry.wait(self.pause)
        with suppress(queue.Empty):
            while len(lines) < MOST_AT_ONCE:
                lines.append(self._lines.get_nowait())
        return [line for line in lines if line]

    def _step(self, groups: Mapping[str, bytes]) -> Step | None:
        try:
            return step_of(groups)
        except ValueError:
            texts = (f"{name} is {value.decode(errors='replace')!r}" for name, value in groups.items())
            self._matcher.give_up(f"a group is not a number: {', '.join(texts)}")
            return None

    def _note(self, step: Step, line: _Line) -> bool:
        """Update the figures found in a line; return whether it is about the training."""
        own = self._of_ranks.get(line.rank_id, NO_STEP)  # ranks may have different numbers of batches
        is_training = not is_beside(step, own)
        if is_training:
            self._of_ranks[line.rank_id] = joined(own, step)
            self._last = self._last if is_other(step, self._last) else joined(self._last, step)
        self._last_at = time.time()
        self._show_step(line.at, self._last.step, self._last.steps, self._last.seconds)
        return is_training

    def _placed(self, slow: Slowdown) -> Slowdown:
        """Return a finding with the name of its process, and the NPU of a straggler."""
        spec = self._specs[slow.rank_id]
        slow = attrs.evolve(slow, name=spec.name)
        if slow.rule is not Rule.STRAGGLER:
            return slow
        temperature = None if slow.is_over else self._devices.temperature(spec.local_rank, self._closing.is_set)
        return attrs.evolve(slow, device=spec.local_rank, temperature=temperature)


@attrs.frozen
class Devices:
    """The NPUs of this node's ranks. `visible` are the devices that ASCEND_RT_VISIBLE_DEVICES lists."""

    host: Host
    environ: Mapping[str, str]
    visible: tuple[str, ...] = ()

    def temperature(self, local_rank: int, is_cut: Callable[[], bool]) -> int | None:
        """Return the temperature of a rank's NPU in degrees Celsius, by npu-smi, or None if it is unknown."""
        devices = npus.of_ranks(self.host, local_rank + 1, self.visible)
        tool = npu_smi.find(self.host, self.environ)
        if not tool or len(devices) <= local_rank:
            return None
        found = npu_smi.read_devices(tool, self.environ, NPU_SMI_LIMIT, is_cut)
        return {one.device_id: one.temperature for one in found}.get(devices[local_rank])


@contextmanager
def reading(
    job: JobSpec,
    environ: Mapping[str, str],
    warn: Callable[[str], None],
    *,
    pass_on: Callable[[Slowdown], None],
    show_step: ShowStep,
) -> Iterator[StepReader]:
    """Read the steps of an attempt while the context lasts.

    Raises:
        AscendRunnerError: The limit of processes is reached.
    """
    devices = Devices(Host(), environ, tuple(env_patch.visible_devices(environ)))
    reader = StepReader(job, devices, warn, pass_on=pass_on, show_step=show_step)
    reader.start()
    try:
        yield reader
    finally:
        reader.close()
