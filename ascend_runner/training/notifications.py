"""A rank's reports in datagrams of systemd's sd_notify protocol (sd_notify(3)). Pure: bytes in, a record out."""

from __future__ import annotations

import os
from typing import NamedTuple

LONGEST = 4096  # bytes of a datagram; a longer one says nothing
LONGEST_PAUSE = 86400.0  # seconds that a rank can announce
LONGEST_TEXT = 200  # characters of a text
MOST_DIGITS = 18


class Notification(NamedTuple):
    """One datagram. `is_beat`: the rank is alive. It announces a pause of `extend` seconds from now on.

    With `will_save`, its process will report its part of each checkpoint that it is asked for; with `has_saved`, this
    is such a report, of the checkpoint at the path `checkpoint` ("": unknown).

    `step` is None, and a text empty, where it is not given. Texts may hold any character.
    """

    is_beat: bool = False
    step: int | None = None
    section: str = ""
    status: str = ""
    checkpoint: str = ""
    extend: float = 0.0
    will_save: bool = False
    has_saved: bool = False


def parse(datagram: bytes) -> Notification:
    """Read a datagram. Unknown, malformed and overlong values are left out."""
    if len(datagram) > LONGEST:
        return Notification()
    fields = dict(line.partition(b"=")[::2] for line in datagram.split(b"\n"))
    step, has_saved = _number(fields.get(b"X_STEP", b"")), b"X_CHECKPOINT" in fields
    return Notification(
        is_beat=fields.get(b"WATCHDOG") == b"1" or (step is not None and not has_saved),
        step=step,
        section=_text(fields.get(b"X_SECTION", b"")),
        status=_text(fields.get(b"STATUS", b"")),
        checkpoint=_text(fields.get(b"X_CHECKPOINT", b"")),
        extend=min(LONGEST_PAUSE, (_number(fields.get(b"EXTEND_TIMEOUT_USEC", b"")) or 0) / 1e6),
        will_save=fields.get(b"X_SAVES") == b"1",
        has_saved=has_saved,
    )


def _number(value: bytes) -> int | None:
    return int(value) if value.isdigit() and len(value) <= MOST_DIGITS else None


def _text(value: bytes) -> str:
    return os.fsdecode(value)[:LONGEST_TEXT]
