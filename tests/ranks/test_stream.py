"""A stream keeps what a report shows of a rank's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend_runner.activity import Activity
from ascend_runner.plan.spec import Rotation
from ascend_runner.ranks.log_file import DiskWarnings, LogFile, LogWriter
from ascend_runner.ranks.pump import TAIL_SIZE, Stream


@pytest.mark.parametrize(
    ("written", "tail"),
    [
        ([b""], b""),
        ([b"ab", b"cd"], b"abcd"),
        ([b"a" * TAIL_SIZE, b"b"], b"a" * (TAIL_SIZE - 1) + b"b"),
        ([b"a", b"b" * TAIL_SIZE], b"b" * TAIL_SIZE),
        ([b"a" * (TAIL_SIZE + 1)], b"a" * TAIL_SIZE),
        ([b"%d," % number for number in range(50_000)], b"".join(b"%d," % n for n in range(50_000))[-TAIL_SIZE:]),
    ],
    ids=["nothing", "little", "one-over", "all-new", "one-read", "many-reads"],
)
def test_tail_is_the_last_64_kib(tmp_path: Path, written: list[bytes], tail: bytes) -> None:
    """A stream keeps the end of the output and counts its bytes."""
    file = LogFile(str(tmp_path / "log"), Rotation(), DiskWarnings(print))
    stream = Stream(0, LogWriter(file, 1 << 20, Activity(0.0), DiskWarnings(print)), None)
    for data in written:
        stream.remember(data, 0.0)

    assert (tail == stream.tail) is True
    assert sum(map(len, written)) == stream.activity.size
    file.close()
