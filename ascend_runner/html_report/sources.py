"""The input of an HTML report: a JSON report, and the events, the run file and the logs beside it.

Only files in the directory of the report are read, whatever paths it names, except for a rank table of the same owner.
Secrets in them are masked again: the report may come from another version, and logs have whatever the ranks wrote.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import attrs

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError
from ascend_runner.members import Members
from ascend_runner.rank_table import codec, source
from ascend_runner.rank_table.masked import masked
from ascend_runner.rank_table.model import RankTable
from ascend_runner.report_file import KIND
from ascend_runner.secrets import Masker
from ascend_runner.text import last_lines

LARGEST_NEIGHBOUR: Final = 1 << 20  # bytes of the events and of a run file
LOG_END: Final = 16 * 1024  # bytes of each log
TABLE: Final = os.path.join("rank_table", source.FILE_NAME)


@attrs.frozen(kw_only=True)
class Sources:
    """The content of one HTML report. `log_ends` has the last lines of each rank's log, by rank.

    It was gathered at `made_at`, in seconds since the epoch, when `masked` secrets were masked in addition to those of
    the report. If it `was_killed`, the runner could not report an end. With `links_logs`, the HTML file is beside the
    logs. With `is_public`, whatever could identify people, machines or data is omitted.
    """

    report: Members
    command: tuple[str, ...]
    events: tuple[Members, ...]
    log_ends: Mapping[int, tuple[str, ...]]
    made_at: float
    table: RankTable | None
    masked: int = 0
    was_killed: bool = False
    links_logs: bool = False
    is_public: bool = False


def gather(report: Members, path: str) -> Sources:
    """Return the report with the files beside it; `path` is that of the JSON report."""
    folder, name = os.path.split(path)
    masker = Masker()
    run = _objects(os.path.join(folder, _neighbour(name, "-run")))[:1]
    events = _objects(os.path.join(folder, _neighbour(f"{os.path.splitext(name)[0]}.jsonl", "-events")))
    log_ends = {}
    for rank in report.children("ranks"):
        rank_id, log = rank.whole("rank_id"), os.path.basename(rank.text("log_path"))
        if rank_id is not None and log:
            with suppress(ValueError):  # a NUL or half of a surrogate pair in the name
                end = files.read_end(os.path.join(folder, log), LOG_END)
                log_ends[rank_id] = tuple(last_lines(masker.data(end)))
    gathered = Sources(
        table=table_of(report, path, masker),
        report=Members(masker.members(report.members)),
        command=masker.arguments(run[0].texts("command")) if run else (),
        events=tuple(Members(masker.members(event.members)) for event in events),
        log_ends=log_ends,
        made_at=time.time(),
    )
    return attrs.evolve(gathered, masked=masker.count)


def table_of(report: Members, path: str, masker: Masker) -> RankTable | None:
    """Return the rank table beside the logs, or else the one that the report names, or None if it is of another job.

    A table elsewhere must have the owner of the report: then a page shows nothing that its author could not read.
    """
    named = report.text("rank_table")
    with suppress(AscendRunnerError, OSError, ValueError, RecursionError):
        beside = os.path.join(os.path.dirname(path), TABLE)
        table = source.read(beside) if os.path.exists(beside) else _read_table(named, os.stat(path).st_uid)
        if table and table.rank_size == report.whole("rank_size") and _has_server(table, report.text("server_id")):
            return masked(table, masker)
    return None


def _read_table(path: str, owner: int) -> RankTable | None:
    if not os.path.isabs(path):
        return None
    fd = os.open(path, files.READ_FLAGS)
    with open(fd, "rb"):
        status = os.fstat(fd)
        is_readable = stat.S_ISREG(status.st_mode) and status.st_uid == owner
        return codec.loads(source.read_all(fd, path), source=path) if is_readable else None


def _has_server(table: RankTable, server_id: str) -> bool:
    return any(server.server_id == server_id for server in table.servers)


def _neighbour(name: str, kind: str) -> str:
    """Return the name of another file of the job, whose report may be called "JOB-report-node-1.json"."""
    before, _kind, after = name.rpartition(KIND)
    return f"{before}{kind}{after}"


def _objects(path: str) -> list[Members]:
    """Return the JSON objects in the lines of a file, or none if it cannot be read."""
    found = []
    for line in files.read_end(path, LARGEST_NEIGHBOUR).splitlines():
        with suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict):
                found.append(Members(value))
    return found
