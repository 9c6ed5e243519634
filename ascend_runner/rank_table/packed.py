"""The packed form of a rank table, as CCE writes it when told to compress: base64 of gzip of the JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ascend_runner.errors import RankTableFormatError
from ascend_runner.rank_table.findings import BAD_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK: Final = b"H4sI"  # base64 of gzip's magic number and method; no JSON begins with it
LARGEST: Final = 1 << 30  # bytes, unpacked: HCCL's limit for its largest tables

PIECE: Final = 1 << 20  # bytes


class NotPackedError(Exception):
    """The data does not unpack, or not to its end: it may still be written."""


def is_packed(data: bytes) -> bool:
    """Whether the data is a packed document, or the beginning of one."""
    return data.lstrip()[: len(MARK)] == MARK


def unpack(data: bytes, *, source: str, largest: int = LARGEST) -> bytes:
    """Give the document. NotPackedError where it is broken; RankTableFormatError beyond `largest` bytes."""
    import binascii  # few tables are packed
    import zlib

    try:
        zipped = binascii.a2b_base64(data)
        size = 0
        for piece in _pieces(zipped):  # once without keeping anything: what is too large must not fill the memory
            size += len(piece)
            if size > largest:
                sentence = f"the packed table has more than {largest} bytes when it is unpacked"
                raise RankTableFormatError(sentence, source=source, code=BAD_TABLE)

        return b"".join(_pieces(zipped))
    except (binascii.Error, zlib.error) as error:
        raise NotPackedError(str(error)) from None


def _pieces(zipped: bytes) -> Iterator[bytes]:
    """Unzip a piece at a time, from pieces: a tail that is left over is copied each time."""
    import zlib

    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # 16: with gzip's header
    fed = 0
    while not unpacker.eof:
        chunk = unpacker.unconsumed_tail
        if not chunk:
            chunk = zipped[fed : fed + PIECE]
            fed += len(chunk)
        piece = unpacker.decompress(chunk, PIECE)
        if not chunk and not piece:
            raise NotPackedError("it ends too early")
        yield piece
