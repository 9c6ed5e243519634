"""Write the tables of .github/COMPATIBILITY.md. Called by `scripts/generate`, and by `scripts/test-clients --matrix`.

What was tested comes from the records that tests/clients/tested.py has written, one for each environment; the lowest
versions from pyproject.toml.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
TARGET: Final = ROOT / ".github" / "COMPATIBILITY.md"
RECORDS: Final = ROOT / "scripts" / "site" / "tested"


def tested() -> Iterator[str]:
    """Yield the lines of the tables of what was tested, one for each environment."""
    for path in sorted(RECORDS.glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        yield f"Python {record['Python']}, {record['system']}, Linux {record['Linux']}, {record['machine']}:\n\n"
        yield "| software | version | tests in `tests/clients` | ascend-runner |\n|---|---|---|---|\n"
        for client, entry in record["clients"].items():
            versions, tests = ", ".join(entry["versions"]), ", ".join(f"`{name}`" for name in entry["tests"])
            yield f"| {client} | {versions} | {tests} | {entry['ascend-runner']} |\n"
        yield "\n"


def lowest() -> Iterator[str]:
    """Yield the lines of the table of the lowest versions that pyproject.toml allows."""
    yield "| dependency | lowest version | for |\n|---|---|---|\n"
    purpose = ""
    for line in (ROOT / "pyproject.toml").read_text("utf-8").splitlines():
        heading = re.match(r"(dependencies|debug|view|dev) = ", line)
        purpose = heading[1] if heading else purpose
        found = re.search(r'"([a-z0-9-]+)>=([0-9.]+)', line)
        if found and purpose in {"dependencies", "debug", "view"}:
            title = "all" if purpose == "dependencies" else f"the extra `{purpose}`"
            yield f"| {found[1]} | {found[2]} | {title} |\n"


def main() -> int:
    """Write the file, or with --check only compare it; return the exit status."""
    before = after = TARGET.read_text("utf-8")
    for name, lines in (("tested", tested()), ("lowest", lowest())):
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        after = re.sub(f"(?s)(?<={begin}).*?(?={end})", "".join(lines).replace("\\", "\\\\"), after)
    if after == before:
        return 0
    if "--check" in sys.argv[1:]:
        sys.stderr.write(f"the tables of {TARGET} are out of date: run scripts/generate\n")
        return 1
    TARGET.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
