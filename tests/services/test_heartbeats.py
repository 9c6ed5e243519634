"""Reports of ranks about themselves reach the runner, and those of other processes do not."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from ascend_runner.record.facts import Beat, SavedCheckpoint
from ascend_runner.services import run_folder
from ascend_runner.services.heartbeats import Heartbeats, receiving
from tests.helpers.package_source import PACKAGE
from tests.helpers.program import Program
from tests.helpers.surroundings import descriptors_copied
from tests.helpers.waiting import wait_until

NAP: Final = 0.02
SEND: Final = """
import socket, sys
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(sys.argv[2].encode(), sys.argv[1])
sys.stdin.read()
"""

FLOOD: Final = """
import socket, sys
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for step in range(500):
    sender.sendto(b"X_STEP=%d" % step, sys.argv[1])
sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[str]:
    """Return a directory with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


@contextmanager
def sending(path: str, text: str, *, new_session: bool = False) -> Iterator[None]:
    """Send a datagram from a process of the job, a child of this process, which then lives on for a while."""
    command = [sys.executable, "-c", SEND, path, text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=new_session):
        yield


def test_each_rank_has_its_own_beats(folder: str) -> None:
    """Later datagrams add to what the rank has told before; also a process in a session of its own speaks for it."""
    steps: list[tuple[float, int]] = []
    with closing(
        Heartbeats(lambda: 7.0, show_step=lambda at, step: steps.append((at, step)), longest_nap=NAP)
    ) as heartbeats:
        paths = heartbeats.open(range(3), folder)
        first = Beat(at=7.0, step=5, section="evaluation", status="fine")
        with sending(paths[0], "WATCHDOG=1\nX_STEP=5\nX_SECTION=evaluation\nSTATUS=fine"):
            wait_until(lambda: heartbeats.of({0}) == {0: first})
        second = Beat(at=7.0, step=6, status="fine", checkpoint="ckpt/6")
        with sending(paths[0], "X_STEP=6\nX_CHECKPOINT=ckpt/6\nEXTEND_TIMEOUT_USEC=3000000"):
            wait_until(lambda: heartbeats.of({0}) == {0: second})
        with sending(paths[2], "WATCHDOG=1", new_session=True):
            wait_until(lambda: heartbeats.of({0, 1, 2}) == {0: second, 2: Beat(at=7.0)})

        assert 10.0 == heartbeats.announced_until
        assert {2} == heartbeats.of({1, 2}).keys()
        assert [(7.0, 5), (7.0, 6)] == steps


def test_strangers_are_ignored(folder: str) -> None:
    """A process that does not descend from the runner, such as this one itself, tells nothing."""
    with (
        closing(Heartbeats(longest_nap=NAP)) as heartbeats,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger,
    ):
        paths = heartbeats.open(range(1), folder)
        for _ in range(3):
            stranger.sendto(b"WATCHDOG=1\nX_STEP=99", paths[0])
        with sending(paths[0], "X_STEP=1"):
            wait_until(lambda: bool(heartbeats.of({0})))

        assert 1 == heartbeats.of({0})[0].step


def test_no_rank_waits_for_the_runner(folder: str) -> None:
    """Also without a limit for hangs: clients of sd_notify usually block while the queue of a socket is full."""
    with receiving(range(1), folder, pytest.fail) as (paths, heartbeats):
        command = [sys.executable, "-c", FLOOD, paths[0]]
        with subprocess.Popen(command, stdin=subprocess.PIPE):
            wait_until(lambda: [beat.step for beat in heartbeats.of({0}).values()] == [499])


def test_sender_that_cannot_be_looked_at_is_unknown(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a free descriptor for example; those that follow are heard."""
    refused, really_open = threading.Event(), os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if str(path).startswith("/proc"):
            refused.set()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return really_open(path, flags, mode)

    with closing(Heartbeats(longest_nap=NAP)) as heartbeats:
        paths = heartbeats.open(range(1), folder)
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            with sending(paths[0], "X_STEP=1"):
                wait_until(refused.is_set)
                assert {} == heartbeats.of({0})
        with sending(paths[0], "X_STEP=2"):
            wait_until(lambda: bool(heartbeats.of({0})))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_beats_count_only_while_they_are_received(folder: str) -> None:
    """If the thread has ended, the output of the ranks has to show that they are alive."""
    times = iter((7.0,))
    with closing(Heartbeats(now=lambda: next(times), longest_nap=NAP)) as heartbeats:
        paths = heartbeats.open(range(1), folder)
        with sending(paths[0], "X_STEP=1"):
            wait_until(lambda: bool(heartbeats.of({0})))
        with sending(paths[0], "X_STEP=2"):
            wait_until(lambda: not heartbeats.of({0}))


def test_closing_ends_the_thread(folder: str) -> None:
    """Also while a child that hangs in execve(2) has copies of all descriptors."""
    before = threading.active_count()
    heartbeats = Heartbeats(longest_nap=NAP)
    heartbeats.open(range(1), folder)
    with descriptors_copied():
        heartbeats.close()

        assert before == threading.active_count()


def test_nobody_listens_without_a_directory(folder: str) -> None:
    """Then no rank has an address, and there is no thread and no socket."""
    with receiving(range(1), "", pytest.fail) as (paths, heartbeats):
        heartbeats.read()

    assert {} == paths
    assert [] == os.listdir(folder)


def test_checkpoint_is_saved_when_every_process_of_the_rank_has_reported_it(folder: str) -> None:
    """Processes that have announced it are waited for, unless they have ended; a checkpoint is no heartbeat."""
    news = threading.Event()
    with closing(Heartbeats(now=lambda: 7.0, wake=news.set, longest_nap=NAP)) as heartbeats:
        paths = heartbeats.open(range(2), folder)
        with sending(paths[0], "X_SAVES=1"), sending(paths[1], "X_CHECKPOINT=a\nX_STEP=3"):
            wait_until(lambda: list(heartbeats.saving_ranks) == [0])
            with sending(paths[0], "WATCHDOG=1\nX_CHECKPOINT=b\nX_STEP=3"):
                wait_until(news.is_set)
                wait_until(lambda: bool(heartbeats.of({0})))
                wait_until(lambda: 1 in heartbeats.saved_since(7.0))
                assert {1: SavedCheckpoint(at=7.0, path="a", step=3)} == heartbeats.saved_since(7.0)
        wait_until(lambda: 0 in heartbeats.saved_since(7.0))

        assert {} == heartbeats.saved_since(7.5)
        assert {0} == heartbeats.of({0, 1}).keys()


@pytest.mark.parametrize("is_thread", [True, False])
def test_heartbeats_that_cannot_be_received_are_no_failure(
    folder: str, monkeypatch: pytest.MonkeyPatch, *, is_thread: bool
) -> None:
    """The job runs without heartbeats, a warning says so, and the sockets that were made are closed."""
    if is_thread:
        monkeypatch.setattr(threading.Thread, "start", refuse_thread)
    else:
        (Path(folder) / "notify-1").touch()
    warnings: list[str] = []
    before = os.listdir("/proc/self/fd")
    with receiving(range(2), folder, warnings.append) as (paths, heartbeats):
        heartbeats.read()
        assert {} == heartbeats.of({0})
        assert len(before) == len(os.listdir("/proc/self/fd"))

    assert {} == paths
    why = "cannot start a thread: too many processes" if is_thread else "address already in use"
    assert warnings[0].startswith(f"cannot receive heartbeats from the ranks: {why}")


def refuse_thread(_thread: object) -> None:
    """Start no thread."""
    raise RuntimeError("can't start new thread")


BEATS = "import time, ascend_runner; ascend_runner.beat(5, section='evaluation'); time.sleep(1000)"
PRINTS = "while :; do echo still here; sleep 0.1; done"


def test_rank_that_only_prints_hangs(program: Program) -> None:
    """Once a rank has sent a heartbeat its output does not count; the hang shows where the rank was."""
    env = {"PYTHONPATH": str(PACKAGE.parent), run_folder.RUN_DIR_VARIABLE: str(Path(program.folder) / "run")}
    options = ("--nproc-per-node", "1", "--hang-timeout", "2", "--console", "none")
    script = f'({PRINTS}) & exec {sys.executable} -c "{BEATS}"'
    run = program.start(*options, "sh", "-c", script, env=env)

    assert 124 == run.finish()
    assert "last heartbeat of rank 0: step 5, evaluation\n" in run.screen
