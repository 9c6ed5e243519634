"""The log file of a rank: complete to the byte, rotated between lines, honest about what the disk did not take."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.linux.log_file import Gap, LogFile, Rotation

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def file_limit() -> Iterator[Callable[[int], None]]:
    """Limit the size of files, for a while (setrlimit(2)): what a disk looks like that fills up and is cleared."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size if size >= 0 else soft, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def parts(path: Path) -> list[bytes]:
    """Give what the files hold, the oldest first."""
    numbers = sorted((int(found.name.rpartition(".")[2]) for found in path.parent.glob(path.name + ".*")), reverse=True)
    return [*(Path(f"{path}.{number}").read_bytes() for number in numbers), path.read_bytes()]


def test_disk_that_fills_up_and_heals(tmp_path: Path, file_limit: Callable[[int], None]) -> None:
    """What had room is there, what had none is a gap in the rank's output, told once; then lines are kept again."""
    told: list[str] = []
    path = tmp_path / "log"
    log = LogFile(str(path), Rotation(), told.append)
    file_limit(100)
    for _ in range(3):
        log.write(b"a" * 60)
    file_limit(-1)
    log.write(b"after\n")
    log.close()

    assert b"a" * 100 + b"after\n" == path.read_bytes()
    assert [Gap(100, 80)] == log.gaps
    assert [
        f"cannot write '{path}': file too large; the rank goes on, what it writes now is lost",
        f"'{path}' can be written again; 80 bytes are missing in it",
    ] == told


def test_removed_file_is_laid_down_anew(tmp_path: Path) -> None:
    """Whoever removes the log folder under a running job loses nothing: our descriptor still reaches the bytes."""
    told: list[str] = []
    path = tmp_path / "folder" / "log"
    path.parent.mkdir()
    log = LogFile(str(path), Rotation(), told.append)
    log.write(b"before\n")
    path.unlink()
    path.parent.rmdir()
    log.write(b"after\n")
    log.close()

    assert b"before\nafter\n" == path.read_bytes()
    assert [f"'{path}' had been removed, and is laid down anew with all it held"] == told


def test_rotation_keeps_the_newest(tmp_path: Path) -> None:
    """With two backups three files are there, each whole lines, and the oldest lines are gone."""
    path = tmp_path / "log"
    log = LogFile(str(path), Rotation(max_size=10, backups=2), print)
    for number in range(6):
        log.write(b"%d%d%d%d\n" % (number, number, number, number))
    log.close()

    assert [b"0000\n1111\n", b"2222\n3333\n", b"4444\n5555\n"] == parts(path)


def test_line_longer_than_a_file_stays_whole(tmp_path: Path) -> None:
    """Lines are never split, however long."""
    path = tmp_path / "log"
    log = LogFile(str(path), Rotation(max_size=10, backups=3), print)
    log.write(b"a\n" + b"b" * 25)
    log.write(b"b" * 25 + b"\nc\n")
    log.close()

    assert [b"a\n", b"b" * 50 + b"\n", b"c\n"] == parts(path)


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 30))
def test_rotated_files_joined_are_the_output(
    tmp_path_factory: pytest.TempPathFactory, writes: list[bytes], size: int
) -> None:
    """Whatever is written in whatever pieces: with backups enough no byte is lost, doubled or out of its place."""
    path = tmp_path_factory.mktemp("rotated") / "log"
    log = LogFile(str(path), Rotation(max_size=size, backups=1000), print)
    for data in writes:
        log.write(data)
    log.close()

    found = parts(path)
    assert b"".join(writes) == b"".join(found)
    assert all(part.endswith(b"\n") for part in found[:-1])
    # A line that begins within the size may end beyond it: it is not split.
    assert all(part[:-1].rfind(b"\n") + 1 <= size for part in found)


def test_refused_rotation_lets_the_file_grow(tmp_path: Path) -> None:
    """Where no new file can be begun, the old one goes on, and it is said once."""
    told: list[str] = []
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "log"
    log = LogFile(str(path), Rotation(max_size=4, backups=1), told.append)
    (folder / "log.1").mkdir()
    (folder / "log.1" / "in the way").touch()
    for _ in range(3):
        log.write(b"abc\n")
    log.close()

    assert b"abc\n" * 3 == path.read_bytes()
    assert len(told) == 1
    assert told[0].startswith(f"cannot begin a new '{path}': ")


def test_close_twice(tmp_path: Path) -> None:
    """Closing is done once, however often it is asked for."""
    log = LogFile(str(tmp_path / "log"), Rotation(), print)
    log.close()
    log.close()

    assert 0 == os.path.getsize(tmp_path / "log")
