"""What notebooks show of rank tables and outcomes."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from typing import Final

import pytest

from ascend_runner import html_table
from ascend_runner.diagnosis.finding import Finding
from ascend_runner.rank_table import Device, RankTable, Server
from ascend_runner.record.rank_record import Outcome, RankRecord, RankState
from ascend_runner.supervision.causes import Ending, Exited
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import LIMIT

HARMLESS: Final = {"p", "table", "thead", "tbody", "tr", "th", "td"}  # every sanitizer keeps them
HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m\u202e\0\ud800</td></table><img src=x onerror=x>" + "x" * 1_000_000


class Page(HTMLParser):
    """The elements of a page, and its rows as texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[object] = []
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.add(tag)
        self.attributes += attrs
        if tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        """Note the text of a cell."""
        if self.rows and self.rows[-1] and data.strip():
            self.rows[-1][-1] += data


def page(text: str) -> Page:
    """Parse what a notebook shows, after checking what is true of all of it."""
    found = Page(text)
    assert found.tags <= HARMLESS
    assert [] == found.attributes
    assert len(text.encode()) <= html_table.LARGEST
    assert text.replace("\n", "").isprintable()
    return found


def table(servers: int, devices: int = 8, name: str = "10.0.0.") -> RankTable:
    """Return a table of so many servers with so many devices each."""
    return RankTable(
        servers=tuple(
            Server(
                server_id=f"{number}{name}",
                devices=tuple(
                    Device(device_id=index, rank_id=number * devices + index, pod_name=f"{name}{number}")
                    for index in range(devices)
                ),
            )
            for number in range(servers)
        )
    )


def shown(record: object) -> Page:
    """Return what a notebook shows of a record."""
    text: str = record._repr_html_()  # type: ignore[attr-defined]
    return page(text)


def test_rank_table() -> None:
    """A small table has a row for each device, without empty columns; a larger one has a row for each server."""
    assert ["server", "pod", "rank", "device"] == shown(table(8)).rows[0]
    assert ["010.0.0.", "10.0.0.0", "7", "7"] == shown(table(8)).rows[8]
    assert 65 == len(shown(table(8)).rows)
    rows = shown(table(9)).rows
    assert [["server", "pods", "ranks", "devices"], ["810.0.0.", "10.0.0.8", "64-71", "0-7"]] == [rows[0], rows[-1]]
    assert 10 == len(rows)


def test_rank_table_without_devices() -> None:
    """Without a row there is no table."""
    assert {"p"} == shown(RankTable(servers=())).tags


def test_outcome() -> None:
    """The cause comes first, then the ranks, those that have failed before the others."""
    ranks = (
        RankRecord(rank_id=0, ending=Ending(signum=15), state=RankState.STOPPED, pid=41, log_path="/log/0"),
        RankRecord(rank_id=1, ending=Ending(7), pid=42, seconds=4, finding=Finding(exception="ValueError: x")),
        RankRecord(rank_id=2, state=RankState.NOT_STARTED),
    )
    outcome = Outcome(cause=Exited(1, Ending(7)), ranks=ranks, seconds=65)
    rows = shown(outcome).rows

    assert ["rank", "pid", "state", "reason", "time", "output", "log"] == rows[0]
    assert ["1", "42", "failed (exit status 7)", "ValueError: x", "4 s"] == rows[1][:5]
    assert [["0", "stopped by the runner (SIGTERM)"], ["2", "not started"]] == [[row[0], row[2]] for row in rows[2:]]
    assert "<p>rank 1 failed: exit status 7; the job took 1 min 5 s</p>" in outcome._repr_html_()
    assert "succeeded" in Outcome(cause=None)._repr_html_()
    assert 1025 == len(shown(Outcome(cause=None, ranks=tuple(RankRecord(rank_id=rank) for rank in range(1024)))).rows)


@pytest.mark.parametrize("text", [HOSTILE, "&" * 1_000_000, "</table>", "卡" * 1_000_000])
def test_hostile_text(text: str) -> None:
    """No text becomes an element, an attribute or a control character, and none fills the notebook."""
    rank = RankRecord(rank_id=0, name=text, log_path=text, finding=Finding(exception=text))

    shown(table(1, name=text))
    shown(table(3000, devices=1, name=text[:100]))
    shown(Outcome(cause=None, ranks=(rank,) * 1000))


def test_large_table() -> None:
    """Rows that do not fit are counted."""
    rows = shown(table(65_536 // 8)).rows

    assert [f"and {65_536 // 8 - len(rows) + 2} more servers"] == rows[-1]


def test_runner_does_without() -> None:
    """The program never loads it."""
    script = "import sys, ascend_runner.cli, ascend_runner.rank_table; print('ascend_runner.html_table' in sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", script], env=CLEAN, capture_output=True, text=True, check=True, timeout=LIMIT
    )

    assert "False\n" == ended.stdout
