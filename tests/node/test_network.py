"""Addresses of this machine, and of other nodes whose names become known late."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ascend_runner.errors import SettingsError, StopRequestedError
from ascend_runner.node import network
from ascend_runner.node.host import Host
from tests.helpers.surroundings import bound_to_free_port, permitted


def _refuse_to_wait(seconds: float) -> None:
    pytest.fail(f"waited {seconds} s")


def test_own_addresses() -> None:
    """Loopback addresses are left out: every machine has them."""
    assert not {"127.0.0.1", "::1"} & {*network.own_addresses()}


def test_known_name() -> None:
    """An address is returned at once, without a lookup."""
    assert "127.0.0.1" == network.await_address("127.0.0.1", pause=_refuse_to_wait, announce=pytest.fail)


def test_invalid_name() -> None:
    """A name that cannot be a host name is an error at once."""
    with pytest.raises(SettingsError):
        network.await_address("bad..name", pause=_refuse_to_wait, announce=pytest.fail)


def test_wait_is_announced_once_and_has_a_limit() -> None:
    """A name that never becomes known is an error after the limit; the wait is announced once."""
    pauses: list[float] = []
    announced: list[str] = []

    with pytest.raises(SettingsError):
        network.await_address("no name", pause=pauses.append, announce=announced.append)

    assert network.RESOLVE_LIMIT == sum(pauses)
    assert 1 == len(announced)


def test_wait_ends_with_a_signal() -> None:
    """An exception of the pause ends the wait."""

    def stop(_seconds: float) -> None:
        raise StopRequestedError(15, "SIGTERM")

    with pytest.raises(StopRequestedError):
        network.await_address("no name", pause=stop, announce=lambda _: None)


RESERVES = """
import sys
from ascend_runner.node import network
sys.stdin.readline()
found = network.reserve_port(range(int(sys.argv[1]), int(sys.argv[1]) + 9))
print(found[0] if found else None, flush=True)
sys.stdin.readline()
"""


@contextmanager
def reserving(port: int, *under: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process that waits for a line, reserves a port from this one on, and keeps it until its input ends."""
    words = [*under, sys.executable, "-c", RESERVES, str(port)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


def reserved_by(*processes: subprocess.Popen[str]) -> list[str]:
    """Let processes reserve ports at the same time, and return the ports."""
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    return [process.stdout.readline().strip() for process in processes if process.stdout]


@pytest.fixture
def port() -> int:
    """Return a port that nothing uses, below those that the kernel assigns."""
    return next(iter(free_ports()))


def free_ports() -> Iterator[int]:
    """Yield ports that nothing uses, in a random order, each with some free ones behind it."""
    for port in random.sample(range(10_000, 29_000, 10), 1_000):
        reservation = network.reserve_port([port])
        if reservation:
            reservation[1].close()
            yield port


@pytest.mark.parametrize("address", ["127.0.0.1", "", "::1"])
def test_reserved_port_is_free_for_servers(address: str, port: int) -> None:
    """No other runner reserves it, and any server can listen on it, also one without SO_REUSEADDR."""
    found = network.reserve_port([port])
    assert found
    with found[1], socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
        server.bind((address, port))
        server.listen()

        assert (port, None) == (found[0], network.reserve_port([port]))
    again = network.reserve_port([port])
    assert again
    again[1].close()


def test_port_that_somebody_uses_is_passed_over(port: int) -> None:
    """The first free port is reserved."""
    with bound_to_free_port() as used:
        found = network.reserve_port([used.getsockname()[1], port])
        assert found
        with found[1]:
            assert port == found[0]


def test_reservations_at_the_same_time(port: int) -> None:
    """Runners that choose at the same moment choose different ports, and one that is killed gives its own back."""
    with ExitStack() as running:
        processes = [running.enter_context(reserving(port)) for _number in range(4)]
        chosen = reserved_by(*processes)
        for process in processes:
            process.kill()

    assert 4 == len({*chosen} - {"None"})
    found = network.reserve_port([port])
    assert found
    found[1].close()


def test_reservation_in_another_network(port: int) -> None:
    """A container with a network of its own has ports of its own."""
    found = network.reserve_port([port])
    assert found
    with found[1], reserving(port, *permitted("unshare", "--user", "--net")) as process:
        assert [str(port)] == reserved_by(process)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("32768\t60999\n", range(32768, 61000)), ("", range(0)), ("1024\t", range(0))],
    ids=["usual", "unknown", "odd"],
)
def test_temporary_ports(text: str, expected: range, tmp_path: Path) -> None:
    """The range is the kernel's, and empty where it cannot be read."""
    place = tmp_path / "proc" / "sys" / "net" / "ipv4" / "ip_local_port_range"
    place.parent.mkdir(parents=True)
    place.write_text(text)

    assert expected == network.temporary_ports(Host(str(tmp_path)))
