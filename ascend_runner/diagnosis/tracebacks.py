"""Finds the last Python traceback at the end of a log, in the format in which the interpreter prints it.

Handles a log that starts in mid-line or mid-traceback, a header that follows a progress bar on the same line, a tag
before each line ("[rank1]: "), interleaved lines of other threads, chained exceptions, exception groups (3.11), syntax
errors and fatal errors (faulthandler, C++). CANN's own "TraceBack (most recent call last):" is not Python's.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

GAP: Final = 20  # foreign lines allowed inside a traceback
FRAMES_KEPT: Final = 6  # innermost frames of one traceback
MESSAGE_LINES: Final = 12  # lines kept of an exception's message
CHAIN_LINKS: Final = 4  # exceptions kept of a chain, counted from the last


@attrs.frozen(kw_only=True)
class Traceback:
    """A traceback and those it is chained to, in short form and as (bounded) lines.

    `exception` and `place` are the last exception and where it was raised; `origin` and `origin_place` belong to the
    first exception of the chain and are empty without a chain. `end` is the index of the first line after it.
    """

    exception: str
    place: str
    lines: tuple[str, ...]
    end: int
    origin: str = ""
    origin_place: str = ""


def find_last(lines: Sequence[str]) -> Traceback | None:
    """Find the traceback that was printed last, except those of exceptions that Python reports as ignored."""
    headers = _headers(lines)
    fatal = _find_fatal_error(lines, headers[-1] + 1 if headers else 0)
    if fatal:
        return fatal
    if not headers:  # a syntax error in the script itself has no header; or the header was cut off
        block = _read_block(lines, -1, len(lines))
        return _traceback([block]) if block else None

    limits = [*headers[1:], len(lines)]
    for number in range(len(headers) - 1, -1, -1):
        block = _read_block(lines, headers[number], limits[number])
        if block:
            chain = [*_chained_to(lines, headers[: number + 1]), block]
            if not _is_ignored(lines, chain[0].start):
                return _traceback(chain)
    return None


def _headers(lines: Sequence[str]) -> list[int]:
    """Return the indices of the lines that start a traceback, except those inside an exception group."""
    headers = [index for index, line in enumerate(lines) if "Traceback (most" in line and _HEADER.search(line)]
    if not any(_GROUP_HEADER.search(lines[index]) for index in headers):
        return headers
    return [index for index in headers if not _INNER_HEADER.search(lines[index])]


# --- One traceback ---------------------------------------------------------------------------------------------------

_HEADER: Final = re.compile(r"(?:Exception Group )?Traceback \(most recent call last\):\s*$")
_GROUP_HEADER: Final = re.compile(r"  \+ Exception Group Traceback \(most")
_INNER_HEADER: Final = re.compile(r"\s{4}\| (?:Exception Group )?Traceback \(most")  # of a group's sub-exception
_FRAME: Final = re.compile(r'  File "(?P<file>.+?)", line (?P<line>\d+)(?:,? in (?P<name>.+))?\s*$')
_LEVEL: Final = r"(?!(?:DEBUG|INFO|NOTE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b)"  # a log level at the start of a log line
_CLASS: Final = r"(?:(?:[A-Za-z_<][\w<>]*\.)+\w+|_*[A-Z]\w*)"  # "package.name", or a capitalised name
_EXCEPTION: Final = re.compile(rf"{_LEVEL}{_CLASS}(?::\s|:?$)")
_SURELY: Final = re.compile(r"[\w.<>]*(?:Error|Exception|Exit|Interrupt|Warning|Group)(?::\s|:?$)")
_SUB_EXCEPTIONS: Final = re.compile(r"\(\d+ sub-exceptions?\)\s*$")
_MARGIN: Final = re.compile(r"\s*(?:\+-\+-|\+-|\+ |\| ?)")  # of a group: "  | ", "  +-+---- 1 ----", "    +----"


@attrs.frozen
class _Block:
    """One traceback without the chain that it belongs to."""

    start: int
    end: int
    exception: str
    frames: tuple[str, ...]
    lines: tuple[str, ...]


def _read_block(lines: Sequence[str], start: int, limit: int) -> _Block | None:
    """Read the traceback whose header is line `start` (-1: cut off); None if it is incomplete."""
    header = _HEADER.search(lines[start]) if start >= 0 else None
    tag = _tag(lines[start][: header.start()], lines[start + 1 : start + 2]) if header else ""
    body = list(_untagged(lines, range(start + 1, limit), tag))
    if header and header[0].startswith("Exception Group"):
        return _read_group(start, header[0], body)

    trace, exception_at = _scan(body)
    if exception_at < 0:
        return None
    message = _message(body[exception_at:])

    return _Block(
        start=max(start, 0),
        end=message[-1][0] + 1,
        exception=message[0][1].strip(),
        frames=tuple(text for text in trace if _FRAME.match(text)),
        lines=(*([header[0]] if header else []), *_abridged(trace), *(text for _index, text in message)),
    )


def _scan(body: Sequence[tuple[int, str]]) -> tuple[list[str], int]:
    """Separate frames and source lines from foreign lines, and find the exception's index (-1 if there is none)."""
    trace: list[str] = []
    exception_at, gap = -1, 0
    for position, (_index, text) in enumerate(body):
        if _FRAME.match(text):
            trace.append(text)
            exception_at, gap = -1, 0  # the line taken for the exception was another thread's
        elif trace and exception_at < 0 and text.startswith("  "):
            trace.append(text)
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
    """Return the exception's line and the rest of its message and notes, up to a blank line."""
    end = 1
    while end < min(len(body), MESSAGE_LINES) and body[end][1].strip():
        end += 1
    return body[:end]


def _read_group(start: int, header: str, body: Sequence[tuple[int, str]]) -> _Block | None:
    """Read an exception group (PEP 654); its short form names the first exception in it that is not a group."""
    size = next((position for position, (_index, text) in enumerate(body) if not _MARGIN.match(text)), len(body))
    inside = [_MARGIN.sub("", text, count=1) for _index, text in body[:size]]
    frames: list[str] = []
    group = ""
    for text in inside:
        if _FRAME.match(text):
            frames.append(text)
        elif frames and _EXCEPTION.match(text):
            group = group or text.strip()
            if not _SUB_EXCEPTIONS.search(text):
                return _Block(
                    start=start,
                    end=body[size - 1][0] + 1,
                    exception=f"{group}, first: {text.strip()}",
                    frames=tuple(frames),
                    lines=(header, *_abridged([text for _index, text in body[:size]], kept=GAP)),
                )
    return None


# --- Tags, chains, ignored exceptions --------------------------------------------------------------------------------


def _tag(before: str, following: Sequence[str]) -> str:
    """Return the tag before each line ("[rank1]: ") if the line after the header has it, too; else "".

    Otherwise the text before the header is an unfinished progress bar, or the margin of a group.
    """
    before = before.removesuffix("  + ") if before.endswith("  + ") else before
    return before if before.strip() and following and _shape(following[0][: len(before)]) == _shape(before) else ""


def _shape(tag: str) -> str:
    """Make tags equal that differ only in digits, such as timestamps."""
    return re.sub(r"\d", "0", tag)


def _untagged(lines: Sequence[str], indices: range, tag: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that have the tag, without it."""
    shape = _shape(tag)
    for index in indices:
        line = lines[index]
        if not tag:
            yield index, line
        elif _shape(line[: len(tag)]).rstrip() == shape.rstrip():
            yield index, line[len(tag) :]


_LINKS: Final = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_IGNORED: Final = ("Exception ignored", "--- Logging error ---", "Error in atexit.")


def _chained_to(lines: Sequence[str], headers: Sequence[int]) -> list[_Block]:
    """Read the tracebacks that the one of the last header is chained to, oldest first."""
    chain: list[_Block] = []
    for earlier, header in zip(headers[-2::-1], headers[:0:-1]):
        between = lines[max(earlier, header - GAP) : header]
        if len(chain) == CHAIN_LINKS or not any(line.rstrip().endswith(_LINKS) for line in between):
            break
        block = _read_block(lines, earlier, header)
        if block is None:
            break
        chain.insert(0, block)
    return chain


def _is_ignored(lines: Sequence[str], start: int) -> bool:
    before = next((line for line in reversed(lines[max(0, start - 2) : start]) if line.strip()), "")
    return any(sign in before for sign in _IGNORED)


_FATAL: Final = re.compile(r"Fatal Python error: .+")
_TERMINATE: Final = re.compile(r"terminate called after throwing an instance of '(.+)'")


def _find_fatal_error(lines: Sequence[str], start: int) -> Traceback | None:
    """Find a fatal error of the interpreter (frames are innermost first) or of the C++ runtime."""
    for index in range(start, len(lines)):
        if "Fatal Python error: " not in lines[index] and "terminate called" not in lines[index]:
            continue
        following = lines[index + 1 : index + MESSAGE_LINES]
        if fatal := _FATAL.search(lines[index]):
            frames = [line for line in following if _FRAME.match(line)]
            rest = tuple(following[:MESSAGE_LINES])
            lines_kept = (fatal[0], *rest)
            return Traceback(
                exception=fatal[0], place=_place(frames[::-1]), lines=lines_kept, end=index + len(lines_kept)
            )
        if terminate := _TERMINATE.search(lines[index]):
            what = next((line.partition("what():")[2] for line in following[:1] if "what():" in line), "")
            exception = f"{terminate[1]}: {what.strip()}".rstrip(": ")
            return Traceback(exception=exception, place="", lines=(lines[index], *following[:1]), end=index + 2)
    return None


# --- Short forms -----------------------------------------------------------------------------------------------------


def _traceback(chain: Sequence[_Block]) -> Traceback:
    first, last = chain[0], chain[-1]
    lines: list[str] = list(first.lines)
    for block in chain[1:]:
        lines += ["", *block.lines]
    is_chained = len(chain) > 1

    return Traceback(
        exception=last.exception,
        place=_place(last.frames),
        lines=tuple(lines),
        end=last.end,
        origin=first.exception if is_chained else "",
        origin_place=_place(first.frames) if is_chained else "",
    )


def _abridged(trace: Sequence[str], kept: int = FRAMES_KEPT) -> list[str]:
    """Omit the outer frames of a long traceback."""
    starts = [position for position, text in enumerate(trace) if _FRAME.match(_MARGIN.sub("", text, count=1))]
    if len(starts) <= kept:
        return list(trace)
    return [f"  ... {len(starts) - kept} outer frames ...", *trace[starts[-kept] :]]


_LIBRARY: Final = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3|^<")


def _place(frames: Sequence[str]) -> str:
    """Name the innermost frame and, if it belongs to a library, the user's frame that called it."""
    found = [match for match in map(_FRAME.match, frames) if match]
    if not found:
        return ""
    own = [match for match in found if not _LIBRARY.search(match["file"])]
    innermost = _short_frame(found[-1])
    return innermost if not own or own[-1] is found[-1] else f"{innermost}, called from {_short_frame(own[-1])}"


def _short_frame(frame: re.Match[str]) -> str:
    where = f"{os.path.basename(frame['file'])}:{frame['line']}"
    return f"{where} in {frame['name']}" if frame["name"] and frame["name"] != "<module>" else where
