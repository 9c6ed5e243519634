"""`ascend-job top` in a real terminal, that of tmux."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ascend_runner.services.run_folder import JOB_FILE, RUN_DIR_VARIABLE
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import LIMIT, wait_until

RANKS: Final = 8
# Rank 5 stops writing after its first line, which has a control sequence that would change the title of the terminal.
SCRIPT: Final = """\
printf 'hello \\033]0;EVIL\\007 from rank %s\\n' $RANK
[ $RANK = 5 ] && exec sleep 1000
while :; do echo "step=3, skipped=0"; sleep 0.5; done
"""


class Tmux:
    """A terminal with one program in it."""

    def __init__(self, socket: str, env: dict[str, str]) -> None:
        self._command, self._env = ("tmux", "-S", socket, "-f", os.devnull), env

    def run(self, *words: str) -> str:
        """Run a command of tmux."""
        command = (*self._command, *words)
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, check=False, timeout=LIMIT)
        return done.stdout

    def wait_for(self, text: str) -> None:
        """Wait until the screen has a text."""
        wait_until(lambda: text in self.run("capture-pane", "-p"))


@pytest.fixture(name="tmux")
def fixture_tmux(tmp_path: Path) -> Iterator[Tmux]:
    """Run a job of 8 ranks, and a terminal of 100 columns."""
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        env = {**CLEAN, RUN_DIR_VARIABLE: folder, "TERM": "xterm-256color", "LANG": "C.UTF-8", "MA_VJ_NAME": "train"}
        env["XDG_STATE_HOME"] = f"{folder}/state"
        options = ("--nproc-per-node", str(RANKS), "--log-dir", str(tmp_path / "log"), "--workdir", "inherit")
        job = subprocess.Popen(
            (sys.executable, "-m", "ascend_runner", *options, "sh", "-c", SCRIPT),
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: [*Path(folder).glob(f"*/{JOB_FILE}")])
        tmux = Tmux(f"{folder}/tmux", env)
        top = f"{sys.executable} -m ascend_runner.tools.job top; echo ended with $?; exec sleep 1000"
        tmux.run("new-session", "-d", "-x", "100", "-y", "24", top)
        yield tmux
        tmux.run("kill-server")
        job.send_signal(signal.SIGTERM)
        job.wait(LIMIT)


def test_screen_and_keys(tmux: Tmux) -> None:
    """The quiet rank is named; its log, stacks and events open in views, which `q` leaves; `q` also ends the screen."""
    tmux.wait_for("rank 5 has been quiet for")
    tmux.run("send-keys", "Enter")
    tmux.wait_for("log of rank 5")
    tmux.wait_for("from rank 5")
    tmux.run("send-keys", "q")
    tmux.wait_for("8 ranks: 1 quiet, 7 running")
    tmux.run("send-keys", "e")
    tmux.wait_for("all ranks have started")
    tmux.run("send-keys", "q")
    tmux.wait_for("8 ranks: 1 quiet, 7 running")
    tmux.run("send-keys", "s")
    tmux.wait_for("stacks of ranks 0-7, outliers first:")
    tmux.run("send-keys", "q")
    tmux.wait_for("8 ranks: 1 quiet, 7 running")
    tmux.run("resize-window", "-x", "160", "-y", "40")
    tmux.wait_for("AI core" if shutil.which("npu-smi") else "output")
    tmux.run("send-keys", "q")
    tmux.wait_for("ended with 0")

    assert "EVIL" not in tmux.run("display-message", "-p", "#{pane_title}")


def test_killed_viewer(tmux: Tmux) -> None:
    """A viewer that is killed leaves the job as it was."""
    tmux.wait_for("rank 5 has been quiet for")
    tmux.run("respawn-pane", "-k", f"{sys.executable} -m ascend_runner.tools.job top")

    tmux.wait_for("8 ranks: 1 quiet, 7 running")
