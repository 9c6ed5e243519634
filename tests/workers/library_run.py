"""Runs jobs in this one process, without a guardian, under a strange world. usage: library_run.py WORLD LOG_DIR ARG...

broken-console  showing a rank's lines fails with a MemoryError     ARG... is the command
wild-clock      the wall clock jumps back and forth at every look   ARG... are the program's own
many-starts     run `true` ARG times; print what is open and allocated after each fifty
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from itertools import cycle
from typing import TYPE_CHECKING, Callable

from ascend_runner import reporter
from ascend_runner.errors import AscendRunnerError
from ascend_runner.job.settings import Settings
from ascend_runner.launcher import Launcher
from ascend_runner.linux import descendants
from ascend_runner.linux.console import Console
from ascend_runner.linux.signals import Signals

if TYPE_CHECKING:
    from collections.abc import Iterable

EACH = 50


class Broken(Console):
    """A console that cannot take anything from a rank."""

    def show(self, rank_id: int, pieces: Iterable[bytes | memoryview]) -> None:
        """Fail."""
        raise MemoryError(f"no room for rank {rank_id}, {len(list(pieces))} pieces")


def say(line: bytes) -> None:
    os.write(2, line)


def run(log_dir: str, command: list[str], console: Console, ranks: int = 2) -> int:
    settings = Settings(nproc_per_node=ranks, log_dir=log_dir, grace=1.0, quiet=True)
    with Signals() as signals:
        launcher = Launcher(settings, dict(os.environ), signals, reporter.Reporter(say, "WARNING"))
        try:
            return launcher.run(launcher.prepare(command), console).status
        except AscendRunnerError as error:
            say(reporter.own_line("ERROR", str(error)))
            return error.exit_status


def run_with_a_broken_console(log_dir: str, *command: str) -> int:
    return run(log_dir, list(command), Broken(lambda _lines: b"", lambda _error: b""))


def run_under_a_wild_clock(_log_dir: str, *args: str) -> int:
    times = cycle((0.0, 4e9, 1.6e9, 1.0))
    time.time = lambda: next(times)
    sys.argv[1:] = args
    from ascend_runner.__main__ import main

    main()
    return 0


def run_many_times(log_dir: str, count: str) -> int:
    console = Console(lambda _lines: b"", lambda _error: b"")
    console.start()
    for number in range(int(count)):
        if number and number % EACH == 0:
            say_what_there_is()
        status = run(f"{log_dir}/{number}", ["/bin/true"], console, ranks=1)
        if status:
            return status
    say_what_there_is()
    return 0


def say_what_there_is() -> None:
    gc.collect()
    children = len(descendants.children(os.getpid()))
    print(len(os.listdir("/proc/self/fd")), threading.active_count(), children, sys.getallocatedblocks())


WORLDS: dict[str, Callable[..., int]] = {
    "broken-console": run_with_a_broken_console,
    "wild-clock": run_under_a_wild_clock,
    "many-starts": run_many_times,
}

if __name__ == "__main__":
    world, *words = sys.argv[1:]
    sys.exit(WORLDS[world](*words))
