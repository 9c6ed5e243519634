"""Where the runners of a job meet, and the key by which they know each other. Pure.

All nodes compute the same ports and the same key, each from its own environment. The rank table and addresses are not
part of the key: they change when a platform replaces a pod.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from ascend_runner.errors import AscendRunnerError

if TYPE_CHECKING:
    from ascend_runner.rank_table.model import RankTable

SECRET: Final = "ASCEND_RUNNER_LINK_SECRET"  # noqa: S105  the name of a variable, as the next one
SECRET_FILE: Final = "ASCEND_RUNNER_LINK_SECRET_FILE"  # noqa: S105
SHORTEST_SECRET: Final = 16  # bytes

PORTS: Final = 8
# Below the ephemeral ports (32768-60999) with HCCL's 60000-60031, and below the NodePorts of Kubernetes (30000-32767).
FIRST_PORT: Final = 17000
LAST_PORT: Final = 29999
HCCL_PORTS: Final = 32  # from HCCL_IF_BASE_PORT on
TAKEN: Final = frozenset({16666, 25809, 29500})  # HCCL's device port, a base port of many scripts, torch's default

LONGEST_NAME: Final = 253  # of a host, see RFC 1035

# 4 MiB and 10 ms, in each runner. More would not protect a derived key, which consists of what everybody in the cluster
# can see, and a secret of 16 random bytes needs no stretching.
SCRYPT: Final = {"n": 1 << 12, "r": 8, "p": 1, "dklen": 64}


def identity_of(job_id: str, job_name: str, master_port: int) -> str:
    """Return the text that all nodes of a job, and no other job, have in common: "" if they have none.

    `job_id` is the platform's, "" without one.
    """
    if job_id:
        return f"id {job_id}"
    return f"name {job_name} {master_port}" if job_name else ""


def secret_of(environ: Mapping[str, str], read: Callable[[str], bytes]) -> bytes:
    """Return the secret that a user has set, b"" without one; `read` returns the content of a file.

    Raises:
        AscendRunnerError: The secret is too short.
        OSError: Its file cannot be read.
    """
    path, text = environ.get(SECRET_FILE, ""), environ.get(SECRET, "")
    if not (path or text):
        return b""
    secret = text.encode(errors="surrogateescape") if text else read(path)
    secret = secret.strip()  # an editor ends a file with a newline
    if len(secret) < SHORTEST_SECRET:
        name = SECRET if text else f"{SECRET_FILE} ({path})"
        raise AscendRunnerError(f"{name} has {len(secret)} bytes, expected at least {SHORTEST_SECRET}")
    return secret


def derive_key(identity: str, secret: bytes = b"") -> bytes:
    """Return the 64 bytes by which the runners of a job know each other: the secret keys of the hub and of all spokes.

    Without a secret they identify the job, but protect nothing. With one, two jobs still have different keys.

    Raises:
        AscendRunnerError: This Python cannot compute it.
    """
    if not hasattr(hashlib, "scrypt"):
        raise AscendRunnerError("this Python was built without scrypt (OpenSSL 1.1 or newer)")
    text = identity.encode(errors="surrogateescape")
    return hashlib.scrypt(secret or text, salt=b"ascend-runner link\0" + text, **SCRYPT)


def derive_ports(identity: str, environ: Mapping[str, str], taken: Collection[int] = ()) -> tuple[int, ...]:
    """Return the eight ports at which the hub may be, in order; none of `taken`, such as MASTER_PORT, nor of HCCL's."""
    digest = hashlib.blake2b(identity.encode(errors="surrogateescape"), digest_size=8).digest()
    base = environ.get("HCCL_IF_BASE_PORT", "")
    hccl = range(int(base), int(base) + HCCL_PORTS) if base.isdecimal() else range(0)
    size = LAST_PORT - FIRST_PORT + 1
    start = int.from_bytes(digest, "big") % size
    ports = (FIRST_PORT + (start + index) % size for index in range(size))
    free = (port for port in ports if port not in TAKEN and port not in taken and port not in hccl)
    return tuple(next(free) for _ in range(PORTS))


def candidates(table: RankTable | None, environ: Mapping[str, str], master_addr: str = "") -> tuple[str, ...]:
    """Return the addresses and names at which node 0 may be, the most likely first.

    On MindCluster, MASTER_ADDR is a ClusterIP that carries only declared ports, so it is the last.
    """
    found: list[object] = []
    if table and table.devices:
        first = next(server for server in table.servers if table.devices[0] in server.devices)
        keys = {**table.devices[0].extra_keys, **first.extra_keys}
        found += [keys.get("container_ip"), keys.get("host_ip"), first.server_id, *first.addresses]
    found += [environ.get("VC_WORKER_HOSTS", "").split(",")[0].strip(), master_addr]
    return tuple(dict.fromkeys(place for place in found if isinstance(place, str) and _is_place(place)))


def _is_place(text: str) -> bool:
    """Whether it can be an address or a name; a server_id may be any text, and ZeroMQ has a syntax of its own."""
    return 0 < len(text) <= LONGEST_NAME and all(letter.isalnum() or letter in ".-_:%" for letter in text)
