"""Addresses and ports of a server list."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from ascend_runner.rank_table import checks, codec
from ascend_runner.rank_table.checks import family_of
from ascend_runner.rank_table.fields import BAD_ENVIRONMENT, BAD_VALUE
from tests.rank_table.rank_table_edits import ERROR, GONE, WARNING, Found, edited, problems

ONE = "server_list_8_devices"
TWO = "server_list_ranks_do_not_rise"
PODS = "server_list_2_super_pods"
FIRST_IP = "server_list[0].device[0].device_ip"
FIRST_PATH = "server_list[0].device[0].device_ip"


def _found(name: str, chip: str | None = None, **changes: Any) -> list[Found]:
    return problems(edited(name, **changes), chip)


@pytest.mark.parametrize(
    "value", ["192.168.0.300", "192.168.1", "x", " 10.0.0.1", "10.0.0.01", "a\x00b", "1.2.3.4,x"], ids=repr
)
def test_invalid_address(value: str) -> None:
    """An invalid address is rejected, even on a single server."""
    bad = value.rsplit(",", maxsplit=1)[-1]
    found = _found("server_list_device_ip_null", **{FIRST_IP: value})

    assert [(ERROR, FIRST_PATH, f"device_ip is {bad!r}, expected an IP address", BAD_VALUE)] == found


@pytest.mark.parametrize("value", ["loop", "-1", "-.-.-.-"])
def test_placeholder(value: str) -> None:
    """A platform's placeholder for a missing address is a warning on one server, and an error on several."""
    alone = f"device_ip is '{value}', which is not an address and works on a single server only"
    several = f"device_ip is '{value}', but every device needs one with several servers"

    assert [(WARNING, FIRST_PATH, alone, BAD_VALUE)] == _found(ONE, **{FIRST_IP: value})
    assert [(ERROR, FIRST_PATH, several, BAD_VALUE)] == _found(TWO, **{FIRST_IP: value})
    assert [(ERROR, FIRST_PATH, alone, BAD_VALUE)] == _found(
        TWO, **{FIRST_IP: value, "server_list[0].host_ip": "172.16.0.1"}
    )


@pytest.mark.parametrize("value", ["", GONE])
def test_missing_address(value: Any) -> None:
    """Addresses are required only with several servers."""
    sentence = "device_ip is missing, but every device needs one with several servers"

    assert [] == _found(ONE, **{FIRST_IP: value})
    assert [(ERROR, FIRST_PATH, sentence, BAD_VALUE)] == _found(TWO, **{FIRST_IP: value})


def test_host_ip_stands_in_for_missing_addresses() -> None:
    """A host_ip replaces missing device addresses, except on a 910B."""
    sentence = "device_ip is missing, but every device needs one with several servers"
    changes = {FIRST_IP: "", "server_list[0].host_ip": "172.16.0.1"}

    assert [] == _found(TWO, **changes)
    assert [(ERROR, FIRST_PATH, sentence, BAD_VALUE)] == _found(TWO, "910B", **changes)


def test_one_super_pod_needs_no_addresses() -> None:
    """Devices of one super-pod reach each other over its fabric; several super-pods need addresses."""
    changes: dict[str, Any] = {FIRST_IP: GONE, "server_list[0].host_ip": GONE}
    sentence = "device_ip is missing, but every device needs one with several servers"

    assert [] == _found("server_list_1_super_pod_without_device_ip", **{"server_list[0].host_ip": GONE})
    assert [] == _found(TWO, "A3", **{FIRST_IP: ""})[1:]  # but for the version
    assert (ERROR, FIRST_PATH, sentence, BAD_VALUE) in _found(PODS, **changes)


def test_duplicate_address() -> None:
    """A device_ip is unique in the whole table."""
    sentence = "duplicate device_ip '192.168.102.1' (first used in server_list[0].device[0])"
    path = "server_list[1].device[1].device_ip"

    assert [(ERROR, path, sentence, BAD_VALUE)] == _found(
        TWO, **{"server_list[1].device[1].device_ip": "192.168.102.1"}
    )


def test_two_spellings_of_an_address() -> None:
    """Two spellings of an IPv6 address are the same address, but not on two interfaces."""
    sentence = "duplicate device_ip 'FD00:0::1' (first used in server_list[0].device[0])"
    alone = "server_list_device_ip_null"  # one device, which may have several

    assert [(ERROR, FIRST_PATH, sentence, BAD_VALUE)] == _found(alone, **{FIRST_IP: "fd00::1,FD00:0::1"})
    assert [] == _found(alone, **{FIRST_IP: "fe80::1%eth0,fe80::1%eth1"})


def test_duplicate_address_of_one_device() -> None:
    """A device must not list an address twice."""
    sentence = "duplicate device_ip '10.0.0.1' (first used in server_list[0].device[0])"

    assert [(ERROR, FIRST_PATH, sentence, BAD_VALUE)] == _found(
        "server_list_device_ip_null", **{FIRST_IP: "10.0.0.1,10.0.0.1"}
    )


def test_several_addresses() -> None:
    """Devices may have several addresses, all of them equally many; HCCL ignores a trailing comma."""
    changes = {f"server_list[{s}].device[{d}].device_ip": f"10.{s}.{d}.1,10.{s}.{d}.2" for s in (0, 1) for d in (0, 1)}

    assert [] == _found(TWO, **changes)
    assert [] == _found(TWO, **{FIRST_IP: "10.0.0.1,"})
    changes["server_list[1].device[1].device_ip"] = "10.1.1.1"
    sentence = "device_ip has 1 address, but the first device has 2"
    # The first device of the table is that of rank 2, the first server's.
    assert [(ERROR, "server_list[1].device[1].device_ip", sentence, BAD_VALUE)] == _found(TWO, **changes)


def test_families_do_not_mix() -> None:
    """On several servers all addresses are of one family; on a single server HCCL ignores the family."""
    path = "server_list[1].device[1].device_ip"
    sentence = "device_ip 'fe80::1%eth0' is IPv6, but the first is IPv4"

    assert [(ERROR, path, sentence, BAD_ENVIRONMENT)] == _found(
        TWO, **{"server_list[1].device[1].device_ip": "fe80::1%eth0"}
    )
    assert [] == _found(ONE, **{FIRST_IP: "fe80::1"})


@pytest.mark.parametrize("value", ["", "node-0", "reserve"])
def test_invalid_host_ip(value: str) -> None:
    """A host_ip must be an address."""
    sentence = f"host_ip is '{value}', expected an IP address"

    assert [(ERROR, "server_list[0].host_ip", sentence, BAD_VALUE)] == _found(ONE, **{"server_list[0].host_ip": value})


def test_host_ip_of_another_family() -> None:
    """All host addresses are of one family."""
    sentence = "host_ip 'fe80::1' is IPv6, but the first is IPv4"
    changes = {"server_list[0].host_ip": "10.0.0.1", "server_list[1].host_ip": "fe80::1"}

    assert [(ERROR, "server_list[1].host_ip", sentence, BAD_VALUE)] == _found(TWO, **changes)


@pytest.mark.parametrize("key", ["device_port", "host_port", "backup_device_port", "device_vnic_port"])
@pytest.mark.parametrize("value", ["0", "65536", "-1", "x", "", "1" * 500], ids=len)
def test_invalid_port(key: str, value: str) -> None:
    """A port is a number from 1 to 65535."""
    said = repr(value) if len(value) < 60 else f"'{'1' * 60}'..."
    path = f"server_list[0].device[0].{key}"

    assert [(ERROR, path, f"{key} is {said}, expected 1 to 65535", BAD_VALUE)] == _found(
        ONE, **{f"server_list[0].device[0].{key}": value}
    )


def test_reserved_port() -> None:
    """Ports up to 1023 belong to the system."""
    sentence = "device_port is 1023, a port reserved for the system"
    changes = {"server_list[0].device[0].device_port": "1023"}

    assert [(WARNING, "server_list[0].device[0].device_port", sentence, "")] == _found(ONE, **changes)


def test_duplicate_host_port() -> None:
    """Devices of one server must not share a host_port."""
    sentence = "duplicate host_port 60001 on this server (first used in server_list[0].device[0])"
    changes = {"server_list[0].device[1].host_port": "60001"}

    assert [(WARNING, "server_list[0].device[1].host_port", sentence, "")] == _found(PODS, **changes)


def test_invalid_backup_address() -> None:
    """An invalid backup address is only a warning, as HCCL reads backup addresses only for some retries."""
    sentence = "backup_device_ip is 'x', expected an IP address"
    changes = {"server_list[0].device[1].backup_device_ip": "x"}

    assert [(WARNING, "server_list[0].device[1].backup_device_ip", sentence, BAD_VALUE)] == _found(PODS, **changes)


NO_HOST = {"server_list[3].host_ip": GONE}
NO_BACKUP = {"server_list[0].device[1].backup_device_ip": GONE}


@pytest.mark.parametrize(
    ("levels", "changes", "missing"),
    [
        ("L1:1,L2:1", {}, []),
        ("L0:0, L1:0, L2:0", {**NO_HOST, **NO_BACKUP}, []),
        ("", {**NO_HOST, **NO_BACKUP}, []),
        ("L0:0, L1:1, L2:0", {**NO_HOST, **NO_BACKUP}, ["host_ip"]),
        ("L1:0,L2:1", {**NO_HOST, **NO_BACKUP}, ["host_ip", "backup_device_ip"]),
        ("L1:1, L2:1", NO_BACKUP, ["backup_device_ip"]),
    ],
)
def test_addresses_for_retries(levels: str, changes: dict[str, Any], missing: list[str]) -> None:
    """Operations that HCCL is to retry need host_ip, and between super-pods the address of another die."""
    table = codec.examine(edited(PODS, **changes), source="a.json")

    assert missing == [problem.sentence.split()[0] for problem in checks.check_retry(table, levels)]


def test_paths_of_a_group_list() -> None:
    """A group list is checked as the server list that it becomes; paths refer to the group list."""
    changes: dict[str, Any] = {"group_list[0].instance_list[0].devices[1].device_ip": GONE}
    path = "group_list[0].instance_list[0].devices[1].device_ip"
    sentence = "device_ip is missing, but every device needs one with several servers"

    assert [(ERROR, path, sentence, BAD_VALUE)] == _found("group_list_3_pods_listed_2_10_1", **changes)


@pytest.mark.parametrize(
    ("address", "family"),
    [
        ("1.2.3.4", socket.AF_INET),
        ("::1", socket.AF_INET6),
        ("fe80::1%e", socket.AF_INET6),
        ("1.2.3", 0),
        ("\ud800", 0),
    ],
)
def test_family(address: str, family: int) -> None:
    """An address is what inet_pton accepts; an IPv6 address may name an interface."""
    assert family == family_of(address)
