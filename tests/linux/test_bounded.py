"""Questions that may never be answered: programs and functions, given up in time."""

from __future__ import annotations

import threading
import time

import pytest

from ascend_runner.linux import bounded
from ascend_runner.linux.bounded import Answer
from tests.conftest import LIMIT


def test_run() -> None:
    """Both outputs and the status come back."""
    assert Answer("out\nerr\n", 3) == bounded.run(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], LIMIT, {})


def test_run_takes_too_long() -> None:
    """A program that does not end is killed and given up, long before it would have ended."""
    start = time.monotonic()

    assert bounded.run(["/bin/sleep", "1000"], 0.05, {}) is None
    assert time.monotonic() - start < LIMIT


def test_run_of_nothing() -> None:
    """What cannot be started is the caller's to tell."""
    with pytest.raises(FileNotFoundError):
        bounded.run(["/nowhere/tool"], LIMIT, {})


def test_all_are_asked() -> None:
    """Many more questions than are asked at once all have their answers."""
    assert {number: number * 2 for number in range(200)} == bounded.ask_all(
        range(200), lambda number: number * 2, LIMIT
    )
    assert {} == bounded.ask_all([], str, LIMIT)


def test_one_that_hangs_does_not_keep_the_others() -> None:
    """Who does not answer in time is left out."""
    end = threading.Event()

    def ask(name: str) -> bool:
        return end.wait(LIMIT) if name == "slow" else True

    answers = bounded.ask_all(["a", "slow", "b"], ask, 0.2)
    end.set()

    assert {"a": True, "b": True} == answers
