"""The screens of `ascend-job list`, `status` and `events`, as text and as JSON: snapshots and the time in, text out.

Names, commands and sentences come from files that others may have written, so they are escaped. Only `event_lines`
reads a file, and follows it until the job ends.
"""

from __future__ import annotations

import json
import math
import os
import os.path
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final

import attrs

from ascend_runner import files, programs
from ascend_runner.errors import UnreadableError, reason
from ascend_runner.record.job_record import JobRecord
from ascend_runner.record.nodes import NodeRecord
from ascend_runner.record.rank_record import RankRecord
from ascend_runner.secrets import Masker
from ascend_runner.supervision import cloud_events, outliers
from ascend_runner.text import SPACE, clock, columns, counted, duration, printable, shown, size
from ascend_runner.tools.job import jobs
from ascend_runner.tools.job.jobs import (
    INTERVAL,
    STATES,
    Condition,
    FileWatch,
    FoundJob,
    JobEnd,
    Snapshot,
    is_final,
    with_its_logs,
)
from ascend_runner.views import facts
from ascend_runner.views.facts import Fact

JOB_HEADS: Final = ("job", "state", "pid", "started", "took", "logs", "cause")
JOB, _STATE, PID, STARTED, _TOOK, LOGS, CAUSE = range(len(JOB_HEADS))
LINES_BESIDE: Final = 4  # lines of the terminal beside the jobs: the heads, two lines on other jobs, and the prompt
NOT_KNOWN: Final = {Condition.RUNNER_KILLED, Condition.UNKNOWN}  # when, or whether, it has ended
WITHOUT_ZONE: Final = slice(len("2026-11-22 09:47:36"))  # the part of a time from text.clock() before the zone
DAY_AND_MINUTE: Final = slice(len("2026-"), len("2026-11-22 09:47"))
CUT: Final = "..."
CUT_AT: Final = {JOB: 5, LOGS: 0}  # characters after which a name or a path is cut; the ends differ most
SHORTEST: Final = {JOB: 12, LOGS: 20, CAUSE: 30}  # characters; a path that has less room is omitted
LEAST_CAUSE: Final = 20  # characters; long names are cut to leave this room: "rank 2 failed: Fi..."


def job_lines(snapshots: Sequence[Snapshot], now: float, width: int | None = None) -> Iterator[str]:
    """Yield the lines of a table with at most `width` characters each.

    If it is too wide, these are left out, as many as is necessary: the zone of the times, the beginnings of paths,
    years and seconds, the paths, the pids, and the middle of names.
    """
    rows = [_cells(snapshot, now) for snapshot in snapshots]
    yield from columns(JOB_HEADS, rows if width is None else _fitting(rows, width))


def seconds(snapshot: Snapshot, now: float) -> float:
    """Return how long a job has taken so far, or until it ended."""
    ended = 0.0 if snapshot.condition is Condition.RUNNING else snapshot.record.ended_at  # else an attempt's
    return max(0.0, (ended or now) - snapshot.job.began)


def _cells(snapshot: Snapshot, now: float) -> list[str]:
    cells = (
        Masker().text(snapshot.job.name),
        _state(snapshot),
        str(snapshot.job.pid) if snapshot.is_alive else "",
        clock(snapshot.job.began or None),
        duration(seconds(snapshot, now)) if snapshot.condition not in NOT_KNOWN else "",
        Masker().text(snapshot.job.log_dir),
        Masker().text(snapshot.sentence),
    )
    return [*map(printable, cells)]


def _state(snapshot: Snapshot) -> str:
    """Describe the state of a job in a word or two: "running", "failed (1)", "runner killed"."""
    status, state = snapshot.record.status, snapshot.state
    if snapshot.condition is Condition.UNKNOWN and snapshot.is_alive is False:
        return "ended"  # its report is gone
    if snapshot.condition in NOT_KNOWN or not state:
        return snapshot.condition.value
    return f"{state} ({status})" if status else state


def _fitting(rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """Return the rows shortened to a width. The causes get the remaining room, but always a minimum."""
    causes = [row[CAUSE] for row in rows]
    rows = [_with(row, CAUSE, _clip(row[CAUSE], SHORTEST[CAUSE])) for row in rows]
    short, shorter = (
        [_with(row, STARTED, row[STARTED][part]) for row in rows] for part in (WITHOUT_ZONE, DAY_AND_MINUTE)
    )
    without_paths = [_with(row, LOGS, "") for row in shorter]
    without_pids = [_with(row, PID, "") for row in without_paths]
    stages = ([[*row] for row in rows], short, _clipped(short, LOGS, width), _clipped(shorter, LOGS, width))
    found = next((stage for stage in (*stages, without_paths) if _width(stage) <= width), without_pids)
    found = _clipped([_with(row, CAUSE, _clip(row[CAUSE], LEAST_CAUSE)) for row in found], JOB, width)
    room = width - _width([_with(row, CAUSE, "") for row in found]) - len(SPACE)
    return [_with(row, CAUSE, _clip(cause, room)) for row, cause in zip(found, causes)]


def _clip(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(0, room - len(CUT))] + CUT if room > len(CUT) else ""


def _clipped(rows: Sequence[Sequence[str]], index: int, width: int) -> list[list[str]]:
    """Return rows with the cells of one column clipped to the room that there is."""
    room = width - _width([_with(row, index, "") for row in rows]) - len(SPACE)
    return [_with(row, index, _cut(row[index], max(room, SHORTEST[index]), CUT_AT[index])) for row in rows]


def _cut(text: str, room: int, at: int) -> str:
    """Return a text without the part that begins after `at` characters, if it is too long."""
    return text if len(text) <= room else text[:at] + CUT + text[at + len(CUT) - room :]


def _with(row: Sequence[str], index: int, cell: str) -> list[str]:
    return [*row[:index], cell, *row[index + 1 :]]


def _width(rows: Sequence[Sequence[str]]) -> int:
    return max(map(len, columns(JOB_HEADS, rows)))


RANK_HEADS: Final = ("rank", "device", "pid", "state", "time", "output", "quiet for", "last line")


def _rank_cells(
    record: JobRecord, ranks: Sequence[RankRecord], now: float, width: int | None
) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each rank. A running rank has the duration of the job."""
    silences, _succeeded = record.silences(now)
    marks, why_silent = facts.singled_out(record), facts.why_silent(record)
    marked = ((one, marks.get(one.rank_id, "") if one.is_running else "") for one in ranks)
    cells = [_cells_of(one, silences.get(one.rank_id), mark) for one, mark in marked]
    if width:
        taken = max(map(len, columns(RANK_HEADS[:-1], cells)))
        why_silent = facts.briefly_silent(why_silent, width - taken - 2 * len(SPACE))  # one is the margin
    for one, before in zip(ranks, cells):
        last = " ".join(shown("".join(one.last_lines)).split())
        yield *before, last or (why_silent if one.is_silent else "")


def _cells_of(rank: RankRecord, quiet: float | None, mark: str) -> tuple[str, ...]:
    return (
        rank.name or str(rank.rank_id),
        str(rank.local_rank),
        str(rank.pid or ""),
        f"{rank.words}, {mark}" if mark else rank.words,
        duration(rank.seconds) if rank.has_ended and rank.seconds else "",
        size(rank.log_size) if rank.is_started and rank.log_size is not None else "",
        "" if quiet is None else duration(int(quiet)),
    )


def in_order(snapshot: Snapshot, now: float) -> list[RankRecord]:
    """Return the ranks in the order of the table: the cause, other failed ranks, outliers, and ranks behind or quiet.

    Successful ranks come last.
    """
    marked = {*facts.singled_out(snapshot.record)}
    odd = outliers.quiet(*snapshot.record.silences(now)) | outliers.behind(_steps(snapshot))
    culprit = snapshot.cause.rank_id if snapshot.cause else None

    def key(rank: RankRecord) -> tuple[bool, int, bool, bool, int]:
        number = rank.rank_id
        return number != culprit, rank.order, number not in marked, number not in odd, number

    return sorted(snapshot.record.ranks, key=key)


def states(ranks: Sequence[RankRecord]) -> str:
    """Count ranks by their states: "2 ranks ended, 1006 ranks running"."""
    found = [rank.state.value for rank in ranks]
    return ", ".join(f"{counted(found.count(state), 'rank')} {state}" for state in sorted({*found}))


def behind_others(snapshot: Snapshot) -> str:
    """Name the ranks that are behind: "rank 5 is 18 steps behind the others"; "" without any."""
    steps = _steps(snapshot)
    is_over = snapshot.condition is Condition.RUNNER_KILLED
    return outliers.behind_sentence(outliers.behind(steps), steps, is_over=is_over)


def _steps(snapshot: Snapshot) -> dict[int, int]:
    """Return the last steps of the ranks that run, or ran when the runner was killed."""
    is_killed = snapshot.condition is Condition.RUNNER_KILLED
    running = {one.rank_id for one in snapshot.record.ranks if one.is_running or (is_killed and one.is_gone)}
    return {
        rank_id: step.step for rank_id, step in snapshot.steps.items() if step.step is not None and rank_id in running
    }


def node_lines(nodes: Sequence[NodeRecord], *, is_over: bool = False) -> Iterator[str]:
    """Yield the lines of a table of nodes; of many, first those that are missing or behind, and the others counted."""
    if nodes:
        rows, rest = facts.node_rows(nodes, MOST_NODES)
        yield from columns(facts.NODE_HEADS, [facts.node_cells(row, is_over=is_over) for row in rows])
        yield from [rest] if rest else []


MOST_NODES: Final = 16  # nodes with a line each
MOST_RANKS: Final = 16  # ranks with a line each; more would not fit on a screen
MOST_LINES: Final = 12  # lines of the log of the culprit: the rest of the screen must stay in view
COPIED: Final = {"", "log", "rerun", "command", "logs", "report", "html"}  # labels of what is not wrapped
LEAST_WIDTH: Final = 40  # characters
LABEL: Final = 12  # characters of the longest label, with a space
RANK: Final = (  # members of a rank in the JSON
    *("rank_id", "local_rank", "pid", "exit_code", "signal"),
    *("log_path", "log_size", "log_lost", "last_line", "state"),
)


def status(snapshot: Snapshot, now: float, width: int | None = None) -> str:
    """Describe one job: "train: running, started 2026-11-22 09:47:36 +0800, 2 h 14 min ago", and more lines.

    The lines have at most `width` characters, except for commands, paths and lines of logs, which can be copied.
    """
    job = snapshot.job
    lines = [f"{Masker().text(job.name)}: {headline(snapshot, now)}"]
    rows = in_order(snapshot, now)
    for label, text in _facts(snapshot, now):
        lines += _labelled(label, shown(Masker().text(text)), width)
    nodes = [*node_lines(snapshot.all_nodes, is_over=snapshot.is_over)]
    if nodes:
        lines += ["", *_indented(nodes, width)]
    if rows:
        cells = [*_rank_cells(snapshot.record, rows[:MOST_RANKS], now, width)]
        lines += ["", *_indented(columns(RANK_HEADS, cells), width)]
    if len(rows) > MOST_RANKS:
        lines.append(f"  and {states(rows[MOST_RANKS:])}")
    return "".join(f"{printable(line)}\n" for line in lines)


def _indented(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """Indent the lines of a table, and clip what is too wide."""
    return (_clip(f"  {line}", width or len(line) + 2) for line in lines)


def _labelled(label: str, text: str, width: int | None) -> list[str]:
    """Return the lines of a text with its label, none without text."""
    indent = " " * (2 + LABEL)
    if width and label not in COPIED:
        room = max(width, LEAST_WIDTH)
        wrapped = textwrap.wrap(
            text, room, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    else:
        wrapped = [f"{indent}{text}"] if text else []
    return [f"  {label:{LABEL}}{line[len(indent) :]}" if line is wrapped[0] else line for line in wrapped]


def list_text(
    here: Sequence[Snapshot],
    now: float,
    width: int | None = None,
    elsewhere: Sequence[Snapshot] = (),
    hidden: int = 0,
) -> str:
    """List jobs, one per line of at most `width` characters: first the jobs of this directory, then the others.

    `hidden` is the number of omitted jobs.
    """
    lines = [*job_lines([*here, *elsewhere], now, width)] if here or elsewhere else []
    if here and elsewhere:
        lines.insert(1 + len(here), "started in other directories:")
    if hidden:
        lines.append(f"and {counted(hidden, 'earlier job')}; --all shows all jobs")
    return "".join(f"{line}\n" for line in lines)


def document(snapshot: Snapshot) -> dict[str, object]:
    """Return the JSON of a job (`--json`)."""
    job, record, last, cause = snapshot.job, snapshot.record, snapshot.last_step, snapshot.cause
    encoded = record.encode()
    return {
        "job": job.name,
        "job_id": job.job_id,
        "condition": snapshot.condition.value,
        "state": snapshot.state or None,
        "status": record.status,
        "attempt": record.attempt,
        "cause": cause.sentence if cause else None,
        "certainty": (cause.certainty if cause else "") or None,
        **{name: getattr(job, name) for name in ("command", "host", "pid", "runner_pid", "began", "log_dir")},
        "ended_at": encoded["ended_at"] or None,
        "conditions": encoded["conditions"],
        "last_step": {name: value for name, value in attrs.asdict(last).items() if _is_json(value)} if last else None,
        "last_checkpoint": encoded["last_checkpoint"],
        "held_until": encoded["held_until"] or None,
        "limit_at": snapshot.limit_at,
        "report": snapshot.spare_report or job.path("report", "json"),
        "html": snapshot.html or None,
        "events": job.path("events", "jsonl"),
        "problem": Masker().text(snapshot.why) or None,
        "nodes": [node.encode() for node in snapshot.all_nodes],
        "ranks": [_document_of(rank, record.started_at) for rank in record.ranks],
    }


def _document_of(rank: RankRecord, began: float) -> dict[str, object]:
    encoded = {**rank.encode(began), "last_line": "".join(rank.last_lines)}
    return {name: encoded[name] for name in RANK}


def _is_json(value: object) -> bool:
    """Whether JSON has this value: neither infinity nor NaN."""
    return not isinstance(value, float) or math.isfinite(value)


def headline(snapshot: Snapshot, now: float, *, is_brief: bool = False) -> str:
    """Describe the state of a job: "running, started 2026-11-22 09:47:36 +0800, 2 h 14 min ago".

    It has no times of day if it `is_brief`: "running, started 2 h 14 min ago".
    """
    job, state, took = snapshot.job, snapshot.state, duration(seconds(snapshot, now))
    if snapshot.condition is Condition.UNKNOWN and snapshot.is_alive is None:
        last = f"; the last state in its report is {state}" if state else ""
        return f"cannot tell from here whether it is running on {job.host}{last}"
    if snapshot.condition is Condition.UNKNOWN:
        return f"ended; the reason is unknown{'' if is_brief else f'; started {clock(job.began)}'}"
    if snapshot.condition is Condition.RUNNER_KILLED:
        when = "" if is_brief else f", started {clock(job.began)}"
        return f"{snapshot.condition.value} (last state: {state or _phase(snapshot)}){when}"
    if snapshot.condition is Condition.RUNNING:
        when = "" if is_brief else f"{clock(job.began)}, "
        return f"{state or 'running'}, started {when}{took} ago"
    status, ended_at = snapshot.record.status, snapshot.record.ended_at
    how = f" (exit status {status})" if status else ""
    when = "" if is_brief else f", ended {clock(ended_at) or 'at an unknown time'}"
    return f"{state}{how} after {took}{when}"


def place(snapshot: Snapshot) -> str:
    """Describe the node of a job: "192.168.0.25, pod ma-job-5f2c-trainjob-0"."""
    return facts.place(snapshot.record.server_id, snapshot.record.pod_name, snapshot.job.host)


def outlook(snapshot: Snapshot) -> str:
    """Describe what follows a failure: how long the node is held, or which attempt was or will be made; or ""."""
    known = dict(_of_record(snapshot, None))
    if "held" in known:
        return f"held {known['held']}"
    return f"attempts: {known['attempts']}" if "attempts" in known else ""


def _of_record(snapshot: Snapshot, now: float | None) -> list[Fact]:
    """Return the facts in the record of a job, with what only this machine shows."""
    job, record = snapshot.job, snapshot.record
    if snapshot.is_alive is False:  # nothing will follow
        record = attrs.evolve(record, held_until=None, state=None)
    record = attrs.evolve(record, cause=snapshot.cause, last_step=snapshot.last_step, log_dir=job.log_dir)
    failed = record.failed
    more = {
        "held": f"; to release it now, run {programs.command('ascend-job release')} {shlex.quote(job.name)}",
        "step": "".join(f"; {behind}" for behind in filter(None, [behind_others(snapshot)])),
    }
    return [
        (label, os.path.join(job.log_dir, failed.log_name) if label == "log" and failed else text + more.get(label, ""))
        for label, text in facts.facts(record, now)
    ]


def _facts(snapshot: Snapshot, now: float) -> Iterator[Fact]:
    job, found = snapshot.job, _of_record(snapshot, now)
    failed, limit_at = snapshot.record.failed, snapshot.limit_at
    yield from facts.chosen(found, "cause", "also", "nodes", "candidates", "means", "code", "next", "log")
    elsewhere = snapshot.record.elsewhere
    lines = elsewhere.lines if elsewhere else ()
    if failed and failed.finding:
        lines = failed.finding.excerpt or failed.finding.last_lines
    yield from (("", f"| {line}") for line in lines[-MOST_LINES:])
    yield from facts.chosen(found, "rerun")
    yield "command", " ".join(map(shlex.quote, job.command))
    yield "node", place(snapshot)
    yield "runner", "; ".join(filter(None, (snapshot.pids if snapshot.is_alive else "", snapshot.note)))
    yield from facts.chosen(found, "held")
    if limit_at:
        left = f"{duration(limit_at - now)} left" if limit_at > now else "reached"
        yield "limit", f"{clock(limit_at)} ({left})"
    is_running = snapshot.condition is Condition.RUNNING
    quiet = [*facts.chosen(found, "quiet")] if is_running else []
    yield from facts.chosen(found, "step")
    yield from quiet
    is_unexplained = is_running and not facts.singled_out(snapshot.record)
    yield "stacks", _stacks_hint(snapshot, is_quiet=bool(quiet)) if is_unexplained else ""
    conditions = dict.fromkeys(one.condition for one in snapshot.record.conditions)
    yield from facts.chosen(found, *conditions, facts.COLLECTIVE)
    yield from facts.chosen(found, "checkpoint", "attempts", "logs")
    yield "report", snapshot.why or facts.report(job.path("report", "json"), snapshot.spare_report)
    yield "html", snapshot.html or _missing_page(snapshot)


def _stacks_hint(snapshot: Snapshot, *, is_quiet: bool) -> str:
    """Return how to find a rank that is slow: if ranks wait for each other, their steps and their output are equal."""
    running = sum(rank.is_running for rank in snapshot.record.ranks)
    purpose = "which rank the others wait for" if running > 1 else "where it is in its program" if is_quiet else ""
    return (
        f"to see {purpose}, run {programs.command('ascend-job stacks')} {shlex.quote(snapshot.job.name)}"
        if purpose
        else ""
    )


def _missing_page(snapshot: Snapshot) -> str:
    """Return how to write the HTML report of a job that has ended badly."""
    is_wanted = snapshot.condition in {Condition.ENDED_BADLY, Condition.RUNNER_KILLED} and not snapshot.why
    return (
        f"not written; to write it, run {programs.command('ascend-job report')} {shlex.quote(snapshot.job.name)}"
        if is_wanted
        else ""
    )


def _phase(snapshot: Snapshot) -> str:
    return snapshot.live.phase.name.lower() if snapshot.live else "unknown"


STATE_WIDTH: Final = max(map(len, STATES))


def event_lines(job: FoundJob, *, follows: bool) -> Iterator[str]:
    """Yield the events of a job; with `follows` until it has ended, or its runner is no longer alive.

    Raises:
        UnreadableError: They cannot be read.
        UnknownJobError: They have been removed.
        BrokenPipeError: The reader of standard output has gone.
    """
    path = with_its_logs(job).path("events", "jsonl")
    try:
        fd = os.open(path, files.READ_FLAGS)
    except OSError as error:
        raise UnreadableError(f"cannot read the events in {path!r}: {reason(error)}") from error
    rest, state = b"", ""
    end, watch = JobEnd([job]), FileWatch(path, is_local=follows and bool(job.is_alive()))
    with open(fd, "rb") as file, closing(end), closing(watch):
        while True:
            # Checked before the file is read, because a runner writes its last event just before it ends.
            is_over = follows and end.has_come()
            is_alive = job.is_alive() is not False
            rest += file.read()
            whole, newline, rest = rest.rpartition(b"\n")
            for line in (whole + newline).splitlines():
                state, text = _read(line)
                yield text
            if is_final(state) or is_over or not follows:
                break
            watch.wait(None if end.locks else INTERVAL, *end.locks)
    if not is_alive and not is_final(state):
        is_killed = jobs.take(job, asks=False).condition is Condition.RUNNER_KILLED
        lost = "the job has ended; its last events could not be written"
        yield "the runner was killed; no more events" if is_killed else lost


def _read(line: bytes) -> tuple[str, str]:
    """Return the state that an event has led to, and its line for people."""
    try:
        at, state, text = cloud_events.described(json.loads(line))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", "(malformed event)"
    return state, shown(f"{at}  {state:{STATE_WIDTH}}  {text}")
