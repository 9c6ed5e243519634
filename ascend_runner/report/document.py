"""Encodes reports as JSON."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import datetime
from typing import Final, cast

import attrs
import orjson

from ascend_runner.secrets import Masker

_KEPT: Final = frozenset({"job_id", "log_dir", "rank_table", "ranks"})  # those that others open or compare, and ranks


def encode(document: Mapping[str, object]) -> bytes:
    """Encode the document for readers, grep and jq alike: a line for each member and each item of an array."""
    lines = []
    for name, value in document.items():
        text = orjson.dumps(value)
        if isinstance(value, (list, tuple)) and value:
            text = b"[\n  " + b",\n  ".join(map(orjson.dumps, value)) + b"\n ]"
        lines.append(b' "%s": %s' % (name.encode(), text))
    return b"{\n" + b",\n".join(lines) + b"\n}\n"


def plain_members(report: Mapping[str, object]) -> dict[str, object]:
    """Convert the values of a report to JSON types."""
    return {name: _plain(value) for name, value in report.items()}


def masked(report: Mapping[str, object]) -> dict[str, object]:
    """Return a report with the secrets in its texts masked, and counted with those of its ranks, which are masked."""
    masker = Masker(count=cast("int", report["secrets_masked"]))
    members = masker.members({name: value for name, value in report.items() if name not in _KEPT})
    return {**report, **members, "secrets_masked": masker.count}


def iso(epoch: float) -> str:
    """Format a time in ISO 8601 with milliseconds, to which it is rounded, and the local offset."""
    return datetime.fromtimestamp(round(epoch, 3)).astimezone().isoformat(timespec="milliseconds")


def _plain(value: object) -> object:
    """Convert records to objects, and escape bytes of names and paths that are not UTF-8: JSON has neither."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return list(map(_plain, value))
    members = value if isinstance(value, Mapping) else attrs.asdict(value, recurse=False)  # type: ignore[arg-type]  # a record
    return {str(_plain(name)): _plain(member) for name, member in members.items()}
