"""Finds the Python tracebacks at the end of a log, each with the chain of exceptions that it belongs to.

Handles a log that starts in mid-line or mid-traceback, chained exceptions, exception groups (3.11) and syntax errors;
`traceback_block` reads each one, `boxes` has those that rich draws.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Sequence
from typing import Final

import attrs

from ascend_runner.diagnosis.passing_on import only_passes_on
from ascend_runner.diagnosis.traceback_block import (
    FRAME,
    GAP,
    GROUP_HEADER,
    HEADER,
    INNER_HEADER,
    Block,
    begins_within,
    read_block,
)

CHAIN_LINKS: Final = 4  # exceptions kept of a chain, counted from the last
MOST_TRACEBACKS: Final = 32  # read from the end of a log


@attrs.frozen(kw_only=True)
class Traceback:
    """A traceback and those it is chained to, or another fatal message, in short form and as lines.

    `exception` and `place` are the exception that says why and where it was raised; `origin` and `origin_place` belong
    to the first exception of the chain, and are empty where that says nothing more. The lines `start` to `end` of the
    log hold it, and `message` is all that belongs to `exception`.
    """

    exception: str
    place: str = ""
    lines: tuple[str, ...] = ()
    message: tuple[str, ...] = ()
    start: int = 0
    end: int
    origin: str = ""
    origin_place: str = ""


def find_all(lines: Sequence[str]) -> list[Traceback]:
    """Find the tracebacks that were printed last, in their order, except those that Python reports as ignored."""
    headers = _headers(lines)
    if not headers:  # a syntax error in the script itself has no header; or the header was cut off
        block = read_block(lines, -1, len(lines))
        return [_traceback([(block, "")])] if block else []

    found: list[Traceback] = []
    limits = [*headers[1:], len(lines)]
    number = len(headers) - 1
    while number >= 0 and len(found) < MOST_TRACEBACKS:
        block = read_block(lines, headers[number], limits[number])
        chain = [*_chained_to(lines, headers[: number + 1]), (block, "")] if block else []
        number -= max(1, len(chain))
        if chain and not _is_ignored(lines, chain[0][0].start):
            found.insert(0, _traceback(chain))
    cut_off = read_block(lines, -1, headers[0]) if len(found) < MOST_TRACEBACKS and begins_within(lines) else None
    return [_traceback([(cut_off, "")]), *found] if cut_off else found


def has_begun(lines: Sequence[str]) -> bool:
    """Whether a log ends within a traceback."""
    headers = _headers(lines)
    return bool(headers) and len(lines) - headers[-1] < 4 * GAP and read_block(lines, headers[-1], len(lines)) is None


def _headers(lines: Sequence[str]) -> list[int]:
    """Return the indices of the lines that start a traceback, except those inside an exception group."""
    headers = [index for index, line in enumerate(lines) if "Traceback (most" in line and HEADER.search(line)]
    if not any(GROUP_HEADER.search(lines[index]) for index in headers):
        return headers
    return [index for index in headers if not INNER_HEADER.search(lines[index])]


# --- Chains and ignored exceptions -----------------------------------------------------------------------------------

_CAUSE: Final = "The above exception was the direct cause of the following exception:"
_CONTEXT: Final = "During handling of the above exception, another exception occurred:"
_IGNORED: Final = ("Exception ignored", "--- Logging error ---", "Error in atexit.")

Chain = Sequence[tuple[Block, str]]  # oldest first, each with what links it to the next


def _chained_to(lines: Sequence[str], headers: Sequence[int]) -> list[tuple[Block, str]]:
    """Read the tracebacks that the one of the last header is chained to."""
    chain: list[tuple[Block, str]] = []
    for earlier, header in zip(headers[-2::-1], headers[:0:-1]):
        between = lines[max(earlier, header - GAP) : header]
        link = next((link for line in between for link in (_CAUSE, _CONTEXT) if line.rstrip().endswith(link)), "")
        block = read_block(lines, earlier, header) if link and len(chain) < CHAIN_LINKS else None
        if block is None:
            break
        chain.insert(0, (block, link))
    return chain


def _is_ignored(lines: Sequence[str], start: int) -> bool:
    before = next((line for line in reversed(lines[max(0, start - 2) : start]) if line.strip()), "")
    return any(sign in before for sign in _IGNORED)


def _traceback(chain: Chain) -> Traceback:
    lines = [line for block, link in chain for line in (*block.lines, *(["", link, ""] if link else []))]
    told, first = _telling(chain), chain[0][0]
    is_silent = told is first or (told is chain[-1][0] and _is_translation(*chain[-2], told))
    is_silent = is_silent or bool(_NOTICED.match(first.exception)) or only_passes_on(first.message)

    return Traceback(
        exception=told.exception,
        place=place(told.frames),
        lines=tuple(lines),
        message=told.message,
        start=first.start,
        end=chain[-1][0].end,
        origin="" if is_silent else first.exception,
        origin_place="" if is_silent else place(first.frames),
    )


def _telling(chain: Chain) -> Block:
    """Choose the exception of a chain that says why.

    That is the last one, which the program has chosen to end with, unless it only passes on the one before, or a
    clean-up on the way out (`__exit__`, `close`) has failed as well: then it is the one that was under way.
    """
    told = chain[-1][0]
    for (earlier, link), (later, _link) in zip(chain[-2::-1], chain[:0:-1]):
        if earlier.exception == later.exception or _passes_on(later, earlier):  # of a pool, or of its worker
            told = earlier
            continue
        if link != _CONTEXT or later.source.startswith("raise ") or not any(map(_CLEANUP.search, later.frames)):
            break
        told = earlier
    return told


def _passes_on(later: Block, earlier: Block) -> bool:
    """Whether an exception only refers to the one before, which is not just how a parent noticed a child's end."""
    return only_passes_on(later.message) and not _NOTICED.match(earlier.exception)


_NOTICED: Final = re.compile(r"(?:_?queue\.)?Empty$|EOFError$|ConnectionResetError\b|BrokenPipeError\b")
_CLEANUP: Final = re.compile(
    r" in (?:\w+\.)*(?:__a?exit__|__del__"
    r"|_*(?:close|cleanup|clean_up|shutdown|teardown|destroy|finali[sz]e|terminate)\w*)$"
)


def _is_translation(earlier: Block, link: str, later: Block) -> bool:
    """Whether a handler has replaced the exception with its own, in the very function that caught the earlier one."""
    if link != _CONTEXT or not later.source.startswith("raise ") or not (earlier.frames and later.frames):
        return False
    caught, raised = FRAME.match(earlier.frames[0]), FRAME.match(later.frames[-1])
    return caught is not None and raised is not None and caught.group("file", "name") == raised.group("file", "name")


# --- Short forms -----------------------------------------------------------------------------------------------------

_LIBRARY: Final = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3|^<")


def place(frames: Sequence[str]) -> str:
    """Name the innermost frame and, if it belongs to a library, the user's frame that called it."""
    found = [match for match in map(FRAME.match, frames) if match]
    if not found:
        return ""
    own = [match for match in found if not _LIBRARY.search(match["file"])]
    innermost = _short_frame(found[-1])
    return innermost if not own or own[-1] is found[-1] else f"{innermost}, called from {_short_frame(own[-1])}"


def _short_frame(frame: re.Match[str]) -> str:
    where = f"{os.path.basename(frame['file'])}:{frame['line']}"
    return f"{where} in {frame['name']}" if frame["name"] and frame["name"] != "<module>" else where
