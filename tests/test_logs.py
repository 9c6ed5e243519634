"""Log files have exactly the bytes of their rank, the console stays readable, and neither ever slows a rank."""

from __future__ import annotations

import contextlib
import os
import pty
import random
import re
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

import ascend_runner
from ascend_runner.ranks.lines import WRAP_AT
from tests.helpers.program import Program
from tests.helpers.surroundings import CLEAN, permitted
from tests.helpers.waiting import LIMIT, wait_until

DICE = random.Random(4)  # noqa: S311  not a secret
OUTPUTS = {
    "binary": DICE.randbytes(300_000),
    "NULs": b"a\0b\0\0c\n" * 1000 + b"\0" * 1000,
    "invalid UTF-8": b"\xff\xfe\xc3(\xa0\xa1\n\xed\xa0\x80\n\xf0\x28\x8c\xbc" * 100,
    "no newline at the end": b"first\nlast",
    "only newlines": b"\n" * 1000,
    "ANSI colors": b"\x1b[31mred\x1b[0m\n\x1b[1;32mgreen\x1b[0m\n" * 100,
    "progress bar": b"".join(b"\r%3d%% |%s" % (n, b"#" * n) for n in range(101)) + b"\ndone\n",
    "Windows": b"a\r\nb\r\n" * 1000,
    "nothing": b"",
}


@pytest.fixture
def output(program: Program, request: pytest.FixtureRequest) -> bytes:
    """Write a file that the ranks are to output, and return its content."""
    data = OUTPUTS[request.param]
    (program.folder / "output").write_bytes(data)
    return data


@pytest.mark.deep(quick=3)
@pytest.mark.parametrize("output", OUTPUTS, indirect=True)
def test_any_bytes(program: Program, output: bytes) -> None:
    """A log file has exactly the output of its rank, and each line on the console has the prefix of its rank."""
    command = f"{sys.executable} -m ascend_runner --nproc-per-node 2 --log-dir log cat output"
    ended = program.shell(f"MA_VJ_NAME=job {command} 2>own >screen")

    assert 0 == ended.returncode
    assert (output == program.log(0) == program.log(1)) is True
    shown = (program.folder / "screen").read_bytes().split(b"\n")
    assert b"" == shown.pop()
    assert all(line.startswith((b"[rank 0] ", b"[rank 1] ")) for line in shown if line)  # an ended bar leaves none


@pytest.mark.deep
def test_line_of_100_mb(program: Program) -> None:
    """In the file it is one line; on the console it is wrapped, each piece with its rank, and none is lost."""
    script = "import os\nfor _ in range(100): os.write(1, b'x' * 1_000_000)\nos.write(1, b'\\n')"
    command = f'{sys.executable} -m ascend_runner --nproc-per-node 1 --log-dir log {sys.executable} -c "{script}"'
    ended = program.shell(f"MA_VJ_NAME=job {command} 2>own >screen")

    assert 0 == ended.returncode
    assert (b"x" * 100_000_000 + b"\n" == program.log(0)) is True
    pieces = (program.folder / "screen").read_bytes().split(b"\n")
    assert b"" == pieces.pop()
    assert all(piece.startswith(b"[rank 0] ") for piece in pieces)
    assert len(b"[rank 0] ") + WRAP_AT == max(map(len, pieces))
    assert 100_000_000 == sum(len(piece) - len(b"[rank 0] ") for piece in pieces)


# --- Consoles ---------------------------------------------------------------------------------------------------------


def talkative(program: Program) -> list[str]:
    """Return a command whose ranks write more than any pipe holds, then exit with 3 (rank 0) or sleep."""
    (program.folder / "output").write_bytes((b"x" * 99 + b"\n") * 30_000)
    script = "cat output; [ $RANK_ID = 0 ] && exit 3; exec sleep 1000"
    options = ("--nproc-per-node", "2", "--log-dir", str(program.log_dir))
    return [sys.executable, "-m", "ascend_runner", *options, "sh", "-c", script]


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("stream", ["stdout", "stderr", "both"])
def test_pipe_that_nobody_reads(program: Program, stream: str) -> None:
    """Ranks continue to write, log files are complete, and the job ends with its status."""
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
        assert 3 == popen.wait(LIMIT)
    finally:
        os.close(reader)
    assert ((program.folder / "output").read_bytes() == program.log(0)) is True
    assert 3 == program.report()["status"]


def fill(pipe: int) -> None:
    """Write until the pipe is full."""
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b"." * 4096)
    os.set_blocking(pipe, True)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Yield both ends of a terminal: the user's and the programs'."""
    user, programs = pty.openpty()
    yield user, programs
    os.close(user)
    os.close(programs)


@pytest.mark.deep
def test_terminal_under_ctrl_s(program: Program, terminal: tuple[int, int]) -> None:
    """A stopped terminal does not stop the job: log files are complete, and the status is that of the rank."""
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

    assert 3 == popen.wait(LIMIT)
    assert ((program.folder / "output").read_bytes() == program.log(0)) is True
    termios.tcflush(programs, termios.TCOFLUSH)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("--version",), 0, ascend_runner.__version__),  # --help fills the terminal, which nobody reads here
        (("--nproc-per-node", "1", "sh", "-c", "echo hi; exit 3"), 3, "ascend-runner"),
    ],
)
def test_terminal_that_stops_background_writers(
    program: Program, terminal: tuple[int, int], words: tuple[str, ...], status: int, text: str
) -> None:
    """After `stty tostop` the runner, which is in a background process group, can still write."""
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
        assert status == popen.wait(LIMIT)
    finally:
        popen.kill()
        popen.wait()
    assert text in os.read(user, 65536).decode()


def is_stopped(terminal: int) -> bool:
    """Whether a write to the terminal would block."""
    poll = select.poll()
    poll.register(terminal, select.POLLOUT)
    return not poll.poll(0)


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_standard_files_closed_at_the_start(program: Program, closed: str) -> None:
    """With any standard file closed, log files are complete, and the status is that of the ranks."""
    command = f"{sys.executable} -m ascend_runner --nproc-per-node 2 --log-dir log sh -c 'echo hi; exit 3'"
    ended = program.shell(f"MA_VJ_NAME=job exec {command} {closed}")

    assert 3 == ended.returncode
    assert b"hi\n" in {program.log(0), program.log(1)}  # the other one may have been stopped before


# --- Disks ------------------------------------------------------------------------------------------------------------


def test_full_disk(program: Program) -> None:
    """The job continues with one warning for a file, writing resumes, and the report says which bytes were lost."""
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
    run.wait_for("proc-rank-0-device-0.txt': no space left on device")
    (program.folder / "go").touch()

    assert 0 == run.finish()
    assert 1 == run.screen.count("proc-rank-0-device-0.txt': no space left on device")
    assert 3 >= run.screen.count("no space left on device")  # the report and the events may meet the full disk
    program.log_dir = saved
    (rank_report,) = program.report()["ranks"]
    start, lost = rank_report["log_lost_from"], rank_report["log_lost"]
    written = data + b"after\n"
    assert len(written) == rank_report["log_size"]
    assert 0 < lost < len(data)
    assert (written[:start] + written[start + lost :] == program.log(0)) is True
    assert 2 == sum("job-proc-rank-0" in warning for warning in program.report()["warnings"])


@pytest.mark.deep
def test_full_disk_under_many_ranks(program: Program) -> None:
    """All ranks together cause one warning when the disk is full, and one at the end with the number of lost bytes."""
    script = "head -c 100000 /dev/zero"
    options = ("--console", "none", "--nproc-per-node", "4")
    run = program.start(*options, "sh", "-c", script, under=("sh", "-c", 'ulimit -f 64; exec "$@"', "sh"))

    assert 0 == run.finish()
    assert 1 == run.screen.count("file too large")
    lost = sum(rank["log_lost"] for rank in program.report()["ranks"])
    assert f" WARNING log files are missing {lost} bytes of ranks 0-3\n" in run.screen


def test_full_disk_from_the_start(program: Program) -> None:
    """If not even the report can be written, the status is still that of the ranks; no event is lost in silence."""
    script = "head -c 100000 /dev/zero; exit 3"
    run = program.start("--nproc-per-node", "2", "sh", "-c", script, under=("sh", "-c", 'ulimit -f 0; exec "$@"', "sh"))

    assert 3 == run.finish()
    assert "ERROR rank " in run.screen
    assert "  report not written: file too large (" in run.screen
    assert re.search(r"WARNING events missing from '.*/job-events.jsonl': (\d+) of \1\n", run.screen)


@pytest.mark.deep
def test_rotation_under_a_flood(program: Program) -> None:
    """The rotated files together are the output of the rank, and each of them consists of whole lines."""
    data = b"".join(b"%d%s\n" % (number, b"z" * (number % 300)) for number in range(20_000))
    (program.folder / "output").write_bytes(data)
    options = ("--console", "none", "--log-max-size", "1M")
    assert 0 == program.start("--nproc-per-node", "1", *options, "cat", "output").finish()

    def number(path: Path) -> int:
        return -int(path.suffix[1:]) if path.suffix[1:].isdigit() else 1

    files = sorted(program.log_dir.glob("job-proc-*"), key=number)
    assert len(files) > 1
    assert (data == b"".join(map(_content, files))) is True
    longest = (1 << 20) + 310  # the line that was begun before the limit
    assert all(path.stat().st_size <= longest and _content(path).endswith(b"\n") for path in files)


def _content(path: Path) -> bytes:
    return path.read_bytes()
