"""The packed form of a rank table, as CCE writes it when told to compress: base64 of gzip of the JSON."""

from __future__ import annotations

from typing import Final

from ascend_runner.errors import RankTableFormatError
from ascend_runner.rank_table.findings import BAD_TABLE

MARK: Final = b"H4sI"  # base64 of gzip's magic number and method; no JSON begins with it
LARGEST: Final = 1 << 30  # bytes, unpacked: HCCL's limit for its largest tables


class NotPackedError(Exception):
    """The data does not unpack, or not to its end: it may still be written."""


def is_packed(data: bytes) -> bool:
    """Whether the data is a packed document, or the beginning of one."""
    return data.lstrip()[: len(MARK)] == MARK


def unpack(data: bytes, *, source: str, largest: int = LARGEST) -> bytes:
    """Give the document. NotPackedError where it is broken; RankTableFormatError beyond `largest` bytes."""
    import binascii  # few tables are packed
    import zlib

    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # 16: with gzip's header
    try:
        document = unpacker.decompress(binascii.a2b_base64(data), largest + 1)
    except (binascii.Error, zlib.error) as error:
        raise NotPackedError(str(error)) from None

    if len(document) > largest:
        sentence = f"the packed table has more than {largest} bytes when it is unpacked"
        raise RankTableFormatError(sentence, source=source, code=BAD_TABLE)
    if not unpacker.eof:
        raise NotPackedError("it ends too early")

    return document
