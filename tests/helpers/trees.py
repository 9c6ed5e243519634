"""Trees of files that stand for the /dev, /proc and /sys of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ascend_runner.node.host import Host


def tree(folder: Path, files: Mapping[str, str]) -> str:
    """Create files by their paths, and return the directory that stands for the machine's root."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def host(folder: Path, files: Mapping[str, str]) -> Host:
    """Create files by their paths, and return the machine that they describe."""
    return Host(tree(folder, files))
