"""A machine as a tree of files: where its paths are, and what is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ascend_runner.node.host import READ_LIMIT, Host
from tests.helpers.trees import host


@pytest.mark.parametrize("root", ["", "/"])
def test_the_machine_itself(root: str) -> None:
    """Without a directory, or with /, the paths are those of this machine."""
    assert Host() == Host(root)
    assert "/proc/self" == Host(root).path("/proc/self")
    assert Host(root).is_this_machine


def test_a_tree_of_files(tmp_path: Path) -> None:
    """Every path is read below the root, however it is written."""
    machine = Host(str(tmp_path) + "/")
    host(tmp_path, {"etc/b": "1\n2\n", "etc/a": ""})

    assert not machine.is_this_machine
    assert ["a", "b"] == machine.listdir("/etc")
    assert (b"1\n2\n", "1\n2\n", ["1", "2"]) == (
        machine.read_bytes("/etc/b"),
        machine.read_text("/etc/b"),
        machine.read_lines("/etc/b"),
    )
    assert (True, False) == (machine.exists("/etc/a"), machine.exists("/etc/c"))


@pytest.mark.parametrize("path", ["/missing", "/"])
def test_missing_is_empty(tmp_path: Path, path: str) -> None:
    """A missing file, or a directory in its place, reads as empty; so does a missing directory."""
    machine = Host(str(tmp_path))

    assert (b"", "", []) == (machine.read_bytes(path), machine.read_text(path), machine.read_lines(path))
    assert [] == machine.listdir(path)


def test_reads_are_bounded(tmp_path: Path) -> None:
    """Of an endless file only the first bytes are read; bytes that are not UTF-8 do no harm."""
    os.symlink("/dev/zero", tmp_path / "endless")
    (tmp_path / "odd").write_bytes(b"\xff")

    assert READ_LIMIT == len(Host(str(tmp_path)).read_bytes("/endless"))
    assert "\N{REPLACEMENT CHARACTER}" == Host(str(tmp_path)).read_text("/odd")
