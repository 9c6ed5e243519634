"""Trees of files that stand for the /dev, /proc and /sys of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ascend_runner.host.host import Host


def tree(folder: Path, files: Mapping[str, str]) -> str:
    """Lay out files by their paths; the folder that stands for the machine's root."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def host(folder: Path, files: Mapping[str, str]) -> Host:
    """Lay out files by their paths, as a machine."""
    return Host(tree(folder, files))
