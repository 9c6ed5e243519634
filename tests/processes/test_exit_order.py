"""The order in which unobserved processes exited."""

from __future__ import annotations

import os
import random
import signal
import subprocess

import pytest

from ascend_runner.processes.exit_order import ExitOrder
from tests.helpers.waiting import is_gone, wait_until


@pytest.fixture(autouse=True)
def _pidfds() -> None:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        pytest.skip(f"no pidfd here: {error.strerror}")


@pytest.mark.parametrize("seed", range(3))
def test_order_is_kept(seed: int) -> None:
    """Exits are reported in order, however late they are read; living processes are not reported."""
    order = ExitOrder()
    sleepers = {number: subprocess.Popen(["/bin/sleep", "1000"]) for number in range(6)}
    try:
        for number, sleeper in sleepers.items():
            order.add(number, sleeper.pid)
        assert [] == order.ended()
        expected = random.Random(seed).sample(range(6), 5)  # noqa: S311  not a secret
        for number in expected:
            os.kill(sleepers[number].pid, signal.SIGKILL)
            wait_until(lambda number=number: is_gone(sleepers[number].pid))

        assert expected == order.ended() == order.ended()
        order.discard(expected[1])
        order.discard(expected[1])
        assert [expected[0], *expected[2:]] == order.ended()
    finally:
        order.close()
        order.close()
        for sleeper in sleepers.values():
            sleeper.kill()
            sleeper.wait()


def test_who_cannot_be_watched_is_missing() -> None:
    """A process that cannot be watched, such as a reaped one, is not an error."""
    order = ExitOrder()
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    order.add(0, gone.pid)

    assert [] == order.ended()
    order.close()


def test_copy_of_the_descriptor_elsewhere() -> None:
    """A process being started briefly holds a copy of each descriptor: unwatched processes are not reported."""
    order = ExitOrder()
    ended = subprocess.Popen(["/bin/true"])
    order.add(1, os.getpid())
    before = open_descriptors()
    order.add(0, ended.pid)
    copies = [os.dup(fd) for fd in open_descriptors() - before]
    wait_until(lambda: [0] == order.ended())
    order.discard(0)

    assert [] == order.ended()
    order.close()
    ended.wait()
    assert copies
    for fd in copies:
        os.close(fd)


def open_descriptors() -> set[int]:
    """Give this process's."""
    return {int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}
