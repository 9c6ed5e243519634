"""The metrics by HTTP and in files."""

from __future__ import annotations

import errno
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib import request
from wsgiref.util import setup_testing_defaults

import pytest
from prometheus_client import core, parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from ascend_runner.tools.job import metrics
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import LIMIT, wait_until
from tests.tools.job.conftest import JOB, Start, Tool

OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0"


def answer(method: str, path: str, accept: str = "") -> tuple[str, dict[str, str], str]:
    """Return the status, the headers and the body of an answer of the application."""
    environ: dict[str, object] = {"REQUEST_METHOD": method, "PATH_INFO": path, "HTTP_ACCEPT": accept}
    setup_testing_defaults(environ)
    heads: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], _error: object = None) -> object:
        heads.append((status, headers))
        return None

    application = metrics.application(metrics.registry_of([JOB]))
    body = b"".join(application(environ, start_response))  # type: ignore[arg-type]  # nobody calls what it returns
    ((status, headers),) = heads
    return status, dict(headers), body.decode()


def test_requests() -> None:
    """GET of /metrics returns them in the text format of Prometheus or in OpenMetrics, HEAD the same without a body."""
    status, headers, body = answer("GET", "/metrics")

    assert "200 OK" == status
    assert headers["Content-Type"].startswith("text/plain")
    assert str(len(body)) == headers["Content-Length"]
    assert "ascend_runner_job" in {family.name.replace("_info", "") for family in parse(body)}
    assert ("200 OK", headers, "") == answer("HEAD", "/metrics")
    _status, headers, body = answer("GET", "/metrics", OPENMETRICS)
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    families = openmetrics_parser.text_string_to_metric_families(body)  # type: ignore[no-untyped-call]  # has no types
    assert "ascend_runner_job" in {family.name for family in families}


def parse(text: str) -> list[core.Metric]:
    """Read the text format of Prometheus."""
    return list(parser.text_string_to_metric_families(text))


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/"), ("GET", "/metrics/"), ("GET", "/metrics/../x"), ("GET", ""), ("PUT", "/x")],
)
def test_other_requests(method: str, path: str) -> None:
    """Nothing else is served."""
    status, _headers, body = answer(method, path)

    assert ("404 Not Found", "") == (status, body)


def test_other_methods() -> None:
    """The metrics can only be read."""
    status, headers, body = answer("POST", "/metrics")

    assert ("405 Method Not Allowed", "GET, HEAD", "") == (status, headers["Allow"], body)


@contextmanager
def serving(address: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """Run `ascend-job metrics --listen`; yield the process, and the host and the port where it listens."""
    command = [sys.executable, "-m", "ascend_runner.tools.job", "metrics", *words, "--listen", address]
    environ = {**CLEAN, "ASCEND_RUNNER_RUN_DIR": os.environ["ASCEND_RUNNER_RUN_DIR"]}
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as popen:
        try:
            assert popen.stderr
            found = re.search(r"http://\[?(.*?)\]?:(\d+)/metrics", popen.stderr.readline())
            assert found
            yield popen, found[1], int(found[2])
        finally:
            popen.kill()


def test_server(start: Start, tool: Tool) -> None:
    """It listens on the loopback device, follows the job, survives broken clients, and ends with SIGTERM."""
    run = start("echo ready; exec sleep 1000")
    wait_until(lambda: "\n  1 " in tool()[1])
    with serving("0", "job") as (popen, host, port):
        with socket.create_connection((host, port), LIMIT) as slow, socket.create_connection((host, port)) as broken:
            slow.sendall(b"GET /metr")
            broken.sendall(b"\0\xff\r\n\r\n")
            with request.urlopen(f"http://{host}:{port}/metrics", timeout=LIMIT) as response:
                text = response.read().decode()
            connection = http.client.HTTPConnection(host, port, timeout=LIMIT)
            connection.request("HEAD", "/metrics")
            length = connection.getresponse().getheader("Content-Length")
            connection.close()

        assert "127.0.0.1" == host
        assert 'ascend_runner_ranks{job="job",node=' in text
        assert abs(len(text) - int(length or 0)) < 100
        run.send(signal.SIGTERM)
        run.finish()
        with request.urlopen(f"http://{host}:{port}/metrics", timeout=LIMIT) as response:
            assert b"ascend_runner_job_exit_status" in response.read()
        popen.send_signal(signal.SIGTERM)
        assert -signal.SIGTERM == popen.wait(LIMIT)
        assert popen.stderr
        assert "" == popen.stderr.read()


@pytest.fixture
def _ipv6() -> None:
    """Skip where the kernel has no IPv6, or where it is disabled, as in many containers."""
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind(("::1", 0))
    except OSError as error:
        if error.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
            raise
        pytest.skip(f"no IPv6 here: {error.strerror}")


@pytest.mark.usefixtures("_ipv6")
def test_addresses(start: Start, tool: Tool) -> None:
    """It listens on another address if one is given; one that cannot be used is an error."""
    run = start("true", ranks=1)
    run.finish()
    with serving("[::1]:0") as (_popen, host, port):
        status, shown = tool("metrics", "--listen", f"[::1]:{port}")

        assert "::1" == host
        assert (2, f"ascend-job: cannot listen on [::1]:{port}: address already in use\n") == (status, shown)


def test_file(start: Start, tool: Tool, tmp_path: Path) -> None:
    """The file is replaced while the job runs, has its end afterwards, and nothing else stays in the directory."""
    run = start("echo ready; until [ -e go ]; do sleep 0.05; done", "--workdir", "inherit")
    wait_until(lambda: "\n  1 " in tool()[1])
    command = [sys.executable, "-m", "ascend_runner.tools.job", "metrics", "--textfile", str(tmp_path / "node")]
    environ = {**CLEAN, "ASCEND_RUNNER_RUN_DIR": os.environ["ASCEND_RUNNER_RUN_DIR"]}
    path = tmp_path / "node" / "ascend-runner-job.prom"
    path.parent.mkdir()
    with subprocess.Popen([*command, "--every", "0.1"], env=environ) as popen:
        try:
            wait_until(path.exists)
            first = path.stat().st_ino
            wait_until(lambda: path.stat().st_ino != first and 'state="running"} 2.0' in path.read_text())
            (tmp_path / "go").touch()
            run.finish()
            assert 0 == popen.wait(LIMIT)
        finally:
            popen.kill()

    assert any(family.name == "ascend_runner_job_exit_status" for family in parse(path.read_text()))
    assert [path] == list(path.parent.iterdir())


def test_file_of_an_ended_job(start: Start, tool: Tool, tmp_path: Path) -> None:
    """It is written once; a directory that is missing is an error."""
    start("true", ranks=1).finish()

    assert (0, "") == tool("metrics", "--textfile", str(tmp_path))
    assert (tmp_path / "ascend-runner-job.prom").exists()
    assert 2 == tool("metrics", "--textfile", str(tmp_path / "missing"))[0]


@pytest.mark.parametrize(
    "words",
    [
        ("--every", "5"),
        ("--textfile", ".", "--every", "0"),
        ("--textfile", ".", "--listen", "1"),
        ("--listen", "host"),
        ("--listen", "host:70000"),
        ("--listen", ":-1"),
    ],
)
def test_wrong_usage(tool: Tool, words: tuple[str, ...]) -> None:
    """An option that is invalid, or useless beside the others, is an error."""
    assert 2 == tool("metrics", *words)[0]
