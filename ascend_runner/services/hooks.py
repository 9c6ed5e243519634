"""Runs the user's hooks: shell commands at events of a job, with facts about the job in variables.

A hook has a session, a log and a time limit of its own. When it ends, all processes that it has started are killed.

Hooks for a checkpoint or a condition run in the background, while the ranks go on. Each of these has a parent process
that adopts the processes that the hook leaves behind, so that they are not mistaken for a rank's. Only the runner's
loop starts these parents, because it must know them before it checks its children.
"""

from __future__ import annotations

import functools
import math
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from signal import SIGKILL
from typing import IO, Any, Final

import attrs

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError, LimitReachedError, OutputError, StopRequestedError, reason
from ascend_runner.guardian import process_tree, sweep
from ascend_runner.node import bounded
from ascend_runner.plan.spec import JobSpec
from ascend_runner.secrets import Masker
from ascend_runner.settings.model import VARIABLES
from ascend_runner.settings.options import VARIABLE_PREFIX
from ascend_runner.settings.parsing import HOOKS
from ascend_runner.supervision.causes import Ending
from ascend_runner.text import format_numbers, last_lines, signal_name

BEFORE_START, CHECKPOINT, SLOW, HANGING, UNHEALTHY, AFTER_ATTEMPT, BEFORE_EXIT = HOOKS  # the events
BESIDE: Final = (CHECKPOINT, SLOW, HANGING, UNHEALTHY)  # those during which the ranks run

LIMIT: Final = 60.0  # seconds for a hook
SILENCE: Final = 3.0  # seconds until a message says what is waited for: most hooks need less
SWEEP_POLL: Final = 0.01  # seconds
DISK_LIMIT: Final = 1.0  # seconds for a call on its log
SHOWN_END: Final = 4096  # bytes of its output; the last line is shown if it fails


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
                bounded.on_disk(DISK_LIMIT, functools.partial(os.close, output))
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

        opened = bounded.on_disk(DISK_LIMIT, open_log)
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
        return f"waiting for hook {self.event} (timeout {self.limit:g} s); see {path}"

    def timed_out(self) -> str:
        """Say that a hook has run for too long."""
        return f"timed out after {self.limit:g} s and was killed"

    def cut(self, end: AscendRunnerError) -> str:
        """Say that a hook was killed because the wait for it has ended."""
        why = f"received {signal_name(end.signum)}" if isinstance(end, StopRequestedError) else str(end)
        why = "the time limit was reached" if isinstance(end, LimitReachedError) else why
        return f"hook {self.event} was killed: {why}"


def variables(spec: JobSpec, report: Mapping[str, Any], checkpoint: str) -> dict[str, str]:
    """Return the variables of a hook about the job; `report` is the newest, `checkpoint` the newest complete one."""
    cause, attempts = report["cause"], report["attempts"]
    status = report["status"]
    if status is None and attempts and cause:  # another attempt follows
        status = attempts[-1]["status"]
    facts = {
        "JOB": spec.job_id,
        "STATE": str(report["state"]),
        "ATTEMPT": str(report["attempt"]),
        "STATUS": "" if status is None else str(status),
        "CAUSE": cause["sentence"] if cause else "",
        "LOG_DIR": spec.files.log_dir,
        "REPORT": spec.report_path,
        "CHECKPOINT": checkpoint,
    }
    return {f"{VARIABLE_PREFIX}{name}": value for name, value in facts.items()}


def explained(ending: Ending, output: int, start: int | None) -> str:
    """Return how a hook failed, with its last line, or "" after a success. Its output begins at `start` of its log."""
    return "" if ending.is_success else f"{ending}{_last_line(output, start)}"


def size_of(output: int) -> int | None:
    """Return the size of a log, or None if its disk fails or does not respond."""
    return bounded.on_disk(DISK_LIMIT, lambda: os.fstat(output).st_size)


def of_checkpoint(saved: Mapping[str, Any], why: str) -> dict[str, str]:
    """Return the variables of a hook about a checkpoint: `saved` in the report, requested for the reason `why`."""
    facts = {
        "CAUSE": why,
        "STEP": "" if saved["step"] is None else str(saved["step"]),
        "RANKS": _numbers(saved["ranks"]),
        "MISSING": _numbers(saved["missing"]),
    }
    return {f"{VARIABLE_PREFIX}{name}": value for name, value in facts.items()}


def of_condition(sentence: str) -> dict[str, str]:
    """Return the variables of a hook about a condition that has begun: a hang, a slow training, an unhealthy node."""
    return {f"{VARIABLE_PREFIX}CAUSE": sentence}


def _numbers(ranks: Sequence[int]) -> str:
    return format_numbers(ranks).replace(" ", "")


def _last_line(output: int, start: int | None) -> str:
    """Return the last line that a hook printed, in parentheses, or "" if there is none or `start` is unknown."""

    def read_end() -> bytes:
        size = os.fstat(output).st_size
        return os.pread(output, SHOWN_END, max(start, size - SHOWN_END)) if start is not None and size > start else b""

    lines: Sequence[str] = last_lines(Masker().data(bounded.on_disk(DISK_LIMIT, read_end) or b""))
    return f" ({lines[-1].strip()})" if lines else ""


# Runs commands one after the other, each when a line permits it, and prints the exit status of each. It stays until it
# is killed, as the parent of what they leave behind: it is a subreaper, which exec(2) does not change.
HOLDER: Final = (
    "exec 3>&2 2>/dev/null;"  # where a shell writes that a command was killed
    'for one; do read -r _ || exit; (exec /bin/sh -c "$one" </dev/null >&3 2>&3 3>&-); echo $?; done; read -r _'
)
BECOME_HOLDER: Final = (
    "import ctypes, os, sys;"
    f" ctypes.CDLL(None).prctl({process_tree.PR_SET_CHILD_SUBREAPER}, ctypes.c_ulong(1), 0, 0, 0);"
    " os.execv('/bin/sh', ['sh', '-c', *sys.argv[1:]])"
)
POLL_INTERVAL: Final = 0.1  # seconds between two checks at the end of an attempt
SHELL_KILLED: Final = 128 + SIGKILL  # the exit status of a hook if its shell was killed


class BackgroundHooks:
    """The hooks of one event that run beside the ranks of an attempt. `pids` gets those of their parent processes.

    They begin when those of the same event before it have ended. If it occurs a third time meanwhile, the hooks of the
    second time are skipped.
    """

    def __init__(self, of_event: Hooks, pids: set[int]) -> None:
        self.pids = pids
        self._hooks = of_event
        self._output = of_event.open()
        self._lock = threading.Lock()
        self._next: subprocess.Popen[bytes] | None = None
        self._is_busy = False
        self._is_cut = False
        self._current = 0  # the pid above the hook that runs; 0: none does

    def start(self, variables: Mapping[str, str]) -> None:
        """Run the hooks soon. Called in the thread of the runner's loop."""
        try:
            holder = subprocess.Popen(
                [sys.executable, "-ISc", BECOME_HOLDER, HOLDER, "sh", *self._hooks.commands],
                env=self._hooks.env(variables),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._output,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self._hooks.warn(self._hooks.failed(f"cannot start {sys.executable}: {reason(error)}"))
            return
        self.pids.add(holder.pid)
        with self._lock:
            skipped, self._next = self._next, holder
            is_idle, self._is_busy = not self._is_busy, True
        if skipped:
            self._hooks.warn(f"skipped hook {self._hooks.event} because the previous one took too long")
            self._remove(skipped)
        if is_idle:
            try:
                bounded.start_thread(self._work)
            except AscendRunnerError as error:
                self._hooks.warn(self._hooks.failed(str(error)))
                self._is_cut = True
                self._work()

    def finish(self, wait: Callable[[float], None]) -> None:
        """Wait until all hooks have ended; what `wait` raises kills them.

        Raises:
            AscendRunnerError: A stop signal has arrived, or the time limit of the job is reached.
        """
        told_at = time.monotonic() + self._hooks.silence
        try:
            while self._is_busy:
                if time.monotonic() >= told_at:
                    told_at = math.inf
                    self._hooks.info(self._hooks.waiting())
                wait(POLL_INTERVAL)
        except AscendRunnerError as end:
            self._hooks.warn(self._hooks.cut(end))
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Kill the hooks that still run. May be called twice."""
        self._is_cut = True
        deadline = time.monotonic() + sweep.SWEEP_LIMIT
        while self._is_busy and time.monotonic() < deadline:
            if self._current:
                sweep.kill_below(self._current, sweep.SWEEP_LIMIT)
            time.sleep(SWEEP_POLL)
        if self._output >= 0 and not self._is_busy:
            bounded.on_disk(DISK_LIMIT, functools.partial(os.close, self._output))
            self._output = -1

    def _work(self) -> None:
        """Run the hooks of the checkpoints that are waiting."""
        while True:
            with self._lock:
                holder, self._next = self._next, None
                self._is_busy = holder is not None
            if holder is None:
                return
            self._current = holder.pid
            for _ in self._hooks.commands:
                problem = "" if self._is_cut else self._run_next(holder)
                if problem and not self._is_cut:
                    self._hooks.warn(self._hooks.failed(problem))
            self._current = 0
            self._remove(holder)

    def _run_next(self, holder: subprocess.Popen[bytes]) -> str:
        """Run the next hook below a process; return how it failed, or "" after a success."""
        if not (holder.stdin and holder.stdout):
            raise ValueError("the process has no pipes")
        start = size_of(self._output)
        with suppress(BrokenPipeError):
            holder.stdin.write(b"\n")
        is_over = _is_readable(holder.stdout, self._hooks.limit)
        sweep.kill_below(holder.pid, sweep.SWEEP_LIMIT)
        status = holder.stdout.readline() if is_over or _is_readable(holder.stdout, sweep.SWEEP_LIMIT) else b""
        if not is_over:
            return self._hooks.timed_out()
        return explained(Ending(exit_code=int(status or SHELL_KILLED)), self._output, start)

    def _remove(self, holder: subprocess.Popen[bytes]) -> None:
        """Kill what is left below a process, and the process itself."""
        sweep.kill_below(holder.pid, sweep.SWEEP_LIMIT)
        holder.kill()
        holder.wait()
        for pipe in (holder.stdin, holder.stdout):
            if pipe:
                pipe.close()
        self.pids.discard(holder.pid)


def _is_readable(pipe: IO[bytes], seconds: float) -> bool:
    return bool(select.select([pipe], [], [], seconds)[0])
