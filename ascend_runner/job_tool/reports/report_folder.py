"""Reads the reports that the nodes of one job have left in a directory or in several, with what is beside them.

Anybody may have written to the directory, so a report that cannot be used is left out, with a sentence about it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final

import attrs

from ascend_runner import report_file
from ascend_runner.diagnosis import first_cause
from ascend_runner.diagnosis.first_cause import Place
from ascend_runner.errors import UnreadableError, reason
from ascend_runner.html_report import sources
from ascend_runner.html_report.merged import JobReports
from ascend_runner.job_tool.job import jobs, snapshot
from ascend_runner.job_tool.job.jobs import FoundJob
from ascend_runner.job_tool.job.snapshot import Condition
from ascend_runner.job_tool.logs import log_files
from ascend_runner.job_tool.reports import log_times
from ascend_runner.job_tool.reports.node_reports import node_of
from ascend_runner.members import Members
from ascend_runner.merge.model import Job, Node
from ascend_runner.rank_table.model import RankTable
from ascend_runner.secrets import Masker
from ascend_runner.text import abbreviated, counted

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
    tables = (sources.table_of(one.report, os.path.join(one.directory, "report"), Masker()) for one in found.values())
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
        nodes=tuple(log_times.with_times(sorted(every, key=lambda node: node.number), reports, logs)),
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
        for log in log_files.find_logs(path, job_id)
        if log.rank_id >= 0 and owners.get(log.rank_id, path) == path
    }


def _better_reports(reports: Mapping[int, Members], parts: Mapping[int, FoundJob]) -> Iterator[tuple[int, Members]]:
    """Yield the reports of nodes that have ended without a final one beside the logs.

    That is the final report in the run directory, or, if the runner was killed, the one up to the last activity.
    """
    for number, part in parts.items():
        if snapshot.is_final(reports[number].text("state")) or part.is_alive() is not False:
            continue
        seen = snapshot.take(part)
        if seen.condition is Condition.RUNNER_KILLED or seen.spare_report:
            yield number, seen.complete_report


def _incomplete(nodes: Mapping[int, Node], parts: Mapping[int, FoundJob]) -> Iterator[tuple[int, Node]]:
    """Yield the nodes without a final report, if it is known whether their runners are alive."""
    for number, node in nodes.items():
        part = parts.get(number) if node.problem else None
        is_alive = part.is_alive() if part else None
        if part and is_alive is not None:
            ended = snapshot.take(part).why or f"the runner was killed (last state: {node.state})"
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
        return first_cause.places(table)
    return {
        rank.whole("rank_id") or 0: Place(report.text("server_id"), rank.whole("local_rank") or 0)
        for report in reports.values()
        for rank in report.children("ranks")
        if (rank.whole("rank_id") or 0) >= 0
    }


def _addresses(table: RankTable | None) -> dict[str, int]:
    devices = table.devices if table else ()
    return {address: device.rank_id for device in devices for address in device.device_ip.split(",") if address}
