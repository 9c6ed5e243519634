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

import pytest

from ascend_runner.services.run_folder import RUN_DIR_VARIABLE
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import LIMIT
from tests.tools.job.conftest import Start

LEAVE_SCREEN = b"\x1b[?1049l"


def read_until(fd: int, text: bytes) -> None:
    """Read what is written to a terminal until a text is."""
    shown = b""
    while text not in shown:
        assert select.select([fd], [], [], LIMIT)[0]
        shown += os.read(fd, 1 << 16)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(("key", "shown"), [(b"a", b""), (b"\r", b"log of rank 0"), (b"s", b"comparing the stacks")])
def test_terminated(start: Start, run_dir: Path, key: bytes, shown: bytes) -> None:
    """SIGTERM ends it as `q` does, also in a view: the terminal is as it was before."""
    run = start("echo begun; exec sleep 1000")
    run.wait_for("begun", times=2)
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    command = [sys.executable, "-m", "ascend_runner.tools.job", "top"]
    env = {**CLEAN, "TERM": "xterm", RUN_DIR_VARIABLE: str(run_dir)}
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True) as popen:
        try:
            read_until(master, b" ranks")
            os.write(master, key)
            read_until(master, shown)
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
