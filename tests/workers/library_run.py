"""Runs jobs in this process, without a guardian, under an unusual condition. usage: library_run.py WORLD LOG_DIR ARG...

broken-console  showing a rank's lines fails with a MemoryError     ARG... is the command
wild-clock      the wall clock jumps back and forth at every look   ARG... are the program's own
lean-thread     a thread of the runner ends for lack of memory      ARG... is ignored
many-starts     run `true` ARG times; print what is open and allocated after each fifty
many-launches   the same with `ascend_runner.launch`; print that after the first and the last
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from itertools import cycle
from typing import TYPE_CHECKING

import ascend_runner
from ascend_runner import cli
from ascend_runner.errors import AscendRunnerError
from ascend_runner.guardian import process_tree
from ascend_runner.job import launch
from ascend_runner.job.setup import JobSetup
from ascend_runner.node import bounded
from ascend_runner.ranks.console import Console
from ascend_runner.ranks.message_format import Level, format_message
from ascend_runner.ranks.messages import Messages
from ascend_runner.ranks.signals import Signals
from ascend_runner.report import html_page
from ascend_runner.settings.model import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

EACH = 50
THREADS = 2  # this one and the console's
ENDING = 60.0  # seconds in which a thread ends after its work, on a busy machine


class Broken(Console):
    """A console that fails on every line of a rank."""

    def show(self, rank_id: int, pieces: Iterable[bytes | memoryview], continued: int | None = None) -> None:
        """Fail."""
        raise MemoryError(f"no room for rank {rank_id}, {len(list(pieces))} pieces, {continued}")


def say(line: bytes) -> None:
    os.write(2, line)


def run(log_dir: str, command: list[str], console: Console, ranks: int = 2) -> int:
    settings = Settings(nproc_per_node=ranks, log_dir=log_dir, grace=1.0, quiet=True)
    with Signals() as signals:
        setup = JobSetup(settings, dict(os.environ), signals, Messages(say, Level.WARNING))
        try:
            return launch.run(setup, setup.prepare(command).job(), console).status
        except AscendRunnerError as error:
            say(format_message(Level.ERROR, str(error)))
            return error.exit_status


def run_with_a_broken_console(log_dir: str, *command: str) -> int:
    return run(log_dir, list(command), Broken(lambda _lines: b"", lambda _error: b""))


def run_under_a_wild_clock(_log_dir: str, *args: str) -> int:
    times = cycle((0.0, 4e9, 1.6e9, 1.0))
    time.time = lambda: next(times)
    sys.argv[1:] = args
    from ascend_runner.__main__ import main  # noqa: PLC0415  after the patches above

    main()
    return 0


def run_with_a_lean_thread(*_args: str) -> int:
    def fail() -> None:
        raise MemoryError

    def run_command_line(*_args: object) -> int:
        bounded.start_thread(fail).join()
        return 0

    cli.main = run_command_line  # type: ignore[assignment]  # with fewer parameters
    from ascend_runner.__main__ import main  # noqa: PLC0415  as above

    main()
    return 0


def run_many_times(log_dir: str, count: str) -> int:
    from ascend_runner.report import investigation  # noqa: F401, PLC0415  what a job loads after a second

    html_page.load_own_modules()
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


def launch_many_times(log_dir: str, count: str) -> int:
    for number in range(int(count)):
        ascend_runner.launch(["/bin/true"], nproc_per_node=1, log_dir=log_dir, quiet=True).check()
        if number in {0, int(count) - 1}:
            say_what_there_is(threads=1)
    return 0


def say_what_there_is(threads: int = THREADS) -> None:
    """Print what is open and allocated, once threads whose work was awaited have ended."""
    deadline = time.monotonic() + ENDING
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.001)
    gc.collect()
    children = len(process_tree.children(os.getpid()))
    print(len(os.listdir("/proc/self/fd")), threading.active_count(), children, sys.getallocatedblocks())


WORLDS: dict[str, Callable[..., int]] = {
    "broken-console": run_with_a_broken_console,
    "wild-clock": run_under_a_wild_clock,
    "lean-thread": run_with_a_lean_thread,
    "many-starts": run_many_times,
    "many-launches": launch_many_times,
}

if __name__ == "__main__":
    world, *words = sys.argv[1:]
    sys.exit(WORLDS[world](*words))
