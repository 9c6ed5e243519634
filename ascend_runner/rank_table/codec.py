"""Bytes to rank table and back, in any dialect.

Two kinds of failure are kept apart: a document that may still become a table (RankTableNotReadyError: it is empty, only
a part, or its status is not "completed"), and one that is complete but not a table (RankTableFormatError).
"""

from __future__ import annotations

import attrs

from ascend_runner.problems import RankTableFormatError
from ascend_runner.rank_table import invariants, json_document
from ascend_runner.rank_table.checks import entry as checks
from ascend_runner.rank_table.dialects import detect, group_list, packed, rank_list, server_list
from ascend_runner.rank_table.fields import Document, Fields, shown
from ascend_runner.rank_table.model import Dialect
from ascend_runner.rank_table.problems import BAD_TABLE, error, not_ready
from ascend_runner.rank_table.table import ParsedTable, RankTable


def loads(data: bytes, *, source: str = "the rank table", lists_decide: bool = False) -> RankTable:
    """Read a completed rank table of any dialect; `source` is its name in sentences.

    With `lists_decide`, a count that contradicts its list is a warning instead of an error, and is corrected in what
    is written.

    Raises:
        RankTableNotReadyError: The document is not completed.
        RankTableFormatError: The document is not a table; carries every problem, also those of HCCL's checks.
    """
    parsed = _parse(data, Document(source, lists_decide))
    if parsed.problems:
        raise RankTableFormatError(checks.check_parsed(parsed))

    return parsed.table()


def examine(data: bytes, *, source: str = "the rank table") -> ParsedTable:
    """Read a completed document of any dialect, sound or not.

    Raises:
        RankTableNotReadyError: The document is not completed.
        RankTableFormatError: The document is not JSON, or in none of the dialects.
    """
    return _parse(data, Document(source))


def dumps(table: RankTable) -> bytes:
    """Return the document that HCCL reads: the same bytes for equal tables, on every node.

    A server list ("template 1"), or a rank list if that is the dialect of the table.
    """
    encode = rank_list.encode if table.dialect is Dialect.RANK_LIST else server_list.encode

    return json_document.encode(encode(table))


def dumps_group_list(table: RankTable) -> bytes:
    """Return a table as a group list ("template 2").

    Raises:
        RankTableError: No group list is equivalent to the table.
    """
    return json_document.encode(group_list.encode(table))


def parse(data: bytes, *, source: str = "the rank table") -> object:
    """Return the JSON document, unpacked.

    Raises:
        RankTableNotReadyError: The document is empty or only a part.
        RankTableFormatError: The document is not JSON.
    """
    return json_document.decode(_unpack(data, source), source)


def to_hccl_bytes(table: RankTable, data: bytes) -> bytes:
    """Return what HCCL is to read for a table that was read from `data`: the same bytes, unpacked, if it can."""
    return _unpack(data, table.source) if table.is_native else dumps(table)


def _parse(data: bytes, document: Document) -> ParsedTable:
    source = document.source
    unpacked = _unpack(data, source)
    top = json_document.decode(unpacked, source)
    if not isinstance(top, dict):
        sentence = f"the document is {shown(top)}, expected an object"
        raise RankTableFormatError([error(sentence, source=source, code=BAD_TABLE)])

    decode = detect.DECODERS[detect.find_dialect(top, source)]
    parsed = decode(Fields(document, top))
    for problem in invariants.find_problems(parsed.servers, parsed.layout, source):
        document.add(problem)

    return attrs.evolve(
        parsed,
        notes=(*parsed.notes, *document.miscounts),
        is_native=parsed.is_native and not document.miscounts,
        problems=document.problems,
        size=len(unpacked),
        is_packed=unpacked is not data,
    )


def _unpack(data: bytes, source: str) -> bytes:
    if not packed.is_packed(data):
        return data

    try:
        return packed.unpack(data, source=source)
    except packed.NotPackedError as broken:
        raise not_ready(source, f"it is packed, but damaged: {broken}") from None
