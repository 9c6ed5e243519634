"""A log file has every byte in order, is rotated between lines, and records the bytes that were lost."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.plan.spec import Rotation
from ascend_runner.ranks.log_file import DiskWarnings, Gap, LogFile
from tests.ranks.fake_disk import FakeDisk


@pytest.fixture
def file_limit() -> Iterator[Callable[[int], None]]:
    """Yield a function that limits the size of files (setrlimit(2)), as a full disk does; -1 lifts the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size if size >= 0 else soft, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def parts(path: Path) -> list[bytes]:
    """Return the content of all files, the oldest first."""
    numbers = sorted((int(found.name.rpartition(".")[2]) for found in path.parent.glob(path.name + ".*")), reverse=True)
    return [*(Path(f"{path}.{number}").read_bytes() for number in numbers), path.read_bytes()]


def test_disk_that_fills_up_and_heals(tmp_path: Path, file_limit: Callable[[int], None]) -> None:
    """Bytes that do not fit are recorded as one gap and reported once; later bytes are written again."""
    warnings: list[str] = []
    path = tmp_path / "log"
    log = LogFile(str(path), Rotation(), DiskWarnings(warnings.append))
    file_limit(100)
    for _ in range(3):
        log.write(b"a" * 60)
    file_limit(-1)
    log.write(b"after\n")
    log.close()

    limit = "file too large (RLIMIT_FSIZE, see ulimit -f)"

    assert b"a" * 100 + b"after\n" == path.read_bytes()
    assert [Gap(100, 80)] == log.gaps
    assert [
        f"cannot write '{path}': {limit}; the job continues, but this output is lost",
        f"'{path}' is writable again; 80 bytes were lost",
    ] == warnings


def test_removed_file_is_created_again(tmp_path: Path) -> None:
    """Removing the log directory of a running job loses nothing."""
    warnings: list[str] = []
    path = tmp_path / "folder" / "log"
    path.parent.mkdir()
    log = LogFile(str(path), Rotation(), DiskWarnings(warnings.append))
    log.write(b"before\n")
    path.unlink()
    path.parent.rmdir()
    log.write(b"after\n")
    log.close()

    assert b"before\nafter\n" == path.read_bytes()
    assert [f"'{path}' was removed; it has been recreated with its content"] == warnings


def test_file_that_is_removed_after_the_last_write_is_created_again(tmp_path: Path) -> None:
    """Closing it looks for it once more."""
    warnings: list[str] = []
    path = tmp_path / "log"
    log = LogFile(str(path), Rotation(), DiskWarnings(warnings.append))
    log.write(b"last\n")
    path.unlink()
    log.close()

    assert b"last\n" == path.read_bytes()
    assert [] == log.gaps


def test_rotation_keeps_the_newest(tmp_path: Path) -> None:
    """With two backups there are three files of whole lines, and the oldest lines are gone."""
    path = tmp_path / "log"
    log = LogFile(str(path), Rotation(max_size=10, backups=2), DiskWarnings(print))
    for number in range(6):
        log.write(b"%d%d%d%d\n" % (number, number, number, number))
    log.close()

    assert [b"0000\n1111\n", b"2222\n3333\n", b"4444\n5555\n"] == parts(path)


def test_line_longer_than_a_file_stays_whole(tmp_path: Path) -> None:
    """No line is split, however long."""
    path = tmp_path / "log"
    log = LogFile(str(path), Rotation(max_size=10, backups=3), DiskWarnings(print))
    log.write(b"a\n" + b"b" * 25)
    log.write(b"b" * 25 + b"\nc\n")
    log.close()

    assert [b"a\n", b"b" * 50 + b"\n", b"c\n"] == parts(path)


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 30))
def test_rotated_files_joined_are_the_output(
    tmp_path_factory: pytest.TempPathFactory, writes: list[bytes], size: int
) -> None:
    """With enough backups no byte is lost, repeated or out of order, in whatever pieces it is written."""
    path = tmp_path_factory.mktemp("rotated") / "log"
    log = LogFile(str(path), Rotation(max_size=size, backups=1000), DiskWarnings(print))
    for data in writes:
        log.write(data)
    log.close()

    found = parts(path)
    assert b"".join(writes) == b"".join(found)
    assert all(part.endswith(b"\n") for part in found[:-1])
    # A line that begins within the size may end beyond it: it is not split.
    assert all(part[:-1].rfind(b"\n") + 1 <= size for part in found)


def test_refused_rotation_lets_the_file_grow(tmp_path: Path) -> None:
    """If no new file can be opened, the old one grows, and a warning is given once."""
    warnings: list[str] = []
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "log"
    log = LogFile(str(path), Rotation(max_size=4, backups=1), DiskWarnings(warnings.append))
    (folder / "log.1").mkdir()
    (folder / "log.1" / "in the way").touch()
    for _ in range(3):
        log.write(b"abc\n")
    log.close()

    assert b"abc\n" * 3 == path.read_bytes()
    assert 1 == len(warnings)
    assert warnings[0].startswith(f"cannot rotate '{path}': ")


def test_failing_close_is_a_warning(tmp_path: Path) -> None:
    """An error at close, where network file systems report failed writes, is a warning."""
    warnings: list[str] = []
    disk = FakeDisk()
    log = LogFile(str(tmp_path / "log"), Rotation(), DiskWarnings(warnings.append), disk)
    disk.close_error = errno.EIO
    log.close()

    assert [f"cannot close '{tmp_path}/log': input/output error; its last lines may be missing"] == warnings


def test_close_twice(tmp_path: Path) -> None:
    """The second close() does nothing."""
    log = LogFile(str(tmp_path / "log"), Rotation(), DiskWarnings(print))
    log.close()
    log.close()

    assert 0 == os.path.getsize(tmp_path / "log")


def test_short_writes_are_continued(tmp_path: Path) -> None:
    """A disk that takes one byte at a time gets all of them in order."""
    disk = FakeDisk()
    disk.bytes_per_write = 1
    log = LogFile(str(tmp_path / "log"), Rotation(), DiskWarnings(print), disk)
    log.write(b"one\ntwo\n")
    log.close()

    assert b"one\ntwo\n" == (tmp_path / "log").read_bytes()
    assert [] == log.gaps


@pytest.mark.parametrize("error", [errno.ENOTCONN, errno.ESTALE, errno.EIO])
def test_lost_disk_loses_its_bytes_only(tmp_path: Path, error: int) -> None:
    """If every call on the open file fails, the bytes are counted; once the path can be opened, writing goes on."""
    warnings: list[str] = []
    disk = FakeDisk()
    path = tmp_path / "folder" / "log"
    path.parent.mkdir()
    log = LogFile(str(path), Rotation(), DiskWarnings(warnings.append), disk)
    log.write(b"before\n")
    disk.lose(error)
    path.parent.rename(tmp_path / "away")
    log.write(b"lost\n")
    (tmp_path / "away").rename(path.parent)
    log.write(b"after\n")
    log.close()

    assert b"before\nafter\n" == path.read_bytes()
    assert [Gap(7, 5)] == log.gaps
    assert 2 == len(warnings)


def test_write_that_fails_in_the_middle(tmp_path: Path) -> None:
    """Bytes that were written before the error do not count as lost."""
    disk = FakeDisk()
    log = LogFile(str(tmp_path / "log"), Rotation(), DiskWarnings(print), disk)
    disk.bytes_per_write, disk.writes_until_error = 2, 2
    log.write(b"abcdefgh")

    assert b"abcd" == (tmp_path / "log").read_bytes()
    assert ([Gap(4, 4)], 8) == (log.gaps, log.offset)
    log.close()


def test_emptied_file_has_no_hole(tmp_path: Path) -> None:
    """After `: > log` the file goes on at its beginning, and what it has lost is counted."""
    path = tmp_path / "log"
    log = LogFile(str(path), Rotation(), DiskWarnings(print))
    log.write(b"before\n")
    os.truncate(path, 0)
    log.write(b"after\n")
    log.close()

    assert b"after\n" == path.read_bytes()
    assert [Gap(0, 7)] == log.gaps


def test_moved_file_is_followed_by_a_new_one(tmp_path: Path) -> None:
    """After `mv log elsewhere` the path has what follows, the moved file what was before, and a warning names it."""
    warnings: list[str] = []
    path = tmp_path / "log"
    log = LogFile(str(path), Rotation(), DiskWarnings(warnings.append))
    log.write(b"before\n")
    path.rename(tmp_path / "elsewhere")
    log.write(b"after\n")
    log.close()

    assert (b"before\n", b"after\n") == ((tmp_path / "elsewhere").read_bytes(), path.read_bytes())
    assert [] == log.gaps
    assert [f"'{path}' was moved to '{tmp_path}/elsewhere'; its output continues in a new file"] == warnings


def test_file_of_a_disk_that_was_unmounted_is_not_said_to_have_moved(tmp_path: Path) -> None:
    """After `umount --lazy` the open file has a path below the root of its disk, where nobody finds it."""
    warnings: list[str] = []
    (tmp_path / "disk").mkdir()
    (tmp_path / "place").mkdir()
    mount, umount = (shutil.which(name) or name for name in ("mount", "umount"))
    bind = [mount, "--bind", str(tmp_path / "disk"), str(tmp_path / "place")]
    if subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    path = tmp_path / "place" / "log"
    log = LogFile(str(path), Rotation(), DiskWarnings(warnings.append))
    try:
        log.write(b"before\n")
    finally:
        subprocess.run([umount, "--lazy", str(tmp_path / "place")], check=True)
    log.write(b"after\n")
    log.close()

    assert (b"before\n", b"after\n") == ((tmp_path / "disk" / "log").read_bytes(), path.read_bytes())
    assert [
        f"'{path}' can no longer be found, perhaps because its disk was unmounted; its output continues in a new file"
    ] == warnings


def test_link_to_the_moved_file_is_followed(tmp_path: Path) -> None:
    """After `mv log elsewhere; ln -s elsewhere log` the path still leads to all of the output."""
    warnings: list[str] = []
    path = tmp_path / "log"
    log = LogFile(str(path), Rotation(), DiskWarnings(warnings.append))
    log.write(b"before\n")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to("elsewhere")
    log.write(b"after\n")
    log.close()

    assert b"before\nafter\n" == path.read_bytes()
    assert ([], []) == (log.gaps, warnings)


@pytest.mark.parametrize("is_moved", [True, False], ids=["moved", "removed"])
def test_link_in_place_of_the_file_is_never_silent(tmp_path: Path, *, is_moved: bool) -> None:
    """Where something else has taken the path, the output is in the moved file, or counts as lost at the end."""
    warnings: list[str] = []
    path = tmp_path / "log"
    log = LogFile(str(path), Rotation(), DiskWarnings(warnings.append))
    log.write(b"before\n")
    path.rename(tmp_path / "elsewhere")
    if not is_moved:
        (tmp_path / "elsewhere").unlink()
    path.symlink_to("other")
    for _ in range(2):
        log.write(b"after\n")
    log.close()

    assert not (tmp_path / "other").exists()
    assert 1 == len(warnings)
    if is_moved:
        assert b"before\nafter\nafter\n" == (tmp_path / "elsewhere").read_bytes()
    assert ([] if is_moved else [Gap(0, 19)]) == log.gaps
