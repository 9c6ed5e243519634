"""Secrets of every known kind in a real job: none is in what the runner and `ascend-job` show or write."""

from __future__ import annotations

import json
import os
import re
from contextlib import closing
from pathlib import Path

import pytest

from ascend_runner.services import control
from ascend_runner.tools.job import jobs
from ascend_runner.tools.job.top import Observer
from ascend_runner.tools.rank_table import main as rank_tables
from tests.helpers.planted import SECRETS, WORD
from tests.helpers.program import Program, run_to_end
from tests.helpers.waiting import wait_until
from tests.tools.job.conftest import Tool

SCRIPT = "cat {0}/secret-$RANK; until [ -e {0}/go ]; do sleep 0.1; done; cat {0}/secret-$RANK; exit 1"
VARIABLES = dict(secret.split("=") for secret in SECRETS if re.match("[A-Z_]+=", secret))
ARGUMENTS = [
    word
    for secret in SECRETS
    for word in (secret.split(" ") if re.match("--[a-z]", secret) else [secret])  # --token x are two arguments
]
VIEWS = (("status",), ("status", "--json"), ("list",), ("events",), ("metrics",))


@pytest.mark.deep
def test_planted(program: Program, tool: Tool, run_dir: Path) -> None:
    """Secrets in variables, arguments and logs are masked everywhere but in the logs themselves, and counted."""
    for rank_id, secret in enumerate(SECRETS):
        (program.folder / f"secret-{rank_id}").write_text(f"{secret}\n")
    options = ("--nproc-per-node", str(len(SECRETS)), "--console", "none", "--verbose")
    command = ("sh", "-c", SCRIPT.format(program.folder), "x", *ARGUMENTS)
    env = {**VARIABLES, "OTHERS": "\n".join(SECRETS), "ASCEND_RUNNER_RUN_DIR": str(run_dir)}
    run = program.start(*options, *command, env=env)
    wait_until(lambda: tool()[1].count("running  ") and len(written(program)) == len(SECRETS))
    views = [tool(*words)[1] for words in VIEWS]
    lines = [rank["last_line"] for rank in json.loads(views[1])["ranks"]]
    with closing(Observer(jobs.find(None, os.environ), os.environ)) as observer:
        views += [line for rank in observer.look(()).ranks for line in (rank.last_line, *rank.last_lines)]
    shown_by_runner, _answer = control.view(jobs.find(None, os.environ).run_folder)
    assert shown_by_runner
    views += [line for rank in shown_by_runner.ranks for line in rank.last_lines]
    (program.folder / "go").touch()
    status = run.finish()
    views += [run.screen, *(tool(*words)[1] for words in VIEWS)]
    tool("report")  # on a busy machine, the runner leaves this to the user
    files = [path for path in program.log_dir.rglob("*") if path.is_file() and path.suffix != ".txt"]
    shown = re.findall(r"Masked as \*\*\*: (\d+) secrets", (program.log_dir / "job-report.html").read_text())

    assert 1 == status
    assert [] == [line for line in lines if "***" not in line]
    assert [] == [view for view in views if WORD in view]
    assert [] == [path.name for path in files if WORD in path.read_text()]
    assert len(SECRETS) <= program.report()["secrets_masked"] <= int(shown[0])


@pytest.mark.deep
def test_planted_in_a_rank_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors about the values of a table show none of them, whichever command reports them."""
    values = [*SECRETS, *(f"{secret}{'x' * 100}" for secret in SECRETS)]  # of a long one, only the beginning is shown
    devices = [{"device_id": value, "device_ip": value, "rank_id": value} for value in values]
    servers = [{"server_id": value, "device": [device]} for value, device in zip(values, devices)]
    table = {"version": "1.0", "status": "completed", "server_count": "x", "server_list": servers}
    path = tmp_path / "hccl.json"
    path.write_text(json.dumps(table))
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**table, "server_list": servers[1:]}))
    shown: dict[tuple[str, ...], str] = {}
    for words in (("true",), ("--check",), ("--check", "--json")):
        run = run_to_end("--log-dir", str(tmp_path / "log"), "--rank-table", str(path), *words)
        shown[words] = run.stdout + run.stderr
    for tool in (("validate", str(path)), ("show", str(path)), ("diff", str(path), str(other))):
        rank_tables.main(tool)
        output = capsys.readouterr()
        shown[tool] = output.out + output.err

    assert [] == [words for words, text in shown.items() if WORD in text]
    assert [] == [words for words, text in shown.items() if "***" not in text]


@pytest.mark.parametrize("secret", SECRETS)
def test_planted_in_a_complete_rank_table(secret: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table with secrets is shown without them, as text and JSON, and they are counted."""
    devices = [{"device_id": "0", "device_ip": f"10.0.0.{rank}", "rank_id": str(rank)} for rank in range(2)]
    names = (f"a {secret}", f"b {secret}")
    servers = [{"server_id": name, "device": [device]} for name, device in zip(names, devices)]
    path = tmp_path / "hccl.json"
    table = {"version": "1.0", "status": "completed", "server_count": "2", "server_list": servers}
    path.write_text(json.dumps(table))
    statuses = [rank_tables.main(("show", str(path), *words)) for words in ((), ("--json",))]
    output = capsys.readouterr()

    assert [0, 0] == statuses
    assert WORD not in output.out + output.err
    assert 2 == output.err.count("masked as ***: 2 secrets")


def written(program: Program) -> list[Path]:
    """Return the logs that are not empty."""
    return [path for path in program.log_dir.glob("*.txt") if path.stat().st_size]
