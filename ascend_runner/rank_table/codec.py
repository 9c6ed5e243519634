"""Bytes to rank table and back, in any dialect.

Two kinds of failure are kept apart: a document that may still become a table (RankTableNotReadyError: it is empty, only
a part, or its status is not "completed"), and one that is complete but not a table (RankTableFormatError).

orjson reads and writes. The standard library's json does what orjson cannot: whole numbers of more than 64 bits, deep
nesting, and telling half a document from one that orjson merely rejects.
"""

from __future__ import annotations

import binascii
import json
import zlib
from collections.abc import Iterator
from typing import Final

import attrs
import orjson

from ascend_runner.errors import RankTableError
from ascend_runner.problems import RankTableFormatError
from ascend_runner.rank_table import checks, dialects, group_list, server_list
from ascend_runner.rank_table.fields import Document, Fields, shown
from ascend_runner.rank_table.model import RankTable, find_errors

NAME: Final = "the rank table"  # what sentences call a document without a name
PACKED: Final = b"H4sI"  # base64 of gzip's magic number and method; no JSON begins with it
LARGEST: Final = 1 << 30  # bytes, unpacked: HCCL's limit for its largest tables
CHUNK: Final = 1 << 20  # bytes
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"  # HCCL's parser skips it, orjson does not
WIDE_MARKS: Final = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")  # byte order marks of UTF-16 and UTF-32
# A whole number that may need more than 64 bits, once the document is reduced to "0" for digits, " " for what can
# precede a number, and "x" for the rest.
LONG_NUMBER: Final = b" " + 19 * b"0"
_SHAPE_OF: Final = {**dict.fromkeys(b"0123456789", ord("0")), **dict.fromkeys(b" \t\r\n[:,-", ord(" "))}
SHAPES: Final = bytes(_SHAPE_OF.get(code, ord("x")) for code in range(256))
FORMAT: Final = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE  # people read these files


def loads(data: bytes | str, *, source: str = NAME, lists_decide: bool = False) -> RankTable:
    """Read a completed rank table of any dialect; `source` is its name in sentences.

    With `lists_decide`, a count that contradicts its list is a warning instead of an error, and is corrected in what
    is written.

    Raises:
        RankTableNotReadyError: The document is not completed.
        RankTableFormatError: The document is not a table; carries every problem, also of HCCL's checks.
        TypeError: `data` is neither bytes nor str.
    """
    if isinstance(data, str):
        data = data.encode(errors="surrogatepass")
    if not isinstance(data, bytes):
        raise TypeError(f"expected bytes or str as the rank table, not {type(data).__name__}")
    table = _load(data, Document(source, lists_decide))
    if table.errors:
        raise RankTableFormatError(checks.check_document(table))

    return table


def examine(data: bytes, *, source: str = NAME) -> RankTable:
    """Read a completed document of any dialect, sound or not: see `RankTable.errors`.

    Raises:
        RankTableNotReadyError: The document is not completed.
        RankTableFormatError: The document is not JSON, or in none of the dialects.
    """
    return _load(data, Document(source))


def dumps(table: RankTable) -> bytes:
    """Return the document that HCCL reads: the same bytes for equal tables, on every node.

    A server list ("template 1"), or a rank list if that is the dialect of the table.
    """
    encode = dialects.ENCODERS.get(table.dialect, server_list.encode)
    return _encode(encode(table))


def dumps_group_list(table: RankTable) -> bytes:
    """Return a table as a group list ("template 2").

    Raises:
        RankTableError: No group list is equivalent to the table.
    """
    return _encode(group_list.encode(table))


def to_hccl_bytes(table: RankTable) -> bytes:
    """Return the bytes for HCCL: the ones that were read, unpacked, if HCCL can read them."""
    return table.data if table.is_native else dumps(table)


def unpack(data: bytes, document: Document, *, largest: int = LARGEST) -> bytes:
    """Return the document inside base64 of gzip, which CCE writes if compression is enabled; others as they are.

    Raises:
        RankTableNotReadyError: The packed data is damaged or truncated.
        RankTableFormatError: The document has more than `largest` bytes.
    """
    if data.lstrip()[: len(PACKED)] != PACKED:
        return data

    try:
        zipped = binascii.a2b_base64(data)
        size = 0
        for chunk in _chunks(zipped):  # without keeping the chunks, so that a huge document cannot exhaust the memory
            size += len(chunk)
            if size > largest:
                raise document.refusal(f"the packed table is larger than {largest} bytes when unpacked")

        return b"".join(_chunks(zipped))
    except (binascii.Error, EOFError, zlib.error) as broken:
        raise document.not_ready(f"it is packed, but damaged: {broken}", is_damaged=True) from None


def parse(data: bytes, document: Document) -> object:
    """Return the JSON of an unpacked document; whole numbers keep every digit.

    Raises:
        RankTableNotReadyError: The data is empty or only a part of a document.
        RankTableFormatError: The data is complete, but not JSON as HCCL reads it.
    """
    if not data or data.isspace():
        raise document.not_ready("it is empty")
    if data.startswith(WIDE_MARKS):
        raise document.refusal("the document is UTF-16 or UTF-32, expected UTF-8")

    try:
        parsed = orjson.loads(data.removeprefix(BYTE_ORDER_MARK))
    except orjson.JSONDecodeError as failed:
        why = _why_not_json(data, failed)
        if not _is_whole(data):
            raise document.not_ready(f"it {why}", is_damaged=True) from None
        raise document.refusal(f"the document {why}") from None

    if LONG_NUMBER not in data.translate(SHAPES):
        return parsed
    try:
        return json.loads(data)
    except RecursionError:  # too deep for exact digits
        return parsed


def _load(data: bytes, document: Document) -> RankTable:
    unpacked = unpack(data, document)
    top = parse(unpacked, document)
    if not isinstance(top, dict):
        raise document.refusal(f"the document is {shown(top)}, expected an object")

    decode = dialects.DECODERS[dialects.find_dialect(top, document)]
    draft = decode(Fields(document, top))
    document.problems += find_errors(draft.servers, draft.dialect, draft.layout, draft.source)

    return attrs.evolve(
        draft,
        notes=document.warnings,
        errors=document.errors or None,
        data=unpacked,
        is_packed=unpacked is not data,
    )


def _chunks(zipped: bytes) -> Iterator[bytes]:
    """Unzip chunk by chunk. The input is cut too, as zlib copies what it has not consumed at every call."""
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # 16: with gzip's header
    fed = 0
    while not unpacker.eof:
        chunk = unpacker.unconsumed_tail
        if not chunk:
            chunk = zipped[fed : fed + CHUNK]
            fed += len(chunk)
        unpacked = unpacker.decompress(chunk, CHUNK)
        if not chunk and not unpacked:
            raise EOFError("unexpected end of data")
        yield unpacked


def _encode(document: object) -> bytes:
    """Return the document as indented JSON.

    Raises:
        RankTableError: The document holds what JSON cannot express, such as half of a surrogate pair.
    """
    try:
        return orjson.dumps(document, option=FORMAT)
    except orjson.JSONEncodeError:
        pass

    try:
        return f"{json.dumps(document, ensure_ascii=False, indent=2)}\n".encode()
    except (ValueError, RecursionError) as failed:
        raise RankTableError(f"the table cannot be written as JSON: {failed}") from None


def _is_whole(data: bytes) -> bool:
    """Whether a more lenient parser accepts the document (NaN, huge numbers, any depth)."""
    try:
        json.loads(data, parse_int=str)  # int() rejects thousands of digits
    except RecursionError:
        return True
    except ValueError:
        return False

    return True


def _why_not_json(data: bytes, failed: orjson.JSONDecodeError) -> str:
    try:
        data.decode()
    except UnicodeDecodeError as not_text:  # orjson gives no position for it
        return f"is not JSON: byte {not_text.start} is not UTF-8"

    return f"is not JSON at line {failed.lineno} column {failed.colno}: {failed.msg}"
