"""Addresses of this machine, and of other nodes whose names become known late."""

from __future__ import annotations

import socket

import pytest

from ascend_runner.errors import SettingsError, StopRequestedError
from ascend_runner.node import network
from tests.helpers.surroundings import bound_to_free_port


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


def test_held_port_is_the_runners_alone() -> None:
    """No other process can hold a held port, and a server of the job can listen on it, at any address."""
    with bound_to_free_port() as free:
        port = free.getsockname()[1]
    held = network.hold_port([port])
    assert held
    with held:
        assert network.hold_port([port]) is None
        for address in ("127.0.0.1", ""):
            with socket.create_server((address, port)) as server:
                assert network.hold_port([port]) is None
                socket.create_connection(server.getsockname()).close()


def test_port_that_somebody_uses_is_passed_over() -> None:
    """The first free port is held."""
    with bound_to_free_port() as used, bound_to_free_port() as free:
        ports = [used.getsockname()[1], free.getsockname()[1]]
        free.close()
        held = network.hold_port(ports)
        assert held
        with held:
            assert ports[1] == held.getsockname()[1]
