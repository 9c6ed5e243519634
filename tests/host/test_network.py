"""Addresses of this machine, and of other nodes whose names become known late."""

from __future__ import annotations

import pytest

from ascend_runner.errors import SettingsError, StopRequestedError
from ascend_runner.host import network


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
    """What the pause raises ends the wait."""

    def stop(_seconds: float) -> None:
        raise StopRequestedError(15, "SIGTERM")

    with pytest.raises(StopRequestedError):
        network.await_address("no name", pause=stop, announce=lambda _: None)
