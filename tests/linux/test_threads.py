"""What may never end is given up."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ascend_runner.linux import threads

if TYPE_CHECKING:
    import pytest


def test_work_in_time() -> None:
    """It is done when this says so."""
    done: list[int] = []

    assert threads.within(60, lambda: done.append(1))
    assert [1] == done


def test_work_that_hangs() -> None:
    """It is not waited for."""
    go_on = threading.Event()

    def hang() -> None:
        go_on.wait()

    assert not threads.within(0.01, hang)
    go_on.set()


def test_work_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no more threads may be started it is done all the same."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []

    assert threads.within(0, lambda: done.append(1))
    assert [1] == done
