"""What ranks write, whatever it is and wherever it cannot go: files byte-exact, the console readable, nobody slowed."""

from __future__ import annotations

import contextlib
import os
import pty
import random
import select
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import pytest

from ascend_runner.linux.lines import WRAP_AT
from tests.conftest import CLEAN, LIMIT, permitted, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Program

DICE = random.Random(4)  # noqa: S311  not a secret
OUTPUTS = {
    "binary": DICE.randbytes(300_000),
    "NULs": b"a\0b\0\0c\n" * 1000 + b"\0" * 1000,
    "invalid UTF-8": b"\xff\xfe\xc3(\xa0\xa1\n\xed\xa0\x80\n\xf0\x28\x8c\xbc" * 100,
    "no newline at the end": b"first\nlast",
    "only newlines": b"\n" * 1000,
    "ANSI colours": b"\x1b[31mred\x1b[0m\n\x1b[1;32mgreen\x1b[0m\n" * 100,
    "progress bar": b"".join(b"\r%3d%% |%s" % (n, b"#" * n) for n in range(101)) + b"\ndone\n",
    "Windows": b"a\r\nb\r\n" * 1000,
    "nothing": b"",
}


@pytest.fixture
def output(program: Program, request: pytest.FixtureRequest) -> bytes:
    """Lay down a file that the ranks write."""
    data = OUTPUTS[request.param]
    (program.folder / "output").write_bytes(data)
    return data


@pytest.mark.parametrize("output", OUTPUTS, indirect=True)
def test_any_bytes(program: Program, output: bytes) -> None:
    """Each file holds what its rank wrote and nothing else; on the console each line has its rank."""
    command = f"{sys.executable} -m ascend_runner --nproc-per-node 2 --log-dir log cat output"
    ended = program.shell(f"MA_VJ_NAME=job {command} 2>own >screen")

    assert ended.returncode == 0
    assert (output == program.log(0) == program.log(1)) is True
    shown = (program.folder / "screen").read_bytes().split(b"\n")
    assert shown.pop() == b""
    assert all(line.startswith((b"[rank 0] ", b"[rank 1] ")) for line in shown if line)  # an ended bar leaves none


def test_line_of_100_mb(program: Program) -> None:
    """In the file it is one line; on the console it is wrapped, each piece with its rank, and none is lost."""
    script = "import os\nfor _ in range(100): os.write(1, b'x' * 1_000_000)\nos.write(1, b'\\n')"
    command = f'{sys.executable} -m ascend_runner --nproc-per-node 1 --log-dir log {sys.executable} -c "{script}"'
    ended = program.shell(f"MA_VJ_NAME=job {command} 2>own >screen")

    assert ended.returncode == 0
    assert (b"x" * 100_000_000 + b"\n" == program.log(0)) is True
    pieces = (program.folder / "screen").read_bytes().split(b"\n")
    assert pieces.pop() == b""
    assert all(piece.startswith(b"[rank 0] ") for piece in pieces)
    assert max(map(len, pieces)) == len(b"[rank 0] ") + WRAP_AT
    assert sum(len(piece) - len(b"[rank 0] ") for piece in pieces) == 100_000_000


# --- Consoles ---------------------------------------------------------------------------------------------------------


def talkative(program: Program, ranks: int = 2) -> list[str]:
    """Give a command whose ranks write more than any pipe holds, then exit 3 (rank 0) or sleep."""
    (program.folder / "output").write_bytes((b"x" * 99 + b"\n") * 30_000)
    script = "cat output; [ $RANK_ID = 0 ] && exit 3; exec sleep 1000"
    options = ("--nproc-per-node", str(ranks), "--log-dir", str(program.log_dir))
    return [sys.executable, "-m", "ascend_runner", *options, "sh", "-c", script]


@pytest.mark.parametrize("stream", ["stdout", "stderr", "both"])
def test_pipe_that_nobody_reads(program: Program, stream: str) -> None:
    """Ranks write on, files are complete, the job ends with its status."""
    reader, writer = os.pipe()
    fill(writer)
    popen = subprocess.Popen(
        talkative(program),
        cwd=program.folder,
        env={**CLEAN, "MA_VJ_NAME": "job"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if stream == "stderr" else writer,
        stderr=subprocess.DEVNULL if stream == "stdout" else writer,
    )
    os.close(writer)
    try:
        assert popen.wait(LIMIT) == 3
    finally:
        os.close(reader)
    assert ((program.folder / "output").read_bytes() == program.log(0)) is True
    assert program.report()["status"] == 3


def fill(pipe: int) -> None:
    """Write until a pipe takes no more."""
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b"." * 4096)
    os.set_blocking(pipe, True)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Give both sides of a terminal: the user's, and the programs'."""
    user, programs = pty.openpty()
    yield user, programs
    os.close(user)
    os.close(programs)


def test_terminal_under_ctrl_s(program: Program, terminal: tuple[int, int]) -> None:
    """A screen that somebody has stopped stops nobody: files complete, status as ever."""
    user, programs = terminal
    os.write(user, b"\x13")
    wait_until(lambda: is_stopped(programs))
    popen = subprocess.Popen(
        talkative(program),
        cwd=program.folder,
        env={**CLEAN, "MA_VJ_NAME": "job"},
        stdin=subprocess.DEVNULL,
        stdout=programs,
        stderr=programs,
    )

    assert popen.wait(LIMIT) == 3
    assert ((program.folder / "output").read_bytes() == program.log(0)) is True
    termios.tcflush(programs, termios.TCOFLUSH)


@pytest.mark.parametrize(
    ("words", "status"), [(("--help",), 0), (("--nproc-per-node", "1", "sh", "-c", "echo hi; exit 3"), 3)]
)
def test_terminal_that_stops_who_is_in_the_background(
    program: Program, terminal: tuple[int, int], words: tuple[str, ...], status: int
) -> None:
    """After `stty tostop` the runner, which has a process group of its own, writes all the same."""
    user, programs = terminal
    settings = termios.tcgetattr(programs)
    settings[3] |= termios.TOSTOP
    termios.tcsetattr(programs, termios.TCSANOW, settings)
    own_it = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(1, termios.TIOCSCTTY, 0)"
    script = f"{own_it}; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    popen = subprocess.Popen(
        [sys.executable, "-c", script, "-m", "ascend_runner", "--log-dir", "log", *words],
        cwd=program.folder,
        env={**CLEAN, "MA_VJ_NAME": "job"},
        stdin=subprocess.DEVNULL,
        stdout=programs,
        stderr=programs,
    )

    try:
        assert popen.wait(LIMIT) == status
    finally:
        popen.kill()
        popen.wait()
    assert b"ascend-runner" in os.read(user, 65536)


def is_stopped(terminal: int) -> bool:
    """Whether output to a terminal waits: nothing can be written to it."""
    poll = select.poll()
    poll.register(terminal, select.POLLOUT)
    return not poll.poll(0)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_standard_files_closed_at_the_start(program: Program, closed: str) -> None:
    """Whichever is missing: logs complete, status the ranks'."""
    command = f"{sys.executable} -m ascend_runner --nproc-per-node 2 --log-dir log sh -c 'echo hi; exit 3'"
    ended = program.shell(f"MA_VJ_NAME=job exec {command} {closed}")

    assert ended.returncode == 3
    assert b"hi\n" in {program.log(0), program.log(1)}  # the other one may have been stopped before


# --- Disks ------------------------------------------------------------------------------------------------------------


def test_full_disk(program: Program) -> None:
    """The training goes on, the console says so once, writing resumes, and the report tells what is missing where."""
    disk, saved = program.log_dir, program.folder / "saved"
    disk.mkdir()
    script = (
        'mount -t tmpfs -o size=1m none "$0" && head -c 900000 /dev/zero >"$0/others" || exit;'
        f' "$@"; status=$?; mkdir -p {saved}; cp "$0"/job* {saved}; exit $status'
    )
    under = permitted("unshare", "-m", "--propagation", "private", "sh", "-c", script, str(disk))
    data = b"".join(b"%07d\n" % number for number in range(100_000))
    (program.folder / "output").write_bytes(data)
    rank = f"cat output; until [ -e {program.folder}/go ]; do sleep 0.01; done; rm {disk}/others; echo after"
    run = program.start("--nproc-per-node", "1", "--console", "none", "sh", "-c", rank, under=under)
    run.wait_for("WARNING cannot write ")
    (program.folder / "go").touch()

    assert run.finish() == 0
    assert 1 == run.screen.count("no space left on device; the rank goes on, what it writes now is lost")
    assert 1 == run.screen.count(" can be written again; ")
    program.log_dir = saved
    (rank_report,) = program.report()["ranks"]
    start, lost = rank_report["log_lost_from"], rank_report["log_lost"]
    written = data + b"after\n"
    assert rank_report["log_size"] == len(written)
    assert 0 < lost < len(data)
    assert (written[:start] + written[start + lost :] == program.log(0)) is True
    assert 2 == sum("written" in warning or "write" in warning for warning in program.report()["warnings"])


def test_full_disk_under_many_ranks(program: Program) -> None:
    """One sentence when it begins, whoever's log is the first, and one at the end that adds up."""
    script = "head -c 100000 /dev/zero"
    options = ("--console", "none", "--nproc-per-node", "4")
    run = program.start(*options, "sh", "-c", script, under=("sh", "-c", 'ulimit -f 64; exec "$@"', "sh"))

    assert run.finish() == 0
    assert 1 == run.screen.count("; the rank goes on, what it writes now is lost")
    lost = sum(rank["log_lost"] for rank in program.report()["ranks"])
    assert f" WARNING the logs lack {lost} bytes (of ranks 0-3); the report says from where on\n" in run.screen


def test_full_disk_from_the_start(program: Program) -> None:
    """Where not even the report can be written, the status is the ranks' all the same."""
    script = "head -c 100000 /dev/zero; exit 3"
    run = program.start("--nproc-per-node", "2", "sh", "-c", script, under=("sh", "-c", 'ulimit -f 0; exec "$@"', "sh"))

    assert run.finish() == 3
    assert "ERROR rank " in run.screen


def test_rotation_under_a_flood(program: Program) -> None:
    """Files joined are what the rank wrote, and each begins and ends with whole lines."""
    data = b"".join(b"%d%s\n" % (number, b"z" * (number % 300)) for number in range(20_000))
    (program.folder / "output").write_bytes(data)
    options = ("--console", "none", "--log-max-size", "100K", "--log-backups", "1000")
    assert program.start("--nproc-per-node", "1", *options, "cat", "output").finish() == 0

    def number(path: Path) -> int:
        return -int(path.suffix[1:]) if path.suffix[1:].isdigit() else 1

    files = sorted(program.log_dir.glob("job-proc-*"), key=number)
    assert len(files) > 20
    assert (data == b"".join(map(_content, files))) is True
    assert all(path.stat().st_size <= 100 * 1024 and _content(path).endswith(b"\n") for path in files)


def _content(path: Path) -> bytes:
    return path.read_bytes()
