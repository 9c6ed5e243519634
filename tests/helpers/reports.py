"""Reports that tests read: each has the members that the schema in the package describes, and no others."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import fastjsonschema

from ascend_runner.record.job_record import SCHEMA_VERSION
from tests.helpers.package_source import PACKAGE

SCHEMA: Final = PACKAGE / "record" / "report.schema.json"
OPEN: Final = "Condition"  # each has members of its own


def read_report(path: Path) -> dict[str, Any]:
    """Return the content of a report that this version of the program has written."""
    document: dict[str, Any] = json.loads(path.read_bytes())
    validate(document)
    return document


def check_reports(folder: Path) -> None:
    """Check all reports below a directory, but those that a test has made up, which have no version, or another one."""
    for path in folder.rglob("*-report*.json"):
        document = {} if path.is_symlink() else json.loads(path.read_bytes())
        if document.get("schema_version") == SCHEMA_VERSION:
            validate(document)


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
