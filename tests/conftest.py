"""Fixtures of all tests: no process outlives its test, and a program to run."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from ascend_runner.guardian import process_tree, sweep
from tests.helpers.program import Program

# No deadline for a single example: machines are busy.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")


@pytest.fixture(scope="session", autouse=True)
def _adopt_orphans() -> None:
    """Make orphans children of the test process, where the check below finds them."""
    process_tree.become_subreaper()


@pytest.fixture(scope="session", autouse=True)
def _listen() -> None:
    """Undo what shells do to background jobs, and nohup(1) to its command: the program under test would inherit it."""
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_process_left_behind(_adopt_orphans: None) -> Iterator[None]:
    """Fail a test that leaves a process behind, and kill that process."""
    before = set(process_tree.children(os.getpid()))
    yield
    sweep.reap_adopted(keep=frozenset(before))
    left = [f"{found.pid} ({found.name})" for found in sweep.kill_all(keep=frozenset(before))]
    sweep.sweep(frozenset(before))

    assert [] == left


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """Return a way to run the program."""
    program = Program(tmp_path)
    yield program
    program.close()


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """Return a directory on a tmpfs, with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)
