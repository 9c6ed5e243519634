"""Reads the end of a failed rank's log: the traceback or the last lines, the error code, and the peers it names.

The patterns follow hcomm's error tables and its troubleshooting guide (EI0002, EI0006, EI0013, EI0015, the heartbeat
report "Cluster Exception Location", the table LINK_ERROR_INFO), in the old and the new wording, and Open MPI's help-
mpi-btl-tcp.txt.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from ascend_runner.diagnosis import statements, tracebacks
from ascend_runner.diagnosis.catalogue import class_of, entry_of, first_code, first_phrase
from ascend_runner.diagnosis.codes import Found, Kind
from ascend_runner.diagnosis.finding import Finding, Peer
from ascend_runner.diagnosis.statements import innermost, is_own, records, since_progress, up_to
from ascend_runner.diagnosis.tracebacks import FRAME, Traceback, is_hollow, only_passes_on
from ascend_runner.supervision.causes import Ending
from ascend_runner.text import CUT, LAST_LINES, folded, lines_of, shown


def peers_in(lines: Iterable[str]) -> tuple[Peer, ...]:
    """Return the peers that the messages name, each once, taken from the most specific pattern that matches."""
    found: dict[int, dict[Peer, None]] = {}
    for line in lines:
        for position, form in enumerate(_FORMS):
            for match in form.finditer(line):
                found.setdefault(position, {}).update(dict.fromkeys(_peers_of(match)))

    return tuple(found[min(found)]) if found else ()


def _peers_of(match: re.Match[str]) -> Iterable[Peer]:
    """Build a peer for each rank or device that a message lists ("1,3,5,")."""
    fields = match.groupdict(default="")
    ranks = re.findall(r"\d+", fields.get("ranks", "")) or [""]
    devices = re.findall(r"\d+", fields.get("devices", "")) or [""]
    for rank in ranks:
        for device in devices:
            yield Peer(
                rank_id=int(rank) if rank else None,
                server_id=fields.get("server", ""),
                device_id=int(device) if device else None,
                device_ip=fields.get("ip", ""),
            )


_SERVER: Final = r"(?P<server>[^\s\]\[/,()]{1,64})"

# Most specific first: HCCL's heartbeat identifies the lost peer; a failed connection has two ends; a wait may be one
# link in a chain of waits.
_FORMS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"Cluster Exception Location\[IP/ID\]:\[{_SERVER}/(?P<devices>\d{{1,4}})\]",
        rf"serverId\[{_SERVER}\], deviceId\[(?P<devices>\d{{1,4}})\], Heartbeat Lost",
        r'unconnected ranks: "?\[(?P<ranks>[\d, ]{1,400})\]',
        r"Failed to connect agent\[(?P<ranks>[\d, ]{1,400})\]",
        rf"remoteUserrank\[(?P<ranks>\d{{1,6}})\]-remoteIpAddr\[{_SERVER}/(?P<devices>\d{{1,4}})\]",
        rf"fails to connect to dstRank \(server {_SERVER}, device ID (?P<devices>[\d, ]{{1,60}})\)",
        rf"connect destRank\[{_SERVER}/(?P<devices>\d{{1,4}})\]",
        r"\|\s{1,8}(?P<ip>[0-9A-Fa-f.:]{2,45})\((?P<ranks>\d{1,6})\)\s{1,8}\|\s{1,8}\d{1,6}\s{1,8}\|.{1,200}time ?out",
        rf"Peer information: server {_SERVER}, device ID (?P<devices>\d{{1,4}})",
        rf"crimer rank \[{_SERVER}/(?P<devices>\d{{1,4}})\] status\[LOST\]",
        # Not a part of 4294967295, which is -1: no rank.
        r"(?:remote rank|Waiting peer rank|Remote rank):?\s?\[?(?P<ranks>\d{1,6})(?!\d)\]?",
        r"^ {2}Peer host: +(?P<server>[\w.-]{1,64})\s*$",
        r"Check whether node (?P<server>[0-9A-Fa-f.:]{7,45}) reports an error",
        r"[Rr]anks? (?P<ranks>\d[\d, ]{0,400}) failed to (?:pass monitoredBarrier|report|reach)",
        r"The node: (?P<ranks>\d{1,6}) is timed out",
    )
)


def addresses_in(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses and host names of the other ends of connections that the messages name, each once."""
    matches = (match for line in lines for form in _ADDRESSES for match in form.finditer(line))
    return tuple(dict.fromkeys(match["address"] for match in matches))


_ADDRESSES: Final = tuple(
    re.compile(rf"(?:{pattern})")
    for pattern in (
        # gloo transport/tcp/pair.cc, torch c10d socket.cpp
        r"(?:by peer|error|write\w?|read\w?|recv|send|connect|remote=|to|closed) ?\[(?P<address>[^]\s[]{2,253})\]:\d",
        r"connect(?:ion)? to \(?(?P<address>[\w.-]{2,253})(?::|, )\d",
        # NCCL socket.cc
        r"(?:remote peer|recv from|send to|connect to|connection from) (?P<address>[^\s<>]{2,253})<\d",
        # MindSpore distributed/rpc/tcp
        r"(?:meta server node url|tcp server) ?: ?(?P<address>[^\s,:]{2,253}):\d",
    )
)


def bare_addresses(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses of peers in lines of a program's own that speak of a failure, each once.

    Such a line is weaker evidence than the message of a library: it counts only if it names another node of the job.
    """
    matches = (match for line in lines if _OF_LOSS.search(line) for match in _BARE.finditer(line))
    return tuple(dict.fromkeys(match["address"] for match in matches))


# `remote ip[10.99.0.2]`, `remote ip: 10.99.0.2`, `peer 10.99.0.2:29500`
_BARE: Final = re.compile(
    r"(?i:\b(?:remote|peer|dst|dest)(?:[ _-]?(?:ip|addr|address|host|node|server))?)(?:[\s=:]{1,3}|\s?[\[(])\s?"
    r"(?P<address>\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{0,4}){2,7})(?![\w.])"
)
_OF_LOSS: Final = re.compile(
    r"(?i)(?<!no )(?<!without )\b(?:error|fail(?:ed|ure|s)?|lost|time(?:d )?out|closed by|reset|refused|unreachable"
    r"|disconnected|broken)\b(?!\s?[=:]\s?(?:0|none|false)\b)"
)

TRACEBACK_LINES: Final = 60
EXCERPT_LINES: Final = 12  # of the error that the screen shows: with what surrounds it, 30 lines
TABLE_LINES: Final = 22  # of a launcher's table of failed workers: with what surrounds it, 30 lines as well
NEAR: Final = 40  # last lines of a rank that was stopped in which a code explains its failure
LINES_LIMIT: Final = 64 * 1024  # last lines that are read
SUMMARY_LIMIT: Final = 300  # characters
SEVERAL: Final = 2  # escaped line breaks; a single one often ends a message
LONG_LINE: Final = 4096  # characters; only both ends of a longer line are searched


def read(tail: bytes, ending: Ending | None = None, plog: Sequence[str] = (), *, is_stopped: bool = False) -> Finding:
    """Read the end of a log, which may start in mid-line and contain anything; `plog` holds the plog's ERROR lines.

    What does not follow from the log is left to the diagnosis: the meaning of the ending and the places of peers.
    After an `ending` by a signal, and of a rank that `is_stopped`, an error counts only if it is among the last lines:
    one that the rank survived long ago does not explain its end.
    """
    lines = _lines(tail)
    if not lines and not plog:
        return Finding(is_weak=is_stopped)

    is_late = is_stopped or bool(ending and ending.signum)
    told = statements.choose(lines, is_late=is_late)
    found = _find_code(lines[-NEAR:] if is_stopped and not told else lines, told, plog)
    found = _judged(_detailed(found, lines, told), told)
    first = statements.first_record(lines, told) if told else _first_above(lines, found)
    if first and (found is None or found.code.kind is Kind.EITHER):
        found = first_phrase([first]) or found
    evidence = _evidence(told, lines, found, first)
    if told is None and found is None:
        says_why = not is_late or bool(ending and ending.signum == signal.SIGABRT)
        evidence, found = _of_words(evidence, lines, says_why=says_why, is_stopped=is_stopped)
    if found and found.code.kind is not Kind.ROOT:
        points_at, addresses = peers_in([*lines, *plog]), _addresses(told, lines, found)
        evidence = attrs.evolve(evidence, points_at=points_at, peer_addresses=addresses)
    if told is None and found and found.line in lines[-NEAR:]:
        evidence = attrs.evolve(evidence, is_in_collective=statements.names_one(found.line))
    inner = _whole(found.line, [*lines, *plog]) if found else ""
    summary = _summary(told, inner, first, plog) if told else _bare(evidence.exception or first or inner)
    return attrs.evolve(_with_code(evidence, found) if found else evidence, summary=summary)


def _of_words(
    evidence: Finding, lines: Sequence[str], *, says_why: bool, is_stopped: bool
) -> tuple[Finding, Found | None]:
    """Return the evidence in a log without a traceback and without a known code.

    With `says_why`, the last line may be the reason, as in native code that aborts.
    """
    record = statements.error_line(since_progress(lines), is_stopped=is_stopped)
    words = statements.last_words(lines) if says_why and not record else ""
    found = class_of([record or words, *lines[-statements.LAST_WORDS :]], is_own=True) if record or words else None
    evidence = attrs.evolve(
        evidence,
        exception=shown(record or words),
        is_weak=is_stopped or bool(words),
        peer_addresses=bare_addresses([record or words or lines[-1]]) if lines else (),
    )
    return evidence, found


def _lines(tail: bytes) -> list[str]:
    lines = [_bounded(line) for text in lines_of(end_of(tail.rstrip())) for line in _unescaped(text)]
    while lines and not lines[-1].strip():
        lines.pop()
    return tracebacks.unboxed(lines[-LINES_LIMIT:])


def _with_code(evidence: Finding, found: Found) -> Finding:
    return attrs.evolve(
        evidence,
        code=found.code.name,
        code_meaning=found.code.meaning,
        next=found.code.next,
        code_kind=found.code.kind.value,
        code_line=shown(found.line.strip()),
        is_connection=found.code.is_connection,
    )


def _summary(told: Traceback, inner: str, first: str, plog: Sequence[str]) -> str:
    """Return the innermost statement: the line that says why, rather than an exception that was raised because of it.

    `inner` is the line of the code. An exception yields to it if it gives no reason, or if its message goes on with it,
    as a report of CANN or NCCL; or else to the `first` record of an error, or the first one of the plog.
    """
    has_no_reason = is_hollow(told.exception, told.message)
    below = filter(None, map(str.strip, told.message[1:]))
    is_inside = bool(_REPORT.search(inner)) and any(map(inner.startswith, below))
    if inner and not is_hollow(inner) and (is_inside or has_no_reason):
        return _bare(inner)
    record = first or "".join(plog[:has_no_reason])
    return _bare(record) if record else shown(_HEAD.sub("", told.exception, count=1), SUMMARY_LIMIT)


def _bare(line: str) -> str:
    """Return a statement without the prefix (time, level, place) of CANN, torch_npu or a Python logger."""
    text = _HEAD.sub("", _FRILLS.sub("", line), count=1)
    return shown(" ".join(text.split()), SUMMARY_LIMIT)


def _whole(line: str, lines: Sequence[str]) -> str:
    """Return a line, with the one below it if it ends with a colon."""
    below = lines[lines.index(line) + 1 :][:1] if line.rstrip().endswith(":") and line in lines else []
    return " ".join(map(str.strip, [line, *below]))


_REPORT: Final = re.compile(r"\bE[A-Z\d]\d{4}\b|\[FUNC:|errorStr: |^(?:\w+Error|Exception|nccl\w+): ")
_FRILLS: Final = re.compile(
    r"^\W*ERROR\W*(?=[A-Z]+\(\d+,)|(?<=[A-Z])\(\d+,[^)]*\)(?=:)|\[\w+\.(?:cc|cpp|h):\d+\] *(?:\[\d+\])?"
    r"|\[(?:FUNC|FILE|LINE|THREAD):[^\]]*\]|\[PID: ?\d+\] ?"
    r"|\[?\b\d{4}-\d\d-\d\d[-T ]\d\d:\d\d:\d\d[\d.,]*\]? ?(?:: [EF] \S+:\d+\] )?"
)
_HEAD: Final = re.compile(
    r"(?:\s|[|-]|\[\w*\]\s|\([\w =]+ pid=\d+\)|(?:ERROR|FATAL|CRITICAL)\b[-\d: ]*(?:\[?[\w./]+:\d+\])?)*"
)


def _addresses(told: Traceback | None, lines: Sequence[str], found: Found) -> tuple[str, ...]:
    """Return the addresses of peers in an error, or else near it, where a survived one may be named as well."""
    own = [*(told.message if told else ()), found.line]
    return addresses_in(own) or addresses_in(lines[-NEAR:]) or bare_addresses(own)


def end_of(tail: bytes) -> bytes:
    """Return the last lines, without splitting all others."""
    start = len(tail)
    for _number in range(LINES_LIMIT):
        start = tail.rfind(b"\n", 0, start)
        if start < 0:
            return tail
    return tail[start + 1 :]


def _first_above(lines: Sequence[str], found: Found | None) -> str:
    """Return the first record of native code above a numeric error code, "" without one."""
    if found is None or not found.code.name.isdigit() or found.line not in lines:
        return ""
    end = lines.index(found.line) + 1
    return statements.first_of_natives(since_progress(lines[max(0, end - NEAR) : end]))


def _find_code(lines: Sequence[str], told: Traceback | None, plog: Sequence[str]) -> Found | None:
    """Find the first code or telling phrase of the error, else around it, else at the end of the log.

    What surrounds an error of the program itself (a ValueError), or one whose message says that it is the cause (out of
    memory), does not explain it, nor does what fails or aborts at the exit of the program. The plog counts only if the
    log says nothing: a rank that raised an exception has usually failed because of it, and HCCL's errors during its
    teardown are a consequence. A code that no entry explains yields to a phrase that one does.
    """
    message = statements.message_of(told) if told else ()
    if told:
        lines = lines[: next((at for at in range(told.end, len(lines)) if _AT_EXIT.match(lines[at])), len(lines))]
    found = first_code(message)
    if found and not found.code.is_wrapper:
        phrase = None if entry_of(found.code.name) else first_phrase(message)
        return phrase if phrase and phrase.code.kind is Kind.ROOT else found
    phrase = first_phrase(message)
    is_told = bool(phrase and phrase.code.kind is Kind.ROOT and not (found or phrase.code.is_wrapper))
    if told and (is_told or statements.is_of_the_program(told)):
        return phrase or found or _class_of(told, lines)
    if told and not (phrase or found) and (of_class := _class_of(told, lines)):
        return of_class

    near = lines[max(0, told.start - LAST_LINES) : told.end + LAST_LINES] if told else lines
    around = first_code(near)
    if around and not around.code.is_wrapper:
        return around
    phrase = first_phrase([*message, *records(lines, told)])
    if phrase and phrase.line not in message and told and (found or not statements.passes_on(told)):
        phrase = None if phrase.code.is_of_worker else phrase
    if phrase and phrase.code.is_wrapper:
        return found or around or first_code(plog) or phrase
    found = phrase or (around if found and found.code.is_empty else None) or found or around
    return found or (first_code(plog) if told is None or is_hollow(told.exception) else None)


def _class_of(told: Traceback, lines: Sequence[str]) -> Found | None:
    """Find the class of an error that is the rank's own; MindSpore logs the reason for one just before it raises it."""
    if statements.passes_on(told) or statements.is_raised_in_one(told.exception, told.lines):
        return None
    frame, line = innermost(told)
    value = _OF_A_VALUE.match(told.exception)
    message = [value[0]] if value else told.message
    raised = f"{frame}: {message[0]}"
    source = f"{line}: {told.exception}" if _TOLD_BY_SOURCE.match(told.exception) else ""
    found = class_of([*message, raised, source], is_own=is_own(told))
    if found and (raised.startswith(found.line) or source.startswith(found.line)):
        return Found(found.code, told.exception)
    above = lines[max(0, told.start - statements.LAST_WORDS) : told.start]
    return found or class_of([line for line in above if line.startswith("[ERROR] ")])


_OF_A_VALUE: Final = re.compile(r"ValueError: (?:invalid literal for|could not convert string to|time data )")
_TOLD_BY_SOURCE: Final = re.compile(r"(?:AssertionError|KeyError)\b")  # often without a message that says what is wrong
_AT_EXIT: Final = re.compile(r"Error in atexit\._run_exitfuncs:|terminate called ")


def _detailed(found: Found | None, lines: Sequence[str], told: Traceback | None) -> Found | None:
    """Let the line of a code that says nothing itself be the first of CANN's details around it, the innermost.

    The line of a timeout comes from HCCL's heartbeat, if there is one: it names the device, and says what is wrong.
    That of an error of NCCL has the reason, which stands below "Last error:", and decides if it is a telling phrase.
    Of an operator that cannot be compiled, the exception of the compiler is the line: it stands inside the message.
    """
    if found and found.code.kind is Kind.SECONDARY:
        return Found(found.code, next((line for line in lines if "Cluster Exception Location[" in line), found.line))
    message = told.message if told else ()
    reason = message[message.index("Last error:") - 1 :][:3] if "Last error:" in message[1:-1] else ()
    if found and reason and (found.code.name.startswith("nccl-") or found.line in reason):
        told_by = first_phrase(reason[1:]) or found
        return Found(told_by.code, " ".join(reason))
    if found and _COMPILER_STACK in found.line:
        below = message[message.index(found.line) :] if found.line in message else ()
        return Found(found.code, next((line for line in below[1:] if _OF_COMPILER.match(line)), found.line))
    if found is None or not (found.code.is_wrapper or found.code.name.isdigit() or found.code.name == _OF_CANN):
        return found
    at = told.end - 1 if told else next((number for number, line in enumerate(lines) if line == found.line), 0)
    near = [*message, *lines[max(0, at - NEAR) : at + LAST_LINES]]
    decoded = next((line for line in near if "errorStr: " in line), "")  # what an exception of a kernel means
    stated = next(filter(_STATED.search, message), "") if found.code.name.isdigit() else ""
    by_phrase = first_phrase([stated]) if stated else None
    detail = decoded or stated or next((line for line in near if _DETAIL.search(line)), found.line)
    return by_phrase or Found(found.code, detail)


_OF_CANN: Final = "tiling"  # a phrase beside which CANN gives the details of a code
# The name of a code and the details, or the reason that it gives, unless this is another call that failed.
_STATED: Final = re.compile(r"\w_\w+\(E[A-Z]\d{4}\): \w|\bE[A-Z]\d{4}: .{1,200}\bReason: (?!\w+ execute failed)\w")
_COMPILER_STACK: Final = "errormsg/stack: "  # begins tracebacks of CANN's operator compiler, which lack a header
_OF_COMPILER: Final = re.compile(r"(?:[\w.]*Error|Exception): \S")
_DETAIL: Final = re.compile(r"\[FUNC:(?!GetDevErrMsg)\w+\]\[FILE:")


def _judged(found: Found | None, told: Traceback | None) -> Found | None:
    """Let the cause of a code be the rank's own if no other rank can have had a part in it."""
    if told is None or found is None or found.code.kind is not Kind.EITHER or not _ALONE.search(told.exception):
        return found
    return Found(attrs.evolve(found.code, kind=Kind.ROOT), found.line)


# What a process does without others: torch_npu opens CANN (npu_sys_ctrl.cpp), and MindSpore has a graph compiled
# (ge_graph_executor.cc).
_ALONE: Final = re.compile(r"NPU function error: acl(?:Init|rtGetDeviceCount)\(|Compile graph \S+ failed")


def _evidence(told: Traceback | None, lines: Sequence[str], found: Found | None, first: str) -> Finding:
    last_lines = tuple(map(shown, lines[-LAST_LINES:]))
    if told is None:
        return Finding(last_lines=last_lines, excerpt=_around(lines, found))
    return Finding(
        last_lines=last_lines,
        exception=shown(told.exception),
        place=shown(told.place),
        origin=shown(told.origin),
        origin_place=shown(told.origin_place),
        is_in_collective=statements.is_raised_in_one(told.exception, told.lines),
        only_passes_on=statements.passes_on(told),
        traceback=_without_middle([shown(line) for line in told.lines]),
        excerpt=tuple(map(shown, _excerpt(told, found, first))),
    )


def _excerpt(told: Traceback, found: Found | None, first: str) -> list[str]:
    """Return the lines of an error that fit on a screen: what came first, inner frames, message, code and source."""
    message = [*told.message[:1], *_telling(told.message[1:])]
    if len(told.message) > EXCERPT_LINES // 2 and only_passes_on([told.exception, *told.message]):
        return _abridged_table(message)
    code_line = found.line.strip() if found and not FRAME.search(found.line) else ""
    wanted = [*([code_line] if code_line else []), *_source_lines(told.message)]
    first = "" if first in wanted else first
    room = EXCERPT_LINES - bool(first)
    if told.message and told.message[0] in told.lines[0]:  # a crash: its stack is below, the innermost frame first
        message, frames = [told.lines[0], *_telling(told.lines[1:])][: room - len(wanted)], []
    else:
        frames = _telling(up_to(told.message, told.lines)[: -len(told.message)])
    if len(frames) + len(message) + len(wanted) <= room:
        message, frames = [*frames, *message], []
    else:
        message = message[: EXCERPT_LINES // 2 if frames else room - len(wanted)]
    added = [line for line in wanted if not any(text.strip() and line.endswith(text.strip()) for text in message)]

    kept = room - len(message) - len(added) - 1
    frames = [_omitted(told, frames[-kept:]), *frames[-kept:]] if len(frames) > kept else frames
    return [*([first] if first and first not in message else []), *frames, *message, *added]


def _telling(lines: Iterable[str]) -> list[str]:
    """Return the lines that say something new: no rules, no hints on debugging, no error again with other numbers."""
    found: list[str] = []
    seen: set[str] = set()
    for line in lines:
        is_source = bool(found) and FRAME.match(found[-1]) is not None
        text = folded(line.strip()) if _REPEATED.search(line) else line.strip()
        if not _SAYS_NOTHING.search(line) and (is_source or FRAME.match(line) or text not in seen):
            found.append(line)
            seen.add(text)
    return found


_REPEATED: Final = re.compile(r"error|exception|fail|assert|warn", re.IGNORECASE)
_SAYS_NOTHING: Final = re.compile(
    r"^[\W_]*$|\basynchronously\b|\b(?i:consider|please|compile|set)\b.{0,80}\b[A-Z]{3,}(?:_[A-Z]+)+\b"
    r"|^\s*(?i:rectify|refer|see)\b.*\blogs?\b|\bTraceBack \(most recent call last\):\s*$"  # of CANN
)


def _omitted(told: Traceback, frames: Sequence[str]) -> str:
    """Return the line in place of the outer frames, with the innermost one of the user's code unless it is shown."""
    own = told.place.partition(", called from ")[2]
    file, _, line = own.partition(" ")[0].rpartition(":")
    is_shown = any(f'{file}", line {line},' in frame for frame in frames)
    return "  ..." if is_shown or not own else f"  ... called from {own}"


def _source_lines(message: Sequence[str]) -> list[str]:
    """Return the source line that MindSpore names first, or the operator that CANN names as the one that failed."""
    at = next((index for index, line in enumerate(message) if _SOURCE.match(line)), len(message))
    operator = next((line.strip() for line in message if _OPERATOR.search(line)), "")
    return [line.strip() for line in message[at : at + 2]] or ([operator] if operator else [])


_OPERATOR: Final = re.compile(r"fault (?:op|kernel)_name=\w")
_SOURCE: Final = re.compile(r"# 0 In file \S+:\d+")


def _abridged_table(message: Sequence[str]) -> list[str]:
    """Return a launcher's report about its workers: its end names the first one that failed."""
    if len(message) <= TABLE_LINES:
        return list(message)
    return [*message[:4], "...", *message[5 - TABLE_LINES :]]


def _around(lines: Sequence[str], found: Found | None) -> tuple[str, ...]:
    """Return the end of a log, with the line of the code above it."""
    end = _telling(lines[: -5 * NEAR : -1])[EXCERPT_LINES - 1 :: -1]
    if found and found.line in lines and found.line not in end:
        at = list(lines).index(found.line)
        end = [*_telling(lines[at : at + NEAR])[: EXCERPT_LINES // 2], "  ...", *end[EXCERPT_LINES // 2 + 1 :]]
    return tuple(map(shown, end))


def _without_middle(lines: list[str]) -> tuple[str, ...]:
    if len(lines) <= TRACEBACK_LINES:
        return tuple(lines)
    head = TRACEBACK_LINES // 3
    tail = TRACEBACK_LINES - head - 1
    return (*lines[:head], f"  ... {len(lines) - head - tail} lines ...", *lines[-tail:])


def _unescaped(line: str) -> Sequence[str]:
    """Split a line of JSON with a string of several lines, such as a logged traceback."""
    if '{"' not in line or line.count("\\n") < SEVERAL:
        return [line]
    return line.removesuffix('"}').replace('\\"', '"').split("\\n")


def _bounded(line: str) -> str:
    line = line.lstrip("\0")  # native code may write the end of a C string
    quoted = _QUOTED.match(line) if ".log" in line else None
    line = line[quoted.end() :] if quoted else line
    if len(line) <= LONG_LINE:
        return line
    return f"{line[: LONG_LINE // 2]}{CUT}{line[-LONG_LINE // 2 :]}"


_QUOTED: Final = re.compile(r"[\w./-]+\.log[-:]\d+[-:]")  # msrun prints its workers' logs with grep -rn
