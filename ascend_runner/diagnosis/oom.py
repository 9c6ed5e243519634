"""Finds the processes of this job that the kernel has killed for lack of memory.

Reading the log may need CAP_SYSLOG, and few containers have /dev/kmsg: without it nothing is known.

Sources: the kernel's mm/oom_kill.c and mm/memcontrol.c (since 5.0 one line begins with "oom-kill:" and holds the memory
cgroup of the victim; before, it began with "Task in"), Documentation/ABI/testing/dev-kmsg.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from typing import Final

from ascend_runner.diagnosis.endings import Circumstances
from ascend_runner.node import bounded, cores
from ascend_runner.node.bounded import PATIENT, Patience
from ascend_runner.node.host import Host
from ascend_runner.node.memory import MemorySample
from ascend_runner.text import shown, size


def between(before: MemorySample, now: MemorySample) -> Circumstances:
    """Return the OOM kills since `before`, and the limits and uses as they are now."""
    return Circumstances(
        own_oom_kills=_difference(before.own_oom_kills, now.own_oom_kills),
        machine_oom_kills=_difference(before.machine_oom_kills, now.machine_oom_kills),
        memory_limit=now.limit,
        memory_peak=now.peak,
        shm_size=now.shm_size,
        shm_used=now.shm_used,
    )


def _difference(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else max(0, now - before)


LIMIT: Final = 1.0  # seconds
RECORD: Final = 8192  # bytes; the kernel refuses to return a record to a smaller buffer than it needs
KMSG: Final = os.makedev(1, 11)  # in some containers /dev/kmsg is a link to a terminal; its input is not ours
FIRST_NAMESPACE: Final = 0xEFFFFFFC  # inode of the PID namespace in which the log counts (PROC_PID_INIT_INO)


def victims(host: Host, counted: Circumstances, patience: Patience = PATIENT) -> tuple[str, ...]:
    """Return the victims of the OOM kills that were `counted`, the oldest first: "python (pid 4711, 44.8 MiB)".

    Those in this cgroup are distinguished from others by its path, which may be unknown in a container.
    """
    own, machine = counted.own_oom_kills or 0, counted.machine_oom_kills or 0
    if not (own or machine):
        return ()
    lines: list[str] = []
    bounded.call(LIMIT, lambda: lines.extend(_read(host)), patience.is_hurried)
    killed = _killed(lines, has_pids=_has_pids(host))
    path = cores.path_of_memory(host).rstrip("/")
    if own and path:
        return tuple(name for group, name in killed if f"{group}/".startswith(f"{path}/"))[-own:]
    if own and own != machine:
        return ()
    return tuple(name for _group, name in killed)[-machine:]


def _read(host: Host) -> list[str]:
    """Return the lines of the log that report kills, oldest first."""
    found: list[str] = []
    try:
        path = host.path("/dev/kmsg")
        about = os.stat(path)
        if stat.S_ISCHR(about.st_mode) and about.st_rdev != KMSG:
            return found
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return found  # missing, or not permitted

    with open(descriptor, "rb", buffering=0) as log:
        while True:
            try:
                record = log.read(RECORD)
            except BrokenPipeError:
                continue  # overwritten meanwhile; the next one is the oldest that is left
            if not record:
                return found
            found += [line for line in record.decode(errors="replace").splitlines() if _OF_KILLS.search(line)]


def _killed(lines: Iterable[str], *, has_pids: bool) -> list[tuple[str, str]]:
    """Return the cgroup and the description of each victim."""
    found: list[tuple[str, str]] = []
    group = ""
    for line in lines:
        if named := _GROUP.search(line):
            group = named[1]
        if victim := _VICTIM.search(line):
            pid, name, sizes = victim.groups()
            resident = 1024 * sum(map(int, re.findall(r"-rss:(\d+)kB", sizes)))
            facts = [f"pid {pid}"] * has_pids + [size(resident)] * bool(resident)
            found.append((group, shown(f"{name} ({', '.join(facts)})" if facts else name)))
    return found


def _has_pids(host: Host) -> bool:
    """Whether the log's pids belong to this PID namespace."""
    try:
        return os.stat(host.path("/proc/self/ns/pid")).st_ino == FIRST_NAMESPACE
    except OSError:
        return False


_OF_KILLS: Final = re.compile("oom-kill:|Tasks? in /|Killed process ")
_GROUP: Final = re.compile(r"(?:\btask_memcg=|Tasks? in )(/[^, ]*)")
_VICTIM: Final = re.compile(r"Killed process (\d+)(?:, UID \d+,)? \((.*)\),? (.*)")
