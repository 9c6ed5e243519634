"""Reads the JSON report of a job, which another version of the runner or anybody else may have written."""

from __future__ import annotations

import json
import os
from typing import Final

from ascend_runner import files
from ascend_runner.errors import UnreadableError, reason
from ascend_runner.members import Members

KIND: Final = "-report"  # part of the name of a report; the files beside it have another word in its place
LARGEST: Final = 1 << 28  # bytes


def read(path: str) -> Members:
    """Read a JSON report.

    Raises:
        UnreadableError: It cannot be read or is not a report.
    """
    try:
        with open(os.open(path, files.READ_FLAGS), "rb") as file:
            document = json.loads(file.read(LARGEST))
    except OSError as error:
        raise UnreadableError(f"cannot read the report {path!r}: {reason(error)}") from error
    except (ValueError, RecursionError):
        document = None
    if not (isinstance(document, dict) and isinstance(document.get("state"), str)):
        raise UnreadableError(f"{path!r} is not the JSON report of a job")
    return Members(document)
