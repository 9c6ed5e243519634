"""The command line of `ascend-job`."""

from __future__ import annotations

import json
import re

import pytest

from tests.helpers.program import Program
from tests.tools.job.conftest import Start, Tool


@pytest.mark.parametrize("name", ["batch-7", "list2", "events-1"])
def test_job_with_a_name_like_a_command(start: Start, tool: Tool, name: str) -> None:
    """It is found by its name, whole or in part."""
    start("exit 0", name=name, ranks=1).finish()

    assert tool(name)[1].startswith(f"{name}: succeeded")
    assert tool(name[:-1] if "-" in name else name)[1].startswith(f"{name}: succeeded")


def test_nothing_controls_the_terminal(start: Start, tool: Tool, program: Program) -> None:
    """Control characters in files are escaped."""
    start("exit 0", ranks=1).finish()
    report = json.loads((program.log_dir / "job-report.json").read_bytes())
    report.update(state="\x1b[2J", cause={"sentence": "a\x1b[31m\nb"}, server_id="\x07")
    report["ranks"][0].update(state="\x1b[1m")
    (program.log_dir / "job-report.json").write_text(json.dumps(report))
    with (program.log_dir / "job-events.jsonl").open("a") as file:
        file.write('{"time": "\\u001b", "data": {"state": "\\u001b", "event": "\\u001b[31m"}}\n')

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", tool()[1] + tool("list")[1] + tool("events")[1])


@pytest.mark.parametrize(
    ("words", "expected", "sentence"),
    [
        (("lsit",), 2, "unknown command 'lsit' (did you mean list?)"),
        (("status", "--jsn"), 2, "unknown option '--jsn' (did you mean --json?); see ascend-job status --help"),
        (("nothing",), 4, "'nothing' is neither a command nor a job on this machine; see ascend-job list, or specify"),
        (
            ("status", "nothing"),
            4,
            "no job 'nothing' on this machine; see ascend-job list, or specify its log directory\n",
        ),
        (("status", "/no/where"), 4, "'/no/where' is not the log directory of a job"),
        (("limit", "soon"), 2, "invalid value 'soon': expected a duration such as 72h, a change such as +12h or -90m"),
        (("limit", "job", "-1x"), 2, "invalid value '-1x': expected a duration"),
        (("--help", "console"), 2, "unknown command 'console'; the commands are status, top, list, logs"),
        (("metrics", "--listen", "99999"), 2, "invalid value '99999': expected a port from 0 to 65535"),
        (("metrics", "--listen", "x"), 2, "invalid value 'x': expected PORT or ADDRESS:PORT"),
        (("limit",), 2, "the following arguments are required: LIMIT"),
        (("status", ""), 2, "job name is empty"),
        ((), 4, "no jobs of this user on this machine; specify the log directory of the job"),
    ],
)
def test_wrong_words(tool: Tool, words: tuple[str, ...], expected: int, sentence: str) -> None:
    """One sentence says what is wrong."""
    status, screen = tool(*words)

    assert expected == status
    assert sentence in screen
    assert 1 == screen.count("\n") or screen.startswith("usage: ")  # by argparse


@pytest.mark.parametrize(
    "name", "status list logs stacks events report explain checkpoint limit stop release batch completion".split()
)
def test_help_has_an_example(name: str, tool: Tool) -> None:
    """The help of every command has an example."""
    status, screen = tool(name, "--help")

    assert 0 == status
    assert f"example: ascend-job {name}" in screen
    assert (status, screen) == tool("--help", name)


def test_help_of_batch_says_where_results_are(tool: Tool) -> None:
    """Each command has a RESULT of its own, so that one TensorBoard shows all."""
    _status, screen = tool("batch", "--help")

    assert "with RESULT set, each command gets a subdirectory of it" in " ".join(screen.split())


def test_help_on_a_narrow_terminal(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary of each command is beside its name, and no line is longer than the terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    _status, screen = tool("--help")
    lines = screen.splitlines()

    assert "    completion  print" == next(line[:21] for line in lines if line.startswith("    completion"))
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, tool: Tool) -> None:
    """The script of each shell has the commands and options of all programs."""
    status, screen = tool("completion", shell)

    assert 0 == status
    assert all(word in screen for word in ("ascend-rank-table", "nproc-per-node", "checkpoint", "no-checks", "follow"))
