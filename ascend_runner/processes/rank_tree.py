"""Read the processes of a rank from /proc, with the signals that each of them handles (proc(5))."""

from __future__ import annotations

import platform
import signal
import sys
from collections.abc import Iterable
from typing import Final

from ascend_runner.guardian import process_tree
from ascend_runner.supervision.signal_targets import RankProcess

# The number of rt_sigtimedwait(2) on each architecture. A process that sleeps in it receives the signals that it waits
# for by that call, as tini, dumb-init and a guardian do, and has no handler that /proc could show. Nor does SigBlk show
# them: the kernel unblocks them for as long as the process sleeps.
SIGTIMEDWAIT: Final = {"x86_64": "128", "aarch64": "137"}.get(platform.machine(), "")
STOP_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})

_ENDED: Final = frozenset({"Z", "X"})
_SESSION: Final = 3  # fields of /proc/PID/stat, counted from the one behind the name
_STARTED: Final = 19


def read(pids: Iterable[int]) -> tuple[RankProcess, ...]:
    """Return the living processes among `pids`, each with all living processes below it.

    Processes that end or start meanwhile may be missing.
    """
    tops = list(pids)
    children: dict[int, list[int]] = {}
    order: list[int] = []
    to_visit = list(tops)
    while to_visit:
        pid = to_visit.pop()
        children[pid] = process_tree.children(pid)
        order.append(pid)
        to_visit += children[pid]

    found: dict[int, RankProcess] = {}
    for pid in reversed(order):  # children before their parents
        process = _read(pid, tuple(found[child] for child in children[pid] if child in found))
        if process is not None:
            found[pid] = process
    return tuple(found[pid] for pid in tops if pid in found)


def _read(pid: int, children: tuple[RankProcess, ...]) -> RankProcess | None:
    try:
        stat = _text(pid, "stat")
        status = dict(line.split(":\t", 1) for line in _text(pid, "status").splitlines() if ":\t" in line)
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[0] in _ENDED:
        return None

    return RankProcess(
        pid=pid,
        started=int(fields[_STARTED]),
        name=stat.partition("(")[2].rpartition(")")[0],
        session=int(fields[_SESSION]),
        handled=_signals(int(status["SigCgt"], 16)) | _awaited(pid),
        ignored=_signals(int(status["SigIgn"], 16)),
        children=children,
    )


def _awaited(pid: int) -> frozenset[int]:
    """Return the signals that the process sleeps for in sigtimedwait(2)."""
    try:
        number, *arguments = _text(pid, "syscall").split()
        if number != SIGTIMEDWAIT:
            return frozenset()
    except (OSError, ValueError):  # not ours to look at, ended, or a kernel that does not tell
        return frozenset()
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(int(arguments[0], 16))
            return _signals(int.from_bytes(memory.read(8), sys.byteorder))
    except (OSError, ValueError):
        return STOP_SIGNALS  # what an init process waits for in any case


def _text(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read().decode(errors="replace")


def _signals(mask: int) -> frozenset[int]:
    """Return the signals of a kernel's mask, whose lowest bit is signal 1."""
    return frozenset(signum for signum in range(1, 65) if mask >> (signum - 1) & 1)
