"""The order of deaths that nobody has looked at meanwhile."""

from __future__ import annotations

import os
import random
import signal
import subprocess

import pytest

from ascend_runner.linux.death_order import DeathOrder
from tests.conftest import is_gone, wait_until


@pytest.fixture(autouse=True)
def _pidfds() -> None:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        pytest.skip(f"no pidfd here: {error.strerror}")


@pytest.mark.parametrize("seed", range(3))
def test_order_is_kept(seed: int) -> None:
    """Whoever ended first is told first, however late the question; whoever lives is not told."""
    order = DeathOrder()
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
    """No error, and nobody who depends on it: a process that was reaped, for one."""
    order = DeathOrder()
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    order.add(0, gone.pid)

    assert [] == order.ended()
    order.close()


def test_copy_of_the_descriptor_elsewhere() -> None:
    """A process that is being started has a copy of each descriptor for a moment: who is not watched is not told."""
    order = DeathOrder()
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
