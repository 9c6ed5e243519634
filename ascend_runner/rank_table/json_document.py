"""JSON in bytes to a document and back: the one reader and the one writer.

orjson reads and writes. The standard library's json does what orjson cannot: whole numbers of more than 64 bits, deep
nesting, and telling half a document from one that orjson merely rejects.
"""

from __future__ import annotations

import json
from typing import Final

import orjson

from ascend_runner.errors import RankTableError
from ascend_runner.problems import RankTableFormatError
from ascend_runner.rank_table.problems import BAD_TABLE, error, not_ready

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"  # HCCL's parser skips it, orjson does not
WIDE_MARKS: Final = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")  # of UTF-16 and UTF-32
# A whole number that may need more than 64 bits, once the document is reduced to "0" for digits, " " for what can
# precede a number, and "x" for the rest.
LONG_NUMBER: Final = b" " + 19 * b"0"
SHAPES: Final = bytes(
    ord("0" if code in b"0123456789" else " " if code in b" \t\r\n[:,-" else "x") for code in range(256)
)
FORMAT: Final = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE  # people read these files


def decode(data: bytes, source: str) -> object:
    """Return the document, whose whole numbers keep every digit.

    Raises:
        RankTableNotReadyError: The data is empty or only a part of a document.
        RankTableFormatError: The data is complete, but not JSON as HCCL reads it.
    """
    if not data or data.isspace():
        raise not_ready(source, "it is empty")
    if data.startswith(WIDE_MARKS):
        raise _no_json("the document is UTF-16 or UTF-32, expected UTF-8", source)

    try:
        document = orjson.loads(data.removeprefix(BYTE_ORDER_MARK))
    except orjson.JSONDecodeError as failed:
        why = _why_not_json(data, failed)
        if not _is_whole(data):
            raise not_ready(source, f"it {why}") from None
        raise _no_json(f"the document {why}", source) from None

    has_long_number = LONG_NUMBER in data.translate(SHAPES)
    return _decode_exactly(data, document) if has_long_number else document


def encode(document: object) -> bytes:
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


def _decode_exactly(data: bytes, document: object) -> object:
    """Decode what orjson accepted with every digit of whole numbers, unless the document is too deep for that."""
    try:
        return json.loads(data)
    except RecursionError:
        return document


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


def _no_json(sentence: str, source: str) -> RankTableFormatError:
    return RankTableFormatError([error(sentence, source=source, code=BAD_TABLE)])
