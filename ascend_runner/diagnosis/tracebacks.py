"""Finds the Python tracebacks at the end of a log, each with the chain of exceptions that it belongs to.

Handles a log that starts in mid-line or mid-traceback, chained exceptions, exception groups (3.11) and syntax errors; a
header that follows a progress bar on the same line, a tag before each line ("[rank1]: "), lines without their
indentation, interleaved lines of other threads, and messages that go on after a blank line. CANN's own "TraceBack (most
recent call last):" is not Python's. Tracebacks that rich draws as boxes are rewritten into the interpreter's own format
first: a box has a title, for each frame "path:line in function" (wrapped at the width of the terminal) and the lines
around it, the current one marked; the exception follows below the box, wrapped as well.

An error that only passes on another one yields to it, if that is in the same log. The words are from torch's
elastic agent, multiprocessing, and loaders of backends and extensions, MindSpore's msrun, vLLM and sglang, ray,
DeepSpeed, HF datasets, Open MPI, shells and Python's own pools.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import attrs

BOX_LIMIT: Final = 2000  # lines: a frame may have a hundred local variables
_TOP: Final = re.compile(r"[╭┌+][─━-]+ Traceback \(most recent call last\) [─━-]+[╮┐+]?\s*$")
_BOTTOM: Final = re.compile(r"[╰└+][─━-]{20,}[╯┘+]?\s*$")
_SIDE: Final = re.compile(r"[│|] ?(.*?)\s*[│|]?\s*$")
_FRAME: Final = re.compile(r"(?P<file>\S.*?):(?P<line>\d+) in (?P<name>.+)$|in (?P<name2>\S+):(?P<line2>\d+)$")
_INNER_BOX: Final = re.compile(r"[╭┌│╰└]|\+-|\| ")  # of local variables, which typer shows
_MARKED: Final = re.compile(r"\s*[❱>] ?\d+ [│|]?(.*)")
_WIDEST: Final = 100  # a box of this width may be narrower than its terminal (rich/traceback.py)
_MESSAGE_LIMIT: Final = 20  # lines
# What starts a line of its own: a record of a program (wandb: ...) or of CANN ([ERROR] ...), or its time.
_OTHER: Final = re.compile(r"\s|[a-z][\w.-]*: |\[(?:[A-Z]+\]|Error|rank|\d)|\d{4}-\d\d-\d\d[ T]|Traceback |[╭│╰]")


def unboxed(lines: Sequence[str]) -> list[str]:
    """Return the lines with each box replaced; there may be fewer of them."""
    found: list[str] = []
    open_until: dict[int, int] = {}  # by column, the line up to which no box ends
    index = 0
    while index < len(lines):
        top = _TOP.search(lines[index]) if "Traceback (most" in lines[index] else None
        end = _bottom(lines, index + 1, top.start(), open_until) if top else -1
        if top is None or end < 0:
            found.append(lines[index])
            index += 1
            continue
        tag = lines[index][: top.start()]
        found.append(f"{tag}Traceback (most recent call last):")
        found += [f"{tag}{frame}" for frame in _frames([line[len(tag) :] for line in lines[index + 1 : end]])]
        index = end + 1
        below = [line[len(tag) :] for line in lines[index : index + _MESSAGE_LIMIT]]
        count = _wrapped(below, len(lines[end].rstrip()) - len(tag))
        if count > 1:
            found.append(tag + " ".join(line.strip() for line in below[:count]))
            index += count
    return found


def _bottom(lines: Sequence[str], start: int, column: int, open_until: dict[int, int]) -> int:
    for index in range(max(start, open_until.get(column, 0)), min(len(lines), start + BOX_LIMIT)):
        if _BOTTOM.match(lines[index][column:]):
            return index
        open_until[column] = index + 1
    return -1


def _wrapped(lines: Sequence[str], width: int) -> int:
    """Count the lines of the message below a box, which rich wraps at the width of the box."""
    count = 0 if width >= _WIDEST else 1
    while 0 < count < len(lines) and lines[count].strip() and not _OTHER.match(lines[count]):
        before, after = lines[count - 1].rstrip(), lines[count].rstrip()
        if max(len(before), len(after)) > width or len(f"{before} {after.split()[0]}") <= width:
            break
        count += 1
    return count


def _frames(box: Sequence[str]) -> list[str]:
    """Return the frames in a box, each with the line that was executed."""
    found: list[str] = []
    text = ""  # of a frame's heading, which may take several lines
    for line in box:
        side = _SIDE.match(line)
        inner = side[1] if side else ""
        if _INNER_BOX.match(inner):
            continue
        marked = _MARKED.match(inner)
        if marked:
            found.append(f"    {re.sub('│   ?', '    ', marked[1]).strip()}")
        text = f"{text} {inner.strip()}".strip() if inner.strip() and not inner.startswith("  ") else ""
        if frame := _FRAME.match(text):
            name = frame["name"] or frame["name2"]
            found.append(f'  File "{frame["file"] or "?"}", line {frame["line"] or frame["line2"]}, in {name}')
            text = ""
    return found


_WORDS: Final = re.compile(
    r"ChildFailedError|Process(?:Raised|Exited)Exception|RemoteTraceback|BrokenProcessPool|CalledProcessError"
    r"|(?:RayTask|RayActor|ActorDied|ActorUnavailable|WorkerCrashed|Remote|EngineDead|AsyncEngineDead|MQEngineDead)Error"
    r"|(?:see|check|refer to|look (?:at|for))\b[^.]{0,80}\b(?:above|root cause|stack ?trace|worker_\d+\.log)"
    r"|(?:root cause|messages?|trace|errors|output) above"
    r"|^SystemExit(?:: -?\d+)?$|Failed to load the backend extension: "
    r"|Engine core initialization failed|WorkerProc initialization failed|Background loop has errored already"
    r"|^RuntimeError: Executor failed"
    r"|Error building extension '\w+'$|An error occurred while generating the dataset$"
    r"|Worker failed with error|Distributed job exited with|scheduler is dead|Engine loop (?:is dead|has died)"
    r"|^RuntimeError: cancelled$"
    r"|error is reported as above|inspect the previous error messages|Received sigquit from a child|Worker exit type: "
    r"|actor is dead because its worker process|died with <Signals\."
    r"|terminated with (?:the following error|exit code|signal)|exited with (?:a )?non-?zero"
    r"|Blocking queue is killed because the data reader raises|returned non-zero exit status"
    r"|^ChildProcessError: worker died"
    r"|^\S+: line \d+: +\d+ (?:Segmentation fault|Bus error|Aborted|Illegal instruction)\b"
    r"|^(?:Segmentation fault|Bus error|Aborted|Illegal instruction)(?: \(core dumped\))?$"
    r"|exits with return code|Process name: \[\[|Killing subprocess|noticed that process rank|MPI_ABORT was invoked"
    r"|exited? (?:unexpectedly|with (?:exit ?)?code:? -?\d+)",
    re.IGNORECASE,
)


def only_passes_on(message: Sequence[str]) -> bool:
    """Whether an error, by the first lines of its message, refers to another one."""
    return any(_WORDS.search(line) for line in message[:3])


def says_nothing(exception: str, message: Sequence[str] = ()) -> bool:
    """Whether an error only refers to another one, or is empty."""
    return only_passes_on([exception, *message]) or bool(_EMPTY.match(exception))


def is_hollow(exception: str, message: Sequence[str] = ()) -> bool:
    """Whether an error gives no reason: it is empty, or has only a number or a reference instead of a message."""
    return says_nothing(exception, message) or bool(_NUMBER.search(exception))


_EMPTY: Final = re.compile(r"[\w.<>]+:\s*$|(?:[\w<>]+\.)+\w+$|\w*(?:Error|Exception)$|E\w9999: Inner Error!$")
_NUMBER: Final = re.compile(
    r"\b(?:code|errno|ret|result|return|status|error|failed)\b(?: is)?[\s:=\[(]*-?(?:0x[\da-f]+|\d+)"
    r"\s?(?:\([^()]*\))?\W*$|\berror(?: in)?: \S+:\d+\W*$|\bdetails refer to 'Ascend Error Message'\W*$",
    re.IGNORECASE,
)


def log_directory(message: str) -> str:
    """Return the directory with the logs of the workers that a launcher's error points to, "" if it does not."""
    match = _DIRECTORY.search(message)
    return match[1] if match else ""


_DIRECTORY: Final = re.compile(r"[Cc]heck (?:the )?logs? in (?:the )?(?:directory|path|folder):? (/\S+?)[.,]?$")


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
    shape = _shape(before)
    starts = (start for start in range(len(before.rstrip())) if after.startswith(shape[start:]))
    return before[next(starts, len(before)) :]


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


def find_all(lines: Sequence[str], reports_a_peer: Callable[[Block], bool] = lambda _block: False) -> list[Traceback]:
    """Find the tracebacks that were printed last, in their order, except ones that Python reports as ignored.

    `reports_a_peer` tells whether an exception is a consequence of the loss of a peer.
    """
    headers = _headers(lines)
    if not headers:  # a syntax error in the script itself has no header; or the header was cut off
        block = read_block(lines, -1, len(lines))
        return [_traceback([(block, "")], reports_a_peer)] if block else []

    found: list[Traceback] = []
    limits = [*headers[1:], len(lines)]
    number = len(headers) - 1
    while number >= 0 and len(found) < MOST_TRACEBACKS:
        block = read_block(lines, headers[number], limits[number])
        chain = [*_chained_to(lines, headers[: number + 1]), (block, "")] if block else []
        number -= max(1, len(chain))
        if chain and not _is_ignored(lines, chain[0][0].start):
            found.insert(0, _traceback(chain, reports_a_peer))
    cut_off = read_block(lines, -1, headers[0]) if len(found) < MOST_TRACEBACKS and begins_within(lines) else None
    return [_traceback([(cut_off, "")], reports_a_peer), *found] if cut_off else found


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


def _traceback(chain: Chain, reports_a_peer: Callable[[Block], bool]) -> Traceback:
    lines = [line for block, link in chain for line in (*block.lines, *(["", link, ""] if link else []))]
    told, first = _telling(chain, reports_a_peer), chain[0][0]
    is_silent = told is first or (told is chain[-1][0] and _is_translation(*chain[-2], told))
    is_silent = is_silent or _is_notice(first) or only_passes_on(first.message)

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


def _telling(chain: Chain, reports_a_peer: Callable[[Block], bool]) -> Block:
    """Choose the exception of a chain that says why.

    That is the last one, which the program has chosen to end with, unless it only passes on the one before, or a
    clean-up on the way out (`__exit__`, `close`) has failed as well: then it is the one that was under way. The loss of
    a peer explains what was raised because of it, and does not explain what was raised before.
    """
    told = chain[-1][0]
    for (earlier, link), (later, _link) in zip(chain[-2::-1], chain[:0:-1]):
        if earlier.exception == later.exception or _passes_on(later, earlier):  # of a pool, or of its worker
            told = earlier
            continue
        is_lost = reports_a_peer(later)
        if reports_a_peer(earlier):
            told = told if is_lost else earlier
            continue
        if is_lost and link == _CONTEXT and not (_is_translation(earlier, link, later) or _is_notice(earlier)):
            told = earlier
            continue
        if link != _CONTEXT or later.source.startswith("raise ") or not any(map(_CLEANUP.search, later.frames)):
            break
        told = earlier
    return told


def _passes_on(later: Block, earlier: Block) -> bool:
    """Whether an exception says nothing of its own, and the one before is not how a parent noticed a child's end.

    An import error also passes on an error of the dynamic loader.
    """
    is_import = later.exception.startswith(("ImportError:", "ModuleNotFoundError:"))
    if is_import and _OF_THE_LOADER.match(earlier.exception):
        return True
    return says_nothing(later.exception, later.message) and not _is_notice(earlier)


_OF_THE_LOADER: Final = re.compile(r"(?:Import|OS)Error: \S{1,400}\.so[\w.]{0,40}: ")  # "/lib/libgomp.so.1: cannot ..."


def _is_notice(error: Block) -> bool:
    """Whether an exception is how a process noticed the end of another one."""
    return bool(_NOTICED.match(error.exception))


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
