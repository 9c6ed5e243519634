"""Determines why ranks failed: what is read after a failure, and judged by the rules of `diagnosis`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.diagnosis import (
    catalogue,
    endings,
    failed_rank,
    failure,
    flight_recorder,
    log_evidence,
    oom,
    root_cause,
    stacks,
    tracebacks,
)
from ascend_runner.diagnosis.endings import Circumstances
from ascend_runner.diagnosis.failed_rank import FailedRank
from ascend_runner.diagnosis.finding import Finding
from ascend_runner.diagnosis.flight_recorder import Question
from ascend_runner.diagnosis.root_cause import Death, Diagnosis, NodePlace, Place, diagnose
from ascend_runner.diagnosis.stacks import STACKS_LIMIT, RankStack, StackCollector
from ascend_runner.errors import reason
from ascend_runner.frameworks import env_patch
from ascend_runner.node import disks, executables, memory, network
from ascend_runner.node.bounded import PATIENT, Patience
from ascend_runner.node.host import Host
from ascend_runner.node.memory import MemorySample
from ascend_runner.plan.spec import JobSpec, RankSpec
from ascend_runner.rank_table import codec
from ascend_runner.record.facts import HangSeen, RankOutput
from ascend_runner.record.rank_record import Outcome
from ascend_runner.secrets import Masker
from ascend_runner.supervision.causes import Cause, Ending, Exited, Restart
from ascend_runner.text import is_whole_number, lines_of
from ascend_runner.views import wording

CONNECTION_FAULT: Final = "EI0006"  # no connection to a peer
_PORT: Final = re.compile(r"(?:\bport\W{0,3}|[\]\w]:)(\d{2,5})\b", re.IGNORECASE)
LIVING_END: Final = 16 * 1024  # bytes of a living rank's output to search before the other ranks are asked to stop


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Investigation:
    """Investigates one job, which started at `began` (seconds since the epoch) with this much `memory`.

    Once the job is stopped, no more stacks of a hang are collected.
    """

    job: JobSpec
    began: float
    memory: MemorySample
    pids: Mapping[int, int]  # the pids of the ranks' leaders, by rank id
    masker: Masker = attrs.Factory(Masker)
    patience: Patience = PATIENT
    running: Sequence[RankSpec] = ()  # the processes as they were started

    @staticmethod
    def load_catalogue() -> None:
        """Read the catalogue ahead of a failure.

        Raises:
            OSError: It cannot be read.
        """
        catalogue.ours()

    def order_failures(self, failures: Sequence[tuple[Exited, RankOutput]], *, is_ordered: bool) -> Sequence[int]:
        """Return the ids of ranks that failed at the same moment, the most likely first cause first.

        With `is_ordered`, `failures` are in the order in which the kernel saw them end.
        """
        deaths = failed_rank.gather(self._failed_ranks(failures, lambda tail: tail), self._circumstances())
        return [death.rank_id for death in root_cause.by_suspicion(deaths, is_ordered=is_ordered)]

    def is_open(self, failure: tuple[Exited, RankOutput], living: Sequence[RankOutput]) -> bool:
        """Return whether a failure only reports a lost peer, and no living rank has reported a cause yet."""
        (failed,) = failed_rank.gather(self._failed_ranks([failure], lambda tail: tail), Circumstances())
        others = (
            FailedRank(rank_id=0, pid=0, ending=Ending(), tail=output.tail[-LIVING_END:], is_stopped=True)
            for output in living
        )
        return root_cause.is_open(failed, failed_rank.gather(others, Circumstances()))

    def has_report(self, failure: RankOutput) -> bool:
        """Return whether HCCL will report the broken connection after a failure with this output."""
        rank = FailedRank(rank_id=0, pid=0, ending=Ending(exit_code=1), tail=failure.tail[-LIVING_END:])
        (failed,) = failed_rank.gather([rank], Circumstances())
        config = self.job.processes[0].env.get("HCCL_DFS_CONFIG", "")
        is_off = re.search(r"connection_fault_detection_time\s*:\s*0+\b", config)
        return failed.evidence.code == CONNECTION_FAULT and not is_off

    def diagnose(
        self,
        failures: Sequence[tuple[Exited, RankOutput]],
        stopped: Sequence[tuple[Exited, RankOutput, RankOutput]],
        first_exit: int | None,
        *,
        is_disk_hung: bool,
    ) -> Diagnosis:
        """Explain why ranks failed.

        `failures` are ranks that failed by themselves, in the order of their ends. `stopped` are ranks that the runner
        stopped then, with their output before that and at the end. `first_exit` is the rank whose failure ended the
        job, or None if something else did.
        """
        try:
            catalogue.ours()
        except OSError as error:
            self.patience.warn(f"cannot read {catalogue.FOLDER!r}: {reason(error)}; errors are not explained")
        ranks, circumstances = self._failed_ranks(failures, self.masker.data), self._circumstances()
        on_disk: Mapping[int, Finding] = {}
        if not is_disk_hung:  # plogs are on the same disk
            on_disk = failed_rank.read_disks(ranks, self.masker, self.patience)
        circumstances = attrs.evolve(circumstances, oom_victims=oom.victims(Host(), circumstances, self.patience))
        relevant = [(exited, end if _is_cut_off(before) else before) for exited, before, end in stopped]
        others = [attrs.evolve(rank, is_stopped=True) for rank in self._failed_ranks(relevant, self.masker.data)]
        deaths = [self._advised(death) for death in failed_rank.gather([*ranks, *others], circumstances, on_disk)]
        if not is_disk_hung and any(endings.may_be_a_full_disk(death.evidence.code) for death in deaths):
            circumstances = attrs.evolve(circumstances, full_disks=self._full_disks())
        in_use = [death.evidence.code_line for death in deaths if endings.may_be_a_listener(death.evidence.code)]
        if in_use:
            circumstances = attrs.evolve(circumstances, listeners=self._listeners(in_use))
        is_one_of_several = self.job.nodes[0] > 1 and not self.job.is_passed_through
        nodes = nodes_of(self.job) if is_one_of_several else None
        return diagnose(deaths, circumstances, places_of(self.job), first_exit, nodes)

    def _advised(self, death: Death) -> Death:
        """Return a rank with what the site's own catalogue says about its error."""
        if not self.job.files.catalogue:
            return death
        site = catalogue.build(catalogue.parse(self.job.files.catalogue))
        return attrs.evolve(death, evidence=catalogue.advised(death.evidence, site))

    def judge(self, outcome: Outcome, cause: Cause, *, has_progressed: bool | None) -> tuple[Restart, str]:
        """Return whether a failure permits a restart, and its fingerprint; see `diagnosis.failure`."""
        failed, root = outcome.failed, outcome.root
        ending = failed.ending if failed and failed.ending else Ending()
        finding = failed.finding if failed else None
        is_alike = root is not None and len(root.alike) == len(outcome.ranks) > 1
        restart = failure.judge(cause, ending, finding, has_progressed=has_progressed, is_alike=is_alike)
        if self.job.watching.stops_for(cause):
            restart = Restart.EXCLUDED
        return restart, failure.fingerprint(cause, ending, finding)

    def ask_recorders(self, pids: Mapping[int, int]) -> Question:
        """Request dumps from the flight recorders of these ranks; `pids` are their leaders."""
        paths = {
            spec.rank_id: env_patch.recorder_paths(spec.env, spec.cwd, spec.rank_id)
            for spec in self.running
            if spec.rank_id in pids
        }
        question = Question(paths, self.patience.is_stopped)
        question.start()
        return question

    @staticmethod
    def is_own_log(data: bytes) -> bool:
        """Return whether output contains only messages of flight recorders about requested dumps."""
        return flight_recorder.is_own_log(data)

    def find_stacks(self, pids: Mapping[int, int], earlier: Sequence[RankStack], asked: Question | None) -> HangSeen:
        """Return the stacks of these ranks, compared with `earlier` ones, and what they wait for.

        Their flight recorders are asked first, because py-spy pauses the ranks. `asked` is an earlier question to them.
        """
        early = asked.answers({}) if asked else {}
        question = self.ask_recorders({} if asked and asked.is_open else pids)  # an open one: its disk hangs
        question.await_asked()
        collector = self._collector(self.patience.is_stopped, may_pause=True)
        groups = stacks.group(collector.collect(pids), earlier)
        late = question.answers(asked.seconds if asked else dict.fromkeys(pids, flight_recorder.QUICK))
        is_early = not any(late.values())  # recordings of different moments must not be compared
        known = {rank_id: one for rank_id, one in (early if is_early else late).items() if one}
        found = flight_recorder.compare(known, pids.keys() - known.keys())
        collectives = tuple(attrs.evolve(group, is_early=is_early) for group in found)
        why = ""
        if not collectives and any(one and one.has_recorders for one in (asked, question)):
            why = "no rank waits in a collective" if known else "no flight recorder has dumped anything in time"
        return HangSeen(
            groups,
            collector.refusal,
            outlier=wording.outlier(groups, collectives),
            collectives=collectives,
            no_collectives=why,
            was_asked=bool(late),
        )

    def find_stacks_while_saving(self, pids: Mapping[int, int], seconds: float) -> HangSeen:
        """Return the stacks of these ranks within about `seconds`, without pausing them, even if the job is stopped."""
        collector = self._collector(self.patience.is_hurried, may_pause=False)
        return HangSeen(stacks.group(collector.collect(pids, min(seconds, STACKS_LIMIT))), collector.refusal)

    def note_stacks(self, pids: Mapping[int, int], seconds: float) -> tuple[RankStack, ...]:
        """Return the stacks of all ranks within about `seconds`, without stopping a process to read its own."""
        return self._collector(self.patience.is_stopped, may_pause=False).collect(pids, min(seconds, STACKS_LIMIT))

    def _collector(self, is_cut: Callable[[], bool], *, may_pause: bool) -> StackCollector:
        py_spy = executables.find_py_spy(self.job.processes[0].env.get("PATH", os.defpath))
        return StackCollector(py_spy, is_cut, may_pause=may_pause)

    def _circumstances(self) -> Circumstances:
        return oom.between(self.memory, memory.sample(Host()))

    def _full_disks(self) -> tuple[str, ...]:
        first = self.job.processes[0]
        paths = [self.job.files.log_dir, "/dev/shm", "/tmp", *(spec.cwd for spec in self.job.processes)]  # noqa: S108  only read
        return disks.full([*paths, *disks.named_in(first.argv, first.cwd)], patience=self.patience)

    def _listeners(self, lines: Iterable[str]) -> tuple[str, ...]:
        """Return the processes that listen on the ports that lines name; most name none, and mean MASTER_PORT."""
        named = {int(number) for line in lines for number in _PORT.findall(line)}
        port = self.job.processes[0].env.get("MASTER_PORT", "")
        users = network.port_users(Host(), named or ({int(port)} if is_whole_number(port) else ()))
        return tuple(f"{user.process} on port {user.port}" for user in users if user.is_listening)

    def _failed_ranks(
        self, failures: Iterable[tuple[Exited, RankOutput]], mask: Callable[[bytes], bytes]
    ) -> list[FailedRank]:
        """Return the traces of failed ranks. Masking takes longer than reading, and only what is shown needs it."""
        specs = {spec.rank_id: spec for spec in self.job.processes}
        return [
            FailedRank(
                rank_id=exited.rank_id,
                pid=self.pids[exited.rank_id],
                ending=exited.ending,
                tail=mask(log_evidence.end_of(output.tail)),
                log_path="" if output.is_all_in_tail or output.lost else specs[exited.rank_id].log_path,
                size=output.size,
                plog_folder=specs[exited.rank_id].env.get("ASCEND_PROCESS_LOG_PATH", ""),
                has_own_plog_folder=self.job.files.has_own_process_logs,
                started_at=self.began,
            )
            for exited, output in failures
        ]


def _is_cut_off(output: RankOutput) -> bool:
    """Return whether an output ends within a traceback, so that what follows belongs to it."""
    return tracebacks.has_begun(lines_of(output.tail))


def places_of(job: JobSpec) -> dict[int, Place]:
    """Return the server and device of each rank of the whole job; without a rank table, of this node's ranks only."""
    if job.files.table is None:
        return {spec.rank_id: Place(job.server_id, spec.local_rank) for spec in job.ranks}

    return root_cause.places(codec.loads(job.files.table.data))


def nodes_of(job: JobSpec) -> tuple[NodePlace, ...]:
    """Return the nodes of the whole job, none without a rank table."""
    table = job.files.table
    return root_cause.nodes(codec.loads(table.source or table.data)) if table else ()
