"""The packed form: base64 of gzip of the JSON."""

from __future__ import annotations

import base64
import gzip
import json
import random
import tracemalloc

import pytest

from ascend_runner.errors import RankTableNotReadyError
from ascend_runner.problems import RankTableFormatError
from ascend_runner.rank_table import codec
from ascend_runner.rank_table.fields import BAD_TABLE, Document
from tests.rank_table.rank_table_edits import WARNING, problems
from tests.rank_table.rank_table_files import valid


def test_packed_table_is_unpacked() -> None:
    """HCCL is given the unpacked document, byte for byte."""
    data = valid("server_list_packed")
    document = gzip.decompress(base64.b64decode(data))

    assert document == codec.to_hccl_bytes(codec.loads(data))
    assert 2 == len(json.loads(document)["server_list"][0]["device"])


@pytest.mark.parametrize("end", range(4, 150, 7))
def test_truncated_packed_table(end: int) -> None:
    """A truncated packed table is not ready yet."""
    with pytest.raises(RankTableNotReadyError):
        codec.unpack(valid("server_list_packed")[:end], Document("a.json"))


def test_size_is_bounded() -> None:
    """A document that exceeds the limit when unpacked is rejected."""
    bomb = base64.b64encode(gzip.compress(b" " * 1001))

    assert 1001 == len(codec.unpack(bomb, Document("a.json"), largest=1001))
    with pytest.raises(RankTableFormatError) as caught:
        codec.unpack(bomb, Document("a.json"), largest=1000)
    assert ["the packed table is larger than 1000 bytes when unpacked"] == [
        problem.sentence for problem in caught.value.problems
    ]


def test_large_document_is_rejected_without_keeping_it() -> None:
    """Rejecting a document that is too large does not keep it in memory."""
    bomb = base64.b64encode(gzip.compress(bytes(64 << 20)))

    tracemalloc.start()
    with pytest.raises(RankTableFormatError):
        codec.unpack(bomb, Document("a.json"), largest=(64 << 20) - 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 8 << 20


@pytest.mark.parametrize("size", [codec.CHUNK - 1, codec.CHUNK, codec.CHUNK + 1, 5 * codec.CHUNK + 3])
def test_chunks_are_joined(size: int) -> None:
    """A document of several chunks is unpacked completely."""
    document = random.Random(size).randbytes(size)  # noqa: S311 - the same each time

    assert document == codec.unpack(base64.b64encode(gzip.compress(document, 1)), Document("a.json"))


def test_packed_table_without_conversion() -> None:
    """A packed table is a warning if it is used without conversion; its size is that of the unpacked document."""
    data = valid("server_list_packed")
    sentence = "the table is packed (base64 of gzip), which HCCL cannot read without conversion"

    assert [(WARNING, "", sentence, BAD_TABLE)] == problems(data, is_unconverted=True)
    assert [] == problems(data)
    assert gzip.decompress(base64.b64decode(data)) == codec.examine(data).data


def test_mark() -> None:
    """Packed documents are recognized by their first bytes."""
    for data in (b"{}", b"", b" H4s"):
        assert data is codec.unpack(data, Document("a.json"))
    for data in (b"H4sIAAAA", b"\nH4sI"):
        with pytest.raises(RankTableNotReadyError):
            codec.unpack(data, Document("a.json"))
