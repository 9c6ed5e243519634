"""Copies datasets to this node in a thread, while the runner waits for the rank table and for signals."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from ascend_runner.errors import AscendRunnerError, OutputError, reason
from ascend_runner.host import bounded
from ascend_runner.plan.staging import Stage, Staged
from ascend_runner.staging.copies import CancelledError
from ascend_runner.staging.task import StageTask

LOOK_INTERVAL: Final = 0.1  # seconds between two checks for a stop signal
STOP_LIMIT: Final = 0.5  # seconds for the thread to end; a disk that hangs keeps it longer


class Staging:
    """Copies the datasets in a thread, one after the other."""

    def __init__(self, stages: Sequence[Stage], say: Callable[[str], None], warn: Callable[[str], None]) -> None:
        """`say` (for progress) and `warn` are called in the thread."""
        self._stages = stages
        self._say, self._warn = say, warn
        self._stop = threading.Event()
        self._error: AscendRunnerError | None = None
        self._results: list[Staged] = []
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread.

        Raises:
            AscendRunnerError: The limit of processes is reached.
        """
        self._thread = bounded.start_thread(self._run)

    def check(self) -> None:
        """Raise the error that has ended the staging, if there is one.

        Raises:
            AscendRunnerError: A dataset cannot be copied.
        """
        if self._error:
            raise self._error

    def results(self, pause: Callable[[float], None]) -> tuple[Staged, ...]:
        """Wait for the end; `pause(0.0)` raises an error if a stop signal has arrived.

        Raises:
            AscendRunnerError: A dataset cannot be copied.
            StopRequestedError: A stop signal arrived.
        """
        while self._thread and self._thread.is_alive():
            pause(0.0)
            self._thread.join(LOOK_INTERVAL)
        self.check()
        if len(self._results) < len(self._stages):
            stage = self._stages[len(self._results)]
            raise OutputError(f"cannot stage {stage.source!r}: the copy was aborted")
        return tuple(self._results)

    def close(self) -> None:
        """End the thread, and say so if it has not finished; the files that it has copied stay. May be called twice."""
        is_first = not self._stop.is_set()
        self._stop.set()
        if self._thread:
            self._thread.join(STOP_LIMIT)
        if is_first and self._thread and not self._error and len(self._results) < len(self._stages):
            stage = self._stages[len(self._results)]
            self._say(f"stopped staging {stage.source!r} to {stage.folder!r}; the next job copies the rest")

    def _run(self) -> None:
        for stage in self._stages:
            try:
                self._results.append(StageTask(stage, self._stop, self._say, self._warn).perform())
            except CancelledError:
                return
            except OSError as error:
                self._error = OutputError(f"cannot stage {error.filename or stage.source!r}: {reason(error)}")
                return
            except AscendRunnerError as error:
                self._error = error
                return
