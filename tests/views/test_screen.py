"""The sentences that a user reads when a job starts, hangs and ends."""

from __future__ import annotations

from signal import SIGKILL, SIGSEGV, SIGTERM, SIGUSR1

import attrs
import pytest

from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.finding import Certainty, CollectiveGroup, Finding, Peer, RootCause, StackGroup
from ascend_runner.plan.spec import JobSpec
from ascend_runner.record.nodes import JobVerdict
from ascend_runner.record.rank_record import Outcome, RankRecord, RankState
from ascend_runner.supervision import job_machine
from ascend_runner.supervision.causes import (
    Cause,
    Ending,
    Exited,
    FindingKind,
    HangDetected,
    NodeFinding,
    PeerFailed,
    Restart,
    SignalReceived,
    SpawnFailed,
)
from ascend_runner.supervision.job_machine import DelayOver, Ended, Event, Expired, Failed, Job, Policy, Prepared
from ascend_runner.supervision.state import Phase
from ascend_runner.views import screen, wording
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.planted import SECRETS, WORD

OK = Ending()
FAILED = Ending(exit_code=1)
STOPPED = Ending(signum=SIGTERM)


def job(*rank_ids: int, pod_name: str = "") -> JobSpec:
    """Return a plan of these ranks, of 16 in all."""
    ranks = [
        rank_spec(rank_id, local_rank=local_rank, env={"ASCEND_PROCESS_LOG_PATH": f"/plog/{rank_id}"})
        for local_rank, rank_id in enumerate(rank_ids)
    ]
    return job_spec(ranks, rank_size=16, pod_name=pod_name, node_number=2)


def ended(cause: Cause | None, *ranks: RankRecord, seconds: float = 3.21) -> list[str]:
    """Return the summary of a job with this outcome."""
    outcome = Outcome(cause=cause, ranks=ranks, seconds=seconds)
    return screen.ended(outcome, job(*(rank.rank_id for rank in ranks))).splitlines()


def rank(rank_id: int, ending: Ending | None = OK, *, is_stopped: bool = False) -> RankRecord:
    """Make the record of a rank."""
    made = RankRecord(
        rank_id=rank_id,
        local_rank=rank_id % 4,
        ending=ending,
        pid=4711,
        seconds=8040.0,
        log_path="/l",
        log_size=9,
        rerun="true",
    )
    return attrs.evolve(made, state=RankState.STOPPED) if is_stopped and ending else made


# --- A job's beginning and end ----------------------------------------------------------------------------------------


def test_beginning_says_what_runs_where() -> None:
    """The first message states the ranks, the size of the job, the server and pod, and the log directory."""
    assert "starting ranks 8, 9 of 16 on 10.0.0.1 (pod job-1), logs in /log" == screen.starting(
        job(8, 9, pod_name="job-1")
    )
    assert "starting rank 0 of 16 on 10.0.0.1, logs in /log" == screen.starting(job(0))
    assert "starting rank 0 on 10.0.0.1, logs in /log" == screen.starting(attrs.evolve(job(0), rank_size=0))


def test_secrets_in_names_of_a_rank_table() -> None:
    """They are masked by their shape."""
    lines = [screen.starting(job(0, pod_name=secret)) for secret in SECRETS]

    assert [] == [line for line in lines if WORD in line]


def test_ranks_that_failed_alike_while_saving() -> None:
    """Their evidence is shown once: a full disk fails the save of every rank of a node."""
    findings = [Finding(last_lines=(line,)) for line in ("no space left", "no space left", "it was me")]
    ranks = [attrs.evolve(rank(number, FAILED), finding=finding) for number, finding in enumerate(findings)]
    unsaved = dict.fromkeys(range(3), FAILED)
    outcome = Outcome(cause=SignalReceived(SIGTERM), ranks=tuple(ranks), seconds=1.0, unsaved=unsaved)
    lines = screen.ended(outcome, job(0, 1, 2)).splitlines()

    place = lines.index("  failed ranks 0, 1 before they had saved (exit status 1)")
    assert ["  | no space left", "  log    /l"] == lines[place + 1 : place + 3]
    assert ["  failed rank 2 before it had saved (exit status 1)", "  | it was me"] == lines[place + 3 : place + 5]


def test_beginning_of_another_attempt() -> None:
    """It says how many are left, and does not repeat where the logs are."""
    again = attrs.evolve(job(0, 1), restarts=Policy(max_restarts=3))

    assert "restarting ranks 0, 1 of 16 on 10.0.0.1 (restart 1 of at most 3)" == screen.starting(again, 1)


def test_auxiliary_process_is_called_by_its_name() -> None:
    """The name of an auxiliary process is shown, never its negative rank id."""
    scheduler = attrs.evolve(job(-1).ranks[0], name="scheduler")
    both = attrs.evolve(job(0, 1), beside=(scheduler,))
    ranks = (attrs.evolve(rank(-1, STOPPED, is_stopped=True), name="scheduler"), rank(0), rank(1))

    def summary(cause: Cause | None) -> str:
        return screen.ended(Outcome(cause=cause, ranks=ranks, seconds=3.21), both)

    assert "starting ranks 0, 1 of 16 and scheduler on 10.0.0.1, logs in /log" == screen.starting(both)
    assert "both ranks exited with status 0 after 3.2 s" == summary(None)
    assert summary(SpawnFailed(rank_id=-1, reason="no memory", exit_status=125, name="scheduler")).endswith(
        "\n  others succeeded: ranks 0, 1"
    )
    assert "\n  rank   scheduler on server 10.0.0.1, pid 4711, ended after 2 h 14 min\n" in summary(
        Exited(-1, FAILED, name="scheduler")
    )
    assert "\n  ranks  stopped by the runner (SIGTERM): scheduler\n" in summary(SignalReceived(SIGTERM))


def test_success_is_one_line() -> None:
    """A success is reported with the number of ranks and the duration."""
    assert ["rank 3 exited with status 0 after 3.2 s"] == ended(None, rank(3))
    assert ["both ranks exited with status 0 after 3.2 s"] == ended(None, rank(3), rank(4))
    assert ["all 3 ranks exited with status 0 after 3.2 s"] == ended(None, rank(3), rank(4), rank(5))


def test_interrupted_job() -> None:
    """The signal is named, and ranks that ended alike share a line."""
    lines = ended(
        SignalReceived(SIGTERM),
        rank(0),
        rank(1, STOPPED, is_stopped=True),
        rank(2, STOPPED, is_stopped=True),
        rank(3, Ending(signum=SIGUSR1, core_dumped=True), is_stopped=True),
        rank(4, FAILED, is_stopped=True),
        rank(5, None, is_stopped=True),
        RankRecord(rank_id=6, state=RankState.NOT_STARTED),
        rank(7, Ending(signum=SIGKILL), is_stopped=True),
    )

    assert [
        "  logs   /log",
        "  report /log/job-report-node-2.json",
        "  ranks  succeeded: rank 0",
        "         stopped by the runner (SIGTERM): ranks 1, 2",
        "         ended after being asked to stop (SIGUSR1, core dumped): rank 3",
        "         ended after being asked to stop (exit status 1): rank 4",
        "         still alive after SIGKILL: rank 5",
        "         not started: rank 6",
        "         killed by the runner (SIGKILL): rank 7",
    ] == lines[1:]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("stopped by SIGTERM after 3.2 s", SignalReceived(SIGTERM)),
        ("no rank wrote any output for 60 s (--hang-timeout); stopped after 3.2 s", HangDetected(60.0)),
        (
            "ascend-runner (pid 4711) was killed; stopped after 3.2 s",
            SignalReceived(SIGTERM, guardian=4711),
        ),
    ],
)
def test_end_that_no_rank_has_caused(line: str, cause: Cause) -> None:
    """The cause of the job's end is reported, with its duration."""
    assert line == ended(cause, rank(0, STOPPED, is_stopped=True))[0]


@pytest.mark.parametrize(
    "cause", [SignalReceived(SIGTERM), Exited(0, FAILED), SpawnFailed(rank_id=0, reason="no memory", exit_status=125)]
)
def test_report_that_was_not_written(cause: Cause) -> None:
    """The screen names the path of the report in the run directory, or says that it was not written."""
    outcome = Outcome(cause=cause, ranks=(rank(0, FAILED),), report_problem="no space left on device")
    kept = attrs.evolve(outcome, report_place="/run/job/report.json")
    usual = attrs.evolve(outcome, report_problem="", report_place=job(0).report_path)
    lines = [screen.ended(seen, job(0)).splitlines() for seen in (usual, outcome, kept)]

    assert [
        [f"  report {job(0).report_path}"],
        ["  report not written: no space left on device"],
        ["  report /run/job/report.json (could not be written beside the logs: no space left on device)"],
    ] == [[line for line in shown if "report" in line] for shown in lines]


def test_rank_that_could_not_be_started() -> None:
    """The cause is followed by what became of the others, without the rank itself."""
    lines = ended(
        SpawnFailed(rank_id=1, reason="'/bin/x': no such file or directory", exit_status=127),
        rank(0, STOPPED, is_stopped=True),
        RankRecord(rank_id=1, state=RankState.NOT_STARTED),
        RankRecord(rank_id=2, state=RankState.NOT_STARTED),
    )

    assert [
        "  report /log/job-report-node-2.json",
        "  others stopped by the runner (SIGTERM): rank 0",
        "         not started: rank 2",
    ] == lines[1:]


# --- The failure screen -----------------------------------------------------------------------------------------------


def test_failed_rank() -> None:
    """Cause, evidence, rank, files, the command to rerun it, and the other ranks, in this order."""
    finding = Finding(
        exception="ValueError: loss is nan", excerpt=("Traceback (most recent call last):", "ValueError: loss is nan")
    )
    root = RootCause(rank_id=5, summary=finding.summary, certainty=Certainty.CERTAIN)
    ranks = (rank(4, STOPPED, is_stopped=True), attrs.evolve(rank(5, FAILED), finding=finding))
    outcome = Outcome(cause=Exited(5, FAILED), ranks=ranks, root=root)

    assert [
        "rank 5 failed: ValueError: loss is nan (exit status 1)",
        "  | Traceback (most recent call last):",
        "  | ValueError: loss is nan",
        "  rank   5, device 1 on server 10.0.0.1, pid 4711, ended after 2 h 14 min",
        "  log    /l",
        "  report /log/job-report-node-2.json",
        "  rerun  true",
        "  others stopped by the runner (SIGTERM): rank 4",
    ] == screen.ended(outcome, job(4, 5)).splitlines()


def test_evidence() -> None:
    """Without an exception the last lines are shown, then origin, meaning, code, what to do, the peer and the plog."""
    finding = Finding(
        origin="KeyError: 'x'",
        origin_place="data.py:5 in load",
        meaning="out of memory",
        last_lines=("step 16", "step 17"),
        code="EI0006",
        code_kind="usually caused by a peer",
        code_meaning="no connection to a peer",
        next="look at the rank that ended first",
        points_at=(Peer(rank_id=3, server_id="10.0.0.5", device_id=1),),
        plog_path="/plog/plog-1_2.log",
        plog_error="[ERROR] HCCL(1,python): x",
    )
    lines = ended(Exited(0, FAILED), attrs.evolve(rank(0, FAILED), finding=finding))

    assert [
        "  | step 16",
        "  | step 17",
        "  origin KeyError: 'x' (data.py:5 in load)",
        "  means  out of memory",
        "  code   EI0006 (usually caused by a peer): no connection to a peer",
        "  next   look at the rank that ended first",
        "  blames rank 3 (device 1 on server 10.0.0.5)",
    ] == lines[1:8]
    assert ["  plog   /plog/plog-1_2.log", "         [ERROR] HCCL(1,python): x"] == lines[10:12]


def test_finding_of_the_precheck_before_a_failure() -> None:
    """An error of the pre-check is dated beside what was found, before what to do about it."""
    found = "devices: found only 7 NPUs"
    finding = NodeFinding(
        subject=found, sentence=f"{found}; request more", at=8000.0, kind=FindingKind.PRECHECK, is_error=True
    )
    outcome = Outcome(cause=Exited(0, FAILED), ranks=(rank(0, FAILED),), seconds=8040.0, findings=(finding,))

    assert f"  node   {found}, 40 s before; request more" in screen.ended(outcome, job(0)).splitlines()


def test_plogs_that_were_not_read() -> None:
    """Their directory is shown where nothing of a rank could be read in time."""
    assert "  plog   /plog/5" in ended(Exited(5, FAILED), rank(5, FAILED))


def test_lost_output() -> None:
    """Bytes that the log lacks are reported below its path."""
    lines = ended(Exited(0, FAILED), attrs.evolve(rank(0, FAILED), log_lost=10, log_lost_from=4096))

    assert "         10 bytes missing, from byte 4096 on" == lines[lines.index("  log    /l") + 1]


@pytest.mark.parametrize(
    ("line", "suspected"),
    [
        ("  check  rank 3 first: rank 0 reports only the loss of this peer", Peer(rank_id=3, reported_by=(0,))),
        (
            "  check  rank 3 (device 1 on server 10.0.0.5) first: ranks 0-2 report only the loss of this peer",
            Peer(rank_id=3, server_id="10.0.0.5", device_id=1, reported_by=(0, 1, 2)),
        ),
    ],
)
def test_suspected_peer(line: str, suspected: Peer) -> None:
    """A suspected peer is the first to check."""
    outcome = Outcome(cause=Exited(0, FAILED), ranks=(rank(0, FAILED),), suspected_peer=suspected)

    assert line == screen.ended(outcome, job(0)).splitlines()[1]


@pytest.mark.parametrize(
    ("text", "peer"),
    [
        ("rank 3", Peer(rank_id=3)),
        ("rank 3 (device address 29.1.1.1)", Peer(rank_id=3, device_ip="29.1.1.1")),
        ("device 1 on server 10.0.0.5", Peer(server_id="10.0.0.5", device_id=1)),
        ("server 10.0.0.5", Peer(server_id="10.0.0.5")),
        ("an unnamed peer", Peer()),
    ],
)
def test_peer(text: str, peer: Peer) -> None:
    """A peer is described by everything that is known about it."""
    failed = attrs.evolve(rank(0, FAILED), finding=Finding(points_at=(peer,)))

    assert f"  blames {text}" == ended(Exited(0, FAILED), failed)[1]


# --- A victim that ended first ----------------------------------------------------------------------------------------

NAN = RootCause(
    rank_id=1,
    summary="ValueError: loss is nan",
    certainty=Certainty.LIKELY,
    first_summary="RuntimeError: Connection closed by peer",
)
LOST = Finding(exception=NAN.first_summary, code_kind=Kind.SECONDARY.value, code="lost-peer")


def caused(root: RootCause) -> list[str]:
    """Return the summary of a job in which rank 0 ended first, and rank 1 was stopped."""
    ranks = (attrs.evolve(rank(0, FAILED), finding=LOST), rank(1, STOPPED, is_stopped=True))
    outcome = Outcome(cause=Exited(0, FAILED), ranks=ranks, root=root)
    return screen.ended(outcome, job(0, 1)).splitlines()


def test_victim_that_ended_first() -> None:
    """The head names the cause, and the line below the rank whose exit status counts."""
    lines = caused(NAN)

    assert [
        "rank 1 caused the failure (likely): ValueError: loss is nan",
        "  first  rank 0 ended first (exit status 1), as a consequence: RuntimeError: Connection closed by peer",
    ] == lines[:2]
    assert "  rank   1, device 1 on server 10.0.0.1, pid 4711, ended after 2 h 14 min" in lines
    assert "  others failed (exit status 1): rank 0" == lines[-1]


def test_victim_of_a_crash() -> None:
    """An ending that has a remark of its own is reported without a second pair of parentheses."""
    crashed = Ending(signum=SIGSEGV, core_dumped=True)
    root = attrs.evolve(NAN, first_summary=str(crashed))
    outcome = Outcome(cause=Exited(0, crashed), ranks=(rank(0, crashed), rank(1)), root=root)

    assert (
        "  first  rank 0 ended first (killed by SIGSEGV, core dumped)"
        == screen.ended(outcome, job(0, 1)).splitlines()[1]
    )


def test_how_sure_the_cause_is() -> None:
    """The head says whether the rank that ended first is the cause, likely the cause, or one of the candidates."""
    likely = attrs.evolve(NAN, rank_id=0)
    head = "rank 0 failed: ValueError: loss is nan (exit status 1)"

    assert head == caused(attrs.evolve(likely, certainty=Certainty.CERTAIN))[0]
    assert f"{head} (likely the cause)" == caused(likely)[0]
    assert f"{head} (cause unclear)" == caused(attrs.evolve(likely, certainty=Certainty.OPEN))[0]


def unclear(candidates: tuple[int, ...], *summaries: str) -> list[str]:
    """Return the lines on the cause where ranks report these errors, "" if one was stopped instead."""
    ranks = [
        attrs.evolve(rank(number, FAILED, is_stopped=not text), finding=Finding(exception=text) if text else None)
        for number, text in enumerate(summaries)
    ]
    root = RootCause(rank_id=0, summary=summaries[0], certainty=Certainty.OPEN, candidates=candidates)
    outcome = Outcome(cause=Exited(0, FAILED), ranks=tuple(ranks), root=root)
    lines = screen.ended(outcome, job(*range(len(ranks)))).splitlines()
    return lines[1 : next(number for number, line in enumerate(lines) if line.startswith("  rank "))]


@pytest.mark.parametrize(
    ("lines", "candidates", "summaries"),
    [
        (
            ["  cause  may be rank 7", "         or rank 1: link 2 is down", "         or rank 0"],
            (7, 1, 0),
            ("no reply from 1", "link 2 is down", "no reply from 5"),
        ),
        ([], (0,), ("lost rank 1", "lost rank 2", "lost rank 0")),
        (
            ["  cause  ranks 0, 1 report the same error; may be one of them, or a rank that was stopped"],
            (0,),
            ("no reply from 1", "no reply from 2", ""),
        ),
        (["  cause  may be rank 0, or a rank that was stopped"], (0,), ("no reply from 1", "", "")),
    ],
)  # fmt: skip
def test_unclear_cause(lines: list[str], candidates: tuple[int, ...], summaries: tuple[str, ...]) -> None:
    """Each candidate is shown with its error; none is singled out of ranks that report the same."""
    assert lines == unclear(candidates, *summaries)


@pytest.mark.parametrize(
    ("line", "certainty"),
    [
        ("all 3 ranks failed alike: KeyError: 'lr1' (exit status 1)", Certainty.CERTAIN),
        ("all 3 ranks report the same error: KeyError: 'lr1' (exit status 1) (cause unclear)", Certainty.OPEN),
    ],
)
def test_all_ranks_failed_alike(line: str, certainty: Certainty) -> None:
    """If all ranks report the same error, apart from numbers, the first line singles out none."""
    ranks = [
        attrs.evolve(rank(number, FAILED), finding=Finding(exception=f"KeyError: 'lr{number}'")) for number in (0, 1, 2)
    ]
    root = RootCause(rank_id=1, summary="KeyError: 'lr1'", certainty=certainty, alike=(0, 1, 2), candidates=(1,))
    outcome = Outcome(cause=Exited(1, FAILED), ranks=tuple(ranks), root=root)
    lines = screen.ended(outcome, job(0, 1, 2)).splitlines()

    assert (line, []) == (lines[0], [text for text in lines if text.startswith("  cause")])


def test_rank_without_output() -> None:
    """The line with the log says that it is empty, instead of an excerpt."""
    silent = attrs.evolve(rank(0, FAILED), log_size=0, finding=Finding())
    outcome = Outcome(cause=Exited(0, FAILED), ranks=(silent,))

    assert "  log    /l (empty)" in screen.ended(outcome, job(0)).splitlines()


# --- A job of several nodes -------------------------------------------------------------------------------------------

VERDICT = JobVerdict(
    node=2, rank_id=9, sentence="rank 9 failed: exit status 1", certainty="likely", status=1, lines=("bad input",)
)
NODE_FAILED = PeerFailed(attempt=0, sentence="node 2 failed (rank 9: exit status 1)", exit_status=1)


def ended_on_node(cause: Cause, *ranks: RankRecord, **changes: object) -> list[str]:
    """Return the summary on one of four nodes, with the verdict and some `changes` of it."""
    verdict = attrs.evolve(VERDICT, **changes)  # type: ignore[arg-type]  # fields of several types
    spec = attrs.evolve(job(*(rank.rank_id for rank in ranks)), nodes=(4, 4))
    node = 2 if VERDICT.rank_id in {rank.rank_id for rank in ranks} else 1
    return screen.ended(Outcome(cause=cause, ranks=ranks, verdict=verdict, node=node), spec).splitlines()


def test_ranks_of_all_nodes() -> None:
    """Every node is equally certain, and says that the other ranks were stopped everywhere once all have said that."""
    stopped = [rank(number, STOPPED, is_stopped=True) for number in (8, 10, 11)]
    here = ended_on_node(Exited(9, FAILED), stopped[0], rank(9, FAILED), *stopped[1:], is_stopped=True)
    there = ended_on_node(NODE_FAILED, *stopped[1:], is_stopped=True)
    last = "  others stopped on all 4 nodes: ranks 0-8, 10-15"

    assert ["rank 9 failed: exit status 1 (likely the cause)", last] == [here[0], here[-1]]
    assert ["rank 9 on node 2 failed: exit status 1 (likely the cause)", last] == [there[0], there[-1]]


def test_failure_beside_the_death_of_a_runner() -> None:
    """A node with a failure of its own shows the cause that all nodes show, also if that is no rank's."""
    lines = ended_on_node(
        Exited(5, FAILED), rank(5, FAILED), node=0, rank_id=None, sentence="the runner of node 0 died"
    )

    assert "the runner of node 0 died (likely the cause)" == lines[0]
    assert "  ranks  failed (exit status 1): rank 5" in lines


def test_advice_on_a_failure_elsewhere() -> None:
    """Each node explains the error, as its own node does."""
    lines = ended_on_node(NODE_FAILED, means="no room on the device", next="use a smaller batch")

    assert ["  | bad input", "  means  no room on the device", "  next   use a smaller batch"] == lines[1:4]


def test_ranks_that_ended_otherwise() -> None:
    """A rank of this node that was not just stopped has a line of its own; of others, it is not known."""
    lines = ended_on_node(NODE_FAILED, rank(14, STOPPED, is_stopped=True), rank(15))

    assert [
        "  others stopped by the runner (SIGTERM): rank 14",
        "         succeeded: rank 15",
        "         failed, ended or not started on the other 3 nodes: ranks 0-8, 10-13",
    ] == lines[-3:]


def test_no_other_rank_elsewhere() -> None:
    """If the failed rank is the only one on the other nodes, no line is about further ranks there."""
    here = [rank(number) for number in range(16) if number != 9]

    assert ["  others succeeded: ranks 0-8, 10-15"] == ended_on_node(NODE_FAILED, *here)[-1:]


@pytest.mark.parametrize("cause", [Exited(9, FAILED), NODE_FAILED])
def test_nodes_that_the_verdict_misses(cause: Cause) -> None:
    """Every node names nodes that may have failed first or failed too, and nothing is said of ranks not heard of."""
    numbers = (8, 9) if cause.ending else (14, 15)
    lines = ended_on_node(
        cause, *(rank(number, STOPPED, is_stopped=True) for number in numbers), tied=(1,), failed_too=(0,), missing=(3,)
    )

    first = lines.index("  also   node 1 may have failed first")
    assert ["         node 0 failed as well", "  nodes  nothing heard from node 3"] == lines[first + 1 : first + 3]
    assert "  others stopped by the runner (SIGTERM)" == lines[-1].partition(": ")[0]


def test_failure_that_is_not_the_cause() -> None:
    """A node whose rank has failed as well tells the cause of the job."""
    outcome = Outcome(cause=Exited(0, FAILED), ranks=(rank(0, FAILED),), verdict=VERDICT)
    cause = wording.cause_record(outcome)
    lines = ended_on_node(Exited(0, FAILED), rank(0, FAILED))

    assert cause is not None
    assert ("node_failed", None, "likely") == (cause.kind, cause.rank_id, cause.certainty)
    assert "rank 9 on node 2 failed: exit status 1 (likely the cause)" == lines[0]
    assert "  others failed (exit status 1): rank 0" in lines


def test_verdict_of_a_node_alone() -> None:
    """It says nothing of the other nodes."""
    lines = ended_on_node(
        Exited(9, FAILED), rank(8, STOPPED, is_stopped=True), rank(9, FAILED), is_alone=True, missing=(0, 1)
    )

    assert "  others stopped by the runner (SIGTERM): rank 8" == lines[-1]
    assert not [line for line in lines if "heard" in line]


def test_only_rank_of_a_job_is_the_cause() -> None:
    """Nothing else can have caused the end of a rank that was alone."""
    outcome = Outcome(cause=Exited(0, FAILED), ranks=(rank(0, FAILED),), root=attrs.evolve(NAN, rank_id=0))

    assert "rank 0 failed: ValueError: loss is nan (exit status 1)" == screen.ended(outcome, job(0)).splitlines()[0]


def test_same_cause_on_several_ranks() -> None:
    """Ranks that failed for the same reason are listed apart from those that were stopped."""
    root = attrs.evolve(NAN, rank_id=0, certainty=Certainty.CERTAIN, alike=(0, 1))

    assert "  others failed in the same way: rank 1" == caused(root)[-1]


def test_likely_cause_beside_others() -> None:
    """If other ranks report errors of their own as well, these are named."""
    root = attrs.evolve(NAN, rank_id=0, candidates=(1,))

    assert "  also   rank 1 may be the cause" == caused(root)[1]


def test_rank_that_is_elsewhere_in_a_hang() -> None:
    """The last lines and the sentence for all views name the rank that the stacks single out."""
    groups = (
        StackGroup(rank_ids=(2,), state="sleeping", frames=("load_batch (data.py:3)",)),
        StackGroup(rank_ids=(0, 1), state="sleeping", frames=("all_reduce (train.py:7)",)),
    )
    waits = (CollectiveGroup(rank_ids=(0, 1), group="0", number=7, is_waiting=True),)
    outcome = Outcome(cause=HangDetected(60.0), ranks=(rank(0), rank(1), rank(2)), hang=groups, collectives=waits)
    place = wording.outlier(groups)

    expected = [f"  likely {place}", "  waits  ranks 0, 1 wait in collective #7 of process group 0"]
    assert expected == screen.ended(outcome, job(0, 1, 2)).splitlines()[1:3]
    assert wording.sentence(outcome).endswith(f", likely because of {place}")


FAILURE = Failed(status=7, restart=Restart.TRANSIENT, fingerprint="exit status 7")
AGAIN = (FAILURE, DelayOver(), Prepared())


@pytest.mark.parametrize(
    ("policy", "events", "expected"),
    [
        (Policy(), (Ended(),), ""),
        (Policy(), (FAILURE,), ""),
        (Policy(max_restarts=3), (Ended(),), ""),
        (Policy(max_restarts=3), (*AGAIN, *AGAIN, Ended()), "\n  attempts 3"),
        (Policy(max_restarts=3), (*AGAIN, Expired()), "\n  attempts 2"),
        (Policy(max_restarts=3), (*AGAIN, Ended(status=143)), "\n  attempts 2"),
    ],
)
def test_number_of_attempts(policy: Policy, events: tuple[Event, ...], expected: str) -> None:
    """A job that was restarted says how often, however it ends; one that was not has nothing to say."""
    job = Job(policy=policy, state=Phase.RUNNING)
    for event in events:
        job, _actions = job_machine.transition(job, event)

    assert job.state.is_final
    assert expected == screen.attempts(job)
