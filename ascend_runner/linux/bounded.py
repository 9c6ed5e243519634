"""Asking what may never answer: a tool that sits in a driver, a name server that is away. Given up after a time."""

from __future__ import annotations

import subprocess
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Callable, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Key = TypeVar("Key")
    Value = TypeVar("Value")

ASKERS: Final = 32  # questions at once
KILL_LIMIT: Final = 0.5  # seconds


class Answer(NamedTuple):
    """What a program printed on both outputs, and its exit status."""

    text: str
    status: int


def run(argv: Sequence[str], seconds: float, env: Mapping[str, str]) -> Answer | None:
    """Run a program to its end; None where that takes longer. Errors: OSError where it cannot be started.

    One that is given up gets SIGKILL, and is awaited for a moment only: deep in a driver even that does not end it.
    """
    started = subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        printed, _ = started.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        started.kill()
        with suppress(subprocess.TimeoutExpired):
            started.wait(KILL_LIMIT)
        if started.stdout:
            started.stdout.close()
        return None

    return Answer(printed.decode(errors="replace"), started.returncode)


def ask_all(keys: Sequence[Key], ask: Callable[[Key], Value], seconds: float) -> dict[Key, Value]:
    """Ask a question for each key, several at once; who has not answered in time is left out. `ask` raises nothing."""
    answers: dict[Key, Value] = {}
    waiting = list(keys)[::-1]

    def work_off() -> None:
        while True:
            try:
                key = waiting.pop()
            except IndexError:
                return
            answers[key] = ask(key)

    threads = [threading.Thread(target=work_off, daemon=True) for _ in range(min(ASKERS, len(waiting)))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(answers)  # a thread that comes too late must not change what is being read
