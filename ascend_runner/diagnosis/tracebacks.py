"""Finds the last Python traceback in the end of a log, as the interpreter prints it, whatever stands around it.

It copes with a log that begins in mid-line or in mid-traceback, a header glued to a progress bar, a tag before every
line ("[rank1]: "), lines of other threads in between, chained exceptions, exception groups (3.11), syntax errors and
what is left of a fatal error (faulthandler, C++). CANN's own "TraceBack (most recent call last):" is not Python's.
"""

from __future__ import annotations

import os.path
import re

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GAP: Final = 20  # lines of others that may stand inside a traceback
FRAMES_KEPT: Final = 6  # innermost frames of one traceback
MESSAGE_LINES: Final = 12  # lines of an exception's message
CHAIN_LINKS: Final = 4  # exceptions of one chain, from the last back


class Traceback(NamedTuple):
    """One traceback with those it is chained to, in short and as (bounded) lines.

    `exception` and `place` are the last exception and where it was raised; `origin` and `origin_place` those that the
    chain began with, empty without a chain. `end` is the index of the first line behind it.
    """

    exception: str
    place: str
    lines: tuple[str, ...]
    end: int
    origin: str = ""
    origin_place: str = ""


def find_last(lines: Sequence[str]) -> Traceback | None:
    """Find the traceback that was printed last, but for those that Python prints of what it then ignores."""
    headers = _headers(lines)
    fatal = _find_fatal_error(lines, headers[-1] + 1 if headers else 0)
    if fatal:
        return fatal
    if not headers:  # a syntax error in the script itself has none; or it stood further back
        block = _read_block(lines, -1, len(lines))
        return _summed_up([block]) if block else None

    limits = [*headers[1:], len(lines)]
    for number in range(len(headers) - 1, -1, -1):
        block = _read_block(lines, headers[number], limits[number])
        if block:
            chain = [*_chained_to(lines, headers[: number + 1]), block]
            if not _is_ignored(lines, chain[0].start):
                return _summed_up(chain)
    return None


def _headers(lines: Sequence[str]) -> list[int]:
    """Give the lines with which tracebacks begin, but for those inside of an exception group."""
    headers = [index for index, line in enumerate(lines) if "Traceback (most" in line and _HEADER.search(line)]
    if not any(_GROUP_HEADER.search(lines[index]) for index in headers):
        return headers
    return [index for index in headers if not _INNER_HEADER.search(lines[index])]


# --- One traceback ---------------------------------------------------------------------------------------------------

_HEADER: Final = re.compile(r"(?:Exception Group )?Traceback \(most recent call last\):\s*$")
_GROUP_HEADER: Final = re.compile(r"  \+ Exception Group Traceback \(most")
_INNER_HEADER: Final = re.compile(r"\s{4}\| (?:Exception Group )?Traceback \(most")  # of a group's sub-exception
_FRAME: Final = re.compile(r'  File "(?P<file>.+?)", line (?P<line>\d+)(?:,? in (?P<name>.+))?\s*$')
_LEVEL: Final = r"(?!(?:DEBUG|INFO|NOTE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b)"  # what looks like one, but is a log line
_CLASS: Final = r"(?:(?:[A-Za-z_<][\w<>]*\.)+\w+|_*[A-Z]\w*)"  # "package.name", or a name that begins as classes do
_EXCEPTION: Final = re.compile(rf"{_LEVEL}{_CLASS}(?::\s|:?$)")
_SURELY: Final = re.compile(r"[\w.<>]*(?:Error|Exception|Exit|Interrupt|Warning|Group)(?::\s|:?$)")
_SUB_EXCEPTIONS: Final = re.compile(r"\(\d+ sub-exceptions?\)\s*$")
_MARGIN: Final = re.compile(r"\s*(?:\+-\+-|\+-|\+ |\| ?)")  # of a group: "  | ", "  +-+---- 1 ----", "    +----"


class _Block(NamedTuple):
    """One traceback without those it is chained to."""

    start: int
    end: int
    exception: str
    frames: tuple[str, ...]
    lines: tuple[str, ...]


def _read_block(lines: Sequence[str], start: int, limit: int) -> _Block | None:
    """Read what follows the header in line `start` (-1: cut off); None where that is no whole traceback."""
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
    """Tell frames and source lines from what others wrote in between; and where the exception stands, -1 if nowhere."""
    trace: list[str] = []
    exception_at, gap = -1, 0
    for position, (_index, text) in enumerate(body):
        if _FRAME.match(text):
            trace.append(text)
            exception_at, gap = -1, 0  # what looked like an exception before was another thread's line
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
    """Whether `text` is the exception, if a line before it, `found`, was already taken for that."""
    return bool(_EXCEPTION.match(text) if not found else _SURELY.match(text) and not _SURELY.match(found))


def _message(body: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
    """Give an exception's line and what follows it up to a blank line: the rest of its message, and notes."""
    end = 1
    while end < min(len(body), MESSAGE_LINES) and body[end][1].strip():
        end += 1
    return body[:end]


def _read_group(start: int, header: str, body: Sequence[tuple[int, str]]) -> _Block | None:
    """Read an exception group (PEP 654): short it is named after the first exception in it that is no group itself."""
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
                    exception=f"{group}, the first: {text.strip()}",
                    frames=tuple(frames),
                    lines=(header, *_abridged([text for _index, text in body[:size]], kept=GAP)),
                )
    return None


# --- Tags, chains, what is ignored -----------------------------------------------------------------------------------


def _tag(before: str, following: Sequence[str]) -> str:
    """Give what stands before every line ("[rank1]: ") if the line after the header has it, too; else "".

    Otherwise it is the rest of a progress bar that was never ended, or the margin of a group.
    """
    before = before.removesuffix("  + ") if before.endswith("  + ") else before
    return before if before.strip() and following and _shape(following[0][: len(before)]) == _shape(before) else ""


def _shape(tag: str) -> str:
    """Make tags equal that differ in their digits only: times."""
    return re.sub(r"\d", "0", tag)


def _untagged(lines: Sequence[str], indices: range, tag: str) -> Iterator[tuple[int, str]]:
    """Give the lines that carry the tag, without it."""
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
    """Read the tracebacks that the one of the last header is chained to, the oldest first."""
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
    """Find the last words of the interpreter (its frames stand innermost first), or of the C++ runtime."""
    for index in range(start, len(lines)):
        if "Fatal Python error: " not in lines[index] and "terminate called" not in lines[index]:
            continue
        following = lines[index + 1 : index + MESSAGE_LINES]
        if fatal := _FATAL.search(lines[index]):
            frames = [line for line in following if _FRAME.match(line)]
            rest = tuple(following[:MESSAGE_LINES])
            return Traceback(fatal[0], _place(frames[::-1]), (fatal[0], *rest), index + 1 + len(rest))
        if terminate := _TERMINATE.search(lines[index]):
            what = next((line.partition("what():")[2] for line in following[:1] if "what():" in line), "")
            exception = f"{terminate[1]}: {what.strip()}".rstrip(": ")
            return Traceback(exception, "", (lines[index], *following[:1]), index + 2)
    return None


# --- Summing up ------------------------------------------------------------------------------------------------------


def _summed_up(chain: Sequence[_Block]) -> Traceback:
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
    """Leave out the outer frames of a long traceback."""
    starts = [position for position, text in enumerate(trace) if _FRAME.match(_MARGIN.sub("", text, count=1))]
    if len(starts) <= kept:
        return list(trace)
    return [f"  ... {len(starts) - kept} outer frames ...", *trace[starts[-kept] :]]


_LIBRARY: Final = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3|^<")


def _place(frames: Sequence[str]) -> str:
    """Name the innermost frame, and, where that is a library's, the user's own frame that led there."""
    found = [match for match in map(_FRAME.match, frames) if match]
    if not found:
        return ""
    own = [match for match in found if not _LIBRARY.search(match["file"])]
    innermost = _frame_words(found[-1])
    return innermost if not own or own[-1] is found[-1] else f"{innermost}, called from {_frame_words(own[-1])}"


def _frame_words(frame: re.Match[str]) -> str:
    where = f"{os.path.basename(frame['file'])}:{frame['line']}"
    return f"{where} in {frame['name']}" if frame["name"] and frame["name"] != "<module>" else where
