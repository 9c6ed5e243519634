"""Reads the report of one node for a verdict on the job: from the JSON object to a record. Pure.

Anybody may have written a report: what is missing or has another type is unknown.


Reads from the logs of several nodes the times by which their clocks can be compared: their ends, and their steps.

Reads the reports that the nodes of one job have left in a directory or in several, with what is beside them.

Anybody may have written to the directory, so a report that cannot be used is left out, with a sentence about it.


Makes the report of a job of several nodes, from the reports that they have left in directories.

Formats the verdict on a job of several nodes, as text and as JSON. Pure.
"""

from __future__ import annotations

import os
import re
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from statistics import median
from typing import Final

import attrs

from ascend_runner import files, report_file
from ascend_runner.diagnosis import root_cause
from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.endings import signal_behind
from ascend_runner.diagnosis.finding import Certainty, Peer
from ascend_runner.diagnosis.root_cause import FROM_OUTSIDE, Place, Suspicion
from ascend_runner.errors import SettingsError, UnreadableError, reason
from ascend_runner.members import Members
from ascend_runner.merge import summary, verdict
from ascend_runner.merge.case import UNWRITTEN
from ascend_runner.merge.clocks import Difference
from ascend_runner.merge.model import Clock, Complaint, Failure, Job, Node, Stack
from ascend_runner.rank_table.model import RankTable
from ascend_runner.secrets import Masker
from ascend_runner.supervision.causes import Ending
from ascend_runner.text import abbreviated, counted, last_lines, shown
from ascend_runner.tools.job import jobs, logs
from ascend_runner.tools.job.jobs import Condition, FoundJob, is_final
from ascend_runner.training import steps
from ascend_runner.views import page_content
from ascend_runner.views.merged import JobReports, MergedSources

LARGEST_ERROR: Final = 1e9  # seconds; no clock has a larger error
INTERRUPTED: Final = "KeyboardInterrupt"
# How failures that are not those of a rank are judged. Kinds that are missing here come from outside the job.
_KINDS: Final = {
    "rank_not_started": Suspicion.FAILED_BY_ITSELF,
    "runner_failed": Suspicion.FAILED_BY_ITSELF,
    "unhealthy": Suspicion.FAILED_BY_ITSELF,
    "slow": Suspicion.ITSELF_OR_A_PEER,
    "hang": Suspicion.REPORTS_A_PEER,
}


def node_of(report: Members, number: int) -> Node:
    """Return the record of a node, made from its report."""
    state, ranks = report.text("state"), report.children("ranks")
    node = Node(
        number=number,
        host=report.text("pod_name") or report.text("server_id"),
        rank_ids=tuple(rank_id for rank in ranks if (rank_id := rank.whole("rank_id")) is not None and rank_id >= 0),
        state=state,
        ended=report.moment("ended_at"),
    )
    if not is_final(state) and state != "holding":
        return attrs.evolve(node, problem=f"incomplete report (last state: {state or 'unknown'})")
    failure = _failure(report)
    return attrs.evolve(
        node,
        failure=failure,
        complaints=tuple(_complaints(ranks, failure)),
        hang=tuple(
            Stack(rank_ids=one.wholes("rank_ids"), frames=one.texts("frames")) for one in report.children("hang")
        ),
        clock=_clock(report.child("clock")),
    )


def _failure(report: Members) -> Failure | None:
    cause = report.child("cause")
    kind, rank_id = cause.text("kind"), cause.whole("rank_id")
    rank = report.child_with("ranks", "rank_id", rank_id)
    if kind != "rank_failed" and kind not in _KINDS:
        return None
    finding = rank.child("finding")
    return Failure(
        suspicion=_KINDS[kind] if kind in _KINDS else _suspicion(cause, rank),
        sentence=Masker().text(finding.text("exception") or finding.text("code_line") or cause.text("sentence")),
        rank_id=None if rank_id is None or rank_id < 0 else rank_id,
        at=rank.moment("ended_at") or report.moment("ended_at"),
        is_certain=kind == "rank_not_started" or cause.text("certainty") == Certainty.CERTAIN.value,
    )


def _suspicion(cause: Members, rank: Members) -> Suspicion:
    """Judge the rank that caused the failure of a node as `first_cause.suspicion` has judged it there."""
    finding = rank.child("finding")
    kind = finding.text("code_kind")
    if cause.flag("is_a_consequence") or kind == Kind.SECONDARY.value:
        return Suspicion.REPORTS_A_PEER
    if cause.flag("may_be_a_peer") or kind == Kind.EITHER.value:
        return Suspicion.ITSELF_OR_A_PEER
    ending = Ending(exit_code=rank.whole("exit_code") or 0, signum=rank.whole("signal") or 0)
    signum = signal_behind(ending)
    is_killed = signum in FROM_OUTSIDE and not finding.flag("is_out_of_memory")
    if is_killed or finding.text("code") == INTERRUPTED:
        return Suspicion.ENDED_FROM_OUTSIDE
    has_evidence = finding.text("exception") or finding.text("code") or signum
    return Suspicion.FAILED_BY_ITSELF if has_evidence else Suspicion.ENDED_SILENTLY


def _complaints(ranks: Sequence[Members], failure: Failure | None) -> Iterator[Complaint]:
    """Yield the peers that ranks report, but for ranks that failed by themselves: they may name anybody."""
    for rank in ranks:
        rank_id, finding = rank.whole("rank_id"), rank.child("finding")
        is_own = failure and failure.rank_id == rank_id and failure.suspicion is Suspicion.FAILED_BY_ITSELF
        if rank_id is None or is_own or finding.text("code_kind") == Kind.ROOT.value:
            continue
        for peer in finding.children("points_at"):
            yield Complaint(
                rank_id=rank_id,
                peer=Peer(
                    rank_id=peer.whole("rank_id"),
                    server_id=peer.text("server_id"),
                    device_id=peer.whole("device_id"),
                    device_ip=peer.text("device_ip"),
                ),
                code=finding.text("code"),
                at=rank.moment("last_output_at") or rank.moment("ended_at"),
            )


def _clock(members: Members) -> Clock:
    walls = members.number("wall_start"), members.number("wall_end")
    monotonics = members.number("monotonic_start"), members.number("monotonic_end")
    step = 0.0
    if None not in {*walls, *monotonics}:
        step = (walls[1] or 0.0) - (walls[0] or 0.0) - (monotonics[1] or 0.0) + (monotonics[0] or 0.0)
    offset = members.members.get("disk_offset")
    is_compared = isinstance(offset, float) and abs(offset) < LARGEST_ERROR
    return Clock(
        max_error=members.number("max_error") if members.flag("is_synchronized") else None,
        step=step,
        disk_offset=offset if is_compared else None,  # type: ignore[arg-type]  # a float
        round_trip=members.number("disk_round_trip") or 0.0,
    )


END: Final = 16 * 1024  # bytes of a log
STEPS: Final = 16  # steps that are compared at most
TOLERANCE: Final = 1.0  # seconds
_STAMP: Final = re.compile(rb"(20\d\d)[-/](\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")


def with_times(nodes: Iterable[Node], reports: Mapping[int, Members], logs: Mapping[int, str]) -> Iterator[Node]:
    """Yield the nodes with the times that their logs have."""
    nodes = list(nodes)
    ends = {node.number: _end(node, logs) for node in nodes}
    are_kept = _are_of_the_disk(nodes, ends, reports)
    for node in nodes:
        zone = _zone(reports[node.number]) if node.has_report else None
        found = _steps(node, logs, zone) if zone else {}
        yield attrs.evolve(node, log_end=ends[node.number] if are_kept else None, steps=found)


def _end(node: Node, logs: Mapping[int, str]) -> float | None:
    """Return the newest time of modification of a node's logs."""
    times = []
    for rank_id in node.rank_ids:
        with suppress(KeyError, OSError, ValueError):
            times.append(os.stat(logs[rank_id], follow_symlinks=False).st_mtime)
    return max(times, default=None)


def _are_of_the_disk(nodes: Iterable[Node], ends: Mapping[int, float | None], reports: Mapping[int, Members]) -> bool:
    """Whether the times of the files are those that the disk gave them: not those of a copy, which would be newer.

    Some nodes must know its clock, and for each of them they must be those of the last output.
    """
    compared = [node for node in nodes if node.clock.disk_offset is not None]
    return bool(compared) and all(_is_kept(node, ends[node.number], reports[node.number]) for node in compared)


def _is_kept(node: Node, end: float | None, report: Members) -> bool:
    outputs = [rank.moment("last_output_at") for rank in report.children("ranks")]
    last = max((at for at in outputs if at is not None), default=None)
    if end is None or last is None:
        return False
    late = end - (last + node.clock.step + (node.clock.disk_offset or 0.0))
    margin = node.clock.round_trip + TOLERANCE
    return -margin <= late <= margin + UNWRITTEN


def _zone(report: Members) -> timezone | None:
    with suppress(ValueError):
        offset = datetime.fromisoformat(report.text("started_at")).utcoffset()
        return timezone(offset) if offset is not None else None
    return None


def _steps(node: Node, logs: Mapping[int, str], zone: timezone) -> dict[int, float]:
    """Return the times of the last steps, from the log of the first or the last rank: others rarely print them."""
    for rank_id in dict.fromkeys((*node.rank_ids[:1], *node.rank_ids[-1:])):
        if rank_id in logs:
            found = dict(_steps_in(files.read_end(logs[rank_id], END), zone))
            if found:
                return dict(sorted(found.items())[-STEPS:])
    return {}


def _steps_in(data: bytes, zone: timezone) -> Iterator[tuple[int, float]]:
    for line in data.splitlines():
        step, stamp = steps.parse(line), _STAMP.search(line[: steps.LONGEST])
        if step and step.step is not None and stamp:
            with suppress(ValueError, OverflowError):
                parts = list(map(int, stamp.groups()[:6]))
                fraction = int((stamp[7] or b"0").ljust(6, b"0"))
                yield step.step, (datetime(*parts, tzinfo=zone) + timedelta(microseconds=fraction)).timestamp()  # type: ignore[arg-type,misc]  # six numbers


NAME: Final = re.compile(r".+-report-(?:node-(?P<number>\d{1,6})|.+)\.json", re.DOTALL)
LARGEST: Final = 1 << 26  # bytes of a report
MOST_NODES: Final = 16_384
# Seconds by which a report may have ended before most others began: nodes start and clocks differ by less.
EARLIER_RUN: Final = 900.0


@attrs.frozen
class _Found:
    path: str
    source: str  # the named path that led to it
    report: Members

    @property
    def name(self) -> str:
        """The name of the file."""
        return os.path.basename(self.path)

    @property
    def directory(self) -> str:
        """The directory that has the file."""
        return os.path.dirname(self.path) or "."

    @property
    def number(self) -> int | None:
        """The number of the node, as the report or the name of the file gives it."""
        number = self.report.whole("node_rank")
        match = NAME.fullmatch(self.name)
        if number is None and match and match["number"]:
            number = int(match["number"])
        return number if number is not None and 0 <= number < MOST_NODES else None

    @property
    def began(self) -> float:
        return self.report.moment("started_at") or 0.0


def has_several(path: str, job_id: str | None = None) -> bool:
    """Whether a directory has reports of several nodes, of one job if its id is given."""
    start = "" if job_id is None else f"{job_id}-report-"
    return sum(name.startswith(start) for name in _names(path)) > 1


def read(*paths: str, job_id: str | None = None) -> JobReports:
    """Read the reports of a job, or of the newest one, in directories or files.

    Raises:
        UnreadableError: A path has none of the job, or a file cannot be read.
    """
    unreadable: dict[str, list[str]] = {path: [] for path in paths}
    every = [one for path, reasons in unreadable.items() for one in _found(path, reasons)]
    found = list({os.path.realpath(one.path): one for one in every}.values())
    if job_id is None and found:
        job_id = max(found, key=lambda one: one.began).report.text("job_id")
    for path, reasons in unreadable.items():
        if not any((one.source, one.report.text("job_id")) == (path, job_id) for one in every):
            what = "no node report" if job_id is None else f"no node report of job {job_id!r}"
            raise UnreadableError(": ".join(filter(None, (f"{what} found in {path!r}", abbreviated(reasons)))))
    left_out = [sentence for reasons in unreadable.values() for sentence in reasons]
    others = {one.report.text("job_id") for one in found} - {job_id}
    if others:
        left_out.append(f"ignored the reports of {counted(len(others), 'other job')}: {abbreviated(sorted(others))}")
    numbered = _numbered([one for one in found if one.report.text("job_id") == job_id], left_out)
    current = _without_earlier_runs(numbered, left_out)
    return _folder(paths[0] if len(paths) == 1 else "", dict(sorted(current.items())), left_out)


def _found(path: str, unreadable: list[str]) -> Iterator[_Found]:
    """Yield the reports in a directory, or the one in a file.

    Raises:
        UnreadableError: The directory or the file cannot be read.
    """
    if os.path.isfile(path):
        yield _Found(path, path, _read(path))
        return
    for name in _names(path):
        try:
            inside = os.path.join(path, name)
            yield _Found(inside, path, _read(inside))
        except UnreadableError as error:
            unreadable.append(str(error))


def _names(path: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(path) if NAME.fullmatch(name))
    except OSError as error:
        raise UnreadableError(f"cannot read the directory {path!r}: {reason(error)}") from error


def _read(path: str) -> Members:
    if os.path.lexists(path) and os.lstat(path).st_size > LARGEST:
        raise UnreadableError(f"ignored {path!r}: too large for a node report")
    report = report_file.read(path)
    if not report.text("job_id"):
        raise UnreadableError(f"{path!r} is not the JSON report of a job")
    return report


def _numbered(found: Iterable[_Found], left_out: list[str]) -> dict[int, _Found]:
    """Return the reports by the numbers of their nodes, the newest of each; those without a number get a free one."""
    numbered: dict[int, _Found] = {}
    unnumbered = []
    for one in sorted(found, key=lambda one: (-one.began, one.path)):
        if one.number is None:
            unnumbered.append(one)
        elif one.number in numbered:
            left_out.append(f"ignored {one.path!r}: {numbered[one.number].path!r} is a newer report of the same node")
        else:
            numbered[one.number] = one
    free = (number for number in range(MOST_NODES) if number not in numbered)
    for one in sorted(unnumbered, key=lambda one: (_first_rank(one.report), one.path)):
        numbered[next(free)] = one
    return numbered


def _first_rank(report: Members) -> int:
    return min((rank.whole("rank_id") or 0 for rank in report.children("ranks")), default=0)


def _without_earlier_runs(found: Mapping[int, _Found], left_out: list[str]) -> dict[int, _Found]:
    began = median(one.began for one in found.values())
    earlier = {
        number
        for number, one in found.items()
        if (ended := one.report.moment("ended_at")) is not None and max(ended, one.began) + EARLIER_RUN < began
    }
    left_out += [f"ignored {found[number].path!r}: it is from an earlier run" for number in sorted(earlier)]
    return {number: one for number, one in found.items() if number not in earlier}


def _folder(path: str, found: Mapping[int, _Found], left_out: Sequence[str]) -> JobReports:
    reports = {number: one.report for number, one in found.items()}
    job_id = next(iter(reports.values())).text("job_id")
    parts = _parts(found, job_id)
    reports.update(_better_reports(reports, parts))
    logs = _logs(found, job_id)
    tables = (page_content.table_of(one.report, os.path.join(one.directory, "report")) for one in found.values())
    table = next(filter(None, tables), None)
    began = median(report.moment("started_at") or 0.0 for report in reports.values())
    nodes = {number: node_of(report, number) for number, report in reports.items()}
    nodes = {
        number: attrs.evolve(node, is_current=node.ended is None or node.ended >= began)
        for number, node in nodes.items()
    }
    nodes.update(_incomplete(nodes, parts))
    every = [*nodes.values(), *_missing(_count(reports), nodes, table)]
    job = Job(
        nodes=tuple(with_times(sorted(every, key=lambda node: node.number), reports, logs)),
        places=_places(table, reports),
        addresses=_addresses(table),
    )
    return JobReports(
        path=path, job_id=job_id, reports=reports, job=job, logs=logs, table=table, left_out=tuple(left_out)
    )


def _count(reports: Mapping[int, Members]) -> int:
    """Return the number of nodes: the one that most reports give, or more if a report has a higher number."""
    counts = [count for report in reports.values() if 0 < (count := report.whole("node_count") or 0) <= MOST_NODES]
    return max(max(reports) + 1, max(set(counts), key=counts.count, default=0))


def _directories(found: Mapping[int, _Found]) -> Iterable[str]:
    return dict.fromkeys(one.directory for one in found.values())


def _parts(found: Mapping[int, _Found], job_id: str) -> dict[int, FoundJob]:
    """Return the parts of the job by the numbers of their nodes, from the run files beside their reports."""
    beside = {(path, one.job_id, one.part): one for path in _directories(found) for one in jobs.in_directory(path)}
    parts = {number: beside.get((one.directory, job_id, f"-node-{number}")) for number, one in found.items()}
    return {number: part for number, part in parts.items() if part}


def _logs(found: Mapping[int, _Found], job_id: str) -> dict[int, str]:
    """Return the paths of the ranks' logs: those beside their reports, or any of ranks that no report has."""
    owners = {rank.whole("rank_id"): one.directory for one in found.values() for rank in one.report.children("ranks")}
    return {
        log.rank_id: log.path
        for path in _directories(found)
        for log in logs.find_logs(path, job_id)
        if log.rank_id >= 0 and owners.get(log.rank_id, path) == path
    }


def _better_reports(reports: Mapping[int, Members], parts: Mapping[int, FoundJob]) -> Iterator[tuple[int, Members]]:
    """Yield the reports of nodes that have ended without a final one beside the logs.

    That is the final report in the run directory, or, if the runner was killed, the one up to the last activity.
    """
    for number, part in parts.items():
        if jobs.is_final(reports[number].text("state")) or part.is_alive() is not False:
            continue
        seen = jobs.take(part)
        if seen.condition is Condition.RUNNER_KILLED or seen.spare_report:
            yield number, Members(seen.record.encode())


def _incomplete(nodes: Mapping[int, Node], parts: Mapping[int, FoundJob]) -> Iterator[tuple[int, Node]]:
    """Yield the nodes without a final report, if it is known whether their runners are alive."""
    for number, node in nodes.items():
        part = parts.get(number) if node.problem else None
        is_alive = part.is_alive() if part else None
        if part and is_alive is not None:
            ended = jobs.take(part).why or f"the runner was killed (last state: {node.state})"
            yield number, attrs.evolve(node, problem="still running" if is_alive else ended)


def _missing(count: int, nodes: Mapping[int, Node], table: RankTable | None) -> Iterator[Node]:
    """Yield the nodes without a report, with their ranks: those of the table that no report has."""
    numbers = [number for number in range(count) if number not in nodes]
    known = {rank_id for node in nodes.values() for rank_id in node.rank_ids}
    groups = [(host, ranks) for host, ranks in _groups(table) if not known.intersection(ranks)]
    size = max((len(node.rank_ids) for node in nodes.values()), default=0)
    is_even = all(
        node.rank_ids == tuple(range(node.number * size, (node.number + 1) * size)) for node in nodes.values()
    )
    for index, number in enumerate(numbers):
        host, ranks = "", tuple(range(number * size, (number + 1) * size)) if is_even else ()
        if len(groups) == len(numbers):
            host, ranks = groups[index]
        yield Node(number=number, host=host, rank_ids=ranks, problem="no report")


def _groups(table: RankTable | None) -> list[tuple[str, tuple[int, ...]]]:
    """Return the ranks of each pod of a table, or of each server where it has no pods, by its name."""
    groups: dict[str, list[int]] = {}
    for server in table.servers if table else ():
        for device in server.devices:
            groups.setdefault(device.pod_name or server.server_id, []).append(device.rank_id)
    return [(name, tuple(sorted(ranks))) for name, ranks in sorted(groups.items(), key=lambda group: min(group[1]))]


def _places(table: RankTable | None, reports: Mapping[int, Members]) -> dict[int, Place]:
    """Return the places of the ranks; without a table those of the reports, with the numbers of devices on a node."""
    if table:
        return root_cause.places(table)
    return {
        rank.whole("rank_id") or 0: Place(report.text("server_id"), rank.whole("local_rank") or 0)
        for report in reports.values()
        for rank in report.children("ranks")
        if (rank.whole("rank_id") or 0) >= 0
    }


def _addresses(table: RankTable | None) -> dict[str, int]:
    devices = table.devices if table else ()
    return {address: device.rank_id for device in devices for address in device.device_ip.split(",") if address}


LOG_END: Final = 16 * 1024  # bytes


def find(words: Sequence[str], environ: Mapping[str, str]) -> MergedSources | None:
    """Return the combined reports of several nodes, or None if the command line does not name such a job.

    Several words are directories, reports and names of jobs that lead to reports of one job.

    Raises:
        SettingsError: Several jobs are meant, or several words do not lead to the reports of several nodes.
        UnknownJobError: There is no such job.
        UnreadableError: No report can be read, or one of several paths has no report of the same job.
    """
    if len(words) > 1:
        found = _merged(*(word if _is_path(word, environ) else _report_of(word, environ) for word in words))
        if not found:
            raise SettingsError(f"no final report of a job with several nodes found in {abbreviated(words)}")
        return found
    word = words[0] if words else None
    if word and _is_path(word, environ):
        return _merged(word) if os.path.isdir(word) and has_several(word) else None
    job = jobs.find(word, environ, may_be_any_part=True)
    folder = jobs.with_its_logs(job).log_dir
    is_named = word is not None and word == job.name
    if is_named or not job.part or not has_several(folder, job.job_id):
        return None
    return _merged(folder, job_id=job.job_id)


def _is_path(word: str, environ: Mapping[str, str]) -> bool:
    """Return whether a word is a path: the name of a job takes precedence, as for all commands."""
    return os.path.exists(word) and all(word not in {job.name, job.job_id} for job in jobs.all_jobs(environ))


def _report_of(word: str, environ: Mapping[str, str]) -> str:
    return jobs.with_its_logs(jobs.find(word, environ)).path("report", "json")


def _merged(*paths: str, job_id: str | None = None) -> MergedSources | None:
    """Judge the reports at some paths. Return None if the job has one node, or if no node has ended."""
    found = read(*paths, job_id=job_id)
    if len(found.job.nodes) == 1 or not any(node.has_report for node in found.job.nodes):
        return None
    judged = verdict.judge(found.job)
    log = found.logs.get(summary.rank_of(judged.suspects[0]), "") if judged.suspects else ""
    log_end = last_lines(Masker().data(files.read_end(log, LOG_END))) if log else ()
    return MergedSources(found=found, verdict=judged, log=log, log_end=tuple(log_end), made_at=time.time())


WIDTH: Final = 80
LABEL: Final = 8
MOST_LINES: Final = 3  # lines of the log of the first suspect
MOST_GROUPS: Final = 6  # groups of nodes that have a line
LONGEST: Final = 300  # characters of a sentence


def screen(sources: MergedSources, width: int | None = None) -> str:
    """Describe a job: its state, the cause with its certainty, the ends of the other nodes, and the clocks."""
    job = sources.found.job
    reported = sum(node.has_report for node in job.nodes)
    whole = counted(len(job.nodes), "node")
    lines = [f"{sources.found.job_id}: {summary.state_of(job)}; final reports from {reported} of {whole}"]
    for label, text in _lines(sources):
        lines += _wrapped(label, text, width or WIDTH)
    return "".join(f"{shown(line)}\n" for line in lines)


def _lines(sources: MergedSources) -> Iterator[tuple[str, str]]:
    """Yield labels and texts. A text that begins with "|" is quoted from a log, and is not wrapped."""
    found, job, verdict = sources.found, sources.found.job, sources.verdict
    corrections = summary.corrections(job)
    label = "cause" if verdict.certainty is not Certainty.OPEN else "causes"
    for suspect in verdict.suspects:
        yield label, f"{summary.place(suspect, job)}: {suspect.sentence[:LONGEST]}"
        label = ""
        if suspect.alike:
            yield "", f"{summary.nodes_named(suspect.alike)} failed in the same way"
        yield "", _ended(suspect.node, corrections.get(suspect.node.number))
    if verdict.suspects:
        words = {Certainty.OPEN: "unclear"}.get(verdict.certainty, verdict.certainty.value)
        yield "", f"{words}: {'; '.join(verdict.reasons)}" if verdict.reasons else words
        yield "log", sources.log
        yield from (("", f"| {line}") for line in sources.log_end[-MOST_LINES:])
    label = "others" if verdict.suspects else "nodes"
    groups = summary.others(job, verdict)
    for group in groups[:MOST_GROUPS]:
        yield label, f"{summary.nodes_named(group.nodes)}: {group.sentence[:LONGEST]}"
        label = ""
    if len(groups) > MOST_GROUPS:
        yield "", f"and {counted(sum(len(group.nodes) for group in groups[MOST_GROUPS:]), 'other node')}"
    yield "clocks", "; ".join(summary.clock_sentences(job))
    for sentence in found.left_out:
        yield "note", sentence


def _ended(node: Node, ahead: Difference | None) -> str:
    """Return when a node failed, by its own clock, and the correction if that clock is known to be wrong."""
    at = node.failure.at if node.failure else None
    if at is None:
        return ""
    correction = f" ({-ahead.middle:+.1f} s)" if ahead and (ahead.low > 0 or ahead.high < 0) else ""
    return f"failed at {datetime.fromtimestamp(at):%H:%M:%S}.{int(at * 10) % 10} by its clock{correction}"  # noqa: DTZ006  local time, as in all messages


def document(sources: MergedSources) -> dict[str, object]:
    """Return the JSON of a job (`--json`)."""
    found, verdict = sources.found, sources.verdict
    corrections = summary.corrections(found.job)
    return {
        "job_id": found.job_id,
        "state": summary.state_of(found.job),
        "certainty": verdict.certainty.value if verdict.suspects else None,
        "suspects": [
            {
                "node": suspect.node.number,
                "host": suspect.node.host,
                "rank_id": suspect.rank_id,
                "sentence": suspect.sentence,
                "alike": [node.number for node in suspect.alike],
            }
            for suspect in verdict.suspects
        ],
        "reasons": verdict.reasons,
        "nodes": [_node(node, corrections.get(node.number)) for node in found.job.nodes],
        "left_out": found.left_out,
    }


def _node(node: Node, ahead: Difference | None) -> dict[str, object]:
    return {
        "node": node.number,
        "host": node.host,
        "rank_ids": node.rank_ids,
        "state": node.state if node.has_report else None,
        "sentence": summary.sentence_of(node),
        "failed_at": node.failure.at if node.failure else None,
        "clock_ahead": None if ahead is None else {"seconds": ahead.middle, "margin": ahead.margin, "by": ahead.source},
    }


def _wrapped(label: str, text: str, width: int) -> list[str]:
    """Return the lines of a text beside its label, none of an empty text."""
    start, rest = f"  {label:{LABEL}}", " " * (LABEL + 2)
    if text.startswith("|"):
        return [f"{start}{text}"[:width]]
    return textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )
