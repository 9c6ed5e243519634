"""A pipe holds more after grow(), and any other file stays as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_runner.output import pipe


@pytest.fixture
def writer() -> Iterator[int]:
    """Yield the write end of a pipe."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    yield writer
    os.close(reader)
    os.close(writer)


def test_pipe_is_grown(writer: int) -> None:
    """A grown pipe takes `SIZE` bytes without a reader."""
    pipe.grow(writer)

    assert pipe.SIZE == os.write(writer, bytes(pipe.SIZE))


def test_file_is_left_alone(tmp_path: Path) -> None:
    """grow() ignores a file that is not a pipe."""
    with (tmp_path / "console").open("wb") as file:
        pipe.grow(file.fileno())
