"""The facilities of the machine that tests rely on: variables, ports, and programs that start others."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import pytest

from ascend_runner.platforms.node import HCCL_BASE_PORT, HCCL_PORTS
from tests.helpers.waiting import LIMIT

# The commands of the package are on PATH, as they are where users have installed it: sentences name them.
os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], os.path.dirname(sys.executable)])
# The jobs of tests do not appear among those of the user.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# The variables that are passed on from the machine: no other one may change what is tested.
CLEAN: Final = {
    name: value
    for name, value in os.environ.items()
    if name
    in {
        "PATH",
        "HOME",
        "XDG_STATE_HOME",
        "LANG",
        "TMPDIR",
        "VIRTUAL_ENV",
        "PYTHONDONTWRITEBYTECODE",
        "COVERAGE_PROCESS_START",
    }
}
# Variables with which each run of the quick tier does less; those of a test override them.
LEANER: Final[dict[str, str]] = {}


def bound_to_free_port() -> socket.socket:
    """Bind a free port that HCCL does not use; HCCL's ports are among those that the kernel assigns."""
    while True:
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        if bound.getsockname()[1] not in range(HCCL_BASE_PORT, HCCL_BASE_PORT + HCCL_PORTS):
            return bound
        bound.close()


@contextmanager
def descriptors_copied() -> Iterator[None]:
    """Keep copies of all open descriptors, as a child has them that hangs in execve(2)."""
    with ExitStack() as copies:
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # the one of the listing itself
                copies.callback(os.close, os.dup(int(name)))
        yield


def permitted(*words: str) -> tuple[str, ...]:
    """Return the command line of a program that starts others, or skip the test if it is not permitted here."""
    try:
        tried = subprocess.run([*words, "true"], capture_output=True, text=True, timeout=LIMIT, check=False)
    except FileNotFoundError:
        pytest.skip(f"{words[0]} is not installed")
    if tried.returncode:
        pytest.skip(f"{' '.join(words)} is not permitted here: {tried.stderr.strip()}")
    return words
