"""Valid fixtures with single changes, such as those that HCCL would reject."""

from __future__ import annotations

import json
import re
from typing import Any

from ascend_runner.problems import Severity
from ascend_runner.rank_table import checks, codec
from ascend_runner.rank_table.model import Device, RankTable, Server
from tests.rank_table.rank_table_files import valid

ERROR = Severity.ERROR
WARNING = Severity.WARNING
GONE: Any = object()

Found = tuple[Severity, str, str, str]  # severity, path, sentence, code


def edited(name: str, **changes: Any) -> bytes:
    """Return a valid fixture with other values at some paths ("server_list[0].server_id"); GONE removes a key."""
    document = json.loads(valid(name))
    for path, value in changes.items():
        *steps, last = [int(step) if step.isdigit() else step for step in re.findall(r"\w+", path)]
        holder = document
        for step in steps:
            holder = holder[step]
        if value is GONE:
            del holder[last]
        else:
            holder[last] = value

    return json.dumps(document).encode()


def problems(data: bytes, chip: str | None = None, *, is_unconverted: bool = False) -> list[Found]:
    """Return severity, path, sentence and code of each problem of a document."""
    table = codec.examine(data, source="a.json")
    found = checks.check_document(table, chip=chip, is_unconverted=is_unconverted)

    return [(problem.severity, problem.path, problem.sentence, problem.code) for problem in found]


def sentences(table: RankTable, chip: str | None = None) -> list[tuple[Severity, str]]:
    """Return severity and sentence of each problem of a table."""
    return [(problem.severity, problem.sentence) for problem in checks.check(table, chip=chip)]


def servers_with(*device_ids: tuple[int, ...], version: str = "1.0") -> RankTable:
    """Return a table with these devices on each server and without any problem."""
    ranks = iter(range(1000))
    return RankTable(
        version=version,
        servers=tuple(
            Server(
                server_id=f"10.0.0.{index}",
                devices=tuple(
                    Device(device_id=device_id, device_ip=f"192.168.{index}.{device_id}", rank_id=next(ranks))
                    for device_id in ids
                ),
            )
            for index, ids in enumerate(device_ids)
        ),
    )
