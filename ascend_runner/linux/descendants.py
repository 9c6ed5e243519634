"""Who descends from a process, read from /proc, and how all that is left of them is ended.

Every process that a rank starts stays below a child subreaper (prctl(2)), however it detaches: when its parent dies it
becomes the subreaper's child. So the tree below this process is complete, own sessions included.

This module is loaded by the guardian: it imports nothing that is not already there in a bare interpreter.
"""

from __future__ import annotations

import os

from ascend_runner.annotations import TYPE_CHECKING, NamedTuple
from ascend_runner.plain_signal import SIGCONT, SIGKILL, SIGTERM

if TYPE_CHECKING:
    from collections.abc import Iterator

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36  # likewise, since Linux 3.4
_GONE = (FileNotFoundError, ProcessLookupError)  # what /proc answers for a process that has just ended


class Descendant(NamedTuple):
    """One living process, as /proc/PID/stat tells it (proc(5))."""

    pid: int
    name: str
    state: str
    pgid: int
    session: int

    @property
    def is_zombie(self) -> bool:
        """Whether it has ended and only waits to be reaped."""
        return self.state in {"Z", "X"}


def become_subreaper() -> None:
    """Let orphaned descendants become children of this process instead of PID 1's."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def ask_for_signal_at_parent_death(signum: int) -> None:
    """Have the kernel send this process `signum` when the thread that forked it ends (PR_SET_PDEATHSIG)."""
    _prctl(PR_SET_PDEATHSIG, signum)


def is_proc_ours() -> bool:
    """Whether /proc calls processes by the numbers that they have for this one.

    After `unshare --pid --fork` without `--mount-proc` it shows the namespace around: our number is a stranger's there.
    """
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False  # there is no /proc at all


def children(pid: int) -> list[int]:
    """Give the pids whose parent is `pid`, zombies included. Empty for a process that has ended.

    Empty, too, where /proc is not ours: who stands there under this number is nobody to kill.
    """
    if not is_proc_ours():
        return []
    found: list[int] = []
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read(f"/proc/{pid}/task/{tid}/children").split())
    except _GONE:
        # A kernel without CONFIG_PROC_CHILDREN has no such file, while the process itself is still there.
        return _children_by_scan(pid) if os.path.isdir(f"/proc/{pid}") else []

    return found


def descendants(pid: int, but: frozenset[int] = frozenset()) -> Iterator[Descendant]:
    """Walk the tree below `pid`, parents before children, leaving out those of `but` and whoever is below them.

    What ends or appears meanwhile may be missed.
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
    """Read one process' state, or None where it is gone."""
    try:
        stat = _read(f"/proc/{pid}/stat")
    except _GONE:
        return None

    # The name stands in parentheses and may itself hold any byte, parentheses and spaces included (proc(5)).
    before, _, after = stat.rpartition(b")")
    state, _ppid, pgid, session = after.split(None, 4)[:4]
    name = before.partition(b"(")[2].decode(errors="replace")
    return Descendant(pid, name, state.decode(), int(pgid), int(session))


def describe(found: Descendant) -> str:
    """Say who it is and where it hangs: "4711 (python, state D, in rpc_wait_bit_killable)"."""
    function = wchan(found.pid)

    return f"{found.pid} ({found.name}, state {found.state}{f', in {function}' if function else ''})"


def wchan(pid: int) -> str:
    """Name the kernel function in which a process sleeps (proc(5)), "" where that cannot be known."""
    try:
        name = _read(f"/proc/{pid}/wchan").decode(errors="replace").strip()
    except OSError:
        return ""  # it has gone, or the kernel keeps it to itself
    return "" if name == "0" else name


def kill_all(keep: frozenset[int] = frozenset()) -> list[Descendant]:
    """Send SIGKILL to every living descendant of this process but `keep` and theirs; tell who that was.

    The caller reaps, and calls again until nobody is left: a process may fork between the look and the signal.
    """
    killed = [found for found in descendants(os.getpid(), keep) if not found.is_zombie]
    for found in killed:
        send(found.pid, SIGKILL)

    return killed


def reap_adopted(keep: frozenset[int] = frozenset()) -> list[int]:
    """Reap every child that has ended but `keep`: the leaders, whose numbers must stay taken a while longer.

    Gives the others, who live.
    """
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
    """Signal one process; it may be gone already. With SIGTERM comes SIGCONT, for a stopped one cannot act on it."""
    try:
        os.kill(pid, signum)
        if signum == SIGTERM:
            os.kill(pid, SIGCONT)
    except (ProcessLookupError, PermissionError):
        return  # gone, or a set-user-id program that only root may end


def _prctl(option: int, value: int) -> None:
    import ctypes  # 2 ms that only the processes which call this pay

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
