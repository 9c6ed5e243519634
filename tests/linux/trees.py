"""Trees of files that stand for /dev, /proc and /sys of some machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def tree(folder: Path, files: Mapping[str, str]) -> str:
    """Lay out files by their paths; the folder that stands for the machine's root."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)
