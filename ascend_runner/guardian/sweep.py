"""Kills all descendants of this process, even if they fork faster than a walk through the tree.

In a chain, each process starts the next one and exits, so it must be signaled as soon as it is found. All processes
are therefore stopped first, in rounds until a round finds no new one, and then killed.
"""

from __future__ import annotations

import os
import signal
import time
from signal import SIGCHLD, SIGKILL, SIGSTOP

from ascend_runner.guardian.process_tree import (
    Descendant,
    children,
    descendants,
    is_alive,
    living,
    may_signal,
    open_pidfd,
    send,
    signal_held,
)

# Seconds of processor time, not of the clock: on a starved machine one round may take seconds.
FREEZE_LIMIT = 0.2
# Seconds between two checks while processes die: while others exit, the kernel omits some from a list of
# children (proc(5)), and no signal reports the end of those.
POLL_INTERVAL = 0.1
KILL_INTERVAL = 0.01  # seconds between two signals to the processes below another one
REAP_PASSES = 3  # through the list of children, while all of them have ended; a signal is not noticed meanwhile
SWEEP_LIMIT = 5.0  # seconds; what survives SIGKILL for longer is stuck in the kernel
# Seconds for a process that runs in the kernel after SIGKILL: it frees its memory, or waits for a processor.
DYING_LIMIT = 60.0
LAST_ROUNDS = 3  # in a row that find nothing new: one may miss the children of a process that is ending


def sweep(keep: frozenset[int] = frozenset(), seconds: float = SWEEP_LIMIT) -> list[Descendant]:
    """Kill and reap every descendant but the subtrees of `keep`; return the survivors.

    There is no limit as long as new processes are found. A process counts as one that cannot be killed if it is alive
    `seconds` after SIGKILL and not running, or if it belongs to another user.
    """
    killed: dict[tuple[int, int], float] = {}  # when first
    rounds = 0  # in a row that found nothing that can still be killed
    while True:
        found = kill_all(keep)
        now = time.monotonic()
        killed = {process.identity: killed.get(process.identity, now) for process in found}
        if not reap_adopted(keep):
            return []
        is_dying = not found or any(
            now - killed[process.identity] < (DYING_LIMIT if process.state == "R" else seconds)
            and may_signal(process.pid)
            for process in found
        )
        rounds = 0 if is_dying else rounds + 1
        if rounds == LAST_ROUNDS:
            return found
        signal.sigtimedwait({SIGCHLD}, POLL_INTERVAL)


def kill_all(keep: frozenset[int]) -> list[Descendant]:
    """Send SIGKILL to every living descendant of this process but the subtrees of `keep`; return those found.

    The caller must reap and call again until none is left.
    """
    handler = signal.getsignal(SIGCHLD)
    # No pid of `keep` may be reused, and without pidfds none of a process that is about to be signaled.
    may_discard = handler is not None and not keep and _has_pidfds()
    is_urgent = _be_urgent()
    try:
        if may_discard:
            signal.signal(SIGCHLD, signal.SIG_IGN)  # the kernel reaps: chains leave zombies faster than we can
        found = _freeze(keep, may_reap=not is_urgent)
    finally:
        if is_urgent:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        if may_discard:
            signal.signal(SIGCHLD, handler)
    for process in found:
        send(process.identity, SIGKILL)

    return found


def kill_below(pid: int, seconds: float) -> None:
    """Send SIGKILL to every living descendant of a process, again until none is left or `seconds` have passed."""
    deadline = time.monotonic() + seconds
    while found := [process for process in descendants(pid) if not process.is_zombie]:
        for process in found:
            send(process.identity, SIGKILL)
        if time.monotonic() >= deadline:
            return
        time.sleep(KILL_INTERVAL)


def _freeze(keep: frozenset[int], *, may_reap: bool) -> list[Descendant]:
    """Stop every living descendant but the subtrees of `keep`; return them."""
    stopped = set(keep)
    frozen: dict[tuple[int, int], Descendant] = {}
    ends = time.thread_time() + FREEZE_LIMIT
    while True:
        _stop_children(stopped, ends, may_reap=may_reap)
        new = []
        for process in living(keep):
            if process.identity not in frozen:
                send(process.identity, SIGSTOP)  # before its children are listed
                frozen[process.identity] = process
                new.append(process)
        if not new or time.thread_time() >= ends:
            return list(frozen.values())


def _stop_children(stopped: set[int], ends: float, *, may_reap: bool) -> None:
    """Stop all children but the `stopped` ones, and add them; reap the ones that have ended, or add them as well.

    A member of a chain lives for less than a millisecond, so nothing slow happens before the signal. An urgent thread
    must not reap: if a thread of the process is still being removed from /proc, waitid(2) waits for that in a busy loop
    in the kernel (shrink_dcache_parent()), and on the same core that thread cannot run before this one.
    """
    options = os.WEXITED | os.WNOHANG | (0 if may_reap else os.WNOWAIT)
    while time.thread_time() < ends:
        # The last child is the newest, and the most likely to be alive.
        new = [pid for pid in reversed(children(os.getpid())) if pid not in stopped]
        if not new:
            return
        for pid in new:
            fd = open_pidfd(pid)
            try:
                # If the child is alive now, a descriptor that was opened before refers to this child.
                has_ended = os.waitid(os.P_PID, pid, options) is not None
                if not has_ended:
                    signal_held(fd, pid, SIGSTOP)
                if not (has_ended and may_reap):  # the number of one that was reaped may be used again
                    stopped.add(pid)
            except (ChildProcessError, ProcessLookupError, PermissionError):  # it has ended, or is another user's
                stopped.add(pid)
            finally:
                if fd >= 0:
                    os.close(fd)


def reap_adopted(keep: frozenset[int] = frozenset()) -> list[int]:
    """Reap every child that has ended except those in `keep`; return the living ones not in `keep`, the latest first.

    If they end faster than they can be reaped, the ones that were reaped last are returned: they may have left others.
    """
    for _ in range(REAP_PASSES):
        living, reaped = [], []
        for pid in reversed(children(os.getpid())):
            if pid in keep:
                continue
            try:
                if _reap(pid):
                    reaped.append(pid)
                elif is_alive(pid):  # asked once: it may end at any moment
                    living.append(pid)
                elif _reap(pid):  # it has ended meanwhile; if it cannot be reaped, a debugger traces it (ptrace(2))
                    reaped.append(pid)
            except ChildProcessError:
                continue
        if living or not reaped:  # one that was reaped may have left a child meanwhile
            return living
    return reaped


def _reap(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG) != (0, 0)


def _has_pidfds() -> bool:
    fd = open_pidfd(os.getpid())
    if fd >= 0:
        os.close(fd)
    return fd >= 0


def _be_urgent() -> bool:
    """Let this thread run before all ordinary ones, which needs root; return whether it does."""
    try:
        if os.sched_getscheduler(0) != os.SCHED_OTHER:
            return False
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return False
    return True
