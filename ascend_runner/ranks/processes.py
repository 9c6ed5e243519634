"""All processes of the ranks on this node: the real side of `manager.node.Processes`.

The signals that each process handles are read from /proc (proc(5)).
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from signal import SIGCONT, SIGKILL
from typing import Final

from ascend_runner.engines.command import engine_in
from ascend_runner.guardian import process_tree, sweep
from ascend_runner.guardian.process_tree import Descendant
from ascend_runner.guardian.signal_sets import STOP_SIGNALS
from ascend_runner.node import cores
from ascend_runner.node.host import Host
from ascend_runner.plan.spec import RankSpec
from ascend_runner.ranks.leader import ExitWatch, Leader
from ascend_runner.record.facts import EngineSeen, RankReaped
from ascend_runner.supervision import signal_targets
from ascend_runner.supervision.causes import Ending, Exited
from ascend_runner.supervision.events import AskedProcessEnded, Emptied
from ascend_runner.supervision.signal_targets import Identity, RankProcess

# The number of rt_sigtimedwait(2) on each architecture. A process blocked in it (tini, dumb-init, a guardian) handles
# the signals it waits for without a handler, so neither SigCgt nor SigBlk shows them: the kernel unblocks them for as
# long as the process sleeps.
SIGTIMEDWAIT: Final = {"x86_64": "128", "aarch64": "137"}.get(platform.machine(), "")

OF_TORCHRUN: Final = "TORCHELASTIC_RUN_ID="  # no rank inherits it, see `frameworks.conflicts`


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
    """Return the signals that a process handles, and the ones it ignores.

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


def _words(pid: int, name: str) -> list[str]:
    """Return the arguments or variables of a process; none if it has ended or hides them."""
    try:
        return _text(pid, name).split("\0")[:-1]
    except OSError:
        return []


def _signals(mask: int) -> frozenset[int]:
    """Return the signals of a kernel's mask, whose lowest bit is signal 1."""
    return frozenset(signum for signum in range(1, 65) if mask >> (signum - 1) & 1)


class RankProcesses:
    """Starts, watches, signals and reaps ranks. This process must be their subreaper (see `guardian.process_tree`)."""

    def __init__(self, *others: Collection[int]) -> None:
        """`others` are the pids of children that are not the ranks': they and their descendants are left alone."""
        self._other_pids = others
        self._leaders: dict[int, Leader] = {}  # not reaped, so their pids cannot be reused
        self.exits = ExitWatch()
        self._asked: set[Identity] = set()  # processes that were asked to stop
        self._asked_groups: set[int] = set()  # likewise, where /proc does not show their processes
        self._killed: set[int] = set()  # sessions that were sent SIGKILL
        self._with_stragglers: set[int] = set()  # ranks whose leader has ended before the rest of their session
        self._tree: tuple[RankProcess, ...] | None = None  # as read since the last look

    def spawn(self, spec: RankSpec, output: int) -> int:
        """Start a rank with stdout and stderr on the fd `output`; return its pid.

        Raises:
            OSError: The rank cannot be started; no process is left of the attempt.
        """
        leader = Leader(spec, output)
        self._leaders[spec.rank_id] = leader
        self.exits.add(leader.pid)
        self._tree = None
        return leader.pid

    def look(self) -> tuple[Sequence[Exited | Emptied | AskedProcessEnded], bool]:
        """Return the ends since the last call, without reaping, and whether they are in the kernel's order."""
        self._tree = None
        running = {rank_id: leader for rank_id, leader in self._leaders.items() if not leader.is_reported}
        endings = {rank_id: ending for rank_id, leader in running.items() if (ending := leader.peek())}
        # Asked after the leaders were checked, so that no leader that has just ended is missed.
        ended = self.exits.take_ended()
        ranks = {leader.pid: rank_id for rank_id, leader in self._leaders.items()}
        order = [ranks[pid] for pid in ended if ranks.get(pid) in running]
        endings.update((rank_id, ending) for rank_id in order if (ending := running[rank_id].peek_closely()))
        sessions = self._living_sessions(endings)
        emptied = [rank_id for rank_id in self._with_stragglers if self._leaders[rank_id].pid not in sessions]
        self._with_stragglers.difference_update(emptied)
        events: list[Exited | Emptied | AskedProcessEnded] = [Emptied(rank_id) for rank_id in emptied]
        for rank_id in dict.fromkeys((*order, *endings)):
            has_stragglers = self._leaders[rank_id].pid in sessions
            if has_stragglers:
                self._with_stragglers.add(rank_id)
            running[rank_id].is_reported = True
            events.append(Exited(rank_id, endings[rank_id], has_stragglers))
        if any(pid not in ranks for pid in ended):
            events.append(AskedProcessEnded())
        return events, len(order) == len(endings)

    def _living_sessions(self, endings: Mapping[int, Ending]) -> Collection[int]:
        """Return the sessions that are needed and have a living process."""
        # The orphans of a leader become children of this process, their subreaper: without any there is no straggler.
        adopted = sweep.reap_adopted(keep=self._kept_pids())
        if not adopted or not (endings or self._with_stragglers):
            return ()
        needed = {self._leaders[rank_id].pid for rank_id in (*endings, *self._with_stragglers)}
        living = [*self._living()]
        for found in living:
            if found.session in self._killed:  # it was forked meanwhile, or could not be seen without /proc
                process_tree.send(found.identity, SIGKILL)
            if found.session in needed and found.parent != os.getpid():  # no SIGCHLD will report its end
                self.exits.add(found.pid)
        return {found.session for found in living}

    def ask_to_stop(self, signums: Mapping[int, int]) -> Collection[int]:
        """Ask the processes of each rank (by rank id) that are due to stop, see `signal_targets.to_stop`.

        Return the ranks whose first process has ended since the last look: nobody has stopped them.
        """
        ended = set()
        for rank_id, tops in self._tops(signums).items():
            leader = self._leaders[rank_id]
            if leader.peek() and not leader.is_reported:
                ended.add(rank_id)
            if not process_tree.is_proc_ours():
                self._ask_group(leader, tops, signums[rank_id])
            self._ask(tops, signums[rank_id])
            leader.signal_group(SIGCONT)  # a stopped process cannot act on the signal
        return ended

    def notify(self, signums: Mapping[int, int]) -> Collection[int]:
        """Send each rank (by rank id) a signal, only to processes that handle it; return the ranks that have any."""
        self._tree = None  # a process may have begun to handle it since the last look
        targets = [
            (process, rank_id)
            for rank_id, tops in self._tops(signums).items()
            for process in signal_targets.to_notify(tops, signums[rank_id])
        ]
        for process, rank_id in targets:
            process_tree.send(process.identity, signums[rank_id])
        return {rank_id for _process, rank_id in targets}

    def ask_escaped(self, signum: int) -> None:
        """Ask the processes outside the ranks' own sessions to stop."""
        sessions = {leader.pid for leader in self._leaders.values()}
        self._ask([top for top in self._children() if top.session not in sessions], signum)

    def _ask_group(self, leader: Leader, tops: Sequence[RankProcess], signum: int) -> None:
        """Ask all of a rank's process group, once: what is below its topmost processes cannot be seen."""
        if leader.pid not in self._asked_groups:
            self._asked_groups.add(leader.pid)
            leader.signal_group(signum)
        members = (top for top in tops if (found := process_tree.look(top.pid)) and found.pgid == leader.pid)
        self._asked.update(member.identity for member in members)

    def _ask(self, tops: Sequence[RankProcess], signum: int) -> None:
        for process, its_signum in signal_targets.to_stop(tops, signum, self._asked):
            self._asked.add(process.identity)
            self.exits.add(process.pid)
            process_tree.send(process.identity, its_signum)

    def _tops(self, rank_ids: Collection[int]) -> dict[int, list[RankProcess]]:
        """Return the topmost living processes of each rank: its leader, and others in the session of its leader.

        These may be below a process that has left the session, and is asked only when they are gone.
        """
        ranks = {self._leaders[rank_id].pid: rank_id for rank_id in rank_ids}
        tops: dict[int, list[RankProcess]] = {rank_id: [] for rank_id in rank_ids}
        to_visit = list(self._children())
        while to_visit:
            process = to_visit.pop()
            rank_id = ranks.get(process.session)
            if rank_id is None:
                to_visit += process.children
            else:
                tops[rank_id].append(process)
        return tops

    def _children(self) -> tuple[RankProcess, ...]:
        if self._tree is None:
            self._tree = read(self._living())
        return self._tree

    def signal(self, signums: Mapping[int, int]) -> None:
        """Send each rank (by rank id) its signal. A process that has ended meanwhile is no error."""
        by_session: dict[int, int] = {}
        for rank_id, signum in signums.items():
            leader = self._leaders[rank_id]
            leader.signal_group(signum)
            by_session[leader.pid] = signum
        self._killed.update(session for session, signum in by_session.items() if signum == SIGKILL)
        # A session may hold more groups than its leader's: the jobs of a shell, timeout(1).
        for found in self._living():
            if found.session in by_session and found.pgid != found.session:
                process_tree.send(found.identity, by_session[found.session])

    def reap(self, rank_id: int) -> RankReaped:
        """Reap a rank without living processes, which frees its pid."""
        leader = self._leaders.pop(rank_id)
        self._killed.discard(leader.pid)  # the number may be used again
        return leader.reap()

    def pids(self) -> Mapping[int, int]:
        """Return the pid of each rank with a living leader, by rank id."""
        return {rank_id: leader.pid for rank_id, leader in self._leaders.items() if not leader.is_reported}

    def has_killable(self) -> bool:
        """Whether any process is alive that this user may signal."""
        # Usually a leader, which is found without a walk through the tree.
        living = filter(process_tree.is_alive, self.pids().values())
        return any(map(process_tree.may_signal, living)) or self._has_killable_but(self._others)

    def has_escaped(self) -> bool:
        """Whether any process outside the ranks' own sessions is alive that may be signaled. Reaps ended ones."""
        self._tree = None
        self.exits.take_ended()
        kept = self._kept_pids()
        # A chain of processes that each start the next one and exit may be missed by a walk through the tree.
        adopted = sweep.reap_adopted(keep=kept)
        return any(map(process_tree.may_signal, adopted)) or (bool(adopted) and self._has_killable_but(kept))

    @staticmethod
    def _has_killable_but(kept: frozenset[int]) -> bool:
        return any(process_tree.may_signal(process.pid) for process in process_tree.living(kept))

    def find_engine(self) -> EngineSeen | None:
        """Return an engine that a rank runs, by its arguments, or by a variable that torchrun gives its workers."""
        ranks = {leader.pid: rank_id for rank_id, leader in self._leaders.items()}
        owners: dict[int, int] = {}
        for found in self._living():
            rank_id = owners.get(found.parent, ranks.get(found.session))
            if rank_id is None:
                continue
            owners[found.pid] = rank_id
            engine = engine_in(_words(found.pid, "cmdline"))
            if not engine and any(word.startswith(OF_TORCHRUN) for word in _words(found.pid, "environ")):
                engine = "torchrun"
            if engine:
                return EngineSeen(rank_id, engine, found.pid)
        return None

    def is_held(self) -> bool:
        """Whether any process of the ranks cannot run: it is stopped, traced, or in a frozen control group."""
        living = [*self._living()]
        is_stopped = any(found.state in {"T", "t"} for found in living)
        return is_stopped or cores.is_any_frozen(Host(), (found.pid for found in living))

    def kill_escaped(self) -> Mapping[int, str]:
        """Send SIGKILL to every process outside the ranks' own sessions; return their names by pid."""
        found = sweep.kill_all(keep=self._kept_pids())
        return {process.pid: process.name for process in found if process_tree.may_signal(process.pid)}

    def survivors(self) -> tuple[str, ...]:
        """Describe all processes that are still alive, of whatever session."""
        owners = {leader.pid: f"{leader.spec.title}: " for leader in self._leaders.values()}
        return tuple(owners.get(found.session, "") + process_tree.describe(found) for found in self._living())

    def close(self) -> None:
        """Stop watching. May be called twice."""
        self.exits.close()

    @property
    def _others(self) -> frozenset[int]:
        return frozenset(pid for pids in self._other_pids for pid in pids)

    def _living(self) -> Iterator[Descendant]:
        return process_tree.living(self._others)

    def _kept_pids(self) -> frozenset[int]:
        return frozenset((*(leader.pid for leader in self._leaders.values()), *self._others))
