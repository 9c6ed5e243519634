"""The terminal of `ascend-job top`."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path

from ascend_runner.services.run_folder import RUN_DIR_VARIABLE
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import LIMIT
from tests.job_tool.conftest import Start

LEAVE_SCREEN = b"\x1b[?1049l"


def read_until(fd: int, text: bytes) -> None:
    """Read what is written to a terminal until a text is."""
    shown = b""
    while text not in shown:
        assert select.select([fd], [], [], LIMIT)[0]
        shown += os.read(fd, 1 << 16)


def test_terminated(start: Start, run_dir: Path) -> None:
    """SIGTERM ends it as `q` does: the terminal is as it was before."""
    run = start("echo begun; exec sleep 60")
    run.wait_for("begun", times=2)
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    command = [sys.executable, "-m", "ascend_runner.job_tool", "top"]
    env = {**CLEAN, "TERM": "xterm", RUN_DIR_VARIABLE: str(run_dir)}
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True) as popen:
        try:
            read_until(master, b" ranks")
            popen.send_signal(signal.SIGTERM)
            read_until(master, LEAVE_SCREEN)
            status = popen.wait(LIMIT)
        finally:
            popen.kill()
    after = termios.tcgetattr(slave)
    os.close(master)
    os.close(slave)
    run.send(signal.SIGTERM)
    run.finish()

    assert (0, before) == (status, after)
