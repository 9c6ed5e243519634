"""Where a rank table is written: never over a different one that is in use."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_runner.errors import OutputError
from ascend_runner.job import table as tables
from ascend_runner.plan.spec import TableFile


class Writer:
    """Writes tables as jobs do that run beside each other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warnings: list[str] = []
        self.locks: list[int] = []

    def write(self, data: bytes) -> str:
        """Write a table, which stays in use; return its path, relative to the directory."""
        path, fallback_path = (str(self.folder / place / "rank_table" / "t.json") for place in ("mount", "log"))
        file, lock = tables.write(TableFile(path, fallback_path, data), self.warnings.append, is_checked=True)
        self.locks.append(lock)
        assert data == Path(file.path).read_bytes()
        return os.path.relpath(file.path, self.folder)

    def end_first(self) -> None:
        """End the first of the jobs."""
        os.close(self.locks.pop(0))


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """Return a writer whose jobs end with the test."""
    made = Writer(tmp_path)
    yield made
    while made.locks:
        made.end_first()


def test_different_tables(writer: Writer) -> None:
    """Each job has a place of its own, and a warning names it, unless it is the first one."""
    places = [writer.write(data) for data in (b"a", b"b", b"c")]

    assert ["mount/rank_table/t.json", "log/rank_table/t.json", "log/rank_table-2/t.json"] == places
    assert [str(writer.folder / place) in warning for place, warning in zip(places[1:], writer.warnings)] == [True] * 2


def test_table_that_is_being_written(writer: Writer) -> None:
    """Processes that write the same table at the same moment share it: the others wait for the one that writes."""
    writer.write(b"a")
    writer.end_first()
    other = os.open(writer.folder / "mount" / "rank_table" / "t.json.lock", os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    timer = threading.Timer(0.1, os.close, [other])
    timer.start()
    place = writer.write(b"a")
    timer.join()

    assert ("mount/rank_table/t.json", []) == (place, writer.warnings)


def test_equal_tables(writer: Writer) -> None:
    """The nodes of a job share one file, which stays in use until the last of them has ended."""
    places = [writer.write(b"a"), writer.write(b"a")]
    writer.end_first()
    places.append(writer.write(b"b"))
    writer.end_first()
    places.append(writer.write(b"c"))

    shared = "mount/rank_table/t.json"
    assert [shared, shared, "log/rank_table/t.json", shared] == places


@pytest.mark.deep
def test_no_place_is_left(writer: Writer) -> None:
    """The number of places is limited, so that a file system that keeps nothing ends the search."""
    for number in range(tables.MOST_PLACES + 1):
        writer.write(str(number).encode())
    with pytest.raises(OutputError):
        writer.write(b"one more")
