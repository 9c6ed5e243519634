"""Runs the user's hooks: shell commands at events of a job, with facts about the job in variables.

A hook has a session, a log and a time limit of its own. When it ends, all processes that it has started are killed.
"""

from __future__ import annotations

import functools
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import attrs

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError, LimitReachedError, OutputError, StopRequestedError, reason
from ascend_runner.guardian import process_tree, sweep
from ascend_runner.host import bounded
from ascend_runner.lifecycle.state import Job
from ascend_runner.plan.job import JobSpec
from ascend_runner.secrets import Masker
from ascend_runner.settings.option import VARIABLE_PREFIX
from ascend_runner.settings.parsing import HOOKS
from ascend_runner.settings.variables import VARIABLES
from ascend_runner.supervision.events import Ending
from ascend_runner.text import format_numbers, last_lines, signal_name

Value = TypeVar("Value")

BEFORE_START, CHECKPOINT, AFTER_ATTEMPT, BEFORE_EXIT = HOOKS  # the events

LIMIT: Final = 60.0  # seconds for a hook
SILENCE: Final = 3.0  # seconds until a message says what is waited for: most hooks need less
SWEEP_POLL: Final = 0.01  # seconds
DISK_LIMIT: Final = 1.0  # seconds for a call on its log
SHOWN_END: Final = 4096  # bytes of its output, of which the last line is shown if it fails


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Hooks:
    """The hooks of one event of a job.

    `environ` is the environment of the runner. `info` is called about a hook that takes long, and `warn` about what is
    not the hook's own failure.
    """

    job: JobSpec
    event: str
    environ: Mapping[str, str]
    info: Callable[[str], None]
    warn: Callable[[str], None]
    limit: float = LIMIT
    silence: float = SILENCE

    @property
    def commands(self) -> tuple[str, ...]:
        """The shell commands, in their order."""
        return tuple(command for event, command in self.job.hooks if event == self.event)

    def run(self, variables: Mapping[str, str], wait: Callable[[float], None]) -> Iterator[str]:
        """Run the hooks one after the other; yield a sentence about each that fails.

        No rank may be alive: a process of this one that appears beside a hook counts as the hook's. `wait` blocks until
        a child has ended, for a limited time. What it raises ends the hook.
        """
        env = self.env(variables)
        for command in self.commands:
            output = self.open()
            try:
                problem = self._run(command, env, output, wait)
            except AscendRunnerError as end:
                self.warn(self.cut(end))
                raise
            finally:
                _on_disk(functools.partial(os.close, output))
            if problem:
                yield self.failed(problem)

    def env(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a hook: ours without options of the runner, and the variables."""
        env = {name: value for name, value in self.environ.items() if name not in VARIABLES}
        return {**env, **variables, f"{VARIABLE_PREFIX}EVENT": self.event}

    def _run(self, command: str, env: Mapping[str, str], output: int, wait: Callable[[float], None]) -> str:
        """Run a command; return how it failed, or "" after a success."""
        start = size_of(output)
        others = frozenset(process_tree.children(os.getpid()))
        try:
            # Its own session: Ctrl-C reaches the runner alone.
            hook = subprocess.Popen(
                ["/bin/sh", "-c", command],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            return f"cannot start /bin/sh: {reason(error)}"
        try:
            if not self._await(hook, wait):
                return self.timed_out()
        finally:
            is_over = hook.returncode is not None
            hook.returncode = hook.returncode or 0  # or subprocess would reap it, which the sweep does
            self._sweep(others)
        status = hook.returncode if is_over else 0
        return explained(Ending.of(status), output, start)

    def _await(self, hook: subprocess.Popen[bytes], wait: Callable[[float], None]) -> bool:
        """Wait for the end of a hook; return whether it has come in time."""
        began = time.monotonic()
        deadline, told_at = began + self.limit, began + self.silence
        while hook.poll() is None:
            now = time.monotonic()
            if now >= deadline:
                return False
            if now >= told_at:
                told_at = deadline
                self.info(self.waiting())
            wait(min(told_at, deadline) - now)
        return True

    def _sweep(self, others: frozenset[int]) -> None:
        """Kill all processes of a hook that are left."""
        deadline = time.monotonic() + sweep.SWEEP_LIMIT
        while True:
            found = sweep.kill_all(keep=others)
            if not sweep.reap_adopted(keep=others):
                return
            if time.monotonic() >= deadline:
                self.warn(f"still alive after SIGKILL: {', '.join(map(process_tree.describe, found))}")
                return
            time.sleep(SWEEP_POLL)

    def open(self) -> int:
        """Open the log, or /dev/null with a warning."""
        path = self.job.hook_log_path(self.event)

        def open_log() -> int | str:
            try:
                return files.reopen_log(path)
            except OutputError as error:
                return str(error)

        opened = _on_disk(open_log)
        if isinstance(opened, int):
            return opened
        problem = opened or f"cannot open {path!r}: no response from its disk within {DISK_LIMIT:g} s"
        self.warn(f"{problem}; the output of the hook is lost")
        return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)

    def failed(self, problem: str) -> str:
        """Say that a hook has failed, and where its log is."""
        return f"hook {self.event} failed: {problem}; see {self.job.hook_log_path(self.event)}"

    def waiting(self) -> str:
        """Say that a hook takes long, what becomes of it, and where its log is."""
        path = self.job.hook_log_path(self.event)
        return f"waiting for hook {self.event}, which is killed {self.limit:g} s after its start; see {path}"

    def timed_out(self) -> str:
        """Say that a hook has run for too long."""
        return f"timed out after {self.limit:g} s and was killed"

    def cut(self, end: AscendRunnerError) -> str:
        """Say that a hook was killed because the wait for it has ended."""
        why = f"received {signal_name(end.signum)}" if isinstance(end, StopRequestedError) else str(end)
        why = "the time limit was reached" if isinstance(end, LimitReachedError) else why
        return f"hook {self.event} was killed: {why}"


def variables(spec: JobSpec, job: Job, report: Mapping[str, Any], checkpoint: str) -> dict[str, str]:
    """Return the variables of a hook about the job; `report` is the newest, `checkpoint` the newest complete one."""
    cause, attempts = report["cause"], report["attempts"]
    status = report["status"]
    if status is None and attempts and cause:  # another attempt follows
        status = attempts[-1]["status"]
    facts = {
        "JOB": spec.job_id,
        "STATE": job.state.value,
        "ATTEMPT": str(job.attempt),
        "STATUS": "" if status is None else str(status),
        "CAUSE": cause["sentence"] if cause else "",
        "LOG_DIR": spec.log_dir,
        "REPORT": spec.report_path,
        "CHECKPOINT": checkpoint,
    }
    return {f"{VARIABLE_PREFIX}{name}": value for name, value in facts.items()}


def explained(ending: Ending, output: int, start: int | None) -> str:
    """Return how a hook failed, with its last line, or "" after a success. Its output begins at `start` of its log."""
    return "" if ending.is_success else f"{ending}{_last_line(output, start)}"


def size_of(output: int) -> int | None:
    """Return the size of a log, or None if its disk fails or does not respond."""
    return _on_disk(lambda: os.fstat(output).st_size)


def of_checkpoint(saved: Mapping[str, Any], why: str) -> dict[str, str]:
    """Return the variables of a hook about a checkpoint: `saved` in the report, requested for the reason `why`."""
    facts = {
        "CAUSE": why,
        "STEP": "" if saved["step"] is None else str(saved["step"]),
        "RANKS": _numbers(saved["ranks"]),
        "MISSING": _numbers(saved["missing"]),
    }
    return {f"{VARIABLE_PREFIX}{name}": value for name, value in facts.items()}


def _numbers(ranks: Sequence[int]) -> str:
    return format_numbers(ranks).replace(" ", "")


def _on_disk(work: Callable[[], Value]) -> Value | None:
    """Return the result of `work` on a log, or None if its disk fails or does not respond."""
    found: list[Value] = []

    def work_on() -> None:
        with suppress(OSError):
            found.append(work())

    bounded.call(DISK_LIMIT, work_on)
    return found[0] if found else None


def _last_line(output: int, start: int | None) -> str:
    """Return the last line that a hook printed, in parentheses, or "" if there is none or `start` is unknown."""

    def read_end() -> bytes:
        size = os.fstat(output).st_size
        return os.pread(output, SHOWN_END, max(start, size - SHOWN_END)) if start is not None and size > start else b""

    lines: Sequence[str] = last_lines(Masker().data(_on_disk(read_end) or b""))
    return f" ({lines[-1].strip()})" if lines else ""
