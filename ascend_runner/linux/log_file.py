"""The log file of one rank: every byte in order, rotated between lines, and honest about what a disk did not take.

A full disk, a quota or an I/O error must not stop the training: what cannot be written is counted, by its place in the
rank's output, and the next write tries again. A file that was removed under us is laid down anew with all it held.
"""

from __future__ import annotations

import os

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple
from ascend_runner.errors import OutputError, reason

from . import files

if TYPE_CHECKING:
    from collections.abc import Callable

COPY_SIZE: Final = 1024 * 1024  # bytes


class Rotation(NamedTuple):
    """When a file is put aside: before it would grow over `max_size` bytes (0: never); `backups` of these are kept."""

    max_size: int = 0
    backups: int = 0


class Gap(NamedTuple):
    """Bytes that the file is missing: `size` of them, from `offset` of the rank's output on."""

    offset: int
    size: int


class LogFile:
    """Takes bytes and never fails. `gaps` tells what is missing."""

    def __init__(
        self, path: str, rotation: Rotation, on_change: Callable[[str], None], told: set[str] | None = None
    ) -> None:
        """Open a new file. `on_change(sentence)` is told when writing fails and when it heals. Errors: OutputError.

        `told` is what was said already of a disk that these logs share: each thing is said once. None: they do not.
        """
        self.path = path
        self.gaps: list[Gap] = []
        self._rotation = rotation
        self._on_change = on_change
        self._told: set[str] = set() if told is None else told
        self._fd = files.open_new_log(path)
        self._offset = 0  # of the rank's output
        self._size = 0  # of this file
        self._is_at_line_start = True
        self._is_failing = False

    def write(self, data: bytes) -> None:
        """Append `data`."""
        if os.fstat(self._fd).st_nlink == 0:
            self._lay_down_anew()
        rest = memoryview(data)
        while rest and self._rotation.max_size and self._size + len(rest) > self._rotation.max_size:
            rest = rest[self._fill(data, len(data) - len(rest)) :]
        self._append(rest)

    def close(self) -> None:
        """Close the file. May be called twice."""
        if self._fd >= 0:
            if os.fstat(self._fd).st_nlink == 0:
                self._lay_down_anew()
            fd, self._fd = self._fd, -1
            try:
                os.close(fd)
            except OSError as error:  # network file systems tell only now what they could not write
                self._on_change(f"closing {self.path!r} failed: {reason(error)}; its last lines may be missing")

    def _fill(self, data: bytes, start: int) -> int:
        """Write the whole lines of `data` from `start` on that fit, else put the file aside; how many bytes that was.

        A line that is longer than a whole file stays in one piece.
        """
        end = data.rfind(b"\n", start, start + self._rotation.max_size - self._size) + 1
        if not end and self._is_at_line_start and self._size:
            self._rotate()
            return 0
        if not end:
            end = data.find(b"\n", start) + 1 or len(data)
        self._append(memoryview(data)[start:end])
        return end - start

    def _append(self, data: memoryview) -> None:
        if not data:
            return
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            self._miss(self._offset + written, len(data) - written, error)
        else:
            self._heal()
        self._offset += len(data)
        self._size += written
        self._is_at_line_start = data[-1] == ord("\n")

    def _miss(self, offset: int, size: int, error: OSError) -> None:
        if self.gaps and sum(self.gaps[-1]) == offset:
            self.gaps[-1] = Gap(self.gaps[-1].offset, self.gaps[-1].size + size)
        else:
            self.gaps.append(Gap(offset, size))
        if not self._is_failing:
            self._is_failing = True
            self._tell_once(
                "failing", f"cannot write {self.path!r}: {reason(error)}; the rank goes on, what it writes now is lost"
            )

    def _heal(self) -> None:
        if self._is_failing:
            self._is_failing = False
            self._tell_once(
                "healed", f"{self.path!r} can be written again; {self.gaps[-1].size} bytes are missing in it"
            )

    def _tell_once(self, what: str, sentence: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._on_change(sentence)

    def _rotate(self) -> None:
        """Shift path.1 to path.2 and so on, the file itself to path.1, and begin a new one."""
        try:
            for number in range(self._rotation.backups, 0, -1):
                newer = f"{self.path}.{number - 1}" if number > 1 else self.path
                try:
                    os.replace(newer, f"{self.path}.{number}")
                except FileNotFoundError:
                    continue
            if not self._rotation.backups:
                os.unlink(self.path)
            self._switch_to(files.open_new_log(self.path))
        except (OSError, OutputError) as error:
            self._rotation = Rotation()  # one file that grows is better than none
            self._on_change(f"cannot begin a new {self.path!r}: {error}; the old one goes on")

    def _lay_down_anew(self) -> None:
        """Make the file again that somebody has removed, with what it held: our descriptor still reaches that."""
        try:
            files.make_folder(os.path.dirname(self.path))
            fd = files.open_new_log(self.path)
        except OutputError:
            return  # the bytes go where nobody will read them, yet a later try may save them
        self._on_change(f"{self.path!r} had been removed, and is laid down anew with all it held")
        copied = 0
        try:
            while sent := os.sendfile(fd, self._fd, copied, COPY_SIZE):
                copied += sent
        except OSError as error:
            lost = self._size - copied
            self._miss(self._offset - lost, lost, error)
        self._switch_to(fd)
        self._size = copied

    def _switch_to(self, fd: int) -> None:
        os.close(self._fd)
        self._fd = fd
        self._size = 0
        self._is_at_line_start = True
