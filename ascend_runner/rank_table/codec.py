"""Bytes to rank table and back. Sees by a document's content which dialect it is; the only module that knows orjson.

`loads` tells two kinds of trouble apart: a document that may still become a table (RankTableNotReadyError: empty, half
of a JSON text, or its status is not "completed"), and one that is complete but no table (RankTableFormatError).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import orjson

from ascend_runner.errors import RankTableError, RankTableFormatError, RankTableNotReadyError
from ascend_runner.rank_table import foreign, group_list, lab_list, packed, pieces, rank_list, server_list
from ascend_runner.rank_table.fields import Fields, Problems, shown
from ascend_runner.rank_table.findings import BAD_TABLE, MISSING_FIELD, as_error
from ascend_runner.rank_table.invariants import find_problems, is_sound
from ascend_runner.rank_table.model import RANK_LIST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ascend_runner.rank_table.model import Draft, RankTable

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"  # HCCL's parser passes over it, orjson does not
WIDE_MARKS: Final = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")  # of UTF-16 and UTF-32
# A whole number that may need more than 64 bits, once the document is reduced to "0" for digits, " " for what can stand
# before a number, and "x" for the rest.
LONG_NUMBER: Final = b" " + 19 * b"0"
SHAPES: Final = bytes(
    ord("0" if code in b"0123456789" else " " if code in b" \t\r\n[:,-" else "x") for code in range(256)
)
COMPLETED: Final = "completed"
LISTS: Final = ("server_list", "rank_list", "group_list")
FORMAT: Final = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE  # people look at these files


@attrs.frozen
class Reading:
    """What one look at a complete document gave: what it says, and what keeps that from being a table.

    `size` is that of the document in bytes, unpacked; `is_packed` tells whether it was packed.
    """

    draft: Draft
    problems: tuple[RankTableFormatError, ...]
    size: int = 0
    is_packed: bool = False


def loads(data: bytes, *, source: str = "the rank table", lists_decide: bool = False) -> RankTable:
    """Read a completed rank table of any dialect; `source` is its name in sentences.

    A count that contradicts its list is refused; with `lists_decide` it is a warning, and what is written is right.

    Raises RankTableNotReadyError and RankTableFormatError: see the head of this module. The latter's `others` are all
    that is wrong besides, what HCCL would refuse in any table included.
    """
    document = _unpack(data, source)
    draft, problems = _decode(document, Problems(source, lists_decide))
    if not problems.found() and is_sound(draft.servers):
        return draft.table()

    from ascend_runner.rank_table import checks  # only a document with problems pays for it

    problems.extend(find_problems(draft))
    raise as_error(checks.check_reading(Reading(draft, problems.found())))


def examine(data: bytes, *, source: str = "the rank table") -> Reading:
    """Read a completed document of any dialect, and tell all that keeps it from being a table.

    Raises as `loads` does where it is not completed, or of no dialect.
    """
    document = _unpack(data, source)
    draft, problems = _decode(document, Problems(source))
    problems.extend(find_problems(draft))

    return Reading(draft, problems.found(), len(document), document is not data)


def dumps(table: RankTable) -> bytes:
    """Write the document that HCCL reads: the same bytes for equal tables, on every node.

    A server list ("template 1"), or a rank list where that is what the table was.
    """
    dialect = rank_list if table.dialect == RANK_LIST else server_list

    return _print(dialect.encode(table), dialect.encode_entry)


def dumps_group_list(table: RankTable) -> bytes:
    """Write a table as a group list ("template 2"); RankTableError where no group list says the same."""
    return _print(group_list.encode(table))


def parse(data: bytes, *, source: str = "the rank table") -> object:
    """Give the document as JSON has it, unpacked; RankTableNotReadyError where it is none."""
    return _parse(_unpack(data, source), source)


def hand_on(table: RankTable, data: bytes) -> bytes:
    """Give what HCCL is to read for a table that was read from `data`: the same, unpacked, where HCCL can read it."""
    return _unpack(data, table.source) if table.is_native else dumps(table)


def _print(document: Mapping[str, object], encode_entry: Callable[[object], object] | None = None) -> bytes:
    try:
        return orjson.dumps(document, encode_entry, option=FORMAT)
    except orjson.JSONEncodeError:
        return _print_slowly(document, encode_entry)


def _print_slowly(document: Mapping[str, object], encode_entry: Callable[[object], object] | None) -> bytes:
    """Write what orjson cannot: whole numbers of more than 64 bits, and deeper nesting."""
    import json

    try:
        return f"{json.dumps(document, default=encode_entry, ensure_ascii=False, indent=2)}\n".encode()
    except (ValueError, RecursionError) as error:  # half of a surrogate pair, say, in a server_id
        raise RankTableError(f"the table cannot be written as JSON: {error}") from None


def _unpack(data: bytes, source: str) -> bytes:
    if not packed.is_packed(data):
        return data

    try:
        return packed.unpack(data, source=source)
    except packed.NotPackedError as error:
        raise _not_ready(source, f"it is packed, but broken: {error}") from None


def _parse(data: bytes, source: str) -> object:
    if not data or data.isspace():
        raise _not_ready(source, "it is empty")
    if data.startswith(WIDE_MARKS):
        raise RankTableFormatError("the document is UTF-16 or UTF-32, expected UTF-8", source=source, code=BAD_TABLE)

    has_long_number = LONG_NUMBER in data.translate(SHAPES)
    try:
        document = orjson.loads(data.removeprefix(BYTE_ORDER_MARK))
    except orjson.JSONDecodeError as error:
        why = _why_not_json(data, error)
        if not _is_whole(data):
            raise _not_ready(source, f"it {why}") from None
        raise RankTableFormatError(f"the document {why}", source=source, code=BAD_TABLE) from None

    return _parse_exactly(data, document) if has_long_number else document


def _parse_in_pieces(data: bytes) -> dict[str, object] | None:
    """Parse a long rank list without having all of its ranks at once; None for any other document."""
    try:
        document = pieces.parse(data, "rank_list", orjson.loads)
    except orjson.JSONDecodeError:
        return None
    if not document or document.keys() & LISTS != {"rank_list"} or LONG_NUMBER in data.translate(SHAPES):
        return None

    return document


def _parse_exactly(data: bytes, document: object) -> object:
    """Parse what orjson takes, but keep every digit of whole numbers, unless the document is too deep for that."""
    import json  # no real table has such numbers

    try:
        return json.loads(data)
    except RecursionError:
        return document


def _is_whole(data: bytes) -> bool:
    """Whether a more lenient parser takes a document (NaN, huge numbers, any depth): then it is not half of one."""
    import json  # only a document that is not ready pays for it

    try:
        json.loads(data, parse_int=str)  # int() refuses thousands of digits
    except RecursionError:
        return True
    except ValueError:
        return False

    return True


def _why_not_json(data: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        data.decode()
    except UnicodeDecodeError as not_text:  # orjson gives no position for it
        return f"is not JSON: byte {not_text.start} is not UTF-8"

    return f"is not JSON at line {error.lineno} column {error.colno}: {error.msg}"


def _decode(data: bytes, problems: Problems) -> tuple[Draft, Problems]:
    source = problems.source
    document = _parse_in_pieces(data) or _parse(data, source)
    if not isinstance(document, dict):
        sentence = f"the document is {shown(document)}, expected an object"
        raise RankTableFormatError(sentence, source=source, code=BAD_TABLE)

    decode = _find_decoder(document, source)
    draft = decode(Fields(problems, document))
    if problems.miscounts:
        draft = attrs.evolve(draft, notes=(*draft.notes, *problems.miscounts), is_native=False)

    return draft, problems


def _find_decoder(document: Mapping[str, object], source: str) -> Callable[[Fields], Draft]:
    """Find the decoder of a completed document's dialect."""
    stranger = foreign.name_of(document)
    if stranger:
        sentence = f"the document is {stranger}, expected a job's rank table with group_list, server_list or rank_list"
        raise RankTableFormatError(sentence, source=source, code=BAD_TABLE)

    decode = _decoder_of(document)
    status = document.get("status")
    if isinstance(status, str) and status != COMPLETED:
        raise _not_ready(source, f"its status is {shown(status)}")
    if decode is None:
        sentence = "the document is no rank table: it has neither group_list, server_list nor rank_list"
        raise RankTableFormatError(sentence, source=source, code=BAD_TABLE)
    # A rank list need not have a status. For the others HCCL wants one.
    if status != COMPLETED and ("status" in document or decode is not rank_list.decode):
        found = shown(status) if "status" in document else "missing"
        sentence = f"status is {found}, expected '{COMPLETED}'"
        raise RankTableFormatError(sentence, path="status", source=source, code=MISSING_FIELD)

    return decode


def _decoder_of(document: Mapping[str, object]) -> Callable[[Fields], Draft] | None:
    """Go by the list that holds something: an empty one of another dialect may stand beside it."""
    there = [key for key in LISTS if key in document]
    key = next((key for key in there if document[key]), there[0] if there else "")
    if key == "server_list":
        return server_list.decode
    if key == "rank_list":
        return rank_list.decode
    if key == "group_list":
        return lab_list.decode if lab_list.MARK in document else group_list.decode

    return None


def _not_ready(source: str, reason: str) -> RankTableNotReadyError:
    return RankTableNotReadyError(f"{source} is not a completed rank table: {reason}", reason=reason)
