"""Nodes of a job compute the same ports and key, other jobs another key, and look for the hub at the right places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner import rank_table
from ascend_runner.errors import AscendRunnerError
from ascend_runner.link.meeting import (
    FIRST_PORT,
    LAST_PORT,
    PORTS,
    SECRET,
    SECRET_FILE,
    candidates,
    derive_key,
    derive_ports,
    identity_of,
    secret_of,
)

TABLE = b"""{"version": "1.0", "status": "completed", "server_count": "2", "server_list": [
    {"server_id": "10.0.0.2", "host_ip": "10.0.0.12", "container_ip": "172.16.0.2",
     "device": [{"device_id": "0", "device_ip": "192.168.0.2", "rank_id": "1"}]},
    {"server_id": "10.0.0.1", "host_ip": "10.0.0.11", "container_ip": "172.16.0.1",
     "device": [{"device_id": "0", "device_ip": "192.168.0.1", "rank_id": "0"}]}]}"""


@given(st.text(), st.integers(1, 65535), st.integers(1, 65535))
def test_ports_avoid_all_others(identity: str, master_port: int, base_port: int) -> None:
    """Eight ports, the same on all nodes, none of the ephemeral ones, of HCCL's, or MASTER_PORT."""
    environ = {"HCCL_IF_BASE_PORT": str(base_port)}
    ports = derive_ports(identity, environ, (master_port,))

    assert ports == derive_ports(identity, environ, (master_port,))
    assert PORTS == len(set(ports))
    assert all(FIRST_PORT <= port <= LAST_PORT for port in ports)
    assert set() == set(ports) & {master_port, 16666, 29500, *range(base_port, base_port + 32)}


def test_jobs_have_keys_of_their_own() -> None:
    """The key depends on the job, and on the secret if there is one."""
    keys = [derive_key(identity, secret) for identity in ("id 1", "id 2") for secret in (b"", b"a" * 16, b"b" * 16)]

    assert 6 == len(set(keys))
    assert {64} == set(map(len, keys))


def test_job_is_known_by_id_or_name() -> None:
    """The platform's id names a job; without one its name and its port do; without both, nothing does."""
    assert ["id 7", "name train 29500", ""] == [
        identity_of("7", "train", 29500),
        identity_of("", "train", 29500),
        identity_of("", "", 29500),
    ]


def test_secret_is_read() -> None:
    """A secret comes from its variable or its file, without the newline at its end."""
    found = [
        secret_of(environ, {"/secret": b"0123456789abcdef\n"}.__getitem__)
        for environ in ({}, {SECRET: "a secret of 24 bytes ..."}, {SECRET_FILE: "/secret"})
    ]

    assert [b"", b"a secret of 24 bytes ...", b"0123456789abcdef"] == found


@pytest.mark.parametrize("environ", [{SECRET: "short"}, {SECRET_FILE: "/secret"}])
def test_short_secret_is_refused(environ: dict[str, str]) -> None:
    """A secret that could be guessed is refused, without showing it."""
    with pytest.raises(AscendRunnerError, match="has 5 bytes, expected at least 16") as raised:
        secret_of(environ, lambda _path: b"short\n")

    assert "short" not in str(raised.value)


def test_hub_is_looked_for_where_rank_0_is() -> None:
    """The addresses of rank 0's server come first, the service's address last; each once, and no other texts."""
    table = rank_table.loads(TABLE)
    environ = {"VC_WORKER_HOSTS": "job-worker-0.job,job-worker-1.job"}

    assert ("172.16.0.1", "10.0.0.11", "10.0.0.1", "job-worker-0.job", "10.96.0.7") == candidates(
        table, environ, "10.96.0.7"
    )
    assert ("10.0.0.1",) == candidates(None, {"VC_WORKER_HOSTS": " ,x"}, "10.0.0.1")
    assert () == candidates(None, {}, "tcp://*")
