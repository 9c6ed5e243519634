"""The order in which unobserved processes exited."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
from collections.abc import Iterator

import pytest

from ascend_runner.ranks.leader import ExitWatch
from tests.helpers.waiting import LIMIT, is_gone, wait_until


@pytest.fixture(autouse=True)
def _pidfds() -> None:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        pytest.skip(f"no pidfd here: {error.strerror}")


@pytest.fixture
def watch() -> Iterator[ExitWatch]:
    """Yield a watch; it may be closed twice."""
    watch = ExitWatch()
    yield watch
    watch.close()
    watch.close()


@pytest.mark.parametrize("seed", range(3))
def test_order_is_kept(watch: ExitWatch, seed: int) -> None:
    """Exits are reported once and in order, however late they are read; living processes are not reported."""
    sleepers = [subprocess.Popen(["/bin/sleep", "1000"]) for _ in range(6)]
    try:
        for sleeper in (*sleepers, *sleepers):
            watch.add(sleeper.pid)
        assert [] == watch.take_ended()
        expected = [sleeper.pid for sleeper in random.Random(seed).sample(sleepers, 5)]  # noqa: S311  not a secret
        for pid in expected:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda pid=pid: is_gone(pid))

        assert expected == watch.take_ended()
        assert [] == watch.take_ended()
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


def test_exit_makes_it_readable(watch: ExitWatch) -> None:
    """A poll wakes at the exit of a process, whosever child it is, and not again after that was taken note of."""
    shell = subprocess.Popen(["/bin/sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    assert shell.stdout
    pid = int(shell.stdout.readline())
    watch.add(pid)
    poll = select.poll()
    poll.register(watch, select.POLLIN)
    os.kill(pid, signal.SIGKILL)

    assert [(watch.fileno(), select.POLLIN)] == poll.poll(LIMIT * 1000)
    assert [pid] == watch.take_ended()
    assert [] == poll.poll(0)
    shell.wait()
    shell.stdout.close()


def test_reaped_process_is_not_watched(watch: ExitWatch) -> None:
    """A process that cannot be watched, such as a reaped one, is not an error."""
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    watch.add(gone.pid)

    assert [] == watch.take_ended()


def test_copy_of_the_descriptor_elsewhere(watch: ExitWatch) -> None:
    """A process being started briefly holds a copy of each descriptor: unwatched processes are not reported."""
    ended = subprocess.Popen(["/bin/true"])
    before = open_descriptors()
    watch.add(ended.pid)
    copies = [os.dup(fd) for fd in open_descriptors() - before]
    ended.wait()

    assert [ended.pid] == watch.take_ended()
    assert [] == watch.take_ended()
    assert copies
    for fd in copies:
        os.close(fd)


def open_descriptors() -> set[int]:
    """Return this process's."""
    return {int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}
