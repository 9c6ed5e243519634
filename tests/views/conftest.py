"""Reports of jobs of any size, in a directory as a runner leaves it, and the pages made from them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path

import attrs
import pytest

from ascend_runner import report_file
from ascend_runner.views import page, page_content

Write = Callable[..., Path]
BEGAN = "2026-11-22T09:47:36.000+08:00"
FIRST_OUTPUT = "2026-11-22T09:47:38.000+08:00"
FAILED = "2026-11-22T09:47:46.000+08:00"
ENDED = "2026-11-22T09:47:48.000+08:00"
NOT_IN_NAMES = re.compile("[\0/\ud800-\udfff]")
VOID = {"meta", "link", "img", "br", "hr", "input"}


def rank(rank_id: int, text: str = "", **changes: object) -> dict[str, object]:
    """Return the record of a rank that was stopped; `text` is in each of its texts."""
    record: dict[str, object] = {
        "rank_id": rank_id,
        "local_rank": rank_id % 8,
        "pid": 4711 + rank_id,
        "state": "stopped",
        "exit_code": None,
        "signal": 15,
        "started_at": BEGAN,
        "ended_at": ENDED,
        "seconds": 12.0,
        "max_rss": 3_900_000_000 + rank_id * 10_000_000,
        "user_seconds": 10.0 + rank_id,
        "system_seconds": 1.0,
        "first_output_at": FIRST_OUTPUT,
        "last_output_at": FAILED,
        "signals": [[15, FAILED], [9, ENDED]],
        "activity": [(rank_id + 1) * (cell % 7) for cell in range(96)],
        "cell_seconds": 0.125,
        "log_path": f"/log/job-proc-rank-{rank_id}-device-{rank_id % 8}{NOT_IN_NAMES.sub('_', text)}.txt",
        "log_start": 0,
        "log_size": 123_456 + rank_id,
        "log_lost": 0,
        "process_log_path": f"/log/ascend/process_log/rank_{rank_id}{text}",
        "cwd": f"/work{text}",
        "variables": {
            "RANK": str(rank_id),
            "LOCAL_RANK": str(rank_id % 8),
            "WORLD_SIZE": "8",
            "MASTER_ADDR": f"192.168.0.25{text}",
            "ASCEND_PROCESS_LOG_PATH": f"/log/ascend/process_log/rank_{rank_id}{text}",
        },
        "rerun": f"sh /log/job-rerun-rank-{rank_id}{text}.sh",
        "finding": None,
        "name": "",
    }
    return record | changes


def node(number: int, text: str = "", **changes: object) -> dict[str, object]:
    """Return the row of a node; `text` is in each of its texts that a user can choose."""
    named = {"pod": f"pod-{number}{text}", "host": f"host-{number}{text}", "differs": f"CANN 8.0{text}"}
    return {"node": number, "state": "stopped", "ranks": 8, "heard": 0.4, "round_trip": 0.0003, **named, **changes}


def document(count: int, text: str = "", **changes: object) -> dict[str, object]:
    """Return a report in which one rank of many has failed; `text` is in each text that a user can choose."""
    culprit = min(5, count - 1)
    finding = {
        "exception": f"ValueError: loss is nan at step 17{text}",
        "excerpt": [
            "Traceback (most recent call last):",
            f'  File "train{text}.py", line 7, in train_step{text}',
            f"ValueError: loss is nan at step 17{text}",
        ],
        "meaning": f"an error{text}",
        "code": "EI0006",
        "code_kind": "may be a consequence",
        "code_meaning": "a connection timed out",
        "points_at": [{"rank_id": 3, "server_id": f"10.0.0.5{text}", "device_id": 3}],
        "plog_path": f"/log/plog{text}.log",
        "plog_error": f"[ERROR] HCCL{text}",
    }
    failed = {
        "state": "failed",
        "exit_code": 1,
        "signal": None,
        "ended_at": FAILED,
        "seconds": 10.0,
        "finding": finding,
    }
    report: dict[str, object] = {
        "job_id": f"job{text}",
        "state": "failed",
        "status": 1,
        "attempt": 0,
        "server_id": f"192.168.0.25{text}",
        "pod_name": f"pod-0{text}",
        "rank_size": count,
        "started_at": BEGAN,
        "ended_at": ENDED,
        "seconds": 12.0,
        "log_dir": f"/log{text}",
        "cause": {
            "kind": "rank_failed",
            "sentence": f"rank {culprit} failed: ValueError: loss is nan at step 17{text} (exit status 1)",
            "rank_id": culprit,
            "first_exit": culprit,
            "certainty": "likely",
            "candidates": [3],
            "suspected_peer": {"rank_id": 3, "server_id": f"10.0.0.5{text}"},
        },
        "ranks": [rank(rank_id, text, **(failed if rank_id == culprit else {})) for rank_id in range(count)],
        "hang": [{"rank_ids": [0, 1], "state": f"S{text}", "frames": [f"step (train.py:7){text}"]}],
        "attempts": [
            {
                "attempt": attempt,
                "started_at": BEGAN,
                "seconds": 12.0,
                "cause": {"sentence": f"it failed{text}", "certainty": "likely"},
                "verdict": "restart",
                "delay": 10.0,
            }
            for attempt in (0, 1)
        ],
        "conditions": [{"condition": f"slow{text}", "sentence": f"rank 3 is slow{text}", "since": BEGAN}],
        "verdict": {
            "node": 1,
            "rank_id": culprit,
            "sentence": f"rank {culprit} failed{text}",
            "lines": [f"a line{text}"],
        },
        "nodes": [node(0, text), node(1, text, state="failed", sentence=f"rank {culprit} failed{text}")],
        "last_step": {"step": 17, "steps": 400, "seconds": 0.615, "at": FAILED},
        "last_checkpoint": {"step": 12, "path": f"/data/checkpoint-12{text}"},
        "warnings": [f"a warning{text}"],
        "runner_version": "0.1.0",
        "secrets_masked": 0,
        "schema_version": 5,
    }
    return report | changes


def write_table(folder: Path, count: int, server_id: str = "192.168.0.25", address: str = "10.0.0.1") -> Path:
    """Write the rank table of a job of so many ranks as the runner does below a directory; return its path."""
    servers = [
        {
            "server_id": f"192.168.1.{first}" if first else server_id,
            "device": [
                {"device_id": str(rank_id % 8), "device_ip": address, "rank_id": str(rank_id)}
                for rank_id in range(first, min(first + 8, count))
            ],
        }
        for first in range(0, count, 8)
    ]
    table = {"version": "1.0", "server_count": str(len(servers)), "server_list": servers, "status": "completed"}
    path = folder / "job" / "rank_table" / "jobstart_hccl.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(table))
    return path


@pytest.fixture(name="write")
def fixture_write(tmp_path: Path) -> Write:
    """Return a function that writes a report and what is beside it, and returns the path of the report."""

    def write(
        report: Mapping[str, object], logs: Callable[[int], bytes] | None = None, command: tuple[str, ...] = ("x",)
    ) -> Path:
        ranks: list[dict[str, object]] = report["ranks"]  # type: ignore[assignment]  # as `document` has made it
        for one in ranks:
            if logs and isinstance(one["rank_id"], int):
                (tmp_path / str(one["log_path"]).rpartition("/")[2]).write_bytes(logs(one["rank_id"]))
        (tmp_path / "job-run.json").write_text(json.dumps({"command": command}))
        data = {"event": "ended", "state": "failed", "status": 1, "sentence": command[0]}
        (tmp_path / "job-events.jsonl").write_text(json.dumps({"time": ENDED, "data": data}) + "\n[]\n{}\n")
        path = tmp_path / "job-report.json"
        path.write_text(json.dumps(report))
        return path

    return write


def rendered(path: Path, *, is_public: bool = False) -> str:
    """Return the page about a report."""
    found = page_content.gather(report_file.read(str(path)), str(path))
    return page.render(attrs.evolve(found, is_public=is_public, links_logs=not is_public)).decode()


class Elements(HTMLParser):
    """The elements of a page with the names of their attributes, its texts, and the values of its links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self._classes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an element."""
        self.elements.append((tag, *sorted(name for name, _value in attrs)))
        self.links += [value or "" for name, value in attrs if name in {"href", "src", "xlink:href", "action"}]
        self._classes += [(tag, value or "") for name, value in attrs if name == "class"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an element of SVG without content."""
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        """Take the end of an element."""
        assert self.open
        assert tag == self.open.pop()

    def handle_data(self, data: str) -> None:
        """Take a text."""
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        """Take a comment."""
        self.elements.append(("comment", data))

    def classes_of(self, tag: str) -> list[str]:
        """Return the classes of the elements of a kind in a picture, without those of the timeline."""
        return [value for name, value in self._classes if name == tag]
