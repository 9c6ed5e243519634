"""The HTML report: the runner writes it after a failure, and `ascend-job report` at any time."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from ascend_runner import report_file
from ascend_runner.services import run_folder
from ascend_runner.tools.job import jobs
from tests.helpers.program import Program
from tests.helpers.waiting import LIMIT, wait_until
from tests.tools.job.conftest import SLEEPS, Start, Tool, running, state_of

FAILS = "echo about to fail; exit 3"
# The program, with all the time that it needs for the page.
WITH_TIME = f"""
from ascend_runner.report import html_page
html_page.LIMIT = {LIMIT}
from ascend_runner.__main__ import main
main()
"""


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("command", "options", "is_written"),
    [
        (FAILS, (), True),
        (FAILS, ("--html", "never"), False),
        ("exit 0", (), False),
        ("exit 0", ("--html", "always"), True),
    ],
)
def test_runner(command: str, options: tuple[str, ...], is_written: object, program: Program) -> None:
    """The runner writes it beside the JSON report, by default only after a failure, when it has shown the cause."""
    words = ("--log-dir", str(program.log_dir), "--nproc-per-node", "2", *options, "sh", "-c", command)
    run = program.run([sys.executable, "-c", WITH_TIME, *words], {"MA_VJ_NAME": "job", "ASCEND_RUNNER_HTML": ""})
    run.finish()
    page = program.log_dir / "job-report.html"
    last = run.screen.splitlines()[-1]

    assert is_written == page.exists()
    assert is_written == last.endswith(f"HTML report: {page}")
    assert not is_written or "Ranks" in page.read_text()


def test_jobs(start: Start, tool: Tool, program: Program, tmp_path: Path) -> None:
    """A job, a directory, a run file and a JSON report lead to the same page."""
    start(FAILS, "--html", "never").finish()
    json_report = program.log_dir / "job-report.json"
    pages: list[str] = []
    for word in ("job", str(program.log_dir), f"{program.log_dir}/job-run.json", str(json_report)):
        path = tmp_path / f"page-{len(pages)}.html"
        assert 0 == tool("report", word, "-o", str(path))[0]
        pages.append(path.read_text().partition("<footer>")[0])
    status, shown = tool("report")

    assert 1 == len(set(pages))
    assert "about to fail" in pages[0]
    assert (0, True) == (status, shown.startswith(f"wrote {program.log_dir}/job-report.html ("))


def test_running_job(start: Start, tool: Tool, tmp_path: Path) -> None:
    """The page about a job that is running shows what the ranks have written so far, and the last step."""
    run = start("echo step=57, skipped=0; exec sleep 1000")
    run.wait_for("step=57", times=2)
    wait_until(lambda: state_of(tool) == "running")
    page = tmp_path / "page.html"
    assert 0 == tool("report", "-o", str(page))[0]
    so_far = page.read_text()
    run.send(signal.SIGTERM)
    run.finish()

    assert "<strong>running</strong>" in so_far
    assert 2 == so_far.count("; first output after ") / 2  # for the eyes and the ears
    assert 2 == so_far.count("<td>19 B</td>")
    assert "<dt>Last step</dt><dd>57</dd>" in so_far


@pytest.mark.parametrize("command", ["exit 3", SLEEPS])
def test_versions(command: str, program: Program, run_dir: Path, tool: Tool, tmp_path: Path) -> None:
    """The page has the versions of the ranks' software, whether the job has failed at once or is running."""
    (tmp_path / "lib/python3.9/site-packages/torch-2.6.0.dist-info").mkdir(parents=True)
    python = tmp_path / "bin/python3.9"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nexec sh "$@"\n')
    python.chmod(0o755)
    env = {run_folder.RUN_DIR_VARIABLE: str(run_dir), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    run = program.start("--nproc-per-node", "2", "python3.9", "-c", command, env=env)
    if command == "exit 3":
        run.finish()
    page = tmp_path / "page.html"

    wait_until(lambda: tool("report", "job", "-o", str(page))[0] == 0 and "<dt>torch</dt><dd>2.6.0" in page.read_text())
    run.send(signal.SIGTERM)
    run.finish()


@pytest.mark.parametrize(
    ("state", "doing"),
    [
        ("running", "running"),
        ("preparing", "being prepared"),
        ("checkpointing", "saving a checkpoint"),
        ("holding", "held"),
    ],
)
def test_killed_runner(tmp_path: Path, tool: Tool, state: str, doing: str) -> None:
    """The page about a job whose runner was killed says so."""
    job = {"part": "", "host": "", "pid_namespace": "", "pid": 1, "started": 1, "runner_pid": 1, "began": 1.0}
    members = {**job, "job_id": "job", "log_dir": "/", "run_folder": str(tmp_path), "command": []}
    (tmp_path / "job-run.json").write_text(json.dumps(members))
    (tmp_path / "job-report.json").write_text(json.dumps({"job_id": "job", "state": state, "ranks": []}))

    for word in (tmp_path, tmp_path / "job-report.json"):
        assert 0 == tool("report", str(word))[0]
        page = (tmp_path / "job-report.html").read_text()
        assert "<strong>runner killed</strong>" in page
        assert f"The runner was killed while the job was {doing}<" in page
    assert 5 == tool("status", str(tmp_path / "job-report.json"))[0]


@pytest.mark.deep(quick=1)
def test_last_sign_of_life(start: Start, tool: Tool, program: Program) -> None:
    """The page about a job whose runner was killed ends with the last activity of its logs."""
    run = running(start, tool)
    job = jobs.find("job", os.environ)
    logs = list(program.log_dir.glob("job-proc-*"))
    wait_until(lambda: all(path.read_text() for path in logs))
    os.kill(job.runner_pid, signal.SIGKILL)
    run.finish()
    began = report_file.read(f"{program.log_dir}/job-report.json").moment("started_at") or 0.0
    for path in logs:
        os.utime(path, (began, began + 5000))
    assert 0 == tool("report", "job")[0]
    page = (program.log_dir / "job-report.html").read_text()

    assert (True, False) == ("<td>ended" in page, "still running" in page)
    assert 2 == page.count("<td>6 B</td>")
    assert "last activity after 1 h 23 min" in page


def test_usage(tool: Tool, tmp_path: Path) -> None:
    """What cannot be read, or must not be overwritten, is one sentence, and nothing is written."""
    report = tmp_path / "job-report.json"
    report.write_text("[]")
    answers = [
        tool("report", str(report)),
        tool("report", str(report), "--public"),
        tool("report", str(report), "-o", str(report)),
        tool("report", str(tmp_path / "missing")),
    ]

    assert [2, 2, 2, 4] == [status for status, _text in answers]
    assert [1, 1, 1, 1] == [text.count("\n") for _status, text in answers]
    assert [report] == list(tmp_path.iterdir())
    assert "[]" == report.read_text()
