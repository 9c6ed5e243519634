"""The descendants of a process, read from /proc, and how they are signaled.

Every process started by a rank stays below a child subreaper (prctl(2)), however it detaches: when its parent dies, it
becomes a child of the subreaper. So the tree below this process is complete, including other sessions. Without a /proc
of its own, a process sees only its children, see `own_children`.
"""

from __future__ import annotations

import os
import signal
import time
from signal import SIGCONT, SIGTERM
from typing import TYPE_CHECKING, NamedTuple

from ascend_runner.guardian import own_children

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36  # likewise, since Linux 3.4
_GONE = (FileNotFoundError, ProcessLookupError)  # errors of /proc for a process that has just ended
LIST_ATTEMPTS = 5  # at the children of a process whose threads end; a scan of /proc may be thousands of times slower
PF_EXITING = 0x4  # linux/sched.h
ENDED = frozenset({"Z", "X"})
# Files in /proc/PID whose readers block while the process is in execve(2), as seen on Linux 6.18.
LOCKED_IN_EXEC = frozenset({"stat", "wchan", "syscall", "environ"})
EXEC_CHECKS = 500  # of a process that is running: it is about to leave execve(2), or to sleep in it
EXEC_INTERVAL = 0.0002  # seconds between them


class Descendant(NamedTuple):
    """One process, as in /proc/PID/stat (proc(5)). `wait_status` is for a zombie, `started` is in clock ticks.

    Of a process that /proc hides (the mount option hidepid), pid, group and session are known; the rest is "?" or 0.
    The start of one that hangs in execve(2) is unknown as well, see `is_in_exec`.
    """

    pid: int
    name: str
    state: str
    parent: int
    pgid: int
    session: int
    threads: int
    started: int
    wait_status: int
    flags: int = 0

    @property
    def is_ending(self) -> bool:
        """Whether it has ended, or is about to: its orphans are passed on, though it may hang while it closes files."""
        return self.state in ENDED or bool(self.flags & PF_EXITING)

    @property
    def is_zombie(self) -> bool:
        """Whether it has ended but was not reaped yet. If only its main thread has ended, it is alive (in state Z)."""
        return self.state in ENDED and self.threads <= 1

    @property
    def identity(self) -> tuple[int, int]:
        """The identity of this process; a later process with the same pid has a different one."""
        return self.pid, self.started


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
    """Return the pids of the children of `pid`, zombies included; none for a process that has ended or is hidden.

    If /proc is not ours, only the children of this process are known.
    """
    if not is_proc_ours():
        return own_children.find() if pid == os.getpid() else []
    for _ in range(LIST_ATTEMPTS):
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except (*_GONE, PermissionError):
            return []
        try:
            return [int(child) for tid in threads for child in read(pid, f"task/{tid}/children").split()]
        except PermissionError:
            return []
        except _GONE:  # a thread has ended, and another one has its children now
            continue
    # The kernel was built without CONFIG_PROC_CHILDREN, unless the process has just ended.
    return _children_by_scan(pid) if os.path.isdir(f"/proc/{pid}") else []


def descendants(pid: int, but: frozenset[int] = frozenset()) -> Iterator[Descendant]:
    """Walk through the tree below `pid`, parents before children, without the subtrees of `but`.

    Processes that start or end meanwhile may be missed.
    """
    return _walk(pid, children(pid), but)


def _walk(pid: int, first: Iterable[int], but: frozenset[int]) -> Iterator[Descendant]:
    seen = {pid}
    to_visit = [(child, pid) for child in first]
    while to_visit:
        child, parent = to_visit.pop()
        found = None if child in but else look(child)
        if found is None:
            continue
        if found.parent == 0:  # hidden
            found = found._replace(parent=parent)
        if found.parent not in seen:  # an unrelated process that has reused the pid
            continue
        seen.add(child)
        yield found
        if not found.is_zombie:
            to_visit += [(grandchild, child) for grandchild in children(child)]


def living(but: frozenset[int] = frozenset()) -> Iterator[Descendant]:
    """Walk through the tree below this process like `descendants`, without zombies.

    Nothing is read about its own ones: chains of processes leave thousands of them.
    """
    first = [pid for pid in children(os.getpid()) if pid not in but and not _has_ended(pid)]
    return (found for found in _walk(os.getpid(), first, but) if not found.is_zombie)


def _has_ended(child: int) -> bool:
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # it has been reaped
        return True


def is_alive(pid: int) -> bool:
    """Whether a process has not ended; a zombie has."""
    found = look(pid)
    return found is not None and not found.is_zombie


def look(pid: int) -> Descendant | None:
    """Return a process, or None if it has ended."""
    try:
        stat = read(pid, "stat")
    except BlockingIOError:
        return _look_in_exec(pid)
    except (*_GONE, PermissionError):  # it has ended, or it is hidden
        return _look_without_proc(pid)

    # The name is in parentheses and may contain any byte, including parentheses and spaces (proc(5)).
    before, _, after = stat.rpartition(b")")
    fields = after.split()
    return Descendant(
        pid=pid,
        name=before.partition(b"(")[2].decode(errors="replace"),
        state=fields[0].decode(),
        parent=int(fields[1]),
        pgid=int(fields[2]),
        session=int(fields[3]),
        threads=int(fields[17]),
        started=int(fields[19]),
        wait_status=int(fields[49]),
        flags=int(fields[6]),
    )


def is_in_exec(pid: int) -> bool:
    """Whether a process hangs in execve(2), at a disk on which it closes files.

    Reading some of its files in /proc then blocks, until the disk responds or the reader is killed: ps(1) hangs.
    """
    try:
        for _ in range(EXEC_CHECKS):
            # Asked first, because it is the cheapest file of a process.
            size, _resident, _shared, code, *_others = read(pid, "statm").split()
            if code != b"0" or size == b"0":
                return False
            status = read(pid, "status")
            if b"\nVmExe:\t       0 kB\nVmLib:\t       0 kB\n" not in status:  # nothing is mapped but its stack
                return False
            if b"\nState:\tR" not in status:
                return True
            time.sleep(EXEC_INTERVAL)  # it has just begun, or a signal has woken it and it will sleep again
    except OSError:
        return False  # it has ended
    return True


def _look_in_exec(pid: int) -> Descendant | None:
    try:
        status = read(pid, "status")
    except OSError:
        return _look_without_proc(pid)
    members = dict(line.split(b":\t", 1) for line in status.splitlines() if b":\t" in line)
    try:
        pgid, session = os.getpgid(pid), os.getsid(pid)
    except ProcessLookupError:
        return None
    name, state = (members[member].decode(errors="replace") for member in (b"Name", b"State"))
    return Descendant(pid, name, state[0], int(members[b"PPid"]), pgid, session, 1, 0, 0)


def _look_without_proc(pid: int) -> Descendant | None:
    try:
        pgid, session = os.getpgid(pid), os.getsid(pid)
    except ProcessLookupError:
        return None
    state, wait_status = own_children.state(pid)
    return Descendant(pid, "?", state, 0, pgid, session, 1, 0, wait_status)


def describe(found: Descendant) -> str:
    """Describe a process and where it hangs: "4711 (python, state D, in rpc_wait_bit_killable)"."""
    thread = found
    if found.state in ENDED:  # only the main thread has ended
        threads = filter(None, map(look, _numbers(f"/proc/{found.pid}/task")))
        thread = next((thread for thread in threads if thread.state not in ENDED), found)
    function = wchan(thread.pid)

    return f"{found.pid} ({found.name}, state {thread.state}{f', in {function}' if function else ''})"


def wchan(pid: int) -> str:
    """Return the kernel function in which a process sleeps (proc(5)), or "" if it is unknown."""
    try:
        name = read(pid, "wchan").decode(errors="replace").strip()
    except BlockingIOError:
        return "execve"
    except OSError:
        return ""  # the process has ended, or the file is not readable
    return "" if name == "0" else name


def read(pid: int, name: str) -> bytes:
    """Return the content of a file of a process in /proc.

    Raises:
        BlockingIOError: The process hangs in execve(2), and reading this file would block as well.
        OSError: The process has ended or hides this file, or /proc is not ours: its number means another process there.
    """
    if not is_proc_ours():
        raise FileNotFoundError
    if name in LOCKED_IN_EXEC and is_in_exec(pid):
        raise BlockingIOError
    fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while piece := os.read(fd, 65536):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)


def open_pidfd(pid: int) -> int:
    """Return a descriptor of a process, readable when it has ended; -1 where there is none or it has been reaped.

    pidfd_open(2) needs Linux 5.3, and old container profiles forbid it.
    """
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return -1


def send(identity: tuple[int, int], signum: int) -> None:
    """Signal a process, if it still exists: never an unrelated one that has reused its pid.

    SIGCONT follows SIGTERM, since a stopped process cannot act on it.
    """
    pid, started = identity
    fd = open_pidfd(pid)
    try:
        found = look(pid)  # after the descriptor was opened, so that both are of one process
        if found is None or found.started != started:
            return
        for each in (signum, SIGCONT) if signum == SIGTERM else (signum,):
            signal_held(fd, pid, each)
    except (ProcessLookupError, PermissionError):
        return  # ended, or another user's
    finally:
        if fd >= 0:
            os.close(fd)


def signal_held(fd: int, pid: int, signum: int) -> None:
    """Signal a process by its descriptor, or by its number where there are no descriptors."""
    if fd < 0:
        os.kill(pid, signum)
    else:
        signal.pidfd_send_signal(fd, signum)


def may_signal(pid: int) -> bool:
    """Whether this user may signal a process; not one of su(1), sudo(8) or any other set-user-id program."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, PermissionError)  # otherwise it has ended
    return True


def _prctl(option: int, value: int) -> None:
    import ctypes  # noqa: PLC0415  importers of this module other than guardian and runner never call prctl(2)

    if ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}, {value}): {os.strerror(error)}")


def _children_by_scan(parent: int) -> list[int]:
    return [pid for pid in _numbers("/proc") if (found := look(pid)) and found.parent == parent]


def _numbers(folder: str) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return []
