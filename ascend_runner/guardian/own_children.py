"""The children of this process as system calls show them, where /proc is missing or belongs to another PID namespace.

waitid(2) tells whether a number belongs to a child. What is below a child cannot be seen: it becomes a child of this
process, its subreaper, when all above it have ended.
"""

from __future__ import annotations

import os

_ANY_CHANGE = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT
_LARGEST_PID = 1 << 22  # PID_MAX_LIMIT of linux/threads.h
_USUAL_LARGEST_PID = 1 << 15  # PID_MAX_DEFAULT
_CORE_DUMPED = 0x80  # a flag in a wait status


def find() -> list[int]:
    """Return the pids of the children of this process, zombies included.

    Pids are tried from the first to the newest one, which takes a millisecond for each thousand. Larger pids
    exist only if the kernel has begun again at the lowest ones; to try them takes seconds, but is rarely needed.
    """
    try:
        os.waitid(os.P_ALL, 0, _ANY_CHANGE)
    except ChildProcessError:
        return []
    newest = _newest_pid()
    largest = _LARGEST_PID if max(newest, os.getpid()) >= _USUAL_LARGEST_PID else _USUAL_LARGEST_PID
    last = newest if newest > os.getpid() else largest
    return _those_among(range(2, last)) or _those_among(range(last, _LARGEST_PID))


def state(pid: int) -> tuple[str, int]:
    """Return the state of a child, as in /proc/PID/stat, and the wait status of a zombie; ("?", 0) if unknown."""
    try:
        change = os.waitid(os.P_PID, pid, _ANY_CHANGE)
    except ChildProcessError:
        return "?", 0
    if change is None:
        return "?", 0
    if change.si_code == os.CLD_EXITED:
        return "Z", change.si_status << 8
    if change.si_code in {os.CLD_KILLED, os.CLD_DUMPED}:
        return "Z", change.si_status | (_CORE_DUMPED if change.si_code == os.CLD_DUMPED else 0)
    return "T", 0


def _those_among(pids: range) -> list[int]:
    found = []
    for pid in pids:
        try:
            os.getsid(pid)  # where there is no process, this fails faster than waitid(2)
            os.waitid(os.P_PID, pid, _ANY_CHANGE)
        except OSError:
            continue
        found.append(pid)
    return found


def _newest_pid() -> int:
    """Return the number that the kernel gives to the next process or thread."""
    import threading  # noqa: PLC0415  the guardian needs it only here

    thread = threading.Thread(target=int)
    try:
        thread.start()
    except RuntimeError:  # the limit of processes
        return _LARGEST_PID
    thread.join()
    return thread.native_id or _LARGEST_PID
