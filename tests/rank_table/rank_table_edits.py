"""Fixtures with a change: a table that HCCL would refuse differs from a good one in one place."""

from __future__ import annotations

import json
import re
from typing import Any

from ascend_runner.rank_table import checks, codec
from tests.rank_table.rank_table_files import valid

GONE: Any = object()


def edited(name: str, **changes: Any) -> bytes:
    """Give a valid fixture with other values at some paths, such as "server_list[0].server_id"; GONE takes one away."""
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


def findings(data: bytes, chip: str | None = None, **options: Any) -> list[tuple[str, str, str, str]]:
    """Tell severity, path, sentence and code of what is found about a document."""
    found = checks.check_reading(codec.examine(data, source="a.json"), "", chip, **options)

    return [(finding.severity, finding.path, finding.sentence, finding.code) for finding in found]
