"""The fixture files of platforms: variables as a platform sets them, and what they are expected to come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ascend_runner.platforms.node import Said

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).parents[2] / "fixtures" / "platforms"


class Case(NamedTuple):
    """One file: `expected` holds its parts by name, as JSON (hence Any)."""

    variables: Mapping[str, str]
    said: Said
    expected: Mapping[str, Any]


def names(part: str) -> list[str]:
    """Name the files that have a part: node, ranks, single."""
    return sorted(path.stem for path in FOLDER.glob("*.json") if part in json.loads(path.read_text("utf-8")))


def load(name: str) -> Case:
    """Read one file."""
    document = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return Case(document["variables"], Said(**document.get("said", {})), document)
