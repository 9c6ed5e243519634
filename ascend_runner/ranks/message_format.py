"""The form of the runner's own lines on the console: `[ascend-runner] 03:12:45 ERROR <sentence>`.

The first process imports it before it forks, so it must not need attrs.
"""

from __future__ import annotations

import enum
import time
from typing import Final

from ascend_runner.text import colored, printable

NAME: Final = "[ascend-runner]"
FURTHER_LINE: Final = "\n  "


class Level(enum.Enum):
    """The severity of a message, in rising order."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


_STYLES: Final = {Level.DEBUG: "2", Level.INFO: "1", Level.WARNING: "1;33", Level.ERROR: "1;31"}


def format_message(level: Level, text: str, *, has_colors: bool = False, begins_with_time: bool = False) -> bytes:
    """Format a message for output; characters that could control a terminal are escaped.

    Further lines stay indented, so that a newline in a name cannot forge a message of the runner.
    """
    clean = FURTHER_LINE.join(map(printable, text.split(FURTHER_LINE)))
    now = time.strftime("%H:%M:%S")
    head = f"{now} {NAME} {level.value}" if begins_with_time else f"{NAME} {now} {level.value}"
    if has_colors:
        head = colored(head, _STYLES[level])
    return f"{head} {clean}\n".encode(errors="backslashreplace")
