"""The input of an HTML report: a JSON report, and the events, the run file and the logs beside it.

Only files in the directory of the report are read, whatever paths it names, except for a rank table of the same owner.
Secrets in them are masked again: the report may come from another version, and logs have whatever the ranks wrote.


Removes from a report whatever could identify people, machines or data, for a page to publish. Pure.

The members to keep are listed here, so that a new one is omitted until it has been reviewed.


The head of a page: the outcome of the job, and the facts about it. Pure.

The content of a page: the verdict, its evidence and the ranks, worded for the page. Pure.
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
from typing import Final

import attrs

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError
from ascend_runner.lifecycle import cloud_events
from ascend_runner.members import Members
from ascend_runner.observations.job_record import CERTAINTY, AttemptRecord
from ascend_runner.rank_table import codec, source
from ascend_runner.rank_table.model import RankTable
from ascend_runner.report_file import KIND
from ascend_runner.secrets import Masker
from ascend_runner.supervision import outliers
from ascend_runner.supervision.causes import CAUSES, Cause
from ascend_runner.text import all_ranks, clock, counted, duration, format_numbers, last_lines, rank_list, signal_name
from ascend_runner.views import page_ranks, topology
from ascend_runner.views.page_ranks import MARKS, Evidence, Group, Rank, Row, Timeline, silences
from ascend_runner.views.topology import Topology

LARGEST_NEIGHBOUR: Final = 1 << 20  # bytes of the events and of a run file
LOG_END: Final = 16 * 1024  # bytes of each log
TABLE: Final = os.path.join("rank_table", source.FILE_NAME)


@attrs.frozen(kw_only=True)
class Sources:
    """The content of one HTML report. `log_ends` has the last lines of each rank's log, by rank.

    It was gathered at `made_at`, in seconds since the epoch, when `masked` secrets were masked in addition to those of
    the report. If it `was_killed`, the runner could not report an end. With `links_logs`, the HTML file is beside the
    logs. With `is_public`, whatever could identify people, machines or data is omitted.
    """

    report: Members
    command: tuple[str, ...]
    events: tuple[Members, ...]
    log_ends: Mapping[int, tuple[str, ...]]
    made_at: float
    table: RankTable | None
    masked: int = 0
    was_killed: bool = False
    links_logs: bool = False
    is_public: bool = False


def gather(report: Members, path: str) -> Sources:
    """Return the report with the files beside it; `path` is that of the JSON report."""
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
        report=Members(masker.members(report.members)),
        command=masker.arguments(run[0].texts("command")) if run else (),
        events=tuple(Members(masker.members(event.members)) for event in events),
        log_ends=log_ends,
        made_at=time.time(),
    )
    return attrs.evolve(gathered, masked=masker.count)


def table_of(report: Members, path: str) -> RankTable | None:
    """Return the rank table beside the logs, or else the one that the report names, or None if it is of another job.

    A table elsewhere must have the owner of the report: then a page shows nothing that its author could not read.
    """
    named = report.text("rank_table")
    with suppress(AscendRunnerError, OSError, ValueError, RecursionError):
        beside = os.path.join(os.path.dirname(path), TABLE)
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
    *("state", "status", "exit_verdict", "attempt", "rank_size", "started_at", "ended_at", "seconds"),
    *("runner_version", "secrets_masked", "schema_version"),
)
_CAUSE: Final = ("kind", "rank_id", "first_exit", "alike", "certainty", "candidates", "signal", "is_a_consequence")
_RANK: Final = (
    *("rank_id", "local_rank", "state", "exit_code", "signal", "core_dumped", "started_at", "ended_at", "seconds"),
    *("max_rss", "user_seconds", "system_seconds", "log_size", "log_lost"),
)
_ATTEMPT: Final = ("attempt", "started_at", "ended_at", "seconds", "status", "restart", "verdict", "delay")
_PEER: Final = ("rank_id", "device_id")
_FINDING: Final = ("code", "code_kind", "code_meaning")
_STACK: Final = ("rank_ids", "has_changed")
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
    members: dict[str, object] = {
        **_kept(report, _REPORT),
        "job_id": "job",
        "cause": _cause(report) if report.child("cause").members else None,
        "ranks": [_public_rank(rank) for rank in report.children("ranks")],
        "hang": [_kept(stack, _STACK) for stack in report.children("hang")],
        "attempts": [_kept(attempt, _ATTEMPT) for attempt in report.children("attempts")],
    }
    return attrs.evolve(sources, report=Members(members), command=(), events=(), log_ends={}, table=None)


def _kept(members: Members, names: Sequence[str]) -> dict[str, object]:
    """Return the members with these names."""
    return {name: members.members[name] for name in names if name in members.members}


def _cause(report: Members) -> Mapping[str, object]:
    cause = report.child("cause")
    rank_id = cause.whole("rank_id")
    failed = report.child_with("ranks", "rank_id", rank_id)
    code, signum = failed.whole("exit_code"), failed.whole("signal") or cause.whole("signal")
    how = f": exit status {code}" if code else ""
    if signum:
        how = f" by {signal_name(signum)}"
    exception = _exception(failed.child("finding"))
    sentence = _SENTENCES.get(cause.text("kind"), Cause.public).format(rank=f"rank {rank_id}", how=how)
    return {
        **_kept(cause, _CAUSE),
        "sentence": f"{sentence} ({exception})" if exception else sentence,
        "suspected_peer": _kept(cause.child("suspected_peer"), _PEER),
    }


def _public_rank(rank: Members) -> Mapping[str, object]:
    finding, variables = rank.child("finding"), rank.child("variables")
    return {
        **_kept(rank, _RANK),
        "name": "auxiliary process" if rank.text("name") else "",
        "variables": _kept(variables, _VARIABLES),
        "finding": {
            **_kept(finding, _FINDING),
            "exception": _exception(finding),
            "points_at": [_kept(peer, _PEER) for peer in finding.children("points_at")],
        },
    }


def _exception(finding: Members) -> str:
    """Return the type of an exception, without its message."""
    name = finding.text("exception").partition(":")[0].strip()
    return name if name.replace(".", "_").isidentifier() else ""


GOOD: Final = "succeeded"
RUNNING: Final = "running"
DOING: Final = {"preparing": "being prepared", "checkpointing": "saving a checkpoint", "holding": "held"}
SURENESS: Final = {**CERTAINTY, "likely": MARKS["likely"]}  # how certain the cause on the next line is
FINAL: Final = {GOOD: "good", "failed": "bad", "stopped": "bad", "expired": "bad", "holding": "bad"}


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
    conditions: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]


def verdict_of(sources: Sources) -> Verdict:
    """Return the head of a page."""
    report = sources.report
    culprit = report.child_with("ranks", "rank_id", report.child("cause").whole("rank_id"))
    state, count = report.text("state"), len(report.children("ranks"))
    commands = (
        ("Command", shlex.join(sources.command)),
        ("Logs", report.text("log_dir")),
        ("Rerun this rank", culprit.text("rerun")),
    )
    return Verdict(
        mood="bad" if sources.was_killed else FINAL.get(state, "open"),
        state="runner killed" if sources.was_killed else state or "unknown",
        remarks=tuple(filter(None, _remarks(sources, count))),
        sentence=_sentence(sources, count),
        conditions=_with_text(_conditions(report)),
        facts=_with_text(_facts(report)),
        commands=_with_text(iter(commands)),
    )


def attempt_seconds(sources: Sources) -> float:
    """Return how long the newest attempt has taken so far, or until the last activity if the runner was killed."""
    report = sources.report
    if sources.was_killed:
        return report.number("seconds") or 0.0
    began = report.moment("started_at") or sources.made_at
    return report.number("seconds") or max(0.0, (report.moment("ended_at") or sources.made_at) - began)


def _job_began(report: Members) -> float | None:
    first = next(iter(report.children("attempts")), report)
    return first.moment("started_at")


def _job_seconds(sources: Sources) -> float:
    """Return how long the job has taken so far, with its earlier attempts and the delays between them."""
    job_began, attempt_began = _job_began(sources.report), sources.report.moment("started_at")
    earlier = attempt_began - job_began if job_began and attempt_began else 0.0
    return max(0.0, earlier) + attempt_seconds(sources)


def _with_text(pairs: Iterator[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((label, text) for label, text in pairs if text)


def _remarks(sources: Sources, count: int) -> Iterator[str]:
    report, seconds, state = sources.report, _job_seconds(sources), sources.report.text("state")
    status, attempt = report.whole("status"), report.whole("attempt")
    after = f"{'after' if sources.was_killed or state in FINAL else 'for'} {duration(seconds)}" if seconds else ""
    yield f"last activity {after}" if after and sources.was_killed else after
    yield f"exit status {status}" if status else ""
    yield SURENESS.get(report.child("cause").text("certainty"), "") if count > 1 else ""
    yield f"attempt {attempt + 1}" if attempt else ""


def _sentence(sources: Sources, count: int) -> str:
    state = sources.report.text("state")
    if sources.was_killed:
        return f"The runner was killed{f' while the job was {DOING.get(state, state)}' if state else ''}"
    sentence = sources.report.child("cause").text("sentence") or _progress(sources, state, count)
    if sentence:
        return sentence[0].upper() + sentence[1:]
    if state == GOOD:
        return f"All {count} ranks succeeded" if count > 1 else "The rank succeeded"
    return "The job has not ended"


def _progress(sources: Sources, state: str, count: int) -> str:
    """Describe a running job: which rank is quiet, or else how many are running."""
    if state != RUNNING:
        return ""
    running = sum(rank.text("state") == RUNNING for rank in sources.report.children("ranks"))
    some = all_ranks(count) if running == count > 1 else f"{running} of {counted(count, 'rank')}"
    verb = "is" if running == 1 else "are"
    quiet = outliers.quiet_sentence(*silences(sources.report, sources.made_at))
    return quiet or (f"{some} {verb} running" if running else "")


def _conditions(report: Members) -> Iterator[tuple[str, str]]:
    for one in report.children("conditions"):
        since, sentence = clock(one.moment("since")), one.text("sentence")
        if not report.child("cause").text("sentence").startswith(sentence or "\n"):
            yield one.text("condition").capitalize(), ", ".join(filter(None, (sentence, since and f"since {since}")))


def _facts(report: Members) -> Iterator[tuple[str, str]]:
    pod, size = report.text("pod_name"), report.whole("rank_size")
    here = [rank.whole("rank_id") or 0 for rank in report.children("ranks") if not rank.text("name")]
    yield "Started", clock(_job_began(report))
    yield "Ended", clock(report.moment("ended_at"))
    yield "Node", report.text("server_id") + (f", pod {pod}" if pod else "")
    yield "Ranks", f"{format_numbers(sorted(here))} of {size}" if size and here else format_numbers(sorted(here))
    yield "Last step", _step(report.child("last_step"))
    last = report.child("last_checkpoint")
    step = f"step {last.whole('step')}" if last.whole("step") is not None else ""
    yield "Last checkpoint", ", ".join(filter(None, (step, last.text("path"))))
    yield "Held until", clock(report.moment("held_until"))


def _step(last: Members) -> str:
    """Describe the last step: "1200 of 5000, 0.615 s per step"."""
    step, steps, seconds = last.whole("step"), last.whole("steps"), last.number("seconds")
    if step is None:
        return ""
    return f"{step}{f' of {steps}' if steps else ''}{f', {seconds:.3g} s per step' if seconds else ''}"


# Bytes for the ends of all logs, and for the findings of the ranks: with these, a page of 8, 64 and 1,024 ranks stays
# below 50 KB, 200 KB and 2 MB.
LOG_ENDS: Final = (4_500, 800)  # for all, and for each rank in addition
FINDINGS: Final = (4_000, 200)
MOST_EVENTS: Final = 50
LONGEST_EVENT: Final = 200  # characters
MOST_COLUMNS: Final = 2  # columns of variables that differ by rank: the one that failed and another


@attrs.frozen(kw_only=True)
class Variables:
    """The variables set or changed by the runner: those that all ranks share, and those that differ."""

    shared: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    differing: tuple[tuple[str, tuple[str, ...]], ...]
    left_out: str


@attrs.frozen(kw_only=True)
class Content:
    """Everything on a page. The members are its sections."""

    job: str
    verdict: Verdict
    evidence: Evidence | None
    findings: tuple[Group, ...]
    timeline: Timeline | None
    topology: Topology | None
    ranks: tuple[Row, ...]
    states: tuple[tuple[str, str], ...]
    stacks: tuple[Members, ...]
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


def content_of(sources: Sources) -> Content:
    """Return the content of a page."""
    report, marks = sources.report, page_ranks.marks_of(sources.report.child("cause")) or _marks_of_quiet(sources)
    found = page_ranks.ranks_of(report, marks)
    count, masker = len(found), Masker()
    culprit = _rank(found, report.child("cause").whole("rank_id"))
    first = _rank(found, report.child("cause").whole("first_exit"))
    log_ends, left_out = _log_ends(sources, [culprit.rank_id] if culprit else [*marks][:1], count)
    findings, _rest = page_ranks.within(list(_findings(report, culprit)), FINDINGS[0] + FINDINGS[1] * count)
    return Content(
        job=report.text("job_id"),
        verdict=verdict_of(sources),
        evidence=page_ranks.of_rank(report, culprit),
        findings=tuple(findings),
        timeline=page_ranks.draw(found, attempt_seconds(sources), first or culprit),
        topology=topology.draw(sources.table, found, marks, functools.cache(masker.text)),
        ranks=tuple(page_ranks.rows(found)),
        states=tuple(page_ranks.states(found)),
        stacks=report.children("hang"),
        log_ends=tuple(log_ends),
        logs_left_out=rank_list(left_out),
        attempts=tuple(_attempts(report)),
        events=tuple(_events(sources)),
        variables=_variables(report, found),
        masked=_masked(sources, masker),
        made_at=clock(sources.made_at),
        versions=_versions(report),
        warnings=report.texts("warnings"),
        links_logs=sources.links_logs and not sources.is_public,
        is_public=sources.is_public,
    )


def _versions(report: Members) -> tuple[tuple[str, str], ...]:
    schema = report.whole("schema_version")
    return ("ascend-runner", report.text("runner_version")), ("report format", str(schema))


def _masked(sources: Sources, masker: Masker) -> str:
    """Count the secrets masked by the runner and for this page: "3 secrets", or "" if there are none."""
    count = (sources.report.whole("secrets_masked") or 0) + sources.masked + masker.count
    return counted(count, "secret") if count > 0 and not sources.is_public else ""


def _log_ends(sources: Sources, first: Sequence[int], count: int) -> tuple[list[Group], tuple[int, ...]]:
    """Return the ends of the logs, that of the rank that stands out first, and the ranks whose logs are omitted."""
    ends = page_ranks.group(sources.log_ends, first)
    return page_ranks.within(ends, LOG_ENDS[0] + LOG_ENDS[1] * count)


def _marks_of_quiet(sources: Sources) -> dict[int, str]:
    quiet = outliers.quiet(*page_ranks.silences(sources.report, sources.made_at))
    return dict.fromkeys(sorted(quiet), page_ranks.QUIET)


def _rank(found: Sequence[Rank], rank_id: int | None) -> Rank | None:
    return next((rank for rank in found if rank.rank_id == rank_id), None)


def _findings(report: Members, culprit: Rank | None) -> Iterator[Group]:
    """Yield the reports of the other ranks that failed, equal ones once."""
    lines: dict[int, Sequence[str]] = {}
    for rank in report.children("ranks"):
        finding = rank.child("finding")
        line = finding.text("exception") or finding.text("code_line") or finding.text("meaning")
        if line and not (culprit and rank.whole("rank_id") == culprit.rank_id):
            lines[rank.whole("rank_id") or 0] = (line,)
    yield from page_ranks.group(lines)


def _attempts(report: Members) -> Iterator[tuple[str, ...]]:
    for one in report.children("attempts"):
        seconds = one.number("seconds")
        yield (
            str((one.whole("attempt") or 0) + 1),
            clock(one.moment("started_at")),
            "" if seconds is None else duration(seconds),
            AttemptRecord.decode(one).sentence or GOOD,
            cloud_events.decision(one.members),
        )


def _events(sources: Sources) -> Iterator[tuple[str, str, str]]:
    for event in sources.events[-MOST_EVENTS:]:
        with suppress(AttributeError, KeyError, TypeError):
            at, state, text = cloud_events.described(event.members)
            yield at, state[:LONGEST_EVENT], text[:LONGEST_EVENT]


def _variables(report: Members, found: Sequence[Rank]) -> Variables:
    of_rank = {rank.whole("rank_id"): rank.child("variables") for rank in report.children("ranks")}
    names = sorted({name for variables in of_rank.values() for name in variables.members})
    values = {name: {variables.text(name) for variables in of_rank.values()} for name in names}
    shown = found[:MOST_COLUMNS]
    left_out = len(found) - len(shown)
    return Variables(
        shared=tuple((name, next(iter(values[name]))) for name in names if len(values[name]) == 1),
        columns=tuple(rank.title for rank in shown),
        differing=tuple(
            (name, tuple(of_rank[rank.rank_id].text(name) for rank in shown)) for name in names if len(values[name]) > 1
        ),
        left_out=counted(left_out, "further rank") if left_out else "",
    )
