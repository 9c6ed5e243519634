"""Batches of real jobs: what runs, what is skipped, what is refused, and what ends them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ascend_runner.guardian import process_tree
from ascend_runner.guardian.signal_sets import ONE_SIGNAL
from ascend_runner.services import run_folder
from ascend_runner.settings.model import decode
from ascend_runner.tools.job.batch import JOB_NAME, BatchFile
from ascend_runner.tools.job.main import main
from tests.helpers.surroundings import CLEAN, LEANER
from tests.helpers.terminal import Terminal
from tests.helpers.waiting import LIMIT, is_gone, is_pending, wait_until

COMMAND = [sys.executable, "-m", "ascend_runner.tools.job", "batch"]
NOTES = "--nproc-per-node 1 sh -c 'echo {name} >> {notes}; exit {status}'"


class Batch:
    """A file of commands, each of which makes a note of itself, in an empty directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "sweep.txt"
        self.notes = folder / "notes"
        self.notes.touch()
        self.env = {**CLEAN, **LEANER, run_folder.RUN_DIR_VARIABLE: str(folder / "run")}

    def fill(self, **statuses: int) -> None:
        """Write commands by their names, which end with these exit statuses."""
        lines = [NOTES.format(name=name, notes=self.notes, status=status) for name, status in statuses.items()]
        self.path.write_text("\n# a comment\n\n".join(lines))

    def run(self, *options: str) -> tuple[int, str]:
        """Run it; return the exit status and the summary."""
        ended = subprocess.run(
            [*COMMAND, str(self.path), *options],
            env={**self.env, "COLUMNS": "200"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        return ended.returncode, re.split(r"\nlogs +state", f"\n{ended.stdout}")[-1] + ended.stderr

    @property
    def noted(self) -> list[str]:
        """The commands that have run, in their order."""
        return self.notes.read_text().split()


@pytest.fixture(name="batch")
def fixture_batch(tmp_path: Path) -> Batch:
    """Return an empty batch."""
    return Batch(tmp_path)


def test_commands_run_in_turn(batch: Batch) -> None:
    """All succeed; each has its logs in a directory of its own, and a second run has nothing to do."""
    batch.fill(a=0, b=0)
    first, second = batch.run(), batch.run()

    assert [0, 0] == [first[0], second[0]]
    assert ["a", "b"] == batch.noted
    assert (batch.folder / "sweep-2" / "sweep-2-report.json").exists()
    assert "2 of 2 commands succeeded" in second[1]


@pytest.mark.deep
def test_failure_ends_the_batch(batch: Batch) -> None:
    """The next run begins with the command that failed; --keep-going does not stop there."""
    batch.fill(a=0, b=3, c=0)
    statuses = [batch.run()[0], batch.run()[0]]
    status, screen = batch.run("--keep-going")

    assert [1, 1, 1] == [*statuses, status]
    assert ["a", "b", "b", "b", "c"] == batch.noted
    assert "sweep-2  failed (3)" in screen
    assert "rank 0 failed: exit status 3 (line 4)" in screen


def test_cause_in_the_summary_has_its_certainty(batch: Batch) -> None:
    """A rank whose exit status alone speaks against it is only likely the cause."""
    batch.path.write_text("--nproc-per-node 2 sh -c '[ $RANK = 1 ] && exit 3; exec sleep 100'")
    _status, screen = batch.run()

    assert "rank 1 failed: exit status 3 (likely the cause) (line 1)" in screen


def test_logs_of_a_line_with_a_directory(batch: Batch) -> None:
    """The summary has the directory where they are; a form feed in a line does not end it."""
    batch.path.write_text(f"--log-dir {batch.folder}/own --nproc-per-node 1 sh -c 'echo a >> {batch.notes}' '\f'\r\n")
    status, screen = batch.run()

    assert (0, ["a"]) == (status, batch.noted)
    assert f"\n{batch.folder}/own  succeeded" in screen


def test_command_that_cannot_be_started(batch: Batch) -> None:
    """The kernel refuses an argument of this length; one sentence says so."""
    batch.path.write_text(f"--nproc-per-node 1 true {'x' * 200_000}")
    status, screen = batch.run()

    assert 2 == status
    assert "ascend-job: cannot start the command on line 1: argument list too long" in screen


@pytest.mark.deep
def test_file_may_be_edited_between_two_runs(batch: Batch) -> None:
    """What has succeeded keeps its logs and does not run again; other commands have other logs."""
    batch.fill(a=0, b=0)
    batch.run()
    batch.fill(new=0, b=0, c=0)
    batch.run()

    assert ["a", "b", "new", "c"] == batch.noted
    assert {"sweep-1", "sweep-2", "sweep-3"} == {path.name for path in batch.folder.glob("sweep-*")}
    assert (batch.folder / "sweep-1" / "run-1").exists()


def test_wrong_lines_are_refused_before_anything_starts(batch: Batch) -> None:
    """Each has its sentence, with the line, and no command has run."""
    batch.fill(a=0)
    wrong = ["--nproc-per-nod 1 true", "--nproc-per-node x true", "--grace 3", "sh -c 'x", "A=1 true", "--help"]
    batch.path.write_text("\n".join([batch.path.read_text(), *wrong]))
    status, screen = batch.run()

    assert 2 == status
    assert [f"line {number}" for number in range(2, 8)] == [
        line.split(", ")[1].split(":")[0] for line in screen.strip().splitlines()
    ]
    assert [] == batch.noted
    assert not list(batch.folder.glob("sweep*state*"))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("missing", None, "cannot read"),
        ("file", "# nothing\n\n", "has no commands"),
        ("file", "x" * (2 << 20), "it has more than 1 MiB"),
        (".", None, "cannot read"),
    ],
)
def test_files_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str | None, sentence: str
) -> None:
    """One sentence, and nothing is written."""
    path = tmp_path / name
    if content is not None:
        path.write_text(content)

    assert 2 == main(["batch", str(path)])
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.glob("*state*"))


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("content", ["", "{}x", "7", '[{"number": 1}]'])
def test_states_that_are_none(batch: Batch, content: str) -> None:
    """A file that is not the state of the batch is neither read nor replaced."""
    batch.fill(a=0)
    state = Path(f"{batch.path}.state.json")
    state.write_text(content)
    status, screen = batch.run()

    assert 2 == status
    assert "is not the state of a batch; remove it to run all commands" in screen
    assert content == state.read_text()
    assert [] == batch.noted


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_batch(batch: Batch, signum: int) -> None:
    """The command that is running is stopped, no other one starts, and the next run begins with it."""
    batch.path.write_text(
        f"--nproc-per-node 1 sh -c 'echo a >> {batch.notes}; exec sleep 1000'\n--nproc-per-node 1 true"
    )
    with subprocess.Popen([*COMMAND, str(batch.path)], env=batch.env, stdout=subprocess.PIPE, text=True) as started:
        wait_until(lambda: batch.noted)
        started.send_signal(signum)
        screen = started.communicate(timeout=LIMIT)[0]
        ended = screen.splitlines()

    assert 128 + signum == started.returncode
    assert f"sweep-1  stopped ({128 + signum})" in screen
    assert "sweep-2  not run" in screen
    assert "0 of 2 commands succeeded" in ended[-1]


def test_ctrl_c_ends_the_batch(batch: Batch) -> None:
    """Both the batch and its command get what is typed; however late the batch is, the rank has its grace."""
    go = batch.folder / "go"
    waits = f"until [ -e {go} ]; do sleep 0.1; done"
    saves = f"echo asked >> {batch.notes}; {waits}; echo saved >> {batch.notes}; exit 0"
    script = f'trap "{saves}" INT; echo a >> {batch.notes}; while :; do sleep 0.1; done'
    batch.path.write_text(f"--nproc-per-node 1 sh -c '{script}'\n--nproc-per-node 1 true")
    terminal = Terminal([*COMMAND, str(batch.path)], batch.folder, env=batch.env, columns=120)
    try:
        wait_until(lambda: batch.noted)
        terminal.popen.send_signal(signal.SIGSTOP)
        terminal.type("\x03")
        wait_until(lambda: batch.noted == ["a", "asked"])
        asked_by = time.monotonic()
        wait_until(lambda: time.monotonic() > asked_by + 2 * ONE_SIGNAL)
        terminal.popen.send_signal(signal.SIGCONT)
        wait_until(lambda: not is_pending(terminal.popen.pid, signal.SIGINT))
        go.touch()
        status = terminal.finish()
    finally:
        terminal.close()

    assert 130 == status
    assert ["a", "asked", "saved"] == batch.noted
    assert "sweep-2  not run" in terminal.screen


def test_killed_batch_stops_its_command(batch: Batch) -> None:
    """No process outlives it."""
    batch.path.write_text(f"--nproc-per-node 1 sh -c 'echo $$ >> {batch.notes}; exec sleep 1000'")
    with subprocess.Popen([*COMMAND, str(batch.path)], env=batch.env) as started:
        wait_until(lambda: batch.noted)
        (guardian,) = process_tree.children(started.pid)
        started.kill()
    wait_until(lambda: is_gone(guardian))

    assert is_gone(int(batch.noted[0]))


@pytest.mark.deep
def test_killed_batch_releases_its_command(batch: Batch) -> None:
    """Nobody has sent SIGTERM to a job that is held: its launcher has ended, and the screen and the events say so."""
    batch.path.write_text("--nproc-per-node 1 --hold 1h --log-dir log sh -c 'exit 7'")
    argv = [*COMMAND, str(batch.path)]
    with subprocess.Popen(argv, env=batch.env, cwd=batch.folder, stderr=subprocess.PIPE, text=True) as started:
        assert started.stderr
        while "  release with " not in started.stderr.readline():
            assert started.poll() is None
        (guardian,) = process_tree.children(started.pid)
        started.kill()
        screen = started.stderr.read()
    wait_until(lambda: is_gone(guardian))
    events = next((batch.folder / "log").glob("*-events.jsonl")).read_text()

    assert "; exit status 7\n" in screen.partition("released because the process that launched")[2]
    assert json.loads(events.splitlines()[-1])["data"]["is_orphaned"]


@pytest.mark.deep
def test_two_batches_of_one_file(batch: Batch) -> None:
    """The second one is refused while the first one runs."""
    batch.path.write_text(f"--nproc-per-node 1 sh -c 'echo a >> {batch.notes}; exec sleep 1000'")
    with subprocess.Popen([*COMMAND, str(batch.path)], env=batch.env) as started:
        wait_until(lambda: batch.noted)
        status, screen = batch.run()
        replaced = batch.folder / "new"  # as an editor does
        replaced.write_text("true")
        replaced.rename(batch.path)
        again = batch.run()
        started.terminate()

    assert [2, 2] == [status, again[0]]
    assert "another ascend-job batch is running" in screen


def test_name_of_a_job() -> None:
    """A command is named after its file, in characters that suit the name of a job."""
    environ = BatchFile("/x/my (first) jobs.txt").variables(2)

    assert "my__first__jobs-2" == environ[JOB_NAME]
    assert "my__first__jobs-2" == decode({}, environ).job_name


def test_each_command_has_a_result_of_its_own(batch: Batch) -> None:
    """It is a directory below the given one, which exists when the command starts."""
    batch.path.write_text("--nproc-per-node 1 sh -c 'echo $0 > $RESULT/events' one\n--nproc-per-node 1 true\n")
    batch.env["RESULT"] = str(batch.folder / "result")
    status, _summary = batch.run()

    assert 0 == status
    assert "one\n" == (batch.folder / "result" / "sweep-1" / "events").read_text()
    assert (batch.folder / "result" / "sweep-2").is_dir()
