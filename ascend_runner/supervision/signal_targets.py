"""Selects the processes of a rank that receive a signal: pure functions of a snapshot of its tree.

A training process that saves a checkpoint in its signal handler needs the processes below it: data-loading workers, the
ranks of an engine. So a request to stop goes to the topmost processes that handle it, and to every process that no
ancestor takes care of. The snapshot is read from /proc by `ranks.processes`; nothing here touches a process.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import attrs

# Shells run a trap only after their foreground command has ended, so a shell that handles a signal does not take care
# of that command. bash and dash without a trap die of the signal at once, with the command still running.
SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "busybox", "ksh", "mksh", "zsh"})


@attrs.frozen(kw_only=True, eq=False, repr=False)
class RankProcess:
    """One living process of a rank, with the processes that it has started.

    `started` is its start time in clock ticks since boot: together with the pid it identifies a process, because a pid
    can be used again. `handled` are the signals that the process catches or waits for (`SigCgt` of /proc/PID/status, or
    a blocked signal while it sleeps in sigtimedwait(2), as tini and dumb-init do), `ignored` the ignored ones.
    """

    pid: int
    started: int
    name: str
    session: int = 0
    handled: frozenset[int] = frozenset()
    ignored: frozenset[int] = frozenset()
    children: tuple[RankProcess, ...] = ()

    @property
    def identity(self) -> tuple[int, int]:
        """The identity of this process; a later process with the same pid has a different one."""
        return self.pid, self.started

    @property
    def is_shell(self) -> bool:
        """Whether it runs its handlers only between commands."""
        return self.name in SHELLS


Identity = tuple[int, int]


def to_stop(
    tops: Sequence[RankProcess], signum: int, asked: Collection[Identity]
) -> tuple[tuple[RankProcess, int], ...]:
    """Return the processes that have to be asked to stop now, parents before children, each with its signal.

    `tops` are the topmost processes of a rank, `signum` is SIGTERM or SIGINT, and `asked` are the identities of those
    that were asked before: no process is asked twice. SIGINT reaches every process, as it does from a terminal; those
    that ignore it, such as the background jobs of a shell, get SIGTERM.
    """
    walk = _everybody(tops) if signum == signal.SIGINT else _without_spared(tops, signum)
    return tuple(
        (process, signal.SIGTERM if signum in process.ignored else signum)
        for process in walk
        if process.identity not in asked
    )


def to_notify(tops: Sequence[RankProcess], signum: int) -> tuple[RankProcess, ...]:
    """Return the processes that a forwarded signal such as SIGUSR1 reaches: it must not kill any process.

    These are the topmost processes that handle it, and shells with a trap for it; empty if no process handles it.
    """
    return tuple(process for process in _without_spared(tops, signum) if signum in process.handled)


def _everybody(tops: Sequence[RankProcess]) -> Iterator[RankProcess]:
    for process in tops:
        yield process
        yield from _everybody(process.children)


def _without_spared(tops: Sequence[RankProcess], signum: int) -> Iterator[RankProcess]:
    """Walk down, leaving out the processes that an ancestor takes care of."""
    for process in tops:
        yield process
        yield from _without_spared(
            [child for child in process.children if not _is_spared(process, child, signum)], signum
        )


def _is_spared(parent: RankProcess, child: RankProcess, signum: int) -> bool:
    """Return whether `parent` takes care of `child` when it handles `signum`.

    Of a shell's children these are only the background jobs, to which its trap can forward the signal: a shell without
    job control starts them with SIGINT and SIGQUIT ignored (POSIX, XCU 2.11), which tells them from its foreground
    command. Few programs handle SIGQUIT, so it usually remains ignored even if the program installs a SIGINT handler.
    """
    if signum not in parent.handled:
        return False
    return not parent.is_shell or not child.ignored.isdisjoint({signal.SIGINT, signal.SIGQUIT})
