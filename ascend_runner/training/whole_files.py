"""Whether a file of a checkpoint is whole, or was cut off while it was written. Needs neither torch nor MindSpore."""

from __future__ import annotations

import json
import os
import pickle
import stat
import struct
import sys

TYPE_CHECKING = False  # typing.Final: Python 3.8

if TYPE_CHECKING:
    from typing import Final

_LONGEST_HEADER: Final = 100_000_000  # bytes; the limit of safetensors itself
_END: Final = struct.Struct("<4s8xLLH")  # the record at the end of an archive
_LARGE_END: Final = struct.Struct("<4s36xQQ4s16x")  # the two records before it in those of torch: for more than 4 GiB
_ZIP: Final = b"PK\x03\x04"
_WITH_A_HEAD: Final = (".ckpt", ".h5", ".hdf5", ".npz", ".pkl", ".pt", ".pth", ".tar")
_HDF5: Final = b"\x89HDF\r\n\x1a\n"
_PICKLE: Final = b"\x80"
_OLD_TORCH: Final = b"\x80\x02\x8a\nl\xfc\x9cF"
_UNPICKLING_ERRORS: Final = (  # errors of a pickle that is cut off or damaged, besides OSError
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
)


def is_archive(path: str) -> bool:
    """Whether a file is a whole zip archive, as torch.save writes them.

    The directory of an archive is at its end, followed by a record that says where it begins. zipfile would also take
    a part of an archive in which bytes of a tensor happen to look like such a record.
    """
    try:
        with open(path, "rb") as file:
            end = file.seek(0, os.SEEK_END) - _END.size
            if end < 0:
                return False
            file.seek(end)
            signature, length, start, comment = _END.unpack(file.read())
            if signature != b"PK\x05\x06" or comment:
                return False
            if end >= _LARGE_END.size:
                file.seek(end - _LARGE_END.size)
                large, large_length, large_start, pointer = _LARGE_END.unpack(file.read(_LARGE_END.size))
                if large == b"PK\x06\x06" and pointer == b"PK\x06\x07":
                    length, start, end = large_length, large_start, end - _LARGE_END.size
            file.seek(start)
            return bool(start + length == end) and file.read(4) == b"PK\x01\x02"
    except FileNotFoundError:
        return False


def lack_of_file(path: str) -> str:
    """Return in a clause what a checkpoint that is one file lacks, "" if it is whole.

    MindSpore's format, tensors one after another, shows no end; but it makes the file read-only when it is written.
    """
    with open(path, "rb") as file:
        start, mode = file.read(1), os.fstat(file.fileno()).st_mode
    is_writable = mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    if not start:
        return "it is empty"
    if path.endswith(".ckpt") and is_writable and start not in {_ZIP[:1], _PICKLE, _HDF5[:1]}:
        return "it is still writable, and MindSpore makes it read-only when it is complete"
    return "it is truncated" if is_cut_off(path) else ""


def is_cut_off(path: str) -> bool:
    """Whether a file in a checkpoint lacks its end. A format that does not show it counts as whole."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        start = file.read(8)
        if path.endswith(".safetensors"):  # the length of a header, the header with the places of the tensors
            try:
                header = json.loads(file.read(min(_LONGEST_HEADER, int.from_bytes(start, "little"))))
                ends = [value["data_offsets"][1] for name, value in header.items() if name != "__metadata__"]
                return bool(size < file.tell() + max(ends, default=0))
            except (AttributeError, LookupError, TypeError, ValueError):
                return True
        file.seek(max(0, size - 1))
        end = file.read(1)
    if start.startswith(_PICKLE) and not start.startswith(_OLD_TORCH):
        return end != b"."  # unlike the old format of torch, in which tensors follow
    if not start.strip(b"\0"):  # empty, or all that is left after a loss of power
        return path.endswith(_WITH_A_HEAD) or (not start and path.endswith(".bin"))
    if _HDF5.startswith(start):
        return size < _hdf5_size(path)
    is_many = path.endswith(".distcp")  # several archives in one file, whose lengths are in .metadata
    return (start[:4] == _ZIP or _ZIP.startswith(start)) and not is_many and not is_archive(path)


def _hdf5_size(path: str) -> int:
    """Return the size of a file that its HDF5 superblock tells, of the versions 0 and 1, or 2 and 3."""
    with open(path, "rb") as file:
        block = file.read(64)
    at = {0: 40, 1: 44}.get(block[8] if len(block) > 8 else 0, 28)  # noqa: PLR2004  where the version is
    return int.from_bytes(block[at : at + 8], "little") if len(block) >= at + 8 else sys.maxsize


def is_trainer_state(path: str) -> bool:
    """Whether a file is a JSON object; no part of one is."""
    try:
        with open(path, "rb") as file:
            return isinstance(json.loads(file.read()), dict)
    except (FileNotFoundError, ValueError):
        return False


def are_listed_files_whole(folder: str) -> bool:
    """Whether the files that torch's `.metadata` lists are there and long enough. Nothing in the pickle is run."""
    ends: dict[str, int] = {}
    with open(os.path.join(folder, ".metadata"), "rb") as file:
        try:
            metadata = _InertUnpickler(file).load()
            for place in metadata.storage_data.values():
                ends[place.relative_path] = max(ends.get(place.relative_path, 0), place.offset + place.length)
        except _UNPICKLING_ERRORS:
            return False
    return all(os.path.getsize(os.path.join(folder, name)) >= end for name, end in ends.items())


class _Inert:
    """Takes the place of every class and function that a pickle names, and only keeps attributes."""

    def __new__(cls, *_args: object) -> _Inert:
        return object.__new__(cls)

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)

    def __setitem__(self, key: object, value: object) -> None:
        pass


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, _module: str, _name: str) -> type[_Inert]:
        return _Inert
