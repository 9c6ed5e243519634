"""All processes of the ranks on this node: the real side of `managed_node.Processes`."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from signal import SIGCONT
from typing import Union

from ascend_runner.facts import RankReaped
from ascend_runner.guardian import process_tree
from ascend_runner.plan.job import RankSpec
from ascend_runner.processes import rank_tree
from ascend_runner.processes.asked import AskedProcesses
from ascend_runner.processes.exit_order import ExitOrder
from ascend_runner.processes.leader import Leader
from ascend_runner.supervision import signal_targets
from ascend_runner.supervision.events import Emptied, Ending, Exited
from ascend_runner.supervision.signal_targets import RankProcess


class RankProcesses:
    """Starts, watches, signals and reaps ranks. This process must be their subreaper (see `guardian.process_tree`)."""

    def __init__(self) -> None:
        self._leaders: dict[int, Leader] = {}  # not reaped, so their pids cannot be reused
        self._exit_order = ExitOrder()
        self.asked = AskedProcesses()
        self._ended: set[int] = set()  # ranks whose leader has ended
        self._with_stragglers: set[int] = set()  # those of them that have a living process in their session

    def spawn(self, spec: RankSpec, output: int) -> int:
        """Start a rank with stdout and stderr on the fd `output`; return its pid.

        Raises:
            OSError: The rank cannot be started; no process is left of the attempt.
        """
        leader = Leader(spec, output)
        self._leaders[spec.rank_id] = leader
        self._exit_order.add(spec.rank_id, leader.pid)
        return leader.pid

    def look(self) -> tuple[Sequence[Union[Exited, Emptied]], bool]:
        """Return what has ended since the last call, without reaping, and whether it is in the kernel's order."""
        endings = {
            rank_id: ending
            for rank_id, leader in self._leaders.items()
            if rank_id not in self._ended and (ending := leader.peek())
        }
        # Asked after the leaders were looked at, so that none of these is missing for being a moment too late.
        order = [rank_id for rank_id in self._exit_order.ended() if rank_id in endings]
        is_ordered = len(order) == len(endings)
        sessions = self._living_sessions(endings)
        emptied = [rank_id for rank_id in self._with_stragglers if self._leaders[rank_id].pid not in sessions]
        self._with_stragglers.difference_update(emptied)
        events: list[Union[Exited, Emptied]] = [Emptied(rank_id) for rank_id in emptied]
        for rank_id in dict.fromkeys((*order, *endings)):
            has_stragglers = self._leaders[rank_id].pid in sessions
            if has_stragglers:
                self._with_stragglers.add(rank_id)
            self._ended.add(rank_id)
            events.append(Exited(rank_id, endings[rank_id], has_stragglers))
        return events, is_ordered

    def _living_sessions(self, endings: Mapping[int, Ending]) -> Collection[int]:
        """Return the sessions that have a living process, of those that are needed."""
        # The orphans of a leader become children of this process, their subreaper: without any there is no straggler.
        adopted = process_tree.reap_adopted(keep=self._leader_pids())
        if not adopted or not (endings or self._with_stragglers):
            return ()
        return {found.session for found in process_tree.descendants(os.getpid()) if not found.is_zombie}

    def ask_to_stop(self, signums: Mapping[int, int]) -> None:
        """Ask those of each rank (by rank id) that have to be asked now, see `signal_targets.to_stop`."""
        for rank_id, tops in self._tops(signums).items():
            for process, signum in signal_targets.to_stop(tops, signums[rank_id], self.asked.identities):
                self.asked.add(process)
                process_tree.send(process.pid, signum)
            self._leaders[rank_id].signal_group(SIGCONT)  # a stopped process cannot act on the signal

    def notify(self, signums: Mapping[int, int]) -> bool:
        """Send each rank (by rank id) a signal, only to processes that handle it; return whether any does."""
        targets = [
            (process, signums[rank_id])
            for rank_id, tops in self._tops(signums).items()
            for process in signal_targets.to_notify(tops, signums[rank_id])
        ]
        for process, signum in targets:
            process_tree.send(process.pid, signum)
        return bool(targets)

    def ask_escaped(self, signum: int) -> None:
        """Ask the processes outside the ranks' own sessions to stop."""
        sessions = {leader.pid for leader in self._leaders.values()}
        tops = [top for top in self._children() if top.session not in sessions]
        for process, its_signum in signal_targets.to_stop(tops, signum, self.asked.identities):
            self.asked.add(process)
            process_tree.send(process.pid, its_signum)

    def _tops(self, rank_ids: Collection[int]) -> dict[int, list[RankProcess]]:
        """Return the topmost living processes of each rank: its leader, and what its leader has left in its session."""
        ranks = {self._leaders[rank_id].pid: rank_id for rank_id in rank_ids}
        tops: dict[int, list[RankProcess]] = {rank_id: [] for rank_id in rank_ids}
        for child in self._children():
            rank_id = ranks.get(child.session)
            if rank_id is not None:
                tops[rank_id].append(child)
        return tops

    @staticmethod
    def _children() -> tuple[RankProcess, ...]:
        return rank_tree.read(process_tree.children(os.getpid()))

    def signal(self, signums: Mapping[int, int]) -> None:
        """Send each rank (by rank id) its signal. A process that has ended meanwhile is no error."""
        by_session: dict[int, int] = {}
        for rank_id, signum in signums.items():
            leader = self._leaders[rank_id]
            leader.signal_group(signum)
            by_session[leader.pid] = signum
        # A session may hold more groups than its leader's: the jobs of a shell, timeout(1).
        for found in process_tree.descendants(os.getpid()):
            if found.session in by_session and found.pgid != found.session and not found.is_zombie:
                process_tree.send(found.pid, by_session[found.session])

    def reap(self, rank_id: int) -> RankReaped:
        """Give the pid of a rank of which nothing is left back to the kernel."""
        self._exit_order.discard(rank_id)
        self._ended.discard(rank_id)
        return self._leaders.pop(rank_id).reap()

    def pids(self) -> Mapping[int, int]:
        """Return the pid of each rank whose leader is alive, by rank id."""
        return {rank_id: leader.pid for rank_id, leader in self._leaders.items() if rank_id not in self._ended}

    def has_asked_ended(self) -> bool:
        """Whether a process that was asked to stop has ended since the last call."""
        return self.asked.take_ended() > 0

    def has_escaped(self) -> bool:
        """Whether any process outside the ranks' own sessions is alive. Reaps those that have ended."""
        return bool(process_tree.reap_adopted(keep=self._leader_pids()))

    def kill_escaped(self) -> Mapping[int, str]:
        """Send SIGKILL to every process outside the ranks' own sessions; return their names by pid."""
        return {found.pid: found.name for found in process_tree.kill_all(keep=self._leader_pids())}

    def survivors(self) -> tuple[str, ...]:
        """Describe all processes that are still alive, of whatever session."""
        owners = {leader.pid: f"{leader.spec.title}: " for leader in self._leaders.values()}
        return tuple(
            owners.get(found.session, "") + process_tree.describe(found)
            for found in process_tree.descendants(os.getpid())
            if not found.is_zombie
        )

    def close(self) -> None:
        """Stop watching. May be called twice."""
        self._exit_order.close()
        self.asked.close()

    def _leader_pids(self) -> frozenset[int]:
        return frozenset(leader.pid for leader in self._leaders.values())
