"""The program in a terminal: what a person types reaches the rank that is to read it, and Ctrl-C reaches all."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.helpers.program import Program
from tests.helpers.surroundings import CLEAN
from tests.helpers.terminal import Terminal
from tests.helpers.waiting import LIMIT

ASK = "name = input('your name? '); print('hello', name)"
DEBUG = "x = 41\nbreakpoint()\nprint('x is', x)\n"
FIRST_ONLY = "import os, time\nif os.environ['RANK'] != '0': time.sleep(1000)\n"


class Start(Protocol):
    """How a test starts the program."""

    def __call__(self, *args: str, env: dict[str, str] | None = None, columns: int = 80) -> Terminal:
        """Start the program in a terminal of its own."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a way to start the program in a terminal."""
    started: list[Terminal] = []

    def start(*args: str, env: dict[str, str] | None = None, columns: int = 80) -> Terminal:
        command = [sys.executable, "-m", "ascend_runner", "--log-dir", "log", "--grace", "30", *args]
        started.append(Terminal(command, tmp_path, env, columns))
        return started[-1]

    yield start
    for terminal in started:
        terminal.close()


# --- Standard input ---------------------------------------------------------------------------------------------------


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("workdir", ["inherit", "/"])
def test_input_is_read_by_the_rank(start: Start, workdir: str) -> None:
    """The prompt appears at once and without prefix, and the rank gets what is typed, in whatever directory it runs."""
    options = ("--stdin", "1", "--nproc-per-node", "2", "--workdir", workdir)
    terminal = start(*options, sys.executable, "-c", f"import os\nif os.environ['RANK'] == '1': {ASK}")
    terminal.wait_for("\nyour name? ")
    terminal.type("Ada\n")

    assert 0 == terminal.finish()
    assert "your name? Ada\nhello Ada\n" in terminal.screen


def test_debugger(start: Start) -> None:
    """breakpoint() gives a prompt of pdb, whose answers appear behind it."""
    terminal = start("--stdin", "0", "--nproc-per-node", "1", sys.executable, "-c", DEBUG)
    terminal.wait_for("(Pdb) ")
    terminal.type("x + 1\n")
    terminal.wait_for("\n42\n(Pdb) ")
    terminal.type("continue\n")

    assert 0 == terminal.finish()
    assert "x is 41\n" in terminal.screen


def test_other_ranks_pass_breakpoints(start: Start) -> None:
    """Without a terminal, breakpoint() does nothing."""
    terminal = start("--stdin", "0", "--nproc-per-node", "2", sys.executable, "-c", DEBUG)
    terminal.wait_for("[rank 1] x is 41")
    terminal.wait_for("(Pdb) ")
    terminal.type("continue\n")

    assert 0 == terminal.finish()


def test_rank_is_shown_whatever_the_console_shows(start: Start) -> None:
    """A prompt is shown even with --console none."""
    terminal = start("--stdin", "0", "--console", "none", "--nproc-per-node", "1", sys.executable, "-c", ASK)
    terminal.wait_for("your name? ")
    terminal.type("Ada\n")

    assert 0 == terminal.finish()


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("script", ["input()", "breakpoint()\npass"])
def test_interrupt(start: Start, script: str) -> None:
    """Ctrl-C stops all ranks while one of them waits for input, and a second one kills what handles the first."""
    command = (sys.executable, "-c", f"print('ready', flush=True)\n{FIRST_ONLY}{script}")
    terminal = start("--stdin", "0", "--nproc-per-node", "2", *command)
    terminal.wait_for("[rank 1] ready")
    terminal.wait_for("(Pdb) " if "breakpoint" in script else "ready")
    terminal.type("\x03")
    terminal.wait_for("received SIGINT; stopping 2 ranks")

    assert 128 + signal.SIGINT == terminal.finish(typing="\x03")


def test_end_of_input(start: Start) -> None:
    """Ctrl-D ends the input of the rank."""
    terminal = start("--stdin", "0", "--nproc-per-node", "1", "sh", "-c", "echo ready; cat; echo end")
    terminal.wait_for("ready\n")
    terminal.type("a\n\x04")

    assert 0 == terminal.finish()
    assert "a\na\nend\n" in terminal.screen


def test_pipe_is_read_by_the_rank(tmp_path: Path) -> None:
    """Without a terminal the rank reads whatever the runner's standard input is; the others read nothing."""
    command = ["--nproc-per-node", "2", "--stdin", "1", "sh", "-c", "echo $RANK $(cat)"]
    done = subprocess.run(
        [sys.executable, "-m", "ascend_runner", "--log-dir", "log", *command],
        cwd=tmp_path, env=CLEAN, input=b"typed", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=LIMIT,
        check=True,
    )  # fmt: skip

    assert [b"1 typed", b"[rank 0] 0"] == sorted(done.stdout.splitlines())


def test_job_in_the_background_takes_no_input(tmp_path: Path) -> None:
    """A job that was started with & does not read what is typed into the shell."""
    runner = f"{sys.executable} -m ascend_runner --log-dir log --stdin 0 --nproc-per-node 1 cat"
    terminal = Terminal(["/bin/sh", "-c", f"set -m; {runner} <&0 & wait $!; read line; echo got $line"], tmp_path)
    terminal.type("typed\n")
    terminal.wait_for("got typed")

    assert 0 == terminal.finish()
    assert "--stdin is ignored" in terminal.screen
    terminal.close()


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("script", ["input()", "breakpoint()\npass"])
def test_missing_input_is_explained(program: Program, script: str) -> None:
    """A rank that dies because it has no standard input gets the option that gives it one."""
    run = program.start("--nproc-per-node", "1", sys.executable, "-c", script)

    assert 1 == run.finish()
    assert "--stdin 0" in run.screen


def test_input_that_ends(start: Start) -> None:
    """A rank that has the terminal and meets Ctrl-D gets no advice to use --stdin."""
    terminal = start("--stdin", "0", "--nproc-per-node", "1", sys.executable, "-c", "print('ready'); input()")
    terminal.wait_for("ready\n")
    terminal.type("\x04")

    assert 1 == terminal.finish()
    assert "EOFError" in terminal.screen
    assert "--stdin" not in terminal.screen


@pytest.mark.deep
def test_pickle_that_ends_early_is_no_missing_input(program: Program) -> None:
    """Any other EOFError is left alone."""
    run = program.start("--nproc-per-node", "1", sys.executable, "-c", "import pickle; pickle.loads(b'')")

    assert 1 == run.finish()
    assert "--stdin" not in run.screen


def test_rank_that_does_not_exist(program: Program) -> None:
    """With --stdin 7, a job of 2 ranks is not started."""
    ended = program.here("--nproc-per-node", "2", "--stdin", "7", "true")

    assert 125 == ended.returncode
    assert "--stdin selects rank 7" in ended.stderr


# --- Width, colors and time -------------------------------------------------------------------------------------------


def test_ranks_get_the_width_beside_the_prefix(start: Start) -> None:
    """COLUMNS is the width of the terminal without the prefix, so that a progress bar fits into a line."""
    terminal = start("--nproc-per-node", "1", "--timestamps", "sh", "-c", "echo width $COLUMNS", columns=100)

    assert 0 == terminal.finish()
    assert f"width {100 - len('03:12:45 [rank 0] ')}\n" in terminal.screen


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(("env", "width"), [({"COLUMNS": "7"}, "7"), ({}, "")])
def test_width_that_is_set_or_unknown(program: Program, env: dict[str, str], width: str) -> None:
    """A COLUMNS of the user's stays, and without a terminal there is none."""
    run = program.start("--nproc-per-node", "1", "sh", "-c", "echo width $COLUMNS end", env=env)

    assert 0 == run.finish()
    assert f"width {width} end\n".replace("  ", " ") in run.screen


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize(
    ("options", "env", "is_colored"),
    [
        ((), {}, True),
        (("--color", "never"), {}, False),
        ((), {"NO_COLOR": "1"}, False),
        ((), {"TERM": "dumb"}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
    ],
)
def test_colors(start: Start, options: tuple[str, ...], env: dict[str, str], *, is_colored: bool) -> None:
    """Prefixes and the heads of messages are colored on a terminal, unless the user or the terminal says otherwise."""
    terminal = start(*options, "--nproc-per-node", "1", "echo", "hello", env={"NO_COLOR": "", **env})

    assert 0 == terminal.finish()
    assert is_colored == ("\x1b[36m[rank 0] \x1b[0mhello\n" in terminal.screen)
    assert is_colored == ("\x1b[1m[ascend-runner] " in terminal.screen)
    assert is_colored == ("\x1b" in terminal.screen)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(("options", "is_colored"), [((), False), (("--color", "always"), True)])
def test_colors_in_a_file(program: Program, options: tuple[str, ...], *, is_colored: bool) -> None:
    """A file that is not a terminal gets colors only on request, and a log file never does."""
    run = program.start(*options, "--nproc-per-node", "1", "echo", "hello")

    assert 0 == run.finish()
    assert is_colored == ("\x1b[36m[rank 0]" in run.screen)
    assert b"hello\n" == program.log(0)


def test_timestamps(program: Program) -> None:
    """Each line begins with the time, also one that had no newline; the log file has none."""
    run = program.start("--nproc-per-node", "1", "--timestamps", "sh", "-c", "echo a; echo b; printf c")

    assert 0 == run.finish()
    assert [] == [line for line in run.lines if not re.match(r"\d\d:\d\d:\d\d \[", line)]
    assert ["a", "b", "c"] == [line.split("] ")[1].strip() for line in run.lines if "[rank 0]" in line]
    assert b"a\nb\nc" == program.log(0)
