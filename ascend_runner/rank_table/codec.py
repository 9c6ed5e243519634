"""Bytes to rank table and back. Sees by a document's content which dialect it is; the only module that knows orjson.

`loads` tells two kinds of trouble apart: a document that may still become a table (RankTableNotReadyError: empty, not
JSON, or its status is not "completed"), and one that is complete but no table (RankTableFormatError).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from ascend_runner.errors import RankTableFormatError, RankTableNotReadyError
from ascend_runner.rank_table import group_list, server_list
from ascend_runner.rank_table.fields import Fields, Problems, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ascend_runner.rank_table.model import RankTable

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"  # HCCL's parser passes over it, orjson does not
COMPLETED: Final = "completed"

# The key that only a table of this dialect has at its top.
DIALECTS: Final[Mapping[str, Callable[[Fields], RankTable]]] = {
    "group_list": group_list.decode,
    "server_list": server_list.decode,
}


def loads(data: bytes, *, source: str = "the rank table") -> RankTable:
    """Read a completed rank table of any dialect; `source` is its name in sentences.

    Raises RankTableNotReadyError and RankTableFormatError: see the head of this module.
    """
    document = _parse(data, source)
    if not isinstance(document, dict):
        raise RankTableFormatError(f"the document is {shown(document)}, expected an object", source=source)

    _check_status(document, source)
    top = Fields(Problems(source), document)
    try:
        table = _decoder(document, source)(top)
    except RankTableFormatError as error:
        top.problems.extend((error, *error.others))
    if not top.problems.is_empty():
        raise top.problems.as_error()

    return table


def dumps(table: RankTable) -> bytes:
    """Write a table as a server-list document ("template 1"): the same bytes for equal tables, on every node."""
    return orjson.dumps(server_list.encode(table), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def hand_on(table: RankTable, data: bytes) -> bytes:
    """Give what HCCL is to read for a table that was read from `data`: `data` itself where HCCL can read that."""
    return data if table.is_native else dumps(table)


def _parse(data: bytes, source: str) -> object:
    if not data or data.isspace():
        raise _not_ready(source, "it is empty")

    try:
        return orjson.loads(data.removeprefix(BYTE_ORDER_MARK))
    except orjson.JSONDecodeError as error:
        raise _not_ready(source, _why_not_json(data, error)) from None


def _why_not_json(data: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        data.decode()
    except UnicodeDecodeError as not_text:  # orjson gives no position for it
        return f"it is not JSON: byte {not_text.start} is not UTF-8"

    return f"it is not JSON at line {error.lineno} column {error.colno}: {error.msg}"


def _check_status(document: Mapping[str, object], source: str) -> None:
    status = document.get("status")
    if status == COMPLETED:
        return

    if isinstance(status, str):
        raise _not_ready(source, f"its status is {shown(status)}")

    if not DIALECTS.keys().isdisjoint(document):
        what = f"{shown(status)}" if "status" in document else "missing"
        raise RankTableFormatError(f"status is {what}, expected '{COMPLETED}'", path="status", source=source)


def _decoder(document: Mapping[str, object], source: str) -> Callable[[Fields], RankTable]:
    for key, decode in DIALECTS.items():
        if key in document:
            return decode

    keys = " nor ".join(f"'{key}'" for key in DIALECTS)
    raise RankTableFormatError(f"the document is no rank table: it has neither {keys}", source=source)


def _not_ready(source: str, reason: str) -> RankTableNotReadyError:
    return RankTableNotReadyError(f"{source} is not a completed rank table: {reason}", reason=reason)
