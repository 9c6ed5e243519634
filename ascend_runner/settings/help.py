"""The text of `--help`. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Final

from ascend_runner.settings.option import Option, Topic
from ascend_runner.settings.options import OPTIONS, OPTIONS_OF

USAGE: Final = "ascend-runner [OPTIONS] COMMAND [ARG ...]"
_WIDTH: Final = 80  # the default width of a terminal; the text does not depend on the actual one
_COLUMN: Final = 26  # where the descriptions begin

_DESCRIPTION: Final = (
    "Run COMMAND once per Ascend NPU of this node: wait for the platform's rank table, keep the log of every rank, stop"
    " all ranks when one fails, leave no process behind, and report the cause."
)
_STATUSES: Final = (
    ("0", "all ranks exited with 0"),
    ("N", "the first rank to fail exited with N"),
    ("128 + N", "the first rank to fail was killed by signal N, or ascend-runner was stopped by it"),
    ("124", "--hang-timeout, --time-limit, --perf-action or --inspect stop ended the job"),
    ("125", "ascend-runner itself failed"),
    ("126, 127", "COMMAND cannot be executed, or was not found"),
    ("75, 93", "with --exit-verdict, instead of N or 128 + N of a rank"),
)
_VARIABLES: Final = "The environment variable in brackets sets an option as well; the option overrides it."
_EXAMPLE: Final = "example: ascend-runner --nproc-per-node 8 python train.py --epochs 5"


def help_text(topic: Topic | None = None) -> str:
    """Return the text of --help: all options, the common ones first, or those of one topic."""
    if topic:
        options = OPTIONS_OF[topic]
        variables = ["", _wrapped(_VARIABLES)] if any(option.variable for option in options) else []
        return "\n".join([f"usage: {USAGE}\n", *_section(topic.title, _rows(options)), *variables, ""])

    lines = [f"usage: {USAGE}\n", f"{_wrapped(_DESCRIPTION)}\n"]
    common = _rows(option for option in OPTIONS if option.is_common)
    topics = ", ".join(topic.word for topic in Topic)
    common += [("-h, --help [TOPIC]", f"show all options, or those of one topic: {topics}")]
    common += [("--version", "show the version")]
    lines += _section("common options", common)
    for one, options in OPTIONS_OF.items():
        others = [option for option in options if not option.is_common]
        lines += ["", *_section(one.title, _rows(others))] if others else []
    lines += ["", _wrapped(_VARIABLES), "", *_section("exit status", _STATUSES)]
    return "\n".join([*lines, "", _EXAMPLE, ""])


def _rows(options: Iterable[Option]) -> list[tuple[str, str]]:
    rows = []
    for option in options:
        default = f" (default: {option.shown_default})" if option.shown_default else ""
        variable = f" [{option.variable}]" if option.variable else ""
        rows.append((option.usage, f"{option.help}{default}{variable}"))
    return rows


def _section(title: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return a heading and its options; a long option is on a line of its own."""
    lines = [f"{title}:"]
    for usage, text in rows:
        start = f"  {usage}  ".ljust(_COLUMN)
        if len(start) > _COLUMN:
            lines.append(start.rstrip())
            start = " " * _COLUMN
        lines.append(_wrapped(text, start, _COLUMN))
    return lines


def _wrapped(text: str, start: str = "", indent: int = 0) -> str:
    """Break a text into lines; the first one begins with `start`, the others with `indent` spaces."""
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=start,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
