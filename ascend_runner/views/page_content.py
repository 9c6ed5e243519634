"""The content of a page: its sources, what may be published of them, the verdict and the sections.

Only files in the directory of the report are read, whatever paths it names, except for a rank table of the same owner.
Secrets in them are masked again: the report may come from another version, and logs have whatever the ranks wrote. Of a
page for publication, the members to keep are listed, so that a new one is omitted until it has been reviewed.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import attrs

from ascend_runner import files
from ascend_runner.diagnosis.finding import Finding, Peer, StackGroup
from ascend_runner.errors import AscendRunnerError
from ascend_runner.members import Members, plain
from ascend_runner.rank_table import codec, source
from ascend_runner.rank_table.model import RankTable
from ascend_runner.record.job_record import CERTAINTY, AttemptRecord, CauseRecord, JobRecord
from ascend_runner.record.nodes import JobVerdict, NodeRecord
from ascend_runner.record.rank_record import LOST_PEERS, RankRecord
from ascend_runner.report_file import KIND
from ascend_runner.secrets import Masker
from ascend_runner.supervision import cloud_events, outliers
from ascend_runner.supervision.causes import CAUSES, Cause
from ascend_runner.supervision.job_machine import JobState
from ascend_runner.supervision.state import Phase
from ascend_runner.text import all_of, clock, counted, duration, last_lines, rank_list, signal_name, without_empty
from ascend_runner.views import facts, page_ranks, page_training, topology, wording
from ascend_runner.views.facts import Fact
from ascend_runner.views.page_ranks import MARKS, Evidence, Group, Row, Timeline
from ascend_runner.views.page_training import Series, Training
from ascend_runner.views.topology import Topology

LARGEST_NEIGHBOUR: Final = 1 << 20  # bytes of the events and of a run file
LOG_END: Final = 16 * 1024  # bytes of each log
# What is read of the logs for the training: bytes of all ranks, the ranks, the parts of a long log, and seconds. With
# these, a page takes less than the time that the runner waits for it.
TRAINING: Final = 1 << 20
MOST_READ: Final = 64
PARTS: Final = 8
READ_LIMIT: Final = 0.25
TABLE: Final = os.path.join("rank_table", source.FILE_NAME)


@attrs.frozen(kw_only=True)
class Sources:
    """The content of one HTML report. `log_ends` has the last lines of each rank's log, by rank.

    It was gathered at `made_at`, in seconds since the epoch, when `masked` secrets were masked in addition to those of
    the report. If it `was_killed`, the runner could not report an end. With `links_logs`, the HTML file is beside the
    logs. With `is_public`, whatever could identify people, machines or data is omitted.
    """

    report: JobRecord
    command: tuple[str, ...]
    events: tuple[Members, ...]
    log_ends: Mapping[int, tuple[str, ...]]
    made_at: float
    table: RankTable | None
    training: Mapping[int, Series] = attrs.field(factory=dict)
    masked: int = 0
    was_killed: bool = False
    links_logs: bool = False
    is_public: bool = False


def gather(report: Members, path: str) -> Sources:
    """Return the report with the files beside it; `path` is the JSON report."""
    folder, name = os.path.split(path)
    masker = Masker()
    run = _objects(os.path.join(folder, _neighbour(name, "-run")))[:1]
    events = _objects(os.path.join(folder, _neighbour(f"{os.path.splitext(name)[0]}.jsonl", "-events")))
    log_ends = {}
    for rank in report.children("ranks"):
        rank_id, log = rank.whole("rank_id"), os.path.basename(rank.text("log_path"))
        if rank_id is not None and log:
            with suppress(ValueError):  # a NUL or half of a surrogate pair in the name
                end = files.read_end(os.path.join(folder, log), LOG_END)
                log_ends[rank_id] = tuple(last_lines(masker.data(end)))
    gathered = Sources(
        table=table_of(report, path),
        report=JobRecord.decode(Members(masker.members(report.members))),
        command=masker.arguments(run[0].texts("command")) if run else (),
        events=tuple(Members(masker.members(event.members)) for event in events),
        log_ends=log_ends,
        training=_training(report, folder),
        made_at=time.time(),
    )
    return attrs.evolve(gathered, masked=masker.count)


def _training(report: Members, folder: str) -> dict[int, Series]:
    """Return the steps in the logs: of the first, the last and the failed rank, and of others while there is time."""
    written = [rank for rank in report.children("ranks") if rank.whole("log_size") != 0]
    logs = {rank.whole("rank_id"): os.path.basename(rank.text("log_path")) for rank in written}
    ranks = sorted(rank_id for rank_id, log in logs.items() if rank_id is not None and log)
    failed = report.child("cause").whole("rank_id")
    chosen = [*dict.fromkeys((*ranks[:1], *ranks[-1:], *(one for one in ranks if one == failed), *ranks))][:MOST_READ]
    found, end = dict.fromkeys(ranks, Series(is_unread=True)), time.monotonic() + READ_LIMIT
    for rank_id in chosen:
        if time.monotonic() > end:
            break
        with suppress(ValueError):
            parts, is_sampled = files.read_parts(os.path.join(folder, logs[rank_id]), TRAINING // len(chosen), PARTS)
            found[rank_id] = Series(points=page_training.points_of(parts), is_sampled=is_sampled)
    return found


def table_of(report: Members, path: str) -> RankTable | None:
    """Return the rank table beside the logs, or else the one that the report names, or None if it is of another job.

    A table elsewhere must have the owner of the report: then a page shows nothing that its author could not read.
    """
    named = report.text("rank_table")
    folder, name = os.path.split(path)
    job_id = report.text("job_id") if name.startswith(f"{report.text('job_id')}-") else ""  # a name, not a path
    with suppress(AscendRunnerError, OSError, ValueError, RecursionError):
        beside = os.path.join(folder, job_id, TABLE)
        table = source.read(beside) if os.path.exists(beside) else _read_table(named, os.stat(path).st_uid)
        if table and table.rank_size == report.whole("rank_size") and _has_server(table, report.text("server_id")):
            return table
    return None


def _read_table(path: str, owner: int) -> RankTable | None:
    if not os.path.isabs(path):
        return None
    fd = os.open(path, files.READ_FLAGS)
    with open(fd, "rb"):
        status = os.fstat(fd)
        is_readable = stat.S_ISREG(status.st_mode) and status.st_uid == owner
        return codec.loads(source.read_all(fd, path), source=path) if is_readable else None


def _has_server(table: RankTable, server_id: str) -> bool:
    return any(server.server_id == server_id for server in table.servers)


def _neighbour(name: str, kind: str) -> str:
    """Return the name of another file of the job, whose report may be called "JOB-report-node-1.json"."""
    before, _kind, after = name.rpartition(KIND)
    return f"{before}{kind}{after}"


def _objects(path: str) -> list[Members]:
    """Return the JSON objects in the lines of a file, or none if it cannot be read."""
    found = []
    for line in files.read_end(path, LARGEST_NEIGHBOUR).splitlines():
        with suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict):
                found.append(Members(value))
    return found


_REPORT: Final = (
    *("state", "status", "exit_verdict", "attempt", "rank_size", "started_at", "seconds"),
    *("runner_version", "secrets_masked", "schema_version", "software"),
)
_CAUSE: Final = (
    *("kind", "rank_id", "first_exit", "alike", "certainty", "candidates", "signal"),
    *("is_a_consequence", "is_elsewhere"),
)
_RANK: Final = (
    *("rank_id", "local_rank", "state", "ending", "started_after", "seconds"),
    *("max_rss", "user_seconds", "system_seconds", "log_size", "log_lost"),
)
_ATTEMPT: Final = ("attempt", "started_at", "seconds", "status", "restart", "verdict", "delay")
_NODE: Final = (
    *("node", "state", "is_unreachable", "attempt", "ranks", "alive", "step", "heard", "round_trip", "clock_offset"),
)
_VERDICT: Final = ("attempt", "node", "rank_id", "kind", "certainty", "status", "tied", "missing", "is_alone")
_PEER: Final = ("rank_id", "device_id")
_FINDING: Final = ("code", "code_kind", "code_meaning", "next")
_VARIABLES: Final = (
    *("RANK", "RANK_ID", "RANK_SIZE", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    *("DEVICE_ID", "ASCEND_DEVICE_ID"),
)
_SENTENCES: Final = {
    **{cause.report_kind: cause.public for cause in CAUSES},
    "runner_failed": "the runner itself has failed",
}


def reduced(sources: Sources) -> Sources:
    """Return the sources of a page for publication."""
    report = sources.report
    kept = JobRecord(
        **_kept(report, _REPORT),
        job_id="job",
        cause=_public_cause(report, report.cause) if report.cause else None,
        ranks=tuple(map(_public_rank, report.ranks)),
        hang=tuple(attrs.evolve(stack, state="", frames=()) for stack in report.hang),
        attempts=tuple(AttemptRecord(**_kept(attempt, _ATTEMPT)) for attempt in report.attempts),
        verdict=JobVerdict(**_kept(report.verdict, _VERDICT)) if report.verdict else None,
        nodes=tuple(NodeRecord(**_kept(node, _NODE)) for node in report.nodes),
    )
    return attrs.evolve(sources, report=kept, command=(), events=(), log_ends={}, training={}, table=None)


def _kept(record: object, names: Sequence[str]) -> dict[str, Any]:
    """Return the fields with these names."""
    return {name: getattr(record, name) for name in names}


def _public_cause(report: JobRecord, cause: CauseRecord) -> CauseRecord:
    failed, peer = report.failed, cause.suspected_peer
    ending = failed.ending if failed else None
    code, signum = ending.exit_code if ending else 0, (ending.signum if ending else 0) or cause.signal
    how = f": exit status {code}" if code else ""
    if signum:
        how = f" by {signal_name(signum)}"
    exception = _exception(failed.finding.exception) if failed and failed.finding else ""
    sentence = _SENTENCES.get(cause.kind, Cause.public).format(rank=f"rank {cause.rank_id}", how=how)
    sentence = f"{sentence} ({exception})" if exception else sentence
    return CauseRecord(
        **_kept(cause, _CAUSE),
        sentence=f"{LOST_PEERS}another node" if cause.is_elsewhere else sentence,
        suspected_peer=_public_peer(peer) if peer else None,
    )


def _public_peer(peer: Peer) -> Peer:
    return Peer(**_kept(peer, _PEER))


def _public_rank(rank: RankRecord) -> RankRecord:
    finding = rank.finding
    public = (
        Finding(
            **_kept(finding, _FINDING),
            exception=_exception(finding.exception),
            points_at=tuple(map(_public_peer, finding.points_at)),
        )
        if finding
        else None
    )
    return RankRecord(
        **_kept(rank, _RANK),
        name="auxiliary process" if rank.name else "",
        variables={name: value for name, value in rank.variables.items() if name in _VARIABLES},
        finding=public,
    )


def _exception(text: str) -> str:
    """Return the type of an exception, without its message."""
    name = text.partition(":")[0].strip()
    return name if name.replace(".", "_").isidentifier() else ""


DOING: Final = {"preparing": "being prepared", "checkpointing": "saving a checkpoint", "holding": "held"}
PROBLEMS: Final = {cloud_events.HANGING: ", but the job hangs", cloud_events.SLOW: ", but the training is slow"}
SURENESS: Final = {**CERTAINTY, "likely": MARKS["likely"]}  # how certain the cause on the next line is
FINAL: Final = {"succeeded": "good", "failed": "bad", "stopped": "bad", "expired": "bad", "holding": "bad"}
# The facts at the head of a page, with their labels there.
HEAD: Final = {
    "began": "Started",
    "ended": "Ended",
    "node": "Node",
    "ranks": "Ranks",
    "step": "Last step",
    "checkpoint": "Last checkpoint",
    "held": "Held",
}


@attrs.frozen(kw_only=True)
class Verdict:
    """The outcome of the job. `mood` is "good", "bad" or "open".

    `conditions` are a slow training, a hang or an unhealthy node. These, `facts` and `commands` are pairs of a label
    and a text.
    """

    mood: str
    state: str
    remarks: tuple[str, ...]
    sentence: str
    conditions: tuple[Fact, ...]
    facts: tuple[Fact, ...]
    commands: tuple[Fact, ...]


def verdict_of(sources: Sources, found: list[Fact]) -> Verdict:
    """Return the head of a page, with the facts about the job that belong there."""
    report, state = sources.report, _state(sources)
    known = dict(found)
    commands = (
        ("Command", shlex.join(sources.command)),
        ("Logs", known.get("logs", "")),
        ("Rerun this rank", known.get("rerun", "")),
    )
    conditions = dict.fromkeys(one.condition for one in report.conditions)
    told = facts.chosen(found, *conditions, facts.COLLECTIVE)
    return Verdict(
        mood="bad" if sources.was_killed else FINAL.get(state, "open"),
        state="runner killed" if sources.was_killed else state or "unknown",
        remarks=tuple(filter(None, _remarks(sources))),
        sentence=_sentence(sources),
        conditions=tuple((label.capitalize(), text) for label, text in told),
        facts=tuple((HEAD[label], text) for label, text in facts.chosen(found, *HEAD)),
        commands=tuple((label, text) for label, text in commands if text),
    )


def _state(sources: Sources) -> str:
    return sources.report.state.value if sources.report.state else ""


def attempt_seconds(sources: Sources) -> float:
    """Return how long the newest attempt has taken so far, or until the last activity if the runner was killed."""
    report = sources.report
    if sources.was_killed:
        return max((rank.ended_after for rank in report.ranks), default=0.0)
    return report.seconds or max(0.0, sources.made_at - (report.started_at or sources.made_at))


def _remarks(sources: Sources) -> Iterator[str]:
    report, state = sources.report, _state(sources)
    seconds = report.started_at - report.began + attempt_seconds(sources)  # of all attempts, with the delays
    after = f"{'after' if sources.was_killed or state in FINAL else 'for'} {duration(seconds)}" if seconds > 0 else ""
    yield f"last activity {after}" if after and sources.was_killed else after
    yield f"exit status {report.status}" if report.status else ""
    yield SURENESS.get(report.cause.certainty, "") if report.cause and len(report.ranks) > 1 else ""
    yield f"attempt {report.attempt + 1}" if report.attempt else ""


def _sentence(sources: Sources) -> str:
    report, state, count = sources.report, _state(sources), len(sources.report.ranks)
    if sources.was_killed:
        return f"The runner was killed{f' while the job was {DOING.get(state, state)}' if state else ''}"
    sentence = report.cause.sentence if report.cause else ""
    sentence = sentence or (_progress(sources) if report.state is Phase.RUNNING else "")
    if sentence:
        return sentence[0].upper() + sentence[1:]
    if report.state is JobState.SUCCEEDED:
        return f"All {count} ranks succeeded" if count > 1 else "The rank succeeded"
    return "The job has not ended"


def _progress(sources: Sources) -> str:
    """Describe a running job: which rank is quiet, or else how many are running and whether they make progress."""
    report, count = sources.report, len(sources.report.ranks)
    running = sum(rank.is_running for rank in report.ranks)
    some = all_of(count, "rank") if running == count > 1 else f"{running} of {counted(count, 'rank')}"
    problem = next((PROBLEMS[one.condition] for one in report.conditions if one.condition in PROBLEMS), "")
    quiet = outliers.quiet_sentence(*report.silences(sources.made_at))
    return quiet or (f"{some} {'is' if running == 1 else 'are'} running{problem}" if running else "")


# Bytes for the ends of all logs, and for the findings of the ranks: with these, a page of 8, 64 and 1,024 ranks stays
# below 50 KB, 200 KB and 2 MB.
LOG_ENDS: Final = (1_000, 800)  # for all, and for each rank in addition
LEAST_ENDS: Final = 1_500
FINDINGS: Final = (4_000, 200)
MOST_EVENTS: Final = 50
MOST_NODES: Final = 64  # nodes with a row each
LONGEST_EVENT: Final = 200  # characters
MOST_COLUMNS: Final = 2  # columns of variables that differ by rank: the one that failed and another


@attrs.frozen(kw_only=True)
class Variables:
    """The variables set or changed by the runner: shared by all ranks, and different for each."""

    shared: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    differing: tuple[tuple[str, tuple[str, ...]], ...]
    left_out: str


@attrs.frozen(kw_only=True)
class Nodes:
    """The nodes of a job. `rows` have a kind, as those of ranks, and cells below the `heads`; `rest` counts the others.

    `verdict` is the cause on which all have agreed.
    """

    verdict: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    rest: str


@attrs.frozen(kw_only=True)
class Content:
    """Everything on a page. The members are its sections."""

    job: str
    verdict: Verdict
    evidence: Evidence | None
    nodes: Nodes | None
    findings: tuple[Group, ...]
    training: Training | None
    timeline: Timeline | None
    topology: Topology | None
    ranks: tuple[Row, ...]
    states: tuple[tuple[str, str], ...]
    stacks: tuple[StackGroup, ...]
    log_ends: tuple[Group, ...]
    logs_left_out: str
    attempts: tuple[tuple[str, ...], ...]
    events: tuple[tuple[str, str, str], ...]
    variables: Variables
    masked: str
    made_at: str
    versions: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    links_logs: bool
    is_public: bool


def marks_of(sources: Sources) -> dict[int, str]:
    """Return how ranks are involved in a failure, or stand out in a hang or a slow training."""
    report = sources.report
    slow = {rank_id: word for rank_id, word in facts.singled_out(report).items() if word == facts.SLOW}
    return page_ranks.marks_of(report.cause) or _marks_of_hang(report) or slow or _marks_of_quiet(sources)


def content_of(sources: Sources, marks: dict[int, str]) -> Content:
    """Return the content of a page. `marks` may come from facts that a public page omits."""
    report = sources.report
    masker, known, ranks = Masker(), facts.facts(report), page_ranks.in_order(report.ranks, marks)
    culprit, training = report.failed, page_training.draw(sources.training)
    log_ends, left_out = _log_ends(sources, [culprit.rank_id] if culprit else [*marks][:1], training)
    return Content(
        job=report.job_id,
        verdict=verdict_of(sources, known),
        evidence=_evidence(report, known),
        nodes=_nodes(report),
        findings=tuple(_findings(report, culprit)),
        training=training,
        timeline=_timeline(sources, ranks, marks),
        topology=topology.draw(sources.table, ranks, marks | _mark_elsewhere(report), functools.cache(masker.text)),
        ranks=tuple(page_ranks.rows(ranks, marks)),
        states=tuple(page_ranks.states(ranks, marks)),
        stacks=report.hang,
        log_ends=tuple(log_ends),
        logs_left_out=rank_list(left_out),
        attempts=tuple(map(_attempt, report.attempts)),
        events=tuple(_events(sources)),
        variables=_variables(ranks),
        masked=_masked(sources, masker),
        made_at=clock(sources.made_at),
        versions=_versions(report),
        warnings=report.warnings,
        links_logs=sources.links_logs and not sources.is_public,
        is_public=sources.is_public,
    )


def _timeline(sources: Sources, ranks: Sequence[RankRecord], marks: Mapping[int, str]) -> Timeline | None:
    report = sources.report
    first = (report.rank(report.cause.first_exit) if report.cause else None) or report.failed
    return page_ranks.draw(ranks, marks, attempt_seconds(sources), first, _hung_after(report))


def _versions(report: JobRecord) -> tuple[tuple[str, str], ...]:
    known = ((name, version) for name, version in report.software.items() if version)
    return (*known, ("ascend-runner", report.runner_version), ("report format", str(report.schema_version)))


def _hung_after(report: JobRecord) -> float | None:
    """Return the time of the last output of any rank before a hang, 0 without any output, None without a hang."""
    outputs = (rank.last_output_after for rank in report.ranks if rank.last_output_after is not None)
    return max(outputs, default=0.0) if report.is_hung else None


def _masked(sources: Sources, masker: Masker) -> str:
    """Count the secrets masked by the runner and for this page: "3 secrets", or "" if there are none."""
    count = sources.report.secrets_masked + sources.masked + masker.count
    return counted(count, "secret") if count and not sources.is_public else ""


def _log_ends(sources: Sources, first: Sequence[int], training: Training | None) -> tuple[list[Group], tuple[int, ...]]:
    """Return the ends of the logs, the most conspicuous rank first, and the ranks with omitted logs."""
    ends = page_ranks.group(sources.log_ends, first)
    limit = LOG_ENDS[0] + LOG_ENDS[1] * len(sources.report.ranks) - (training.size if training else 0)
    return page_ranks.within(ends, max(limit, LEAST_ENDS))


def _marks_of_hang(report: JobRecord) -> dict[int, str]:
    groups = wording.suspects(report.hang, report.collectives) if report.is_hung else ()
    return {rank_id: page_ranks.HUNG for group in groups for rank_id in group.rank_ids}


def _marks_of_quiet(sources: Sources) -> dict[int, str]:
    quiet = outliers.quiet(*sources.report.silences(sources.made_at))
    return dict.fromkeys(sorted(quiet), page_ranks.QUIET)


def _mark_elsewhere(report: JobRecord) -> dict[int, str]:
    """Return the mark of the rank of another node that has caused the failure, if it is known."""
    verdict = report.elsewhere
    if verdict is None or verdict.rank_id is None:
        return {}
    return {verdict.rank_id: MARKS.get(verdict.certainty, page_ranks.CERTAIN)}


def _findings(report: JobRecord, culprit: RankRecord | None) -> list[Group]:
    """Return the reports of the other ranks that failed, equal ones once, as far as there is room."""
    lines: dict[int, Sequence[str]] = {}
    for rank in report.ranks:
        line = (rank.finding.summary or rank.finding.meaning) if rank.finding else ""
        if line and rank is not culprit:
            lines[rank.rank_id] = (line,)
    return page_ranks.within(page_ranks.group(lines), FINDINGS[0] + FINDINGS[1] * len(report.ranks))[0]


def _evidence(report: JobRecord, known: list[Fact]) -> Evidence | None:
    """Return why a rank failed, which may be one of another node."""
    verdict = report.elsewhere
    if verdict is None:
        return page_ranks.of_rank(report.failed, known)
    error = next((line for line in reversed(verdict.lines) if line.strip() and line.strip() in verdict.sentence), "")
    found = facts.chosen([*facts.of_verdict(verdict)], "means", "next", "node", "log", "also", "nodes")
    return Evidence(
        rank=None,
        device="",
        excerpt=page_ranks.excerpt("From", os.path.basename(verdict.log), verdict.lines, error),
        facts=tuple((label.capitalize(), text) for label, text in found),
    )


def _nodes(report: JobRecord) -> Nodes | None:
    """Return the verdict of all nodes and those that this one knows of, None without both."""
    verdict = report.verdict if report.verdict and not report.verdict.is_alone else None
    cause = dict(facts.of_verdict(verdict))["cause"] if verdict else ""
    if not (report.nodes or cause):
        return None
    shown, rest = facts.node_rows(report.nodes, MOST_NODES)
    is_over = report.state is not None and report.state.is_final
    cells = [facts.node_cells(row, is_over=is_over) for row in shown]
    heads, *rows = without_empty(facts.NODE_HEADS, cells)
    kinds = [page_ranks.CAUSE if verdict and node.node == verdict.node else "" for node in shown]
    return Nodes(
        verdict=cause,
        heads=tuple(map(str.capitalize, heads)),
        rows=tuple(zip(kinds, rows)),
        rest=rest,
    )


def _attempt(one: AttemptRecord) -> tuple[str, ...]:
    return (
        str(one.attempt + 1),
        clock(one.started_at),
        duration(one.seconds),
        one.sentence or "succeeded",
        cloud_events.decision(plain(one.encode())),
    )


def _events(sources: Sources) -> Iterator[tuple[str, str, str]]:
    for event in sources.events[-MOST_EVENTS:]:
        with suppress(AttributeError, KeyError, TypeError):
            at, state, text = cloud_events.described(event.members)
            yield at, state[:LONGEST_EVENT], text[:LONGEST_EVENT]


def _variables(ranks: Sequence[RankRecord]) -> Variables:
    names = sorted({name for rank in ranks for name in rank.variables})
    values = {name: {rank.variables.get(name, "") for rank in ranks} for name in names}
    shown = ranks[:MOST_COLUMNS]
    left_out = len(ranks) - len(shown)
    return Variables(
        shared=tuple((name, next(iter(values[name]))) for name in names if len(values[name]) == 1),
        columns=tuple(rank.title for rank in shown),
        differing=tuple(
            (name, tuple(rank.variables.get(name, "") for rank in shown)) for name in names if len(values[name]) > 1
        ),
        left_out=counted(left_out, "further rank") if left_out else "",
    )
