"""Where the metrics of a job go: as text, to Prometheus by HTTP, or into a file for node-exporter."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

import attrs
from prometheus_client.core import CollectorRegistry, Metric
from prometheus_client.exposition import ThreadingWSGIServer, choose_encoder, generate_latest

from ascend_runner import files
from ascend_runner.errors import OutputError, reason
from ascend_runner.job_tool.job import snapshot
from ascend_runner.job_tool.job.jobs import FoundJob
from ascend_runner.job_tool.job.snapshot import Snapshot
from ascend_runner.job_tool.job.watching import JobEnd
from ascend_runner.job_tool.metrics import metrics
from ascend_runner.job_tool.processes import rank_stacks
from ascend_runner.job_tool.processes.process_meter import ProcessMeter, Usage

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PATH: Final = "/metrics"
REQUEST_LIMIT: Final = 10.0  # seconds for a client to send its request, and to take the answer
Address = tuple[str, int]  # a host and a port


@attrs.frozen
class JobCollector:
    """Collects the metrics of a job at each request."""

    job: FoundJob

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of this moment."""
        seen = snapshot.take(self.job)
        return metrics.of_job(seen, _usages(seen), time.time())


def _usages(seen: Snapshot) -> dict[int, Usage]:
    """Return the usage of each running rank, as far as its processes can be seen from here."""
    if not (seen.is_alive and seen.job.is_of_this_machine and seen.job.has_guardian()):
        return {}
    return ProcessMeter(seen.job.pid).look(rank_stacks.leaders(seen), time.monotonic())


def text(job: FoundJob) -> str:
    """Return the metrics of a job as Prometheus' text."""
    return generate_latest(registry_of(job)).decode()


def registry_of(job: FoundJob) -> CollectorRegistry:
    """Return a registry with the metrics of one job."""
    registry = CollectorRegistry()
    registry.register(JobCollector(job))
    return registry


def serve(job: FoundJob, address: Address, tell: Callable[[str], None]) -> None:
    """Answer requests until this process is ended. The address is reported through `tell`.

    Raises:
        OutputError: The address cannot be used.
    """
    host, port = address
    kind = _IPv6Server if ":" in host else _Server
    try:
        server = make_server(host, port, application(registry_of(job)), kind, _RequestHandler)
    except OSError as error:
        raise OutputError(f"cannot listen on {_shown(host, port)}: {reason(error)}") from error
    tell(f"serving {job.name} at http://{_shown(host, server.server_port)}{PATH}")
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


def write_files(job: FoundJob, folder: str, every: float) -> None:
    """Write the metrics to a file at intervals, and a last time when the job has ended.

    Raises:
        OutputError: The file cannot be written.
    """
    path = os.path.join(folder, f"ascend-runner-{job.name}.prom")
    end = JobEnd([job])
    try:
        while True:
            has_ended = end.has_come()
            files.write_atomically(path, text(job).encode())
            if has_ended:
                return
            select.select(end.locks, [], [], every)
    finally:
        end.close()
