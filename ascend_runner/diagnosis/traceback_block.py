"""Reads one Python traceback, in the format in which the interpreter prints it, without the chain it belongs to.

Handles a header that follows a progress bar on the same line, a tag before each line ("[rank1]: "), lines without
their indentation, interleaved lines of other threads, and messages that go on after a blank line. CANN's own
"TraceBack (most recent call last):" is not Python's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

GAP: Final = 20  # foreign lines allowed inside a traceback
FRAMES_KEPT: Final = 6  # innermost frames of one traceback
MESSAGE_LINES: Final = 40  # lines kept of an exception's message: CANN's and torchrun's take up to thirty
TAG: Final = 200  # characters of the longest tag before each line
BEGINNING: Final = 6  # first lines of a log in which a traceback without its header has a frame
TABLE_LINES: Final = 1000  # of torchrun's table: seven for each failed worker

HEADER: Final = re.compile(r"(?:Exception Group |Original )?Traceback \(most recent call last\):\s*$")
GROUP_HEADER: Final = re.compile(r"  \+ Exception Group Traceback \(most")
INNER_HEADER: Final = re.compile(r"\s{4}\| (?:Exception Group )?Traceback \(most")  # of a group's sub-exception
FRAME: Final = re.compile(r'\s*File "(?P<file>.+?)", line (?P<line>\d+)(?:,? in (?P<name>.+))?\s*$')
_LEVEL: Final = r"(?!(?:DEBUG|INFO|NOTE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b)"  # a log level at the start of a log line
_CLASS: Final = r"(?:(?:[A-Za-z_<][\w<>]*\.)+\w+|_*[A-Z]\w*)"  # "package.name", or a capitalized name
_EXCEPTION: Final = re.compile(rf"{_LEVEL}{_CLASS}(?::\s|:?$|\(\w+\): <)")  # ray adds the cause in parentheses
_SURELY: Final = re.compile(r"[\w.<>]*(?:Error|Exception|Exit|Interrupt|Warning|Group)(?::\s|:?$)")
_SUB_EXCEPTIONS: Final = re.compile(r"\(\d+ sub-exceptions?\)\s*$")
_MARGIN: Final = re.compile(r"\s*(?:\+-\+-|\+-|\+ |\| ?)")  # of a group: "  | ", "  +-+---- 1 ----", "    +----"


@attrs.frozen
class Block:
    """One traceback without the chain that it belongs to."""

    start: int
    end: int
    exception: str
    frames: tuple[str, ...]
    lines: tuple[str, ...]
    message: tuple[str, ...]  # from `exception` on
    source: str = ""  # the line of the innermost frame, if it was printed


def read_block(lines: Sequence[str], start: int, limit: int) -> Block | None:
    """Return the traceback whose header is line `start` (-1: cut off), or None if it is incomplete."""
    header = HEADER.search(lines[start]) if start >= 0 else None
    tag = _tag(lines[start][: header.start()], lines[start + 1 : start + 2]) if header else _tag_of_frames(lines)
    body = _dedented(list(_untagged(lines, range(start + 1, limit), tag)))
    if header and header[0].startswith("Exception Group"):
        return _read_group(start, header[0], body)

    trace, exception_at = _scan(body)
    if exception_at < 0:
        return None
    message = _message(body[exception_at:])
    following = _continuation(body[exception_at + len(message) :]) if len(message) == MESSAGE_LINES else []

    return Block(
        start=max(start, 0),
        end=[*message, *following][-1][0] + 1,
        exception=_short(message, _source(trace)),
        frames=tuple(text for text in trace if FRAME.match(text)),
        lines=(*([header[0]] if header else []), *_abridged(trace), *(text for _index, text in message)),
        message=tuple(text for _index, text in message),
        source=_source(trace),
    )


def _short(message: Sequence[tuple[int, str]], source: str) -> str:
    """Return the exception in one line.

    As long as it ends with a colon, the next line of the message is added. An assertion without a message gets its
    source line.
    """
    short = _RULED.sub(":", message[0][1].strip())
    if short == "AssertionError" and source.startswith("assert "):
        return f"{short}: {source.removeprefix('assert ')}"
    for text in (text.strip() for _index, text in message[1:] if not _ORNAMENT.match(text)):
        if not short.endswith(":"):
            break
        short = f"{short} {text}"
    return short


def _source(trace: Sequence[str]) -> str:
    """Return the source line of the innermost frame, stripped, or "" if it was not printed."""
    last = max((position for position, text in enumerate(trace) if FRAME.match(text)), default=len(trace))
    return trace[last + 1].strip() if last + 1 < len(trace) else ""


def _scan(body: Sequence[tuple[int, str]]) -> tuple[list[str], int]:
    """Separate frames and source lines from foreign lines, and find the exception's index (-1 if there is none)."""
    trace: list[str] = []
    exception_at, gap = -1, 0
    is_flat = any(text.startswith('File "') for _index, text in body[:GAP])  # a log collector took the indentation
    for position, (_index, text) in enumerate(body):
        if FRAME.match(text):
            trace.append(text)
            exception_at, gap = -1, 0  # the line taken for the exception was another thread's
        elif trace and exception_at < 0 and text.startswith("  "):
            trace.append(text)
        elif is_flat and trace and exception_at < 0 and FRAME.match(trace[-1]) and not _SURELY.match(text):
            trace.append(f"    {text}")
        elif trace and _is_exception(text, body[exception_at][1] if exception_at >= 0 else ""):
            exception_at = position
        else:
            gap += 1
        if gap > GAP:
            break
    return trace, exception_at


def _is_exception(text: str, found: str) -> bool:
    """Whether `text` is the exception, given an earlier candidate `found` ("" if none)."""
    return bool(_EXCEPTION.match(text) if not found else _SURELY.match(text) and not _SURELY.match(found))


def _message(body: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
    """Return the exception's line and the rest of its message and notes, up to a blank line or a log record.

    After a blank line a message goes on with a ruled heading, as MindSpore prints it. torchrun's table, which has an
    entry for each failed worker, goes on to its last rule.
    """
    rules = [position for position, (_index, text) in enumerate(body[:TABLE_LINES]) if _TABLE_RULE.match(text)]
    if rules[:1] == [1] and len(rules) > 1:
        return body[: rules[1] + 1]
    end = 1
    while end < min(len(body), MESSAGE_LINES) and not _RECORD.match(body[end][1]):
        if not body[end][1].strip() and not any(_RULE.match(text) for _index, text in body[end + 1 : end + 2]):
            break
        end += 1
    return body[:end]


def _continuation(body: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
    """Return the indented lines with which a long message goes on, such as torch's list of tensors that do not fit."""
    limit = next((position for position, (_index, text) in enumerate(body) if not text[:1].isspace()), len(body))
    return body[: min(limit, TABLE_LINES)]


_RULED: Final = re.compile(r":\s*-{3,}$")  # a message of MindSpore may begin with a ruled heading
_TABLE_RULE: Final = re.compile(r"={10,}\s*$")
_RULE: Final = re.compile(r"-{10,}\s*$")
_ORNAMENT: Final = re.compile(r"\s*(?:[-=*]{3,}\s*)?$|- [A-Z]|///-+\[")  # a rule, a heading (MindSpore, Triton-Ascend)
_RECORD: Final = re.compile(  # what begins something else: a log record, a crash
    r"\[?\d{4}-\d\d-\d\d[ T]\d|[IW]\d{4} \d|\[?(?:INFO|WARNING|DEBUG)\b|wandb: |swanlab: |slurmstepd\S*: |srun: "
    r"|\[[DIW]\] |Exception ignored in|Error in (?:atexit|sys\.excepthook)"
    r"|\S+\.py:\d+: \w*Warning: "
    r"|(?:\[rank\d+\]: ?)?\[[IW](?:\d{3,4} [\d:.]+)? \S+:\d+\]"  # of c10, with its time since torch 2.3
    r"|\[[\w.-]+:\d+\] \*\*\*|\*\*\* SIG|Fatal Python error|terminate called|Exception in thread "
)


def _dedented(body: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Take the indentation of a traceback inside something else, such as torchrun's table, from its lines."""
    first = next((FRAME.match(text) for _index, text in body[:1]), None)
    depth = len(first[0]) - len(first[0].lstrip()) - 2 if first else 0
    if depth <= 0:
        return body
    return [(index, text[depth:] if text[:depth].isspace() else text) for index, text in body]


def _read_group(start: int, header: str, body: Sequence[tuple[int, str]]) -> Block | None:
    """Read an exception group (PEP 654); its short form names the first exception in it that is not a group."""
    size = next((position for position, (_index, text) in enumerate(body) if not _MARGIN.match(text)), len(body))
    inside = [_MARGIN.sub("", text, count=1) for _index, text in body[:size]]
    frames: list[str] = []
    group = ""
    for text in inside:
        if FRAME.match(text):
            frames.append(text)
        elif frames and _EXCEPTION.match(text):
            group = group or text.strip()
            if not _SUB_EXCEPTIONS.search(text):
                return Block(
                    start=start,
                    end=body[size - 1][0] + 1,
                    exception=f"{group}, first: {text.strip()}",
                    frames=tuple(frames),
                    lines=(header, *_abridged([text for _index, text in body[:size]], kept=GAP)),
                    message=(f"{group}, first: {text.strip()}",),
                )
    return None


def _tag(before: str, following: Sequence[str]) -> str:
    """Return the tag before each line ("[rank1]: ") if the line after the header has it, too; else "".

    What precedes it, or all where there is no tag, is an unfinished progress bar, or the margin of a group.
    """
    before, after = before.removesuffix("  + ")[-TAG:], _shape(following[0]) if following else ""
    tags = (before[start:] for start in range(len(before)))
    return next((tag for tag in tags if tag.strip() and after.startswith(_shape(tag))), "")


def begins_within(lines: Sequence[str]) -> bool:
    """Whether a log begins within a traceback, so that it has frames, but no header above them."""
    return any(_TAGGED_FRAME.match(line) for line in lines[:BEGINNING])


def _tag_of_frames(lines: Sequence[str]) -> str:
    """Return the tag before the frames with which a log begins."""
    return next((match["tag"] for match in map(_TAGGED_FRAME.match, lines[:BEGINNING]) if match), "")


_TAGGED_FRAME: Final = re.compile(r"(?P<tag>(?:\S.*?)??) {2}File \"[^\"]+\", line \d+, in ")


def _shape(tag: str) -> str:
    """Make tags equal that differ only in digits, such as timestamps."""
    return re.sub(r"\d", "0", tag)


def _untagged(lines: Sequence[str], indices: range, tag: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that have the tag, without it."""
    shape = _shape(tag)
    for index in indices:
        line = lines[index]
        if not tag or not line.strip():
            yield index, line
        elif _shape(line[: len(tag)]).rstrip() == shape.rstrip():
            yield index, line[len(tag) :]


def _abridged(trace: Sequence[str], kept: int = FRAMES_KEPT) -> list[str]:
    """Omit the outer frames of a long traceback."""
    starts = [position for position, text in enumerate(trace) if FRAME.match(_MARGIN.sub("", text, count=1))]
    if len(starts) <= kept:
        return list(trace)
    return [f"  ... {len(starts) - kept} outer frames ...", *trace[starts[-kept] :]]
