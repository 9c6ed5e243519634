"""Reports that tests read: each has the members that the schema in the package describes, and no others."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import fastjsonschema

import ascend_runner
from tests.helpers.package_source import PACKAGE

VERSION: Final = b' "runner_version": "%s",\n' % ascend_runner.__version__.encode()
SCHEMA: Final = PACKAGE / "record" / "report.schema.json"
OPEN: Final = "Condition"  # each has members of its own


def read_report(path: Path) -> dict[str, Any]:
    """Return the content of a report that this version of the program has written."""
    document: dict[str, Any] = json.loads(path.read_bytes())
    validate(document)
    return document


def check_reports(folder: Path) -> None:
    """Check the reports below a directory that the program has written, by the form of one line in them."""
    for path in folder.rglob("*-report*.json"):
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        if VERSION in content:
            validate(json.loads(content))


def validate(document: object) -> None:
    """Fail unless a report of this version is what its schema says."""
    _validator()(document)


@functools.cache
def _validator() -> Callable[[object], object]:
    schema = json.loads(SCHEMA.read_bytes())
    for name, one in schema["definitions"].items():
        if "properties" in one and name != OPEN:
            one["additionalProperties"] = False  # which a reader must accept: a later version may have them
    validate: Callable[[object], object] = fastjsonschema.compile(schema)
    return validate
