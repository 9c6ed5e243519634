"""A pipe holds more when it was grown, and whatever is no pipe stays as it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ascend_runner.linux import pipe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def writer() -> Iterator[int]:
    """Give the write end of a pipe."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    yield writer
    os.close(reader)
    os.close(writer)


def test_pipe_is_grown(writer: int) -> None:
    """So much fits without a reader."""
    pipe.grow(writer)

    assert pipe.SIZE == os.write(writer, bytes(pipe.SIZE))


def test_file_is_left_alone(tmp_path: Path) -> None:
    """A console that is a file is no error."""
    with (tmp_path / "console").open("wb") as file:
        pipe.grow(file.fileno())
