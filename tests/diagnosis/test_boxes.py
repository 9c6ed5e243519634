"""Tracebacks that rich draws as boxes."""

from __future__ import annotations

import textwrap

from ascend_runner.diagnosis.tracebacks import find_all, unboxed

BOX = """\
step 3
╭──────────────────── Traceback (most recent call last) ─────────────────────╮
│ /job/train.py:18 in <module>                                               │
│                                                                            │
│   16                                                                       │
│ ❱ 18 main()                                                                │
│                                                                            │
│ /opt/a/very/long/path/that/does/not/fit/in/the/box/of/a/terminal.py:7 in   │
│ main                                                                       │
│                                                                            │
│ ❱ 7 │   raise ValueError("no data")                                        │
╰────────────────────────────────────────────────────────────────────────────╯
ValueError: no data
wandb: run failed
"""


def test_box_is_read_like_a_traceback() -> None:
    """The frames, wrapped or not, and the exception below the box are found."""
    (found,) = find_all(unboxed(BOX.splitlines()))

    assert ("ValueError: no data", "terminal.py:7 in main") == (found.exception, found.place)
    assert '    raise ValueError("no data")' in found.lines


def test_boxes_of_local_variables() -> None:
    """The local variables that typer draws below each frame are no frames, whatever they contain."""
    inner = ["│ ╭─── locals ───╮ │", "│ │ at = '/a.py:12 in x' │ │", "│ ╰──────────────╯ │"]
    lines = BOX.splitlines()
    (found,) = find_all(unboxed([*lines[:6], *inner, *lines[6:-3], *inner, *lines[-3:]]))

    assert ("ValueError: no data", "terminal.py:7 in main") == (found.exception, found.place)
    assert 2 == sum('File "' in line for line in found.lines)


def test_tag_before_a_box() -> None:
    """A tag before every line, such as a log record's, changes nothing."""
    (found,) = find_all(unboxed([f"2026-01-02 03:04:05 | ERROR | stderr | {line}" for line in BOX.splitlines()]))

    assert ("ValueError: no data", "terminal.py:7 in main") == (found.exception, found.place)


def test_wrapped_message() -> None:
    """The lines of an exception that does not fit in the terminal are joined, and no others."""
    message = "RuntimeError: call failed, detail: EZ1001: [PID: 31] 2026-01-02-03:04:05.678 expected the same types"
    wrapped = textwrap.wrap(message, len(BOX.splitlines()[1]), break_on_hyphens=False)
    rest = ["wandb: run failed", "step 4"]

    assert len(wrapped) > 1
    assert [message, *rest] == unboxed([*BOX.splitlines()[:-2], *wrapped, *rest])[-3:]


def test_message_below_the_widest_box() -> None:
    """A terminal may be wider than 100 columns, but its boxes are not, so it is unknown whether lines were wrapped."""
    box = [line[:40] + line[39] * 22 + line[40:] for line in BOX.splitlines()[1:-2]]
    message = ["ValueError: " + "x" * 87, "y z"]

    assert message == unboxed([*box, *message])[-2:]


def test_other_lines_stay() -> None:
    """Tables and rules are no tracebacks, nor is a box without an end."""
    lines = ["╭─ Model ─╮", "│ layers  │", "╰─────────╯", BOX.splitlines()[1], "│ cut off"]

    assert lines == unboxed(lines)
