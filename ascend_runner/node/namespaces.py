"""Network namespaces for the nodes of a simulated job, joined by a bridge in a namespace of its own. Needs root.

No namespace has a name: only descriptors of this process and the processes in it keep it, so that the kernel removes
it, with its interfaces, when they have ended, however they end. A bridge in the machine's own namespace would stay
after a SIGKILL.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ascend_runner.errors import OutputError, reason
from ascend_runner.node import bounded
from ascend_runner.programs import find_tool

CLONE_NEWNET: Final = 0x40000000  # linux/sched.h; in Python's os from 3.12 on
INTERFACE: Final = "eth0"  # of each node
TOOL_LIMIT: Final = 10.0  # seconds for ip(8), which needs milliseconds
TOOL_FOLDERS: Final = ("/usr/sbin", "/sbin", "/usr/bin", "/bin")


class Namespaces:
    """A namespace for each node. The thread that has made them is the only one that may use them."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """Prepare namespaces for nodes with these IPv4 addresses of one network of 24 bits."""
        self._addresses = addresses
        self._bridge = -1  # the namespace of the bridge, as a descriptor
        self._nodes: list[int] = []  # those of the nodes

    def open(self) -> None:
        """Make the namespaces.

        Raises:
            OutputError: This process lacks the privilege, or the system lacks a feature or ip(8).
        """
        try:
            self._bridge = _new_namespace()
            with _entered(self._bridge):
                _ip("link add bridge type bridge", "link set bridge up")
            for number, address in enumerate(self._addresses):
                self._add(f"node{number}", address)
        except OSError as error:
            raise OutputError(reason(error)) from error

    def _add(self, port: str, address: str) -> None:
        node = _new_namespace()
        self._nodes.append(node)
        with _entered(self._bridge):
            _ip(
                f"link add {port} type veth peer name {INTERFACE} netns /proc/{os.getpid()}/fd/{node}",
                f"link set {port} master bridge up",
            )
        with _entered(node):
            _ip("link set lo up", f"address add {address}/24 dev {INTERFACE}", f"link set {INTERFACE} up")

    @contextmanager
    def inside(self, node: int) -> Iterator[None]:
        """Let processes that this thread starts within `with` run in the namespace of a node."""
        with _entered(self._nodes[node]):
            yield

    def close(self) -> None:
        """Give up the namespaces: each ends with its last process. May be called twice."""
        while self._nodes:
            os.close(self._nodes.pop())
        if self._bridge >= 0:
            os.close(self._bridge)
            self._bridge = -1


@contextmanager
def _entered(namespace: int) -> Iterator[None]:
    own = _own_namespace()
    try:
        _call("setns", namespace, CLONE_NEWNET)
        try:
            yield
        finally:
            _call("setns", own, CLONE_NEWNET)
    finally:
        os.close(own)


def _new_namespace() -> int:
    own = _own_namespace()
    try:
        _call("unshare", CLONE_NEWNET)
        try:
            return _own_namespace()
        finally:
            _call("setns", own, CLONE_NEWNET)
    finally:
        os.close(own)


def _own_namespace() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _call(name: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), name)


def _ip(*commands: str) -> None:
    program = find_tool("ip", [*os.get_exec_path(), *TOOL_FOLDERS])
    if not program:
        raise OutputError("ip (iproute2) is not installed")
    for command in commands:
        done = bounded.run([program, *command.split()], TOOL_LIMIT)
        if done is None or done.returncode != 0:
            said = done.stderr.strip() if done else f"no answer within {TOOL_LIMIT:g} s"
            raise OutputError(f"ip {command}: {said}")
