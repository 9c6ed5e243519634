"""The jobs as `ascend-job list` shows them, a line each, in the width of the terminal. Pure.

The ranks of a job as `ascend-job status` lists them: in which order, and what is in the columns. Pure.

Formats jobs for `ascend-job`, as text and as JSON. Pure: snapshots and the time in, text out.

Names, commands and sentences come from files that others may have written, so they are escaped.


Shows the events of a job as lines for people, and follows them until the job ends.
"""

from __future__ import annotations

import json
import math
import os
import os.path
import shlex
import textwrap
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from typing import Final

from ascend_runner import files
from ascend_runner.errors import UnreadableError, reason
from ascend_runner.lifecycle import cloud_events
from ascend_runner.lifecycle.job_machine import JobState
from ascend_runner.members import Members
from ascend_runner.observations import job_record
from ascend_runner.observations.job_record import AttemptRecord
from ascend_runner.secrets import Masker
from ascend_runner.supervision import outliers
from ascend_runner.text import SPACE, clock, columns, counted, duration, printable, rank_list, shown, size
from ascend_runner.tools.job import jobs
from ascend_runner.tools.job.jobs import (
    ENDED,
    INTERVAL,
    RUNNING,
    STATES,
    SUCCEEDED,
    Condition,
    FileWatch,
    FoundJob,
    JobEnd,
    Snapshot,
    is_final,
    with_its_logs,
)
from ascend_runner.training import steps
from ascend_runner.views.page_ranks import ORDER, words_of

JOB_HEADS: Final = ("job", "state", "pid", "started", "took", "logs")
JOB, _STATE, PID, STARTED, _TOOK, LOGS = range(len(JOB_HEADS))
NOT_KNOWN: Final = {Condition.RUNNER_KILLED, Condition.UNKNOWN}  # when, or whether, it has ended
WITHOUT_ZONE: Final = slice(len("2026-11-22 09:47:36"))  # the part of a time from text.clock() before the zone
DAY_AND_MINUTE: Final = slice(len("2026-"), len("2026-11-22 09:47"))
CUT: Final = "..."
CUT_AT: Final = {JOB: 5, LOGS: 0}  # characters after which a name or a path is cut; the ends differ most
SHORTEST: Final = {JOB: 12, LOGS: 20}  # characters; a path for which there is less room is left out


def job_lines(snapshots: Sequence[Snapshot], now: float, width: int | None = None) -> Iterator[str]:
    """Yield the lines of a table with at most `width` characters each.

    If it is too wide, these are left out, as many as is necessary: the zone of the times, the beginnings of paths,
    years and seconds, the paths, the pids, and the middle of names.
    """
    rows = [_cells(snapshot, now) for snapshot in snapshots]
    yield from columns(JOB_HEADS, rows if width is None else _fitting(rows, width))


def seconds(snapshot: Snapshot, now: float) -> float:
    """Return how long a job has taken so far, or until it ended."""
    ended = 0.0 if snapshot.condition is Condition.RUNNING else snapshot.report.moment("ended_at")  # else an attempt's
    return max(0.0, (ended or now) - snapshot.job.began)


def _cells(snapshot: Snapshot, now: float) -> list[str]:
    cells = (
        Masker().text(snapshot.job.name),
        _state(snapshot),
        str(snapshot.job.pid) if snapshot.is_alive else "",
        clock(snapshot.job.began),
        duration(seconds(snapshot, now)) if snapshot.condition not in NOT_KNOWN else "",
        Masker().text(snapshot.job.log_dir),
    )
    return [*map(printable, cells)]


def _state(snapshot: Snapshot) -> str:
    """Describe the state of a job in a word or two: "running", "failed (1)", "runner killed"."""
    status, state = snapshot.report.number("status"), snapshot.report.text("state")
    if snapshot.condition is Condition.UNKNOWN and snapshot.is_alive is False:
        return "ended"  # its report is gone
    if snapshot.condition in NOT_KNOWN or state not in STATES:
        return snapshot.condition.value
    return f"{state} ({status:.0f})" if status else state


def _fitting(rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """Return the rows as they fit into a width."""
    short, shorter = (
        [_with(row, STARTED, row[STARTED][part]) for row in rows] for part in (WITHOUT_ZONE, DAY_AND_MINUTE)
    )
    without_paths = [_with(row, LOGS, "") for row in shorter]
    without_pids = [_with(row, PID, "") for row in without_paths]
    stages = ([[*row] for row in rows], short, _clipped(short, LOGS, width), _clipped(shorter, LOGS, width))
    found = next((stage for stage in (*stages, without_paths) if _width(stage) <= width), without_pids)
    return _clipped(found, JOB, width)


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


class Row:
    """A rank in the table. `quiet` are the seconds without output of one that is running."""

    def __init__(self, rank_id: int, rank: Members, snapshot: Snapshot, now: float) -> None:
        self._rank = rank
        self.rank_id = rank_id
        self._is_culprit = rank_id == snapshot.culprit
        self.state = rank.text("state")
        last = snapshot.logs.get(rank_id, (0, 0.0))[1]
        ended = rank.moment("ended_at")
        self.over = None if ended is None else max(0.0, now - ended)
        is_over = self.state == ENDED or rank.text("ended_at")
        self.quiet = max(0.0, now - last) if last and not is_over else None

    def order(self, odd: Collection[int]) -> tuple[bool, int, bool, int]:
        """Return the key to sort by: the rank that is the cause, others that have failed, then the outliers.

        Ranks that have succeeded come last.
        """
        place = ORDER.index(self.state) if self.state in ORDER else len(ORDER) + (self.state == SUCCEEDED)
        return not self._is_culprit, place, self.rank_id not in odd, self.rank_id

    def cells(self, snapshot: Snapshot, now: float) -> tuple[str, ...]:
        """Return the cells of a line. A rank whose end was not observed has lasted until its last output."""
        rank, is_over = self._rank, bool(self._rank.text("ended_at"))
        began = rank.moment("started_at")
        bytes_, last = snapshot.logs.get(self.rank_id, (0, 0.0))
        until = last if self.state == ENDED else now
        so_far = max(0.0, until - began) if began and until else None
        seconds = rank.seconds("seconds") if is_over else so_far
        is_running = self.state == RUNNING  # as long as the job
        return (
            rank.text("name") or str(self.rank_id),
            str(rank.members.get("local_rank", "")),
            str(rank.whole("pid") or ""),
            words_of(rank, self.state),
            duration(seconds) if seconds is not None and began and not is_running else "",
            size(rank.count("log_size") or bytes_) if last else "",
            duration(int(self.quiet)) if self.quiet is not None else "",
            " ".join(shown(rank.text("last_line")).split()),
        )


def in_order(snapshot: Snapshot, now: float) -> list[Row]:
    """Return the ranks, those first that have failed, are behind, or have been quiet for unusually long."""
    rows = [Row(rank_id, rank, snapshot, now) for rank_id, rank in snapshot.ranks.items()]
    odd = outliers.quiet(*_silences(rows)) | outliers.behind(_steps(snapshot))
    return sorted(rows, key=lambda row: row.order(odd))


def quiet_ranks(rows: Sequence[Row]) -> str:
    """Name the ranks that have been quiet for unusually long; "" without any."""
    return outliers.quiet_sentence(*_silences(rows))


def _silences(rows: Sequence[Row]) -> tuple[dict[int, float], list[float]]:
    """Return the seconds without output of each running rank, and those since each rank that has succeeded did so."""
    silences = {row.rank_id: row.quiet for row in rows if row.quiet is not None}
    return silences, [row.over for row in rows if row.state == SUCCEEDED and row.over is not None]


def states(rows: Sequence[Row]) -> str:
    """Count ranks by their states: "2 ranks ended, 1006 ranks running"."""
    found = [row.state for row in rows]
    return ", ".join(f"{counted(found.count(state), 'rank')} {state}" for state in sorted({*found}))


def behind_others(snapshot: Snapshot) -> str:
    """Name the ranks that are behind: "rank 5 is 18 steps behind the others"; "" without any."""
    steps = _steps(snapshot)
    is_over = snapshot.condition is Condition.RUNNER_KILLED
    return outliers.behind_sentence(outliers.behind(steps), steps, is_over=is_over)


def _steps(snapshot: Snapshot) -> dict[int, int]:
    """Return the last steps of the ranks that run, or ran when the runner was killed."""
    states = {RUNNING, ENDED} if snapshot.condition is Condition.RUNNER_KILLED else {RUNNING}
    running = {rank_id for rank_id, rank in snapshot.ranks.items() if rank.text("state") in states}
    return {
        rank_id: step.step for rank_id, step in snapshot.steps.items() if step.step is not None and rank_id in running
    }


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
    facts = _facts(snapshot, now, rows)
    for label, text in facts:
        lines += _labelled(label, shown(Masker().text(text)), width)
    if rows:
        cells = [row.cells(snapshot, now) for row in rows[:MOST_RANKS]]
        lines += ["", *(f"  {line}"[:width].rstrip() for line in columns(RANK_HEADS, cells))]
    if len(rows) > MOST_RANKS:
        lines.append(f"  and {states(rows[MOST_RANKS:])}")
    return "".join(f"{printable(line)}\n" for line in lines)


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


def list_text(snapshots: Sequence[Snapshot], now: float, width: int | None = None) -> str:
    """List jobs, a line each, in at most `width` characters."""
    return "".join(f"{line}\n" for line in job_lines(snapshots, now, width)) if snapshots else ""


def document(snapshot: Snapshot) -> dict[str, object]:
    """Return the JSON of a job (`--json`)."""
    job, report = snapshot.job, snapshot.report
    return {
        "job": job.name,
        "job_id": job.job_id,
        "condition": snapshot.condition.value,
        "state": report.text("state") or None,
        "status": report.number("status"),
        "attempt": report.number("attempt"),
        "cause": snapshot.cause or None,
        "certainty": report.child("cause").text("certainty") or None,
        "command": list(job.command),
        "host": job.host,
        "pid": job.pid,
        "runner_pid": job.runner_pid,
        "began": job.began,
        "ended_at": report.text("ended_at") or None,
        "conditions": report.members.get("conditions", []),
        "last_step": _last_step(snapshot).members or None,
        "last_checkpoint": report.members.get("last_checkpoint"),
        "held_until": report.text("held_until") or None,
        "limit_at": snapshot.limit_at,
        "log_dir": job.log_dir,
        "report": snapshot.spare_report or job.path("report", "json"),
        "html": snapshot.html or None,
        "events": job.path("events", "jsonl"),
        "problem": Masker().text(snapshot.why) or None,
        "ranks": [{name: rank.members.get(name) for name in RANK} for rank in snapshot.ranks.values()],
    }


def headline(snapshot: Snapshot, now: float, *, is_brief: bool = False) -> str:
    """Describe the state of a job: "running, started 2026-11-22 09:47:36 +0800, 2 h 14 min ago".

    It has no times of day if it `is_brief`: "running, started 2 h 14 min ago".
    """
    job, state, took = snapshot.job, snapshot.report.text("state"), duration(seconds(snapshot, now))
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
    status = snapshot.report.number("status")
    how = f" (exit status {status:.0f})" if status else ""
    return f"{state}{how} after {took}{'' if is_brief else f', ended {_ended(snapshot)}'}"


def place(snapshot: Snapshot) -> str:
    """Describe the node of a job: "192.168.0.25, pod ma-job-5f2c-trainjob-0"."""
    server, pod, host = snapshot.report.text("server_id"), snapshot.report.text("pod_name"), snapshot.job.host
    return ", ".join(filter(None, (server, pod and f"pod {pod}", f"host {host}" if host != server else "")))


def outlook(snapshot: Snapshot) -> str:
    """Describe what follows a failure: how long the node is held, or which attempt was or will be made; or ""."""
    held, attempts = _held(snapshot), _attempts(snapshot)
    return f"held {held}" if held else f"attempts: {attempts}" if attempts else ""


def _held(snapshot: Snapshot) -> str:
    held_until = snapshot.report.moment("held_until") if snapshot.is_alive is not False else None
    if not held_until:
        return ""
    return f"until {clock(held_until)}; to release it now, run ascend-job release {shlex.quote(snapshot.job.name)}"


def _phase(snapshot: Snapshot) -> str:
    return snapshot.live.phase.name.lower() if snapshot.live else "unknown"


def _facts(snapshot: Snapshot, now: float, rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    job = snapshot.job
    yield from _cause(snapshot)
    yield from _evidence(snapshot)
    yield "command", " ".join(map(shlex.quote, job.command))
    yield "node", place(snapshot)
    yield "runner", "; ".join(filter(None, (snapshot.pids if snapshot.is_alive else "", snapshot.note)))
    yield "held", _held(snapshot)
    limit_at = snapshot.limit_at
    if limit_at:
        left = f"{duration(limit_at - now)} left" if limit_at > now else "reached"
        yield "limit", f"{clock(limit_at)} ({left})"
    yield "step", _step(snapshot, now)
    quiet = quiet_ranks(rows) if snapshot.condition is Condition.RUNNING else ""
    yield "quiet", quiet
    yield "stacks", _stacks_hint(snapshot, rows, quiet)
    yield from _conditions(snapshot)
    yield "checkpoint", _checkpoint(snapshot, now)
    yield "attempts", _attempts(snapshot)
    yield "logs", job.log_dir
    yield "report", snapshot.why or _report(snapshot)
    yield "html", snapshot.html or _missing_page(snapshot)


def _stacks_hint(snapshot: Snapshot, rows: Sequence[Row], quiet: str) -> str:
    """Return how to find a rank that is slow: if ranks wait for each other, their steps and their output are equal."""
    running = sum(row.state == RUNNING for row in rows) if snapshot.condition is Condition.RUNNING else 0
    purpose = "which rank the others wait for" if running > 1 else "where it is in its program" if quiet else ""
    return f"to see {purpose}, run ascend-job stacks {shlex.quote(snapshot.job.name)}" if purpose else ""


def _report(snapshot: Snapshot) -> str:
    spare = snapshot.spare_report
    return f"{spare} (could not be written beside the logs)" if spare else snapshot.job.path("report", "json")


def _cause(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Describe why a job failed, with the certainty, as its last screen did."""
    cause = snapshot.report.child("cause")
    candidates = cause.wholes("candidates")
    yield "cause", job_record.with_certainty(snapshot.cause, snapshot.certainty_note)
    if candidates and cause.text("certainty") == "likely":
        yield "also", f"{rank_list(candidates)} may be the cause"
    else:
        yield "candidates", rank_list(candidates) if len(candidates) > 1 else ""
    finding = snapshot.failed.child("finding")
    yield "means", finding.text("meaning")
    yield job_record.explained(*map(finding.text, ("code", "code_kind", "code_meaning")))


def _evidence(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield where the log of the rank is that caused the failure, what it says about that, and how to run it again."""
    log, finding = os.path.basename(snapshot.failed.text("log_path")), snapshot.failed.child("finding")
    yield "log", os.path.join(snapshot.job.log_dir, log) if log else ""
    lines = finding.texts("excerpt") or finding.texts("last_lines")
    yield from (("", f"| {line}") for line in lines[-MOST_LINES:])
    yield "rerun", snapshot.failed.text("rerun")


def _missing_page(snapshot: Snapshot) -> str:
    """Return how to write the HTML report of a job that has ended badly."""
    is_wanted = snapshot.condition in {Condition.ENDED_BADLY, Condition.RUNNER_KILLED} and not snapshot.why
    return f"not written; to write it, run ascend-job report {shlex.quote(snapshot.job.name)}" if is_wanted else ""


def _last_step(snapshot: Snapshot) -> Members:
    """Return the last step: of the runner or its report, with its time in seconds since the epoch, or of the logs.

    The runner shows no loss, which is always that of the logs.
    """
    furthest = steps.furthest(snapshot.steps.values())
    in_logs = {name: value for name, value in furthest._asdict().items() if _is_json(value)} if furthest else {}
    if snapshot.live and snapshot.live.last_step:
        return Members({"loss": in_logs.get("loss"), **snapshot.live.last_step})
    last = snapshot.report.child("last_step")
    return Members({**last.members, "at": last.moment("at")} if last.members else in_logs)


def _is_json(value: object) -> bool:
    """Whether JSON has this value: neither infinity nor NaN."""
    return not isinstance(value, float) or math.isfinite(value)


def _step(snapshot: Snapshot, now: float) -> str:
    """Describe the last step of a training, "1200 of 5000, 0.6 s per step, loss 2.31, 12 s ago", and slow ranks."""
    last = _last_step(snapshot)
    step, steps, seconds, loss, at = map(last.seconds, ("step", "steps", "seconds", "loss", "at"))
    if step is None:
        return ""
    parts = (
        f"{step:.0f} of {steps:.0f}" if steps else f"{step:.0f}",
        f"{seconds:.3g} s per step" if seconds else "",
        f"loss {loss:.4g}" if loss is not None else "",
        f"{duration(max(0.0, now - at))} ago" if at else "",
    )
    return "; ".join(filter(None, (", ".join(filter(None, parts)), behind_others(snapshot))))


def _conditions(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Describe the conditions of the job, apart from its cause: a hang, a slow training, an unhealthy node."""
    for one in snapshot.report.children("conditions"):
        sentence, since = one.text("sentence"), one.moment("since")
        if not (sentence and sentence in snapshot.cause):
            yield one.text("condition"), f"{sentence}{f', since {clock(since)}' if since else ''}"


def _checkpoint(snapshot: Snapshot, now: float) -> str:
    """Describe the last checkpoint that ranks have reported: "step 1200, 12 min 5 s ago, /data/checkpoint-1200"."""
    last = snapshot.report.child("last_checkpoint")
    at, step, missing = last.moment("at"), last.whole("step"), last.wholes("missing")
    parts = (
        "" if step is None else f"step {step}",
        f"{duration(max(0.0, now - at))} ago" if at else "",
        f"without {counted(len(missing), 'rank')}" if missing else "",
        last.text("path"),
    )
    return ", ".join(filter(None, parts))


def _attempts(snapshot: Snapshot) -> str:
    """Describe the attempts of a job that is or was restarted: "3; the previous attempt failed: rank 2 failed: ..."."""
    attempt, ended = snapshot.report.number("attempt"), snapshot.report.children("attempts")
    is_restarting = snapshot.is_alive is not False and snapshot.report.text("state") == JobState.RESTARTING.value
    if attempt is None or not (attempt or is_restarting):
        return ""
    failed = [AttemptRecord.decode(one).sentence for one in ended if one.text("verdict")]  # the others were stopped
    # The sentence about a job that was stopped later ends with that about the attempt.
    whole = job_record.with_certainty(snapshot.cause, snapshot.certainty_note)
    last = f"; the previous attempt failed: {failed[-1]}" if failed and not whole.endswith(failed[-1]) else ""
    return f"{attempt + 1:.0f}{_next_attempt(ended[-1]) if is_restarting and ended else ''}{last}"


def _next_attempt(failed: Members) -> str:
    """Describe when the attempt after a failed one begins: "; the next one starts at 2026-11-22 09:47:36 +0800"."""
    at, delay = failed.moment("ended_at"), failed.seconds("delay")
    return f"; the next one starts at {clock(at + delay)}" if at and delay else "; the next one starts now"


def _ended(snapshot: Snapshot) -> str:
    ended = snapshot.report.moment("ended_at")
    return clock(ended) if ended else "at an unknown time"


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
