"""Known lines for ranks to write, and a check that a log or a console holds each of them, complete and once."""

from __future__ import annotations

import os
import re
from typing import Final

from benchmark.measure import read, write

LENGTH: Final = 100  # bytes, with the newline


class Lines:
    """Files `<path>-0`, `<path>-1` and so on, of lines that hold their rank and number."""

    def __init__(self, folder: str, ranks: int, lines_each: int) -> None:
        """Write the files."""
        self.path = os.path.join(folder, "lines")
        self._texts = {rank: _text(rank, lines_each) for rank in range(ranks)}
        for rank, text in self._texts.items():
            write(f"{self.path}-{rank}", text)

    def count_wrong_in_logs(self, folder: str) -> int:
        """Count the missing and the extra lines in the log files of a directory."""
        names = {re.sub(r".*-rank-(\d+)-.*", r"\1", name): name for name in os.listdir(folder)}
        return sum(
            _differences(text, read(os.path.join(folder, names[str(rank)]))) for rank, text in self._texts.items()
        )

    def count_wrong_on_console(self, path: str) -> int:
        """Count the missing and the extra lines on a console with prefixes."""
        shown: dict[bytes, list[bytes]] = {b"[rank %d" % rank: [] for rank in self._texts}
        strays = 0
        for line in read(path).splitlines(keepends=True):
            prefix, _, text = line.partition(b"] ")
            if prefix in shown:
                shown[prefix].append(text)
            else:
                strays += 1
        texts = zip(self._texts.values(), shown.values())
        return strays + sum(_differences(text, b"".join(lines)) for text, lines in texts)


def _text(rank: int, lines: int) -> bytes:
    return b"".join((b"rank %d line %d " % (rank, number)).ljust(LENGTH - 1, b".") + b"\n" for number in range(lines))


def _differences(expected: bytes, found: bytes) -> int:
    if expected == found:
        return 0
    return len(set(expected.split(b"\n")).symmetric_difference(found.split(b"\n"))) or 1
