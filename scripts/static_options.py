"""Write what follows from the table of options but must be static. Called by `scripts/generate`.

Type checkers read the fields of `Settings` and of `launch()`'s options, and users read the table in the README.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from ascend_runner.settings import parsing
from ascend_runner.settings.options import OPTIONS, OPTIONS_OF, Option, Topic

PACKAGE: Final = Path(parsing.__file__).parents[1]
HEADER: Final = "| option | variable | default | meaning |\n|---|---|---|---|\n"
# What launch() accepts where the setting has another type.
ACCEPTED: Final = {
    "path": "str | os.PathLike[str]",
    "directory_or": "str | os.PathLike[str]",
    "size": "int | str",
    "ranks": "str | Iterable[int]",
    "statuses": "str | Iterable[int | str]",
    "hosts": "str | Iterable[str]",
}


def setting(option: Option) -> str:
    """Return the field of `Settings` for an option."""
    kind = option.parse.__annotations__["return"]
    if option.is_repeatable:
        kind = f"tuple[{kind}, ...]"
    if option.default is None and not kind.endswith(" | None"):
        kind += " | None"
    return f"    {option.name}: {kind} = {_literal(option.default)}\n"


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def argument(option: Option) -> str:
    """Return the field of `library.Options` for an option, or "" for one that is a function of the library."""
    if option in OPTIONS_OF[Topic.CHECKS]:
        return ""
    parser = option.parse.__qualname__.partition(".")[0]
    kind = ACCEPTED.get(parser) or option.parse.__annotations__["return"]
    if option.is_repeatable:
        kind = "str | Iterable[str]"
    if not option.is_switch and not kind.endswith(" | None"):
        kind += " | None"
    return f"    {option.name}: {kind}\n"


def row(option: Option) -> str:
    """Return the row of the README's table for an option."""
    usage, default, meaning = (text.replace("|", "\\|") for text in (option.usage, option.shown_default, option.help))
    variable = f"`{option.variable}`" if option.variable else ""
    default, meaning = (re.sub(r"\S*<\w+>[\w<>-]*", r"`\g<0>`", text) for text in (default, meaning))  # else HTML
    return f"| `{usage}` | {variable} | {default} | {meaning} |\n"


TARGETS: Final = (
    (
        PACKAGE / "settings" / "model.py",
        "    # <options> written by scripts/generate\n",
        "    # </options>",
        setting,
        "",
    ),
    (PACKAGE / "library.py", "    # <options> written by scripts/generate\n", "    # </options>", argument, ""),
    (PACKAGE / "settings" / "README.md", "<!-- options -->\n", "<!-- /options -->", row, HEADER),
)


def main() -> int:
    """Write the files, or with --check only compare them; return the exit status."""
    status = 0
    for path, begin, end, line_of, header in TARGETS:
        text = path.read_text(encoding="utf-8")
        before, found_begin, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found_begin or not found_end:
            sys.stderr.write(f"{path} has no place for the options, expected {begin.strip()} and {end.strip()}\n")
            return 1
        current = before + begin + header + "".join(map(line_of, OPTIONS)) + end + after
        if current == text:
            continue
        if "--check" in sys.argv[1:]:
            sys.stderr.write(f"the options in {path} are out of date: run scripts/generate\n")
            status = 1
        else:
            path.write_text(current, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
