"""The fixture files of platforms: the variables that a platform sets, and what is expected of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from ascend_runner.platforms.node import Overrides

FOLDER = Path(__file__).parents[2] / "fixtures" / "platforms"


@attrs.frozen
class Case:
    """One file: `expected` holds its parts by name, as JSON (hence Any)."""

    variables: Mapping[str, str]
    overrides: Overrides
    expected: Mapping[str, Any]


def names(part: str) -> list[str]:
    """Name the files that have a part: node, ranks, single."""
    return sorted(path.stem for path in FOLDER.glob("*.json") if part in json.loads(path.read_text("utf-8")))


def load(name: str) -> Case:
    """Read one file."""
    document = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return Case(document["variables"], Overrides(**document.get("overrides", {})), document)
