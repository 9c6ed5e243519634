"""The packed form of a rank table, which CCE writes if compression is enabled: base64 of gzip of the JSON."""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Iterator
from typing import Final

from ascend_runner.problems import RankTableFormatError
from ascend_runner.rank_table.problems import BAD_TABLE, error

MARK: Final = b"H4sI"  # base64 of gzip's magic number and method; no JSON begins with it
LARGEST: Final = 1 << 30  # bytes, unpacked: HCCL's limit for its largest tables

CHUNK: Final = 1 << 20  # bytes


class NotPackedError(Exception):
    """The data does not unpack, or not to its end: it may still be being written."""


def is_packed(data: bytes) -> bool:
    """Whether the data is a packed document, or the beginning of one."""
    return data.lstrip()[: len(MARK)] == MARK


def unpack(data: bytes, *, source: str, largest: int = LARGEST) -> bytes:
    """Return the document.

    Raises:
        NotPackedError: The data is damaged or truncated.
        RankTableFormatError: The document has more than `largest` bytes.
    """
    try:
        zipped = binascii.a2b_base64(data)
        size = 0
        for chunk in _chunks(zipped):  # once without keeping the chunks, so that a huge one cannot exhaust the memory
            size += len(chunk)
            if size > largest:
                sentence = f"the packed table is larger than {largest} bytes when unpacked"
                raise RankTableFormatError([error(sentence, source=source, code=BAD_TABLE)])

        return b"".join(_chunks(zipped))
    except (binascii.Error, zlib.error) as broken:
        raise NotPackedError(str(broken)) from None


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
            raise NotPackedError("unexpected end of data")
        yield unpacked
