"""What `ascend-job explain` makes of files that are no logs, that are damaged, huge, or made to do harm."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Final

import pytest

from ascend_runner import programs
from ascend_runner.errors import UnreadableError
from ascend_runner.tools.job import log_reader
from tests.helpers.planted import SECRETS, WORD
from tests.helpers.terminal import Terminal
from tests.helpers.waiting import LIMIT
from tests.tools.job.conftest import Tool
from tests.tools.job.explain.test_launchers import NAN, SUMMARY
from tests.tools.job.test_hostile_jobs import odd
from tests.views.test_page import HOSTILE


def make_fifo(path: Path) -> None:
    """Make a FIFO that nobody writes to."""
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    """Make a symlink to itself."""
    path.symlink_to(path.name)


def make_binary(path: Path) -> None:
    """Make a file of random bytes."""
    path.write_bytes(os.urandom(1 << 16))


def make_program(path: Path) -> None:
    """Copy a program."""
    path.write_bytes(Path("/bin/true").read_bytes())


def make_checkpoint(path: Path) -> None:
    """Make what looks like weights."""
    path.write_bytes(b"PK\x03\x04" + b"\0\0\x80\x3f" * 10_000)


def make_damaged(path: Path) -> None:
    """Make a compressed file that is damaged from its beginning."""
    path.write_bytes(b"\x1f\x8b" + b"\xff" * 100)


def make_packed_binary(path: Path) -> None:
    """Make a compressed file that is not text."""
    path.write_bytes(gzip.compress(os.urandom(1 << 16)))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (make_fifo, "is not a file"),
        (make_loop, "too many levels of symbolic links"),
        (make_binary, "is not a text file"),
        (make_program, "is not a text file"),
        (make_checkpoint, "is not a text file"),
        (make_damaged, "it is damaged"),
        (make_packed_binary, "is not a compressed text file"),
    ],
)
def test_what_cannot_be_read(make: object, sentence: str, tool: Tool, tmp_path: Path) -> None:
    """One sentence says why a log is not read; the others are."""
    path = tmp_path / "a.log"
    assert callable(make)
    make(path)
    (tmp_path / "rank-3.txt").write_text(NAN)
    alone, beside = tool("explain", str(path)), tool("explain", str(path), str(tmp_path / "rank-3.txt"))

    assert 2 == alone[0]
    assert sentence in alone[1]
    assert 1 == alone[1].count("\n")
    assert 0 == beside[0]
    assert f"rank 3 failed: {SUMMARY}" in beside[1]
    assert sentence in beside[1]


def test_many_logs_that_cannot_be_read(tool: Tool, tmp_path: Path) -> None:
    """Problems do not push the cause from the screen."""
    for number in range(30):
        make_program(tmp_path / f"{number}.log")
    (tmp_path / "rank-3.txt").write_text(NAN)
    status, text = tool("explain", str(tmp_path))

    assert 0 == status
    assert 10 == text.count("is not a text file")
    assert "ascend-job: ... and 20 more problems\n" in text


def test_nothing_there(tool: Tool, tmp_path: Path) -> None:
    """A word that names nothing, and a directory without logs, are errors."""
    assert (2, "ascend-job: '/no/where' is neither a file nor an error code\n") == tool("explain", "/no/where")
    assert (2, f"ascend-job: no logs in {tmp_path}\n") == tool("explain", str(tmp_path))
    assert 2 == tool("explain")[0]


def test_a_log_that_cannot_be_reached(tool: Tool, tmp_path: Path) -> None:
    """Where it is unknown whether there is a log, the reason is shown, as of a directory without permission."""
    make_loop(tmp_path / "loop")
    status, text = tool("explain", str(tmp_path / "loop/train.log"))

    assert 2 == status
    assert text.endswith("/loop/train.log': too many levels of symbolic links\n")


def test_directory_loops(tool: Tool, tmp_path: Path) -> None:
    """Symlinks in a directory are not followed, neither to directories nor to files."""
    inside = tmp_path / "logs"
    inside.mkdir()
    (inside / "rank-3.txt").write_text(NAN)
    (inside / "up").symlink_to("..")
    (inside / "rank-2.txt").symlink_to("/etc/passwd")
    deep = inside
    for _depth in range(40):
        deep /= "d"
        deep.mkdir()
    (deep / "rank-1.txt").write_text(NAN)
    status, text = tool("explain", str(inside))

    assert 0 == status
    assert text.startswith(f"rank 3 failed: {SUMMARY}")
    assert "others" not in text


def test_number_of_logs_is_bounded(tmp_path: Path) -> None:
    """Of ever more logs in ever more directories, only some are read."""
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        for number in range(log_reader.MOST_FILES // 2 + 1):
            (folder / f"{number}.log").touch()
    problems: list[str] = []

    assert log_reader.MOST_FILES == len(log_reader.find([str(tmp_path)], problems))
    assert ["only 10000 logs were read"] == problems


def test_the_end_of_a_damaged_log(tool: Tool, tmp_path: Path) -> None:
    """What could be read counts, and the rest is mentioned."""
    packed = gzip.compress(NAN.encode() + os.urandom(1 << 16).hex().encode())
    (tmp_path / "rank-3.log.gz").write_bytes(packed[:-20_000])
    status, text = tool("explain", str(tmp_path))

    assert "it is damaged" in text
    assert 1 >= status


def test_bombs_are_bounded(tmp_path: Path) -> None:
    """A small file that becomes a huge one is read in part."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(b"\n" * (1 << 20)) for _number in range(64)) + packer.flush()
    (tmp_path / "a.gz").write_bytes(bomb)
    (source,) = log_reader.find([str(tmp_path / "a.gz")], [])
    read: list[bytes] = []
    with pytest.raises(UnreadableError, match=r"only the first 10.0 MiB of"):
        read.extend(log_reader.chunks(source, lambda _count: None, 10 << 20))

    assert len(bomb) < 1 << 17
    assert 10 << 20 == sum(map(len, read))


def repr_of(text: str) -> str:
    """Return a short name for a text."""
    return ascii(text)[1:20]


@pytest.mark.parametrize(
    "text", [*HOSTILE, "\0" * 1000, "\x1b]0;" + "x" * 10_000, "x" * 1_000_000, "\r" * 1000], ids=repr_of
)
def test_nothing_controls_the_terminal(text: str, tool: Tool, tmp_path: Path) -> None:
    """Whatever a log contains, or is called, a terminal shows printable characters only, in lines of bounded length."""
    data = text.encode(errors="surrogatepass")
    name = os.fsencode(tmp_path) + b"/" + data.replace(b"\0", b"").replace(b"/", b"")[:100] + b".log"
    log = b"[rank3]: " + data + b"\n" + NAN.replace("loss is nan", "").encode() + b"ValueError: " + data + b"\n"
    Path(os.fsdecode(name)).write_bytes(log)
    shown = [tool("explain", *words, str(tmp_path))[1] for words in ((), ("--json",))]

    assert [set(), set()] == list(map(odd, shown))
    assert max(map(len, shown[0].splitlines())) < 700
    assert "ValueError" in shown[0]


def test_secrets_are_masked(tool: Tool, tmp_path: Path) -> None:
    """No secret in a log is shown."""
    for number, secret in enumerate(SECRETS):
        (tmp_path / f"rank-{number}.txt").write_text(f"{secret}\n{NAN}ValueError: {secret}\n{secret}\n")
    (tmp_path / "train.log").write_text("".join(f"[rank{50 + n}]: {secret}\n" for n, secret in enumerate(SECRETS)))
    shown = tool("explain", str(tmp_path))[1] + tool("explain", "--json", str(tmp_path))[1]

    assert len(SECRETS) + 1 < shown.count("ValueError")
    assert WORD not in shown


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_wide_characters(encoding: str, tool: Tool, tmp_path: Path) -> None:
    """PowerShell writes UTF-16, as in `kubectl logs pod > train.log`."""
    text = "\ufeff" + "等待 step 1 \U0001f680\n" * 100_000 + NAN
    (tmp_path / "rank-3.txt").write_bytes(text.replace("\n", "\r\n").encode(encoding))

    assert tool("explain", str(tmp_path))[1].startswith(f"rank 3 failed: {SUMMARY}\n")


def test_a_log_that_was_truncated(tool: Tool, tmp_path: Path) -> None:
    """NULs before the text, as in a file that was emptied while it was written, are left out."""
    (tmp_path / "rank-3.txt").write_bytes(b"\0" * (1 << 20) + NAN.encode())

    assert tool("explain", str(tmp_path))[1].startswith(f"rank 3 failed: {SUMMARY}\n")


# The peak of a process that is started by a larger one is the larger one's, except in this file (proc_pid_status(5)).
WITH_PEAK: Final = """
import sys
from ascend_runner.tools.job.main import main
status = main(sys.argv[1:])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(status, peak.split()[1])
"""


def explained_with_peak(path: Path) -> tuple[list[str], int]:
    """Run the program, without a terminal; return its output, and its peak memory in bytes."""
    command = [sys.executable, "-c", WITH_PEAK, "explain", str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT, check=True)
    *lines, last = done.stdout.decode().splitlines()

    assert last.startswith("0 ")
    return lines, int(last.split()[1]) * 1024


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("noise", ["x", "[rank7]: waiting for" + " peers" * 20 + "\n", "waiting for peers\n", "\n"])
def test_large_logs_take_little_memory(noise: str, tmp_path: Path) -> None:
    """Also without a newline in 100 MB, and with the lines of ranks, a log is not held in memory."""
    block = (noise * (1 + (1 << 20) // len(noise)))[: 1 << 20].encode()
    with (tmp_path / "train.log").open("wb") as file:
        file.write(b"begin\n" + NAN.encode())
        for _number in range(100):
            file.write(block)
        file.write(b"\n")
    lines, memory = explained_with_peak(tmp_path / "train.log")

    assert SUMMARY in lines[0]
    assert memory < 96 << 20


@pytest.mark.deep
def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    """A progress bar is drawn while a large log is read, and removed before the result."""
    with (tmp_path / "rank-3.txt").open("wb") as file:
        for _number in range(96):
            file.write(b"waiting for peers\n" * 58_254)
        file.write(NAN.encode())
    terminal = Terminal([*programs.argv(programs.JOB), "explain", str(tmp_path)], tmp_path)
    status = terminal.finish()
    terminal.close()

    assert 0 == status
    assert re.search(r"\d+(?:\.\d)?/\d+(?:\.\d)? MB", terminal.screen)
    assert SUMMARY in terminal.screen
    assert f"rank 3 failed: {SUMMARY}" == explained_with_peak(tmp_path / "rank-3.txt")[0][0]
