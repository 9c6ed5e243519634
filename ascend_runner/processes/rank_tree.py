"""Reads the processes of a rank from /proc, with the signals that each of them handles (proc(5))."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from typing import Final

from ascend_runner.guardian import process_tree
from ascend_runner.guardian.process_tree import Descendant
from ascend_runner.guardian.signal_sets import STOP_SIGNALS
from ascend_runner.supervision.signal_targets import RankProcess

# The number of rt_sigtimedwait(2) on each architecture. A process blocked in it (tini, dumb-init, a guardian) handles
# the signals it waits for without a handler, so neither SigCgt nor SigBlk shows them: the kernel unblocks them for as
# long as the process sleeps.
SIGTIMEDWAIT: Final = {"x86_64": "128", "aarch64": "137"}.get(platform.machine(), "")


def read(found: Iterable[Descendant]) -> tuple[RankProcess, ...]:
    """Return the topmost processes, each with all processes below it; `found` lists parents before their children."""
    children: dict[int, list[RankProcess]] = {}
    processes = [process for process in found if not process.is_zombie]
    pids = {process.pid for process in processes}
    for process in reversed(processes):
        handled, ignored = _handled_and_ignored(process)
        above = process.parent if process.parent in pids else 0
        children.setdefault(above, []).append(
            RankProcess(
                pid=process.pid,
                started=process.started,
                name=process.name,
                session=process.session,
                handled=handled,
                ignored=ignored,
                children=tuple(children.get(process.pid, ())),
            )
        )
    return tuple(children.get(0, ()))


def _handled_and_ignored(process: Descendant) -> tuple[frozenset[int], frozenset[int]]:
    """Return the signals that a process handles, and those that it ignores.

    A process that cannot be signaled or inspected counts as handling no signals.
    """
    try:
        status = dict(line.split(":\t", 1) for line in _text(process.pid, "status").splitlines() if ":\t" in line)
    except OSError:
        return frozenset(), frozenset()
    ignored = _signals(int(status["SigIgn"], 16))
    if not process_tree.may_signal(process.pid):
        return frozenset(), ignored
    return _signals(int(status["SigCgt"], 16)) | _awaited(process.pid), ignored


def _awaited(pid: int) -> frozenset[int]:
    """Return the signals that the process sleeps for in sigtimedwait(2)."""
    try:
        number, *arguments = _text(pid, "syscall").split()
        if number != SIGTIMEDWAIT:
            return frozenset()
    except (OSError, ValueError):  # not accessible, ended, or not reported by this kernel
        return frozenset()
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(int(arguments[0], 16))
            return _signals(int.from_bytes(memory.read(8), sys.byteorder))
    except (OSError, ValueError):
        return STOP_SIGNALS  # what an init process waits for in any case


def _text(pid: int, name: str) -> str:
    return process_tree.read(pid, name).decode(errors="replace")


def _signals(mask: int) -> frozenset[int]:
    """Return the signals of a kernel's mask, whose lowest bit is signal 1."""
    return frozenset(signum for signum in range(1, 65) if mask >> (signum - 1) & 1)
