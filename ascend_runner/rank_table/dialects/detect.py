"""Which dialect a document is written in, by its content: the one list of the dialects' decoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from ascend_runner.problems import RankTableFormatError
from ascend_runner.rank_table.dialects import foreign, group_list, lab_list, rank_list, server_list
from ascend_runner.rank_table.fields import Fields, missing, shown
from ascend_runner.rank_table.model import Dialect
from ascend_runner.rank_table.problems import BAD_TABLE, MISSING_FIELD, error, not_ready
from ascend_runner.rank_table.table import ParsedTable

COMPLETED: Final = "completed"
# The list that makes a document one of a dialect.
LISTS: Final[Mapping[str, Dialect]] = {
    "server_list": Dialect.SERVER_LIST,
    "rank_list": Dialect.RANK_LIST,
    "group_list": Dialect.GROUP_LIST,
}
DECODERS: Final[Mapping[Dialect, Callable[[Fields], ParsedTable]]] = {
    Dialect.SERVER_LIST: server_list.decode,
    Dialect.RANK_LIST: rank_list.decode,
    Dialect.GROUP_LIST: group_list.decode,
    Dialect.LAB_LIST: lab_list.decode,
}


def find_dialect(document: Mapping[str, object], source: str) -> Dialect:
    """Return the dialect of a completed document.

    Raises:
        RankTableNotReadyError: The document is not completed.
        RankTableFormatError: The document is not a job's rank table.
    """
    name = foreign.name_of(document)
    if name:
        sentence = f"the document is {name}, expected a job's rank table with group_list, server_list or rank_list"
        _refuse(sentence, source)

    dialect = _dialect_of(document)
    status = document.get("status")
    if isinstance(status, str) and status != COMPLETED:
        raise not_ready(source, f"its status is {shown(status)}")
    if dialect is None:
        _refuse("the document is not a rank table, expected group_list, server_list or rank_list", source)
    # A rank list need not have a status. For the others HCCL requires one.
    if status != COMPLETED and ("status" in document or dialect is not Dialect.RANK_LIST):
        found = f"status is {shown(status)}, expected '{COMPLETED}'" if "status" in document else missing("status")
        raise RankTableFormatError([error(found, path="status", source=source, code=MISSING_FIELD)])

    return dialect


def _dialect_of(document: Mapping[str, object]) -> Dialect | None:
    """Go by the list that has entries: an empty list of another dialect may be present too."""
    present = [key for key in LISTS if key in document]
    if not present:
        return None

    dialect = LISTS[next((key for key in present if document[key]), present[0])]
    return Dialect.LAB_LIST if dialect is Dialect.GROUP_LIST and lab_list.MARK in document else dialect


def _refuse(sentence: str, source: str) -> NoReturn:
    raise RankTableFormatError([error(sentence, source=source, code=BAD_TABLE)])
