"""The metrics of a job, as records of prometheus_client: as text, by HTTP, or in a file for node-exporter.

A value that is unknown is absent, never 0. The only texts are names: no output of a rank, and of a command only the
program.
"""

from __future__ import annotations

import os
import os.path
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Union
from wsgiref.simple_server import WSGIRequestHandler, make_server

import attrs
from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer, choose_encoder, generate_latest

from ascend_runner import files
from ascend_runner.errors import OutputError, reason
from ascend_runner.record.rank_record import RankRecord, RankState
from ascend_runner.secrets import Masker
from ascend_runner.supervision import outliers
from ascend_runner.supervision.state import Phase
from ascend_runner.text import shown, signal_name
from ascend_runner.tools.job import jobs, processes
from ascend_runner.tools.job.jobs import Condition, FoundJob, JobEnd, Snapshot
from ascend_runner.tools.job.processes import ProcessMeter, Usage
from ascend_runner.training import steps

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PREFIX: Final = "ascend_runner_"
TOTAL: Final = "_total"  # the end of the name of a counter
QUIET: Final = "quiet"  # the state of a running rank that has written nothing for unusually long
MOST_SIGNALS: Final = 6  # signals of a rank, which has at most 20 series
OF_JOB: Final = ("job", "node")
OF_RANK: Final = (*OF_JOB, "rank", "npu")

JOB_METRICS: Final = {
    "up": "1 while the runner is alive, 0 if it was killed, absent once the job has ended.",
    "board_age_seconds": "Time since a rank last started, wrote or ended.",
    "job_start_time_seconds": "Start time of the job, in seconds since the epoch.",
    "job_end_time_seconds": "End time of the job, in seconds since the epoch.",
    "job_exit_status": "Exit status of the job.",
    "job_failed_rank": "Rank that caused the failure of the job.",
}
RANK_METRICS: Final = {
    "running": "1 while the first process of the rank is running, otherwise 0.",
    "start_time_seconds": "Start time of the rank, in seconds since the epoch.",
    "first_output_time_seconds": "Time of the first output of the rank, in seconds since the epoch.",
    "last_output_time_seconds": "Time of the last output of the rank, in seconds since the epoch.",
    "end_time_seconds": "End time of the rank, in seconds since the epoch.",
    "output_bytes_total": "Bytes of output written by the rank.",
    "output_lost_bytes_total": "Bytes of output missing from the log of the rank.",
    "cpu_seconds_total": "CPU time of all processes of the rank, in seconds.",
    "resident_memory_bytes": "Resident memory of all processes of the rank, in bytes.",
    "processes": "Number of processes of the rank.",
    "uninterruptible_processes": "Number of processes of the rank that wait for a disk or a driver (state D).",
    "exit_code": "Exit status of the rank, absent if a signal killed it.",
    "exit_signal": "Number of the signal that killed the rank.",
    "step": "Last training step in the output of the rank.",
    "step_seconds": "Last duration of a step in the output of the rank, in seconds.",
    "loss": "Last loss in the output of the rank.",
}
Family = Union[CounterMetricFamily, GaugeMetricFamily]


def of_job(seen: Snapshot, usages: Mapping[int, Usage], now: float) -> Iterator[Metric]:
    """Yield the metrics of a job; `now` is in seconds since the epoch."""
    node = seen.record.pod_name or seen.record.server_id or seen.job.host
    labels = (_label(seen.job.job_id), _label(node))
    yield _info(seen, labels)
    figures = _figures(seen, now)
    for name, text in JOB_METRICS.items():
        yield from _with_values(_family(name, text, OF_JOB), [(labels, figures[name])])
    phase = _phase(seen)
    phases = [((*labels, one.name.lower()), float(one is phase)) for one in Phase if phase]
    text = "1 for the current phase of the job, 0 for the others."
    yield from _with_values(_family("job_phase", text, (*OF_JOB, "phase")), phases)
    states = _states(seen, now)
    known = {*states, QUIET, *(state.value for state in RankState)} if states else ()
    counts = [((*labels, _label(state)), float(states.count(state))) for state in sorted(known)]
    yield from _with_values(_family("ranks", "Number of ranks in each state.", (*OF_JOB, "state")), counts)
    yield from _of_ranks(seen, usages, labels)


def _info(seen: Snapshot, labels: tuple[str, ...]) -> Metric:
    record = seen.record
    texts = {
        "version": record.runner_version,
        "platform": record.platform,
        "framework": record.framework,
        "nodes": str(record.node_count or ""),
        "ranks": str(record.rank_size or ""),
        "command": os.path.basename(Masker().text(seen.job.command[0])) if seen.job.command else "",
    }
    text = "Version, platform, framework, size and program of the job."
    family = InfoMetricFamily(f"{PREFIX}job", text, labels=OF_JOB)
    family.add_metric(labels, {name: _label(text) for name, text in texts.items() if text})
    return family


def _figures(seen: Snapshot, now: float) -> dict[str, float | None]:
    record, is_over = seen.record, bool(seen.record.state and seen.record.state.is_final)
    is_up = {Condition.RUNNING: 1.0, Condition.RUNNER_KILLED: 0.0}.get(seen.condition)
    return {
        "up": is_up,
        "board_age_seconds": _age(seen, now),
        "job_start_time_seconds": seen.job.began,
        "job_end_time_seconds": record.ended_at if is_over else None,
        "job_exit_status": record.status if is_over else None,
        "job_failed_rank": record.cause.rank_id if record.cause else None,
    }


def _age(seen: Snapshot, now: float) -> float | None:
    """Return the time since the newest time that the runner shows, or None without one."""
    if not seen.live:
        return None
    ranks = seen.live.ranks
    signs = (rank.ended_after if rank.ending else rank.last_sign_after for rank in ranks if rank.is_started)
    return max(0.0, now - seen.live.began - max(signs, default=0.0))


def _phase(seen: Snapshot) -> Phase | None:
    """Return the phase of the attempt, or None if it is unknown, as between two attempts."""
    if seen.record.state and seen.record.state.is_final:
        return Phase.DONE
    return seen.live.phase if seen.live else None


def _states(seen: Snapshot, now: float) -> list[str]:
    """Return the states of the ranks; a rank that has been quiet for unusually long does not count as running."""
    long_quiet = outliers.quiet(*seen.record.silences(now))
    return [QUIET if rank.rank_id in long_quiet else rank.state.value for rank in seen.record.ranks]


def _of_ranks(seen: Snapshot, usages: Mapping[int, Usage], of_job: tuple[str, ...]) -> Iterator[Metric]:
    families = {name: _family(f"rank_{name}", text, OF_RANK) for name, text in RANK_METRICS.items()}
    unit_labels, signal_labels = (*OF_RANK, "unit"), (*OF_RANK, "signal")
    throughput = _family("rank_throughput", "Last throughput in the output of the rank.", unit_labels)
    text = "1 for each signal sent to the rank."
    signals = _family(f"rank_signals_sent{TOTAL}", text, signal_labels)
    for rank in seen.record.ranks:
        device_id = "" if rank.device_id is None else str(rank.device_id)
        labels = (*of_job, _label(rank.name or str(rank.rank_id)), device_id)
        step = seen.steps.get(rank.rank_id) or steps.newest("".join(rank.last_lines).encode(errors="replace"))
        figures = _of_rank(rank, seen.record.started_at, usages.get(rank.rank_id))
        figures.update(step=step.step, step_seconds=step.seconds, loss=step.loss)
        for name, value in figures.items():
            if value is not None:
                families[name].add_metric(labels, value)
        if step.throughput is not None:
            throughput.add_metric((*labels, step.unit), step.throughput)
        for signum in islice(sorted({signum for signum, _at in rank.signals}), MOST_SIGNALS):
            signals.add_metric((*labels, signal_name(signum)), 1)
    yield from (family for family in (*families.values(), throughput, signals) if family.samples)


def _of_rank(rank: RankRecord, began: float, usage: Usage | None) -> dict[str, float | None]:
    def moment(after: float | None) -> float | None:
        return None if after is None else began + after

    ending = rank.ending
    return {
        "running": float(rank.is_running),
        "start_time_seconds": moment(rank.started_after if rank.is_started else None),
        "first_output_time_seconds": moment(rank.first_output_after),
        "last_output_time_seconds": moment(rank.last_output_after),
        "end_time_seconds": moment(rank.ended_after if ending else None),
        "output_bytes_total": rank.log_size,
        "output_lost_bytes_total": None if rank.log_size is None else rank.log_lost,
        "cpu_seconds_total": rank.cpu_seconds,
        "exit_code": ending.exit_code if ending and not ending.signum else None,
        "exit_signal": ending.signum if ending and ending.signum else None,
        **(_of_usage(usage) if usage else {}),
    }


def _of_usage(usage: Usage) -> dict[str, float | None]:
    return {
        "cpu_seconds_total": usage.cpu_seconds,
        "resident_memory_bytes": usage.resident,
        "processes": usage.processes,
        "uninterruptible_processes": usage.uninterruptible,
    }


def _family(name: str, text: str, labels: tuple[str, ...]) -> Family:
    kind = CounterMetricFamily if name.endswith(TOTAL) else GaugeMetricFamily
    return kind(f"{PREFIX}{name}", text, labels=labels)


def _with_values(family: Family, values: Iterable[tuple[tuple[str, ...], float | None]]) -> Iterator[Metric]:
    """Yield a family with its known values, if there are any."""
    for labels, value in values:
        if value is not None:
            family.add_metric(labels, value)
    if family.samples:
        yield family


def _label(text: str) -> str:
    """Return a text without secrets and control characters."""
    return shown(Masker().text(text))


PATH: Final = "/metrics"
REQUEST_LIMIT: Final = 10.0  # seconds for a client to send its request, and to take the answer
Address = tuple[str, int]  # a host and a port


@attrs.frozen(eq=False)
class JobCollector:
    """Collects the metrics of a job, or of some nodes of one, at each request."""

    nodes: tuple[FoundJob, ...]

    def collect(self) -> Iterable[Metric]:
        """Return the current metrics."""
        families: dict[str, Metric] = {}
        for node in self.nodes:
            seen = jobs.take(node)
            for family in of_job(seen, _usages(seen), time.time()):
                known = families.setdefault(family.name, family)
                if known is not family:
                    known.samples += family.samples
        return families.values()


def _usages(seen: Snapshot) -> dict[int, Usage]:
    """Return the usage of each running rank, as far as its processes can be seen from here."""
    if not (seen.is_alive and seen.job.is_of_this_machine and seen.job.has_guardian()):
        return {}
    return ProcessMeter(seen.job.pid).look(processes.leaders(seen), time.monotonic())


def text(nodes: Sequence[FoundJob]) -> str:
    """Return the metrics of the nodes of a job in the text format of Prometheus."""
    return generate_latest(registry_of(nodes)).decode()


def registry_of(nodes: Sequence[FoundJob]) -> CollectorRegistry:
    """Return a registry with the metrics of the nodes of a job."""
    registry = CollectorRegistry()
    registry.register(JobCollector(tuple(nodes)))
    return registry


def _name(nodes: Sequence[FoundJob]) -> str:
    return nodes[0].name if len(nodes) == 1 else nodes[0].job_id


def serve(nodes: Sequence[FoundJob], address: Address, tell: Callable[[str], None]) -> None:
    """Answer requests until this process is ended. The address is reported through `tell`.

    Raises:
        OutputError: The address cannot be used.
    """
    host, port = address
    kind = _IPv6Server if ":" in host else _Server
    try:
        server = make_server(host, port, application(registry_of(nodes)), kind, _RequestHandler)
    except OSError as error:
        raise OutputError(f"cannot listen on {_shown(host, port)}: {reason(error)}") from error
    tell(f"serving {_name(nodes)} at http://{_shown(host, server.server_port)}{PATH}")
    with server:
        while True:
            server.handle_request()  # sleeps until there is one; serve_forever() wakes up twice a second


def application(registry: CollectorRegistry) -> WSGIApplication:
    """Return the WSGI application that answers GET and HEAD of PATH only."""

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        method = environ["REQUEST_METHOD"]
        if environ["PATH_INFO"] != PATH:
            start_response("404 Not Found", [("Content-Length", "0")])
            return []
        if method not in {"GET", "HEAD"}:
            start_response("405 Method Not Allowed", [("Allow", "GET, HEAD"), ("Content-Length", "0")])
            return []
        encode, content_type = choose_encoder(environ.get("HTTP_ACCEPT", ""))
        body = encode(registry)
        start_response("200 OK", [("Content-Type", content_type), ("Content-Length", str(len(body)))])
        return [body] if method == "GET" else []

    return respond


class _Server(ThreadingWSGIServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that has left or is too slow."""


class _IPv6Server(_Server):
    address_family = socket.AF_INET6


class _RequestHandler(WSGIRequestHandler):
    timeout = REQUEST_LIMIT

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in the standard library
        """Log nothing."""


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def write_files(nodes: Sequence[FoundJob], folder: str, every: float) -> None:
    """Write the metrics to a file at intervals, and a last time when the job has ended.

    Raises:
        OutputError: The file cannot be written.
    """
    path = os.path.join(folder, f"ascend-runner-{_name(nodes)}.prom")
    end = JobEnd(nodes)
    try:
        while True:
            has_ended = end.has_come()
            files.write_atomically(path, text(nodes).encode())
            if has_ended:
                return
            select.select(end.locks, [], [], every)
    finally:
        end.close()
