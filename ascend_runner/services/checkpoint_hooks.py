"""Runs the hooks for a checkpoint in the background, while the ranks go on.

Each hook has a parent process that adopts the processes that the hook leaves behind, so that they are not mistaken for
a rank's. Only the runner's loop starts these parents, because it must know them before it checks its children.
"""

from __future__ import annotations

import math
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from signal import SIGKILL
from typing import IO, Final

from ascend_runner.errors import AscendRunnerError, reason
from ascend_runner.guardian import process_tree, sweep
from ascend_runner.host import bounded
from ascend_runner.services import hooks
from ascend_runner.services.hooks import Hooks
from ascend_runner.supervision.events import Ending

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
SHELL_KILLED: Final = 128 + SIGKILL  # the exit status of a hook whose shell was killed


class CheckpointHooks:
    """The hooks for the checkpoints of one attempt. `pids` are those of their parent processes.

    The hooks of a checkpoint begin when those of the one before have ended. If a third one is saved meanwhile, the
    hooks of the second one are skipped.
    """

    def __init__(self, of_event: Hooks) -> None:
        self.pids: set[int] = set()
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
            self._hooks.warn("skipped a checkpoint hook because the previous one took too long")
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
            time.sleep(hooks.SWEEP_POLL)
        if self._output >= 0 and not self._is_busy:
            bounded.call(hooks.DISK_LIMIT, lambda: os.close(self._output))
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
        start = hooks.size_of(self._output)
        with suppress(BrokenPipeError):
            holder.stdin.write(b"\n")
        is_over = _is_readable(holder.stdout, self._hooks.limit)
        sweep.kill_below(holder.pid, sweep.SWEEP_LIMIT)
        status = holder.stdout.readline() if is_over or _is_readable(holder.stdout, sweep.SWEEP_LIMIT) else b""
        if not is_over:
            return self._hooks.timed_out()
        return hooks.explained(Ending(exit_code=int(status or SHELL_KILLED)), self._output, start)

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
