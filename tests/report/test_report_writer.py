"""Where the newest report of a job is, and why it is not in its file, whatever becomes of older ones."""

from __future__ import annotations

import json
from collections.abc import Callable, ItemsView
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from ascend_runner.errors import OutputError
from ascend_runner.report.report_writer import NO_RESPONSE, ReportWriter
from ascend_runner.report.write_queue import WriteQueue
from tests.helpers.waiting import LIMIT

NEWER = {"state": "failed"}


class SlowQueue(WriteQueue):
    """A queue that carries out the next write only when the test asks for it."""

    def __init__(self) -> None:
        super().__init__(pytest.fail)
        self.writes: list[Callable[[], None]] = []

    def put(self, _path: str, write: Callable[[], None]) -> None:
        """Keep a write."""
        self.writes.append(write)

    def work(self) -> None:
        """Carry out the next write."""
        with suppress(OutputError):
            self.writes.pop(0)()


class Overtaken(dict[str, object]):
    """A report that is followed by a newer one while it is being written."""

    def __init__(self, writer: ReportWriter, path: str) -> None:
        super().__init__(state="running")
        self._writer, self._path = writer, path

    def items(self) -> ItemsView[str, object]:  # type: ignore[override]  # of a Mapping
        """Return the members, after a newer report has been put."""
        self._writer.put(self._path, lambda: NEWER)
        return super().items()


@pytest.mark.parametrize("folder", [".", "missing"])
def test_older_report_says_nothing_of_a_newer_one(folder: str, tmp_path: Path) -> None:
    """A write of an older report that ends after a newer one was put is neither its success nor its failure."""
    writes, path = SlowQueue(), str(tmp_path / folder / "report")
    writer = ReportWriter(writes)
    writer.put(path, lambda: Overtaken(writer, path))
    writes.work()
    overtaken = writer.place, writer.problem
    writes.work()

    assert ("", NO_RESPONSE) == overtaken
    assert ((path, ""), ("", "no such file or directory"))[folder == "missing"] == (writer.place, writer.problem)


def test_only_the_newest_report_is_composed(tmp_path: Path) -> None:
    """Those that a newer one has replaced before the disk took them cost nothing; the newest is composed once."""
    writes, path = SlowQueue(), str(tmp_path / "report")
    writer = ReportWriter(writes)
    composed: list[int] = []

    def compose(attempt: int) -> dict[str, object]:
        composed.append(attempt)
        return {"attempt": attempt}

    for attempt in range(3):
        writer.put(path, partial(compose, attempt))
    for _ in range(3):
        writes.work()

    assert {"attempt": 2} == writer.newest == json.loads(Path(path).read_bytes())
    assert [2] == composed


def test_place_of_a_report_that_its_disk_does_not_take(tmp_path: Path) -> None:
    """It is in the run directory, if there is one, until a newer report follows; what went wrong stays known."""
    writes, path, spare = SlowQueue(), str(tmp_path / "missing" / "report"), str(tmp_path / "spare")
    writer = ReportWriter(writes)
    seen = []
    for writer.spare_path in ("", spare):
        writer.put(path, lambda: dict(NEWER))
        writes.work()
        writer.write_spare(LIMIT)
        seen.append((writer.place, writer.problem))
    kept = json.loads(Path(spare).read_bytes())
    writer.put(path, lambda: {"state": "stopped"})

    assert [("", "no such file or directory"), (spare, "no such file or directory")] == seen
    assert kept == NEWER
    assert ("", NO_RESPONSE) == (writer.place, writer.problem)
