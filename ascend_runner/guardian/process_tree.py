"""The descendants of a process, read from /proc, and how they are killed.

Every process started by a rank stays below a child subreaper (prctl(2)), however it detaches: when its parent dies, it
becomes a child of the subreaper. So the tree below this process is complete, including other sessions.
"""

from __future__ import annotations

import os
from signal import SIGCONT, SIGKILL, SIGTERM
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36  # likewise, since Linux 3.4
_GONE = (FileNotFoundError, ProcessLookupError)  # errors of /proc for a process that has just ended


class Descendant(NamedTuple):
    """One process, as in /proc/PID/stat (proc(5))."""

    pid: int
    name: str
    state: str
    pgid: int
    session: int

    @property
    def is_zombie(self) -> bool:
        """Whether it has ended and was not reaped yet."""
        return self.state in {"Z", "X"}


def become_subreaper() -> None:
    """Let orphaned descendants become children of this process instead of PID 1."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def ask_for_signal_at_parent_death(signum: int) -> None:
    """Let the kernel send `signum` to this process when the thread that forked it ends (PR_SET_PDEATHSIG)."""
    _prctl(PR_SET_PDEATHSIG, signum)


def is_proc_ours() -> bool:
    """Whether /proc belongs to the PID namespace of this process.

    After `unshare --pid --fork` without `--mount-proc` it shows the outer namespace, where pids mean other processes.
    """
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False  # no /proc at all


def children(pid: int) -> list[int]:
    """Return the pids of the children of `pid`, zombies included; none for a process that has ended.

    None either if /proc is not ours: its processes with these numbers are others, and must not be killed.
    """
    if not is_proc_ours():
        return []
    found: list[int] = []
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read(f"/proc/{pid}/task/{tid}/children").split())
    except _GONE:
        # The process has ended, or the kernel was built without CONFIG_PROC_CHILDREN.
        return _children_by_scan(pid) if os.path.isdir(f"/proc/{pid}") else []

    return found


def descendants(pid: int, but: frozenset[int] = frozenset()) -> Iterator[Descendant]:
    """Walk through the tree below `pid`, parents before children, without the subtrees of `but`.

    Processes that start or end meanwhile may be missed.
    """
    to_visit = children(pid)
    while to_visit:
        child = to_visit.pop()
        found = None if child in but else look(child)
        if found is None:
            continue
        yield found
        if not found.is_zombie:
            to_visit += children(child)


def look(pid: int) -> Descendant | None:
    """Return a process, or None if it has ended."""
    try:
        stat = _read(f"/proc/{pid}/stat")
    except _GONE:
        return None

    # The name is in parentheses and may contain any byte, including parentheses and spaces (proc(5)).
    before, _, after = stat.rpartition(b")")
    state, _ppid, pgid, session = after.split(None, 4)[:4]
    name = before.partition(b"(")[2].decode(errors="replace")
    return Descendant(pid, name, state.decode(), int(pgid), int(session))


def describe(found: Descendant) -> str:
    """Describe a process and where it hangs: "4711 (python, state D, in rpc_wait_bit_killable)"."""
    function = wchan(found.pid)

    return f"{found.pid} ({found.name}, state {found.state}{f', in {function}' if function else ''})"


def wchan(pid: int) -> str:
    """Return the kernel function in which a process sleeps (proc(5)); "" if it is unknown."""
    try:
        name = _read(f"/proc/{pid}/wchan").decode(errors="replace").strip()
    except OSError:
        return ""  # the process has ended, or the file is not readable
    return "" if name == "0" else name


def kill_all(keep: frozenset[int] = frozenset()) -> list[Descendant]:
    """Send SIGKILL to every living descendant of this process except the subtrees of `keep`; return those killed.

    A process may fork between the look and the signal: the caller must reap and call again until none is left.
    """
    killed = [found for found in descendants(os.getpid(), keep) if not found.is_zombie]
    for found in killed:
        send(found.pid, SIGKILL)

    return killed


def reap_adopted(keep: frozenset[int] = frozenset()) -> list[int]:
    """Reap every child that has ended except those in `keep`; return the living ones not in `keep`."""
    living = []
    for pid in children(os.getpid()):
        if pid not in keep:
            try:
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    living.append(pid)
            except ChildProcessError:
                continue

    return living


def send(pid: int, signum: int) -> None:
    """Signal a process, if it still exists. SIGCONT follows SIGTERM, since a stopped process cannot act on it."""
    try:
        os.kill(pid, signum)
        if signum == SIGTERM:
            os.kill(pid, SIGCONT)
    except (ProcessLookupError, PermissionError):
        return  # ended, or a set-user-id program that only root may signal


def _prctl(option: int, value: int) -> None:
    import ctypes  # noqa: PLC0415  importers of this module other than guardian and runner never call prctl(2)

    if ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}, {value}): {os.strerror(error)}")


def _children_by_scan(parent: int) -> list[int]:
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent_of(pid) == parent]


def _parent_of(pid: int) -> int:
    try:
        return int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split(None, 2)[1])
    except _GONE:
        return 0


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while piece := os.read(fd, 65536):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)
