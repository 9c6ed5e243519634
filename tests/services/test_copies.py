"""The threads that copy files: a source that changes, vanishes or cannot be read, and a disk that hangs."""

from __future__ import annotations

import errno
import os
import threading
import types
from pathlib import Path

import attrs
import pytest

from ascend_runner.errors import AscendRunnerError
from ascend_runner.services import staging
from ascend_runner.services.staging import Copies, Entry, part_name
from tests.helpers.waiting import LIMIT


@attrs.define
class Copying:
    """Copies entries of a directory to another one."""

    folder: Path

    def entry(self, name: str, data: bytes = b"data") -> Entry:
        """Write a file in the source, and return its entry."""
        (self.folder / "source" / name).write_bytes(data)
        return staging.look(str(self.folder / "source"), name)

    def copy(self, *entries: Entry, stop: threading.Event | None = None) -> Copies:
        """Copy entries, and wait for the end."""
        copies = Copies(str(self.folder / "source"), str(self.folder / "target"), "boot", stop or threading.Event())
        for thread in copies.start(iter(entries)):
            thread.join(LIMIT)
            assert not thread.is_alive()
        return copies


@pytest.fixture
def copying(tmp_path: Path) -> Copying:
    """Make two directories."""
    (tmp_path / "source").mkdir()
    (tmp_path / "target").mkdir()
    return Copying(tmp_path)


def error(copies: Copies) -> str:
    """Return the error of a copy."""
    assert isinstance(copies.error, AscendRunnerError)
    return str(copies.error)


def test_all_files_are_copied(copying: Copying) -> None:
    """Each file is copied once, whichever thread takes it."""
    entries = [copying.entry(str(number), os.urandom(number)) for number in range(500)]
    copies = copying.copy(*entries)

    assert copies.error is None
    assert sum(range(500)) == copies.done
    for name in map(str, range(500)):
        assert (copying.folder / "source" / name).read_bytes() == (copying.folder / "target" / name).read_bytes()


@pytest.mark.parametrize("data", [b"more data", b"less", b"", b"same size!"])
def test_source_that_has_changed(data: bytes, copying: Copying) -> None:
    """A file that is not as it was listed is named, and leaves no copy."""
    entry = copying.entry("file", b"ten bytes.")
    path = copying.folder / "source" / "file"
    path.write_bytes(data)
    os.utime(path, ns=(0, entry.mtime_ns + 1))

    assert (
        f"cannot stage {str(path)!r}: the file changed while it was being copied; retry when it is complete"
        == error(copying.copy(entry))
    )
    assert not (copying.folder / "target" / "file").exists()


@pytest.mark.parametrize(("release", "named"), [("4.19.90-2107.6.0.0192.8.oe1", 1), ("5.10.0-60.18.0", 0)])
def test_failure_of_the_disk(release: str, named: int, copying: Copying, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 5.8, syncfs(2) does not report that data could not be written: each file is asked for."""

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    monkeypatch.setattr(os, "uname", lambda: types.SimpleNamespace(release=release))
    copies = copying.copy(copying.entry("file"))

    assert named == (copies.error is not None)
    assert named != (copying.folder / "target" / "file").exists()


def test_source_that_has_vanished(copying: Copying) -> None:
    """The error names the file."""
    entry = copying.entry("file")
    path = copying.folder / "source" / "file"
    path.unlink()

    assert f"cannot stage {str(path)!r}: no such file or directory" == error(copying.copy(entry))


def test_target_that_cannot_be_written(copying: Copying) -> None:
    """The error names what is in the way."""
    entry = copying.entry("file")
    (copying.folder / "target" / "file").mkdir()

    assert "is a directory" in error(copying.copy(entry))


def test_leftover_that_is_longer(copying: Copying) -> None:
    """A partial copy that cannot be the beginning of the file is written again."""
    entry = copying.entry("file")
    (copying.folder / "target" / part_name(entry, "boot")).write_bytes(b"longer than the file")

    assert copying.copy(entry).error is None
    assert b"data" == (copying.folder / "target" / "file").read_bytes()


def test_stop(copying: Copying) -> None:
    """Nothing is copied after a stop, and what was copied of a file stays for the next run."""
    stop = threading.Event()
    stop.set()
    copies = copying.copy(copying.entry("file"), stop=stop)

    assert (0, None) == (copies.finished and copies.done, copies.error)
    assert not (copying.folder / "target" / "file").exists()
