"""The reports that the nodes of one job have left, side by side, and which node is likely the cause of a failure.

What a node reports about itself decides, never its clock: in a job of several nodes all fail within seconds, and the
first to complain is often a victim. An error of its own precedes one that is unknown, such as a missing report, and a
lost peer is only a consequence. Nodes that this does not tell apart are a tie. Nodes that were linked have agreed on a
cause: it stands for all of them.

Anybody may have written to a directory: a report that cannot be used is left out, with a sentence about it.
"""

from __future__ import annotations

import enum
import functools
import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import median
from typing import Final

import attrs

from ascend_runner import report_file
from ascend_runner.diagnosis import root_cause
from ascend_runner.diagnosis.finding import Finding
from ascend_runner.diagnosis.root_cause import Death, Suspicion
from ascend_runner.errors import SettingsError, UnreadableError, reason
from ascend_runner.record.job_record import CERTAINTY, CauseRecord, JobRecord
from ascend_runner.record.nodes import JobVerdict
from ascend_runner.secrets import Masker
from ascend_runner.supervision.causes import CAUSES, AnyCause, Exited
from ascend_runner.text import abbreviated, columns, counted, format_numbers, node_list, printable
from ascend_runner.tools.job import jobs
from ascend_runner.tools.job.jobs import Condition, is_final

NAME: Final = re.compile(r".+-report-.+\.json", re.DOTALL)
MOST_NODES: Final = 16_384
# Seconds by which a report may have ended before most others began: nodes start and clocks differ by less.
EARLIER_RUN: Final = 900.0
MOST_CANDIDATES: Final = 3
LONGEST: Final = 300  # characters of a sentence
WIDTH: Final = 80
LABEL: Final = 8
WRAP: Final = functools.partial(textwrap.wrap, break_on_hyphens=False, break_long_words=False)
HEADS: Final = ("node", "host", "ranks", "state", "error", "reported")
# A job has the first of these states that any of its nodes has.
STATES: Final = ("failed", "expired", "stopped", "holding", "succeeded")
WITH_VERDICTS: Final = {"failed", "holding"}  # a job that is stopped later keeps the verdict on its last failure
CERTAINTIES: Final = {**CERTAINTY, "certain": "certainly the cause"}
RUNNER_FAILED: Final = "runner_failed"  # the kind of a cause without a class
KINDS: Final[Mapping[str, type[AnyCause]]] = {cause.report_kind: cause for cause in CAUSES}


class Standing(enum.Enum):
    """What a node shows of itself, the likeliest cause of a failure first."""

    OWN = "own"  # an error of its own
    UNKNOWN = "unknown"  # no report of its end, or a failure that may be its own or a peer's
    LOST_PEER = "lost peer"
    NONE = "-"


ORDER: Final = tuple(Standing)
STANDINGS: Final = {Suspicion.FAILED_BY_ITSELF: Standing.OWN, Suspicion.REPORTS_A_PEER: Standing.LOST_PEER}
OF_VERDICTS: Final = {"own": Standing.OWN, "peer": Standing.LOST_PEER}  # by the kind of a verdict


@attrs.frozen(kw_only=True)
class NodeReport:
    """What one node has reported of its part of a job."""

    number: int
    host: str = ""  # its pod or server
    rank_ids: tuple[int, ...] = ()
    state: str = "no report"  # or why there is none of its end
    standing: Standing = Standing.UNKNOWN
    rank_id: int | None = None  # the rank that caused its failure
    sentence: str = ""  # on its failure
    path: str = ""  # of the JSON report
    log: str = ""  # of that rank
    named_by: int = 0  # nodes that suspect one of its ranks
    verdict: JobVerdict | None = None  # on the failure, in its report
    named_in: JobVerdict | None = None  # the verdict of linked nodes with its rank as the cause

    @property
    def title(self) -> str:
        """Its number, with its rank and its host if they are known: "rank 21 on node 2 (worker-2)"."""
        rank = "" if self.rank_id is None else f"rank {self.rank_id} on "
        return f"{rank}node {self.number}" + (f" ({self.host})" if self.host else "")

    @property
    def as_cause(self) -> str:
        """The sentence that names it as the cause."""
        return str(self.named_in)[:LONGEST] if self.named_in else f"{self.title}: {self.sentence or self.state}"

    @property
    def kind(self) -> tuple[str, ...]:
        """What nodes with equal reports share: their sentences differ at most in numbers."""
        return self.standing.value, self.state, re.sub(r"\d+", "0", self.sentence)


@attrs.frozen(kw_only=True)
class NodeReports:
    """The nodes of a job, in the order of their numbers, and sentences about files that were left out."""

    job_id: str
    nodes: tuple[NodeReport, ...]
    left_out: tuple[str, ...]

    @property
    def state(self) -> str:
        """The state of the job, from the states of its nodes."""
        states = {node.state for node in self.nodes}
        return next((state for state in STATES if state in states), "unknown")

    @property
    def candidates(self) -> tuple[NodeReport, ...]:
        """The nodes that may have caused the failure, the most suspected ones first; none if nothing failed.

        Nodes with the same error of their own are one: that error is the cause, whichever node had it first.
        """
        best = min((node.standing for node in self.nodes), key=ORDER.index)
        if not any(node.sentence and node.standing is not Standing.NONE for node in self.nodes):
            return ()
        tied = sorted((node for node in self.nodes if node.standing is best), key=lambda node: -node.named_by)
        first: dict[object, NodeReport] = {}
        for node in tied:
            first.setdefault(node.kind if best is Standing.OWN else node.number, node)
        return tuple(first.values())

    @property
    def is_open(self) -> bool:
        """Whether several nodes may be the cause, or none that says more than that it has lost a peer."""
        return self.certainty == "open"

    @property
    def certainty(self) -> str | None:
        """How certain the first candidate is the cause: "certain", "likely" or "open"; None without one."""
        found = self.candidates
        if not found:
            return None
        most = found[0].named_in.certainty if found[0].named_in else ""
        is_open = len(found) > 1 or found[0].standing is Standing.LOST_PEER
        return "open" if is_open else most if most in CERTAINTIES else "likely"

    def reasons(self) -> Iterator[str]:
        """Yield the reasons for these candidates, and against them."""
        found, verdict = self.candidates, self.candidates[0].named_in
        if verdict:
            same = [node.number for node in self.nodes if str(node.verdict) == str(verdict)]
            without = f", made without {node_list(verdict.missing)}" if verdict.missing else ""
            yield f"the verdict of {node_list(same)}{without}"
        elif found[0].standing is not Standing.OWN:
            yield "no node has an error of its own"
        else:
            yield "several nodes have errors of their own" if len(found) > 1 else "no other node has one of its own"
        if found[0].named_by:
            yield f"suspected by {counted(found[0].named_by, 'other node')}"
        missing = [node.number for node in self.nodes if not is_ended(node.state) and node not in found]
        if missing:
            yield f"no final report from {node_list(missing)}"

    def differences(self) -> Iterator[str]:
        """Yield the verdicts of nodes that differ from the one of other nodes that were linked."""
        groups: dict[str, list[tuple[int, bool]]] = {}
        found = self.candidates
        for node in self.nodes if any(node.named_in for node in self.nodes) else ():
            if node.verdict:
                groups.setdefault(str(node.verdict), []).append((node.number, node.verdict.is_alone))
        for sentence, same in groups.items():
            if sentence != str(found[0].named_in):
                alone = ", alone" if all(is_alone for _number, is_alone in same) else ""
                yield f"the verdict of {node_list(number for number, _is_alone in same)}{alone}: {sentence}"[:LONGEST]


def is_ended(state: str) -> bool:
    """Whether the job on a node has ended, or is held after its end."""
    return is_final(state) or state == "holding"


def find(words: Sequence[str], environ: Mapping[str, str]) -> NodeReports | None:
    """Return the reports of several nodes of one job, or None if the words do not mean such a job.

    Raises:
        SettingsError: Several jobs are meant, or several words do not lead to the reports of several nodes.
        UnknownJobError: There is no such job.
        UnreadableError: No report can be read, or one of several paths has no report of the same job.
    """
    if len(words) > 1:
        found = _of_several(*(_path_of(word, environ) for word in words))
        if not found:
            raise SettingsError(f"no final report of a job with several nodes found in {abbreviated(words)}")
        return found
    word = words[0] if words else None
    if word and _is_path(word, environ):
        return _of_several(word) if os.path.isdir(word) and has_several(word) else None
    job = jobs.find(word, environ, may_be_any_part=True)
    folder = jobs.with_its_logs(job).log_dir
    is_one = not job.part or word == job.name or not has_several(folder, job.job_id)
    return None if is_one else _of_several(folder, job_id=job.job_id)


def _is_path(word: str, environ: Mapping[str, str]) -> bool:
    """Return whether a word is a path: the name of a job takes precedence, as for all commands."""
    return os.path.exists(word) and all(word not in {job.name, job.job_id} for job in jobs.all_jobs(environ))


def _path_of(word: str, environ: Mapping[str, str]) -> str:
    is_path = _is_path(word, environ)
    return word if is_path else jobs.with_its_logs(jobs.find(word, environ)).path("report", "json")


def _of_several(*paths: str, job_id: str | None = None) -> NodeReports | None:
    """Read the reports at some paths. Return None if the job has one node, or if no node has ended."""
    found = read(*paths, job_id=job_id)
    return found if len(found.nodes) > 1 and any(is_ended(node.state) for node in found.nodes) else None


def has_several(path: str, job_id: str | None = None) -> bool:
    """Whether a directory has reports of several nodes, of one job if its id is given."""
    start = "" if job_id is None else f"{job_id}-report-"
    return sum(name.startswith(start) for name in _names(path)) > 1


@attrs.frozen
class _Found:
    path: str
    source: str  # the named path that led to it
    record: JobRecord

    @property
    def number(self) -> int:
        """The number of the node, which its ranks tell if its report does not."""
        ranks = [rank.rank_id for rank in self.record.ranks if rank.rank_id >= 0]
        number = self.record.node_rank
        return min(min(ranks, default=0) // max(1, len(ranks)) if number is None else number, MOST_NODES - 1)


def read(*paths: str, job_id: str | None = None) -> NodeReports:
    """Read the reports of a job, or of the newest one, in directories or files.

    Raises:
        UnreadableError: A path has none of the job, or a file cannot be read.
    """
    unreadable: dict[str, list[str]] = {path: [] for path in paths}
    every = [one for path, reasons in unreadable.items() for one in _found(path, reasons)]
    found = list({os.path.realpath(one.path): one for one in every}.values())
    if job_id is None and found:
        job_id = max(found, key=lambda one: one.record.started_at).record.job_id
    for path, reasons in unreadable.items():
        if not any((one.source, one.record.job_id) == (path, job_id) for one in every):
            what = "no node report" if job_id is None else f"no node report of job {job_id!r}"
            raise UnreadableError(": ".join(filter(None, (f"{what} found in {path!r}", abbreviated(reasons)))))
    left_out = [sentence for reasons in unreadable.values() for sentence in reasons]
    others = {one.record.job_id for one in found} - {job_id}
    if others:
        left_out.append(f"ignored the reports of {counted(len(others), 'other job')}: {abbreviated(sorted(others))}")
    numbered = _numbered([one for one in found if one.record.job_id == job_id], left_out)
    records = {number: _newest(one.record, one.path) for number, one in numbered.items()}
    nodes = {number: _node(number, *known, numbered[number].path) for number, known in records.items()}
    counts = [record.node_count for record, _state in records.values() if record.node_count]
    count = min(max(max(nodes) + 1, max(set(counts), key=counts.count, default=0)), MOST_NODES)
    size = max(record.rank_size for record, _state in records.values()) // count
    known = {rank_id for node in nodes.values() for rank_id in node.rank_ids}
    for number in set(range(count)) - set(nodes):
        ranks = range(number * size, (number + 1) * size)
        nodes[number] = NodeReport(number=number, rank_ids=tuple(ranks) if known.isdisjoint(ranks) else ())
    named = list(_named(nodes.values(), [record for record, _state in records.values()]))
    whole = [attrs.evolve(nodes[number], named_by=named.count(number)) for number in range(count)]
    return NodeReports(job_id=str(job_id), nodes=_judged(whole), left_out=tuple(left_out))


def _judged(nodes: Sequence[NodeReport]) -> tuple[NodeReport, ...]:
    """Return the nodes as the verdicts see them on which linked nodes have agreed: none of these is another cause."""
    agreed = [node.verdict for node in nodes if node.verdict and not node.verdict.is_alone]
    named = {verdict.node: verdict for verdict in reversed(agreed) if verdict.node in range(len(nodes))}
    tied = {number: verdict for verdict in named.values() for number in verdict.tied}
    judged = []
    for node in nodes:
        verdict, own = named.get(node.number), node.verdict
        standing, sentence, log = node.standing, node.sentence, node.log
        if found := verdict or tied.get(node.number):
            standing = OF_VERDICTS.get(found.kind, Standing.UNKNOWN)
        elif own and not own.is_alone and own.node in named:
            standing = Standing.NONE
        if verdict:
            sentence = sentence or verdict.sentence[:LONGEST]
            log = log or (verdict.log and f"{verdict.log} on that node")
        judged.append(attrs.evolve(node, standing=standing, named_in=verdict, sentence=sentence, log=log))
    return tuple(judged)


def _found(path: str, unreadable: list[str]) -> Iterator[_Found]:
    """Yield the reports in a directory, or the one in a file; a file in a directory that cannot be read is a reason."""
    is_file = os.path.isfile(path)
    for one in [path] if is_file else [os.path.join(path, name) for name in _names(path)]:
        try:
            yield _Found(one, path, _read(one))
        except UnreadableError as error:
            if is_file:
                raise
            unreadable.append(str(error))


def _read(path: str) -> JobRecord:
    record = JobRecord.decode(report_file.read(path))
    if not record.job_id:
        raise UnreadableError(f"{path!r} is not the JSON report of a job")
    return record


def _names(path: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(path) if NAME.fullmatch(name))
    except OSError as error:
        raise UnreadableError(f"cannot read the directory {path!r}: {reason(error)}") from error


def _numbered(found: Iterable[_Found], left_out: list[str]) -> dict[int, _Found]:
    """Return the newest report of each node by its number, without reports of an earlier run."""
    numbered: dict[int, _Found] = {}
    for one in sorted(found, key=lambda one: (-one.record.started_at, one.path)):
        newest = numbered.setdefault(one.number, one)
        if newest is not one:
            left_out.append(f"ignored {one.path!r}: {newest.path!r} is a newer report of the same node")
    began = median(one.record.started_at for one in numbered.values())
    for number, one in sorted(numbered.items()):
        ended = one.record.ended_at
        if ended is not None and max(ended, one.record.started_at) + EARLIER_RUN < began:
            left_out.append(f"ignored {one.path!r}: it is from an earlier run")
            del numbered[number]
    return numbered


def _newest(record: JobRecord, path: str) -> tuple[JobRecord, str]:
    """Return what is known of a node, and its state, or why it has none, as the run file beside its report shows it."""
    state = record.state.value if record.state else "unknown"
    part = None if is_ended(state) else next(iter(jobs.at_path(path)), None)
    if part is None or part.is_alive() is None:
        return record, state if is_ended(state) else f"incomplete report (last state: {state})"
    seen = jobs.take(part)
    if is_ended(seen.state):  # it is in the run directory
        return seen.record, seen.state
    is_killed = seen.condition is Condition.RUNNER_KILLED
    return record, f"the runner was killed (last state: {state})" if is_killed else seen.why or "still running"


def _node(number: int, record: JobRecord, state: str, path: str) -> NodeReport:
    cause = record.cause if is_ended(state) else None
    verdict = record.verdict if state in WITH_VERDICTS else None
    rank = record.rank(cause.rank_id) if cause else None
    names_another = cause is not None and cause.is_elsewhere and bool(cause.candidates)
    error = rank.finding.summary if rank and rank.finding and not names_another else ""
    standing = Standing.NONE if is_ended(state) else Standing.UNKNOWN
    return NodeReport(
        number=number,
        host=record.pod_name or record.server_id,
        rank_ids=tuple(one.rank_id for one in record.ranks if one.rank_id >= 0),
        state=state,
        standing=standing_of(record, cause) if cause else standing,
        rank_id=rank.rank_id if rank else None,
        sentence=Masker().text(error or cause.sentence or "failed")[:LONGEST] if cause else "",
        path=path,
        log=os.path.join(os.path.dirname(path), os.path.basename(rank.log_path)) if rank else "",
        verdict=None if verdict is None or verdict.restarts or not verdict.sentence else verdict,
    )


def standing_of(record: JobRecord, cause: CauseRecord) -> Standing:
    """Return what the cause of the end of a node's part says: whether the failure was its own."""
    kind, rank = KINDS.get(cause.kind), record.rank(cause.rank_id)
    if kind is None:
        return Standing.OWN if cause.kind == RUNNER_FAILED else Standing.UNKNOWN
    if kind.is_from_outside or kind.is_elsewhere or cause.is_a_consequence:
        return Standing.NONE if kind.is_from_outside else Standing.LOST_PEER
    if kind is not Exited:
        return Standing.UNKNOWN if kind.may_be_elsewhere else Standing.OWN
    if rank is None or rank.ending is None or cause.may_be_a_peer:
        return Standing.UNKNOWN
    death = Death(rank_id=rank.rank_id, ending=rank.ending, evidence=rank.finding or Finding())
    with suppress(ValueError):  # a kind of code that a later version knows
        return STANDINGS.get(root_cause.suspicion(death), Standing.UNKNOWN)
    return Standing.UNKNOWN


def _named(nodes: Iterable[NodeReport], records: Iterable[JobRecord]) -> Iterator[int]:
    """Yield the numbers of the nodes with ranks that others suspect, once for each of these others."""
    holders = {rank_id: node.number for node in nodes for rank_id in node.rank_ids}
    for record in records:
        cause, peer = record.cause, record.cause.suspected_peer if record.cause else None
        ranks = cause.candidates if cause and cause.is_elsewhere else (peer.rank_id,) if peer else ()
        yield from {holders[rank_id] for rank_id in ranks if rank_id in holders} - {record.node_rank}


def screen(found: NodeReports, width: int | None = None) -> str:
    """Describe a job: its state, the likely cause or the candidates, and what each node has reported."""
    ended = sum(is_ended(node.state) for node in found.nodes)
    lines = [f"{found.job_id}: {found.state}; final reports from {ended} of {counted(len(found.nodes), 'node')}"]
    for label, text in _facts(found):
        start, rest = f"  {label:{LABEL}}", " " * (LABEL + 2)
        lines += WRAP(printable(text), width or WIDTH, initial_indent=start, subsequent_indent=rest)
    lines += ["", *(line[: width or len(line)] for line in columns(HEADS, list(_rows(found))))]
    return "".join(f"{printable(line)}\n" for line in (*lines, *([""] if found.left_out else []), *found.left_out))


def _facts(found: NodeReports) -> Iterator[tuple[str, str]]:
    candidates, more = found.candidates[:MOST_CANDIDATES], len(found.candidates) - MOST_CANDIDATES
    for index, node in enumerate(candidates):
        yield "" if index else "causes" if found.is_open else "cause", node.as_cause
    if more > 0:
        yield "", f"or one of {counted(more, 'other node')}"
    if candidates:
        yield "", f"{CERTAINTIES[found.certainty or 'open']}: {'; '.join(found.reasons())}"
    differences = [*found.differences()]
    for sentence in differences[:MOST_CANDIDATES]:
        yield "differs", sentence
    if len(differences) > MOST_CANDIDATES:
        yield "", f"and {counted(len(differences) - MOST_CANDIDATES, 'other verdict')}"
    if candidates and not found.is_open:
        yield "log", candidates[0].log
        yield "report", candidates[0].path


def _rows(found: NodeReports) -> Iterator[tuple[str, ...]]:
    """Yield a row for the nodes that have reported the same, the likeliest causes first, then by their numbers."""
    groups: dict[tuple[str, ...], list[NodeReport]] = {}
    for node in sorted(found.nodes, key=lambda node: (ORDER.index(node.standing), node.number)):
        groups.setdefault(node.kind, []).append(node)
    for first, *others in groups.values():
        ranks = format_numbers(sorted(rank_id for node in (first, *others) for rank_id in node.rank_ids))
        numbers = format_numbers(node.number for node in (first, *others))
        yield numbers, "" if others else first.host, ranks, first.state, first.standing.value, first.sentence


def document(found: NodeReports) -> dict[str, object]:
    """Return the JSON of a job (`--json`)."""
    left_out = attrs.filters.exclude(attrs.fields(NodeReport).verdict, attrs.fields(NodeReport).named_in)
    nodes = [{**attrs.asdict(node, filter=left_out), "standing": node.standing.value} for node in found.nodes]
    return {
        "job_id": found.job_id,
        "state": found.state,
        "certainty": found.certainty,
        "candidates": [node.number for node in found.candidates[:MOST_CANDIDATES]],
        "reasons": list(found.reasons()) if found.candidates else [],
        "differences": list(found.differences()),
        "nodes": nodes,
        "left_out": found.left_out,
    }
