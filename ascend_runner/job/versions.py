"""What a node tells the others of its software and settings, so that they can be compared before the first step."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from ascend_runner.engines.command import file_of
from ascend_runner.link.messages import VARIABLES
from ascend_runner.node import versions
from ascend_runner.node.host import Host
from ascend_runner.plan.spec import JobSpec, RankSpec
from ascend_runner.secrets import Masker

# Variables that differ by nature: addresses, devices, and directories that each node or rank may have for itself.
OWN: Final = re.compile(r"ASCEND_RUNNER_.*|.*_(?:IP|ID|DEVICES|LOG_PATH|WORK_PATH|CACHE_PATH)")
MOST_VARIABLES: Final = 40  # so that they fit into a message, see `link.wire`
LONGEST_VALUE: Final = 64  # characters; a longer value is shortened and followed by its hash
HASH_LENGTH: Final = 8  # characters


def of_node(spec: JobSpec, host: Host) -> tuple[tuple[str, str], ...]:
    """Return names and values as `link.messages.Local` has them. The disks that this reads may hang."""
    ranks = spec.ranks or spec.beside  # another launcher has no rank
    rank = ranks[0]
    own = {"WORLD_SIZE": str(spec.rank_size or ""), "ascend-runner": spec.runner_version}
    known = {name: value for name, value in own.items() if value}
    software = versions.of_rank(host, rank.executable, rank.env, rank.cwd)
    found = {**known, **software, **_script(rank, host), **_variables([rank.env for rank in ranks])}
    return tuple((name, _short(value)) for name, value in found.items())


def _script(rank: RankSpec, host: Host) -> dict[str, str]:
    path = file_of(rank.argv)
    data = host.read_bytes(os.path.join(rank.cwd, path)) if path else b""
    return {"script": f"{os.path.basename(path)} (SHA-256 {_hash(data)})"} if data else {}


def _variables(environs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the variables of HCCL and CANN that all ranks of this node share, masked."""
    first, *others = environs
    names = sorted(name for name in first if name.startswith(VARIABLES) and not OWN.fullmatch(name))
    shared = [name for name in names if all(other.get(name) == first[name] for other in others)]
    return Masker().variables({name: first[name] for name in shared[:MOST_VARIABLES]})


def _short(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]}... (SHA-256 {_hash(value.encode())})"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:HASH_LENGTH]
