"""Write what users may rely on until the next major version: tests/promised.txt. Called by `scripts/generate`.

A line for each option with its values, removed option, variable, exit status, variable of a rank, name of the library
and member of the report. What is new is added. What has vanished is an error unless the major version has changed;
before 1.0, its second number counts.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from report_schema import schema

import ascend_runner
from ascend_runner import errors
from ascend_runner.frameworks import registry
from ascend_runner.library import plan
from ascend_runner.link import meeting
from ascend_runner.plan import spec
from ascend_runner.services import run_folder
from ascend_runner.settings import model
from ascend_runner.settings.options import OPTIONS, REMOVED, with_dashes
from ascend_runner.tools.job import main as job_tool

ROOT: Final = Path(__file__).parents[1]
TARGET: Final = ROOT / "tests" / "promised.txt"
TABLE: Final = ROOT / "fixtures" / "valid" / "server_list_8_devices.json"
OWN_VARIABLES: Final = (meeting.SECRET, meeting.SECRET_FILE, run_folder.RUN_DIR_VARIABLE)  # not those of options
SINCE: Final = "since version "


def promised() -> Iterator[str]:
    """Yield the lines that are true of this tree."""
    for option in OPTIONS:
        for value in option.choices or option.metavar.split("|"):
            yield f"option {option.flag} {value}".rstrip()
        if option.variable:
            yield f"variable {option.variable}"
    yield from (f"variable {name}" for name in OWN_VARIABLES)
    yield from (f"removed option {with_dashes(f'--{name}')}" for name in sorted(REMOVED))
    for name, value in vars(errors).items():
        if isinstance(value, int):
            yield f"exit status of ascend-runner: {value} {name}"
    for status in re.findall(r"(?m)^  (\d+)  ", job_tool.EPILOG):
        yield f"exit status of ascend-job: {status}"
    for framework in registry.NAMES:
        number = 1 if framework == "mindspore" else 2  # more of them need a rank table
        yield from (f"rank of {framework}: {name}" for name in _variables(framework=framework, nproc_per_node=number))
    others = {"rank_table": TABLE, "server_id": "10.0.0.1", "isolate_devices": True, "max_restarts": 1}
    added = {*_variables(**others)} - {*_variables(nproc_per_node=2)}
    yield from (f"rank: {name}" for name in (*sorted(added), model.CHECKPOINT, f"{model.STAGED}0", spec.NOTIFY_SOCKET))
    yield from (f"library: {name}" for name in ascend_runner.__all__)
    yield from _members()


def _variables(**options: Any) -> list[str]:
    """Return the names of the variables that a rank gets with these options, off the platforms."""
    planned = plan(["true"], environ={"PATH": os.environ["PATH"]}, **options)
    return sorted(planned["ranks"][0]["variables"])


def _members() -> Iterator[str]:
    """Yield the members of the report with their types, and the values of those that have a choice."""
    for name, record in schema()["definitions"].items():
        for member, kind in record.get("properties", {}).items():
            yield f"report {name}.{member}: {_type(kind)}"
        for value in record.get("enum", ()):
            yield f"report {name}: {value}"


def _type(kind: dict[str, Any]) -> str:
    plain = {name: value for name, value in kind.items() if name != "description"}
    return json.dumps(plain, sort_keys=True).replace("#/definitions/", "")


def broken(before: str, now: Collection[str], version: str) -> str:
    """Return what is wrong with the lines of `version` after those of a text; "" if all that was promised is kept."""
    first, *lines = before.splitlines()
    gone = [line for line in lines if line not in now]
    if gone and first == SINCE + major(version):
        return GONE.format(first=first, lines="\n  ".join(gone))
    flags = {line.split()[1] for line in gone if line.startswith("option ")}
    flags -= {line.split()[1] for line in now if line.startswith("option ")}
    flags -= {with_dashes(f"--{name}") for name in REMOVED}
    return f"{', '.join(sorted(flags))}: say in REMOVED of settings/options.py what to do instead\n" if flags else ""


def major(version: str) -> str:
    """Return the part of a version number that changes when a promise ends: 1 of 1.2.3, 0.2 of 0.2.3."""
    first, second, *_ = version.split(".")
    return first if int(first) else f"{first}.{second}"


GONE: Final = """\
promised {first}, and gone:
  {lines}
Only a major version may do that. Keep it, or
- raise __version__ in ascend_runner/__init__.py,
- refuse a removed option with what to do instead: REMOVED in settings/options.py,
- say so in .github/CHANGELOG.md,
- and run scripts/generate.
"""


def main() -> int:
    """Write the file, or with --check only compare it; return the exit status."""
    before, now = TARGET.read_text("utf-8"), list(promised())
    after = "".join(f"{line}\n" for line in (SINCE + major(ascend_runner.__version__), *now))
    complaint = broken(before, now, ascend_runner.__version__)
    if not complaint and after != before:
        if "--check" not in sys.argv[1:]:
            TARGET.write_text(after, encoding="utf-8")
            return 0
        complaint = f"{TARGET} is out of date: run scripts/generate, and say in .github/CHANGELOG.md what is new\n"
    sys.stderr.write(complaint)
    return 1 if complaint else 0


if __name__ == "__main__":
    sys.exit(main())
