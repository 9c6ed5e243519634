"""Logs as streams of bytes: where they begin, and what happens when their files change."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ascend_runner.errors import UnreadableError
from ascend_runner.tools.job.logs import BLOCK, LogReader, find_logs, last_lines, lines_since

NOW = time.mktime((2026, 11, 22, 10, 0, 0, 0, 0, -1))


def read(reader: LogReader) -> bytes:
    """Return what was written since the last call."""
    return b"".join(reader.read())


def rotate(path: Path, content: bytes, backups: int = 9) -> None:
    """Rename the files of a log as the runner does, and begin a new one."""
    for number in range(backups, 0, -1):
        earlier = Path(f"{path}.{number - 1}" if number > 1 else path)
        if earlier.exists():
            earlier.rename(f"{path}.{number}")
    path.write_bytes(content)


@pytest.fixture(name="log")
def fixture_log(tmp_path: Path) -> Path:
    """Return the path of a log with three files."""
    path = tmp_path / "log.txt"
    for content in (b"a\nb\n", b"c\nd\n", b"e\nf"):
        rotate(path, content)
    return path


def test_logs_of_a_job(tmp_path: Path) -> None:
    """The logs of one job are found in the order of the ranks; rotated ones and those of other jobs are not logs."""
    names = "job-proc-rank-10-device-2.txt job-proc-rank-9-device-1.txt job-proc-scheduler.txt".split()
    others = "job-proc-rank-9-device-1.txt.1 job-proc-rank-9-device-1.run-1.txt job2-proc-rank-0-device-0.txt"
    for name in (*names, *others.split(), "job-report.json", "job-hook-failure.txt"):
        (tmp_path / name).touch()

    assert ["scheduler", "rank 9", "rank 10"] == [log.title for log in find_logs(str(tmp_path), "job")]


def test_directory_that_is_missing(tmp_path: Path) -> None:
    """It cannot be read."""
    with pytest.raises(UnreadableError):
        find_logs(str(tmp_path / "none"), "job")


def test_all_files_are_read(log: Path) -> None:
    """The oldest file comes first."""
    assert b"a\nb\nc\nd\ne\nf" == read(LogReader(str(log)))


@pytest.mark.parametrize("width", [1, BLOCK - 1, BLOCK, 2 * BLOCK])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 6, 99])
def test_last_lines(tmp_path: Path, count: int, width: int) -> None:
    """They are counted over the files, however long they are."""
    log = tmp_path / "log.txt"
    lines = [letter * width + b"\n" for letter in (b"a", b"b", b"c", b"d", b"e")] + [b"f"]
    for content in (lines[:2], lines[2:4], lines[4:]):
        rotate(log, b"".join(content))
    reader = LogReader(str(log))
    reader.begin(last_lines(count))

    assert b"".join(lines[max(0, 6 - count) :]) == read(reader)


@pytest.mark.parametrize("rotations", [1, 2, 5])
def test_rotation_between_two_reads(log: Path, rotations: int) -> None:
    """Nothing is lost and nothing read twice, however often the files were renamed meanwhile."""
    reader = LogReader(str(log))
    read(reader)
    with log.open("ab") as file:
        file.write(b"!\n")
    for number in range(rotations):
        rotate(log, b"%d\n" % number)

    assert b"!\n" + b"".join(b"%d\n" % number for number in range(rotations)) == read(reader)
    assert b"" == read(reader)


def test_rotation_beyond_the_backups(log: Path) -> None:
    """What was not deleted yet is read; the open file is read to its end although it was deleted."""
    reader = LogReader(str(log))
    read(reader)
    with log.open("ab") as file:
        file.write(b"!\n")
    for content in (b"1\n", b"2\n", b"3\n", b"4\n"):
        rotate(log, content, backups=2)

    assert b"!\n2\n3\n4\n" == read(reader)


def test_rotation_while_a_file_is_read(log: Path) -> None:
    """The reader follows the file that it has opened."""
    reader = LogReader(str(log))
    blocks = reader.read()
    first = next(blocks)
    rotate(log, b"g\n")

    assert b"a\nb\nc\nd\ne\nfg\n" == first + b"".join(blocks)


def test_log_of_a_new_run(log: Path) -> None:
    """The files of the earlier run were moved away; the new ones are read from their beginning."""
    reader = LogReader(str(log))
    read(reader)
    (log.parent / "run-1").mkdir()
    for path in log.parent.glob("log.txt*"):
        path.rename(log.parent / "run-1" / path.name)
    missing = read(reader)
    log.write_bytes(b"a new one")

    assert [b"", b"a new one"] == [missing, read(reader)]


def test_log_that_was_removed(log: Path) -> None:
    """The runner creates it again with its content, which is not read twice."""
    for path in log.parent.glob("log.txt.*"):
        path.unlink()
    reader = LogReader(str(log))
    read(reader)
    content = log.read_bytes()
    log.unlink()
    log.write_bytes(content + b" and more")

    assert b" and more" == read(reader)


def test_log_that_was_emptied(log: Path) -> None:
    """It is read from its beginning."""
    reader = LogReader(str(log))
    read(reader)
    log.write_bytes(b"x")

    assert b"x" == read(reader)


def test_log_that_does_not_exist_yet(tmp_path: Path) -> None:
    """It has no bytes until it does."""
    reader = LogReader(str(tmp_path / "log.txt"))
    reader.begin(last_lines(10))
    before = read(reader)
    (tmp_path / "log.txt").write_bytes(b"x")

    assert [b"", b"x"] == [before, read(reader)]


def test_files_are_closed(log: Path) -> None:
    """Also those that were not read."""
    before = os.listdir("/proc/self/fd")
    for count in (1, 4):
        reader = LogReader(str(log))
        reader.begin(last_lines(count))
        reader.close()
        reader.close()

    assert before == os.listdir("/proc/self/fd")


@pytest.mark.parametrize(
    "form",
    [
        "2026-11-22 %s step 1",
        "[2026-11-22 %s,123] iteration 5",
        "[INFO] ME(12:34,python):2026-11-22-%s.123.456 text",
        "2026/11/22 %s",
        "2026-11-22T%s+08:00",
    ],
)
@pytest.mark.parametrize("width", [1, BLOCK // 4])
def test_lines_since_a_time(tmp_path: Path, form: str, width: int) -> None:
    """They begin behind the last line with an earlier time; a line without a time belongs to the one before it."""
    form += "x" * width
    lines = [form % "08:00:00", "Traceback", form % "09:30:00", "  first"]
    later = ["  second", form % "09:50:00", "  third"]
    log = tmp_path / "log.txt"
    log.write_text("\n".join([*lines, *later]))

    assert "\n".join(["  first", *later]) == since(log, NOW - 1800 + 1)
    assert "\n".join([*lines[1:], *later]) == since(log, NOW - 3600)


def since(log: Path, at: float, noted: list[str] | None = None) -> str:
    """Return what a log has since a time."""
    reader = LogReader(str(log))
    reader.begin(lines_since(at, lambda: (noted if noted is not None else []).append("no times")))
    return read(reader).decode()


def test_files_that_were_written_before(log: Path) -> None:
    """They are left out; of the others without a time in a line everything may have been written since then."""
    for name, age in (("log.txt", 10), ("log.txt.1", 70), ("log.txt.2", 100)):
        os.utime(log.parent / name, (NOW - age, NOW - age))
    noted: list[str] = []

    assert ["", "e\nf", "c\nd\ne\nf"] == [since(log, NOW - age, noted) for age in (5, 60, 90)]
    assert ["no times"] * 3 == noted


def test_long_line_without_a_time(tmp_path: Path) -> None:
    """The search ends at the beginning of the file."""
    (tmp_path / "log.txt").write_text("x" * 3 * BLOCK + "\n")

    assert 3 * BLOCK + 1 == len(since(tmp_path / "log.txt", NOW - 60))
