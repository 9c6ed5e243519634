"""Write the tables of modules in the READMEs of the package. Called by `scripts/generate`.

Each module has a row with the first sentence of its docstring, so the tables of rooms with many modules stay complete.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Final

from ascend_runner.settings import parsing

PACKAGE: Final = Path(parsing.__file__).parents[1]
BEGIN: Final = "<!-- modules -->\n"
END: Final = "<!-- /modules -->"
HEADER: Final = "| module | subject |\n|---|---|\n"


def row(path: Path) -> str:
    """Return the row of a module."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    subject = re.split(r"\.(?:\s|$)", docstring, maxsplit=1)[0]
    return f"| `{path.name}` | {' '.join(subject.split())} |\n"


def main() -> int:
    """Write the tables, or with --check only compare them; return the exit status."""
    status = 0
    for readme in PACKAGE.rglob("README.md"):
        text = readme.read_text(encoding="utf-8")
        before, begin, rest = text.partition(BEGIN)
        if not begin:
            continue
        modules = sorted(path for path in readme.parent.glob("*.py") if not path.name.startswith("__"))
        current = f"{before}{BEGIN}{HEADER}{''.join(map(row, modules))}{END}{rest.partition(END)[2]}"
        if current != text and "--check" in sys.argv[1:]:
            sys.stderr.write(f"the table of modules in {readme} is out of date: run scripts/generate\n")
            status = 1
        elif current != text:
            readme.write_text(current, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
