"""Finds the fatal messages of native code and of other runtimes, which they print instead of a Python traceback.

The forms are from faulthandler, the C++ runtime (libstdc++), glibc, glog (and abseil), Open MPI and PRRTE, UCX,
TVM, the OpenMP runtimes, compilers, OpenBLAS, MKL, jemalloc, shells, pytest, the dynamic loader, Go, Rust and the JVM.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Optional

import attrs

from ascend_runner.diagnosis.tracebacks import FRAME, Traceback, place

FRAMES: Final = 12  # lines of a stack that are read
ABORT_GAP: Final = 80  # lines between the reason for an abort and its report: a C++ exception prints its stack
MOST_CRASHES: Final = 32  # kept from the end of a log
WHAT_LIMIT: Final = 10  # lines from "terminate called" to its "what():", which threads may write in between

Reader = Callable[[Sequence[str], int, "re.Match[str]"], Optional[Traceback]]


def find_all(lines: Sequence[str]) -> list[Traceback]:
    """Find the fatal messages that were printed last in a log, in their order."""
    found: deque[Traceback] = deque(maxlen=MOST_CRASHES)
    for index, line in enumerate(lines):
        if (found and index < found[-1].end) or not (_HINT_AT_START.match(line) or _HINT.search(line)):
            continue
        for pattern, read in _READERS:
            match = pattern.search(line)
            crash = read(lines, index, match) if match else None
            if crash:
                found.append(crash)
                break
    return _joined(found)


def is_bare_abort(crash: Traceback) -> bool:
    """Whether a crash is an abort, and only its signal is reported."""
    return not _detail(crash)


def _joined(found: Iterable[Traceback]) -> list[Traceback]:
    """Join each report of an abort to what native code said before it aborted, which says more."""
    joined: list[Traceback] = []
    for crash in found:
        why = joined[-1] if joined else None
        if why is not None and _detail(crash) < _detail(why) and crash.start - why.end <= ABORT_GAP:
            lines = (*why.lines, *crash.lines)
            joined[-1] = attrs.evolve(why, place=why.place or crash.place, lines=lines, end=crash.end)
        else:
            joined.append(crash)
    return joined


def _detail(crash: Traceback) -> int:
    """Return how much a message says: only the signal of an abort, that the C++ runtime has aborted, or why."""
    return next((number for number, form in enumerate(_ABORTS) if form.match(crash.exception)), len(_ABORTS))


_ABORTS: Final = (
    re.compile(r"Fatal Python error: Aborted|SIGABRT\b|Signal: Aborted|Caught signal 6\b"),
    re.compile(r"terminate called (?:without|recursively)"),
)


def _of(lines: Sequence[str], index: int, size: int, summary: str, where: str = "") -> Traceback:
    kept = tuple(lines[index : index + size])
    return Traceback(exception=summary.strip(), place=where, lines=kept, message=kept, start=index, end=index + size)


def _line(lines: Sequence[str], index: int, match: re.Match[str]) -> Traceback:
    """Read a message of one line: the group "text", else the match."""
    return _of(lines, index, 1, match.groupdict().get("text") or match[0])


def _block(lines: Sequence[str], index: int, match: re.Match[str]) -> Traceback:
    """Read a message of several lines; its details are below the first one."""
    return _of(lines, index, FRAMES // 2, match["text"])


def _hydra(lines: Sequence[str], index: int, _match: re.Match[str]) -> Traceback | None:
    """Read a configuration error, which hydra prints without a traceback, above its hint."""
    first = max(0, index - ABORT_GAP)
    end = next((at for at in range(index - 1, first - 1, -1) if lines[at].strip()), -1) + 1
    start = next((at for at in range(end - 1, first - 1, -1) if not lines[at].strip()), first - 1) + 1
    if start >= end or any(FRAME.match(line) for line in lines[max(0, start - ABORT_GAP) : end]):
        return None
    openings = [at for at in range(max(0, start - FRAMES), end) if _HYDRA.match(lines[at])]
    start = next((at for at in openings if at >= start), openings[-1] if openings else end - 1)
    summary = " ".join(lines[start : start + 2]) if lines[start].rstrip().endswith(":") else lines[start]
    return _of(lines, start, end - start, summary)


_HYDRA: Final = re.compile(
    r"In '|Key '|Could not |Cannot find |Unable to |You must |Primary config|Missing |Error |Interpolation |Multiple "
    r"|Ambiguous |Environment variable |[Mm]ismatched |[Nn]o viable |LexerNoViable|extraneous |token recognition"
)


def _faulthandler(lines: Sequence[str], index: int, match: re.Match[str]) -> Traceback | None:
    """Read a fatal error of the interpreter: the stack of its current thread, innermost frame first."""
    for position in range(index + 1, min(len(lines), index + 400)):
        if "Fatal Python error: " in lines[position]:
            return None  # it was printed again, by another process: that one counts
        if "Current thread " in lines[position]:
            return _with_stack(lines, index, position, match[0])
    first = next((at for at in range(index + 1, min(len(lines), index + FRAMES)) if FRAME.match(lines[at])), index)
    return _with_stack(lines, index, max(index, first - 1), match[0])


def _with_stack(lines: Sequence[str], index: int, header: int, summary: str) -> Traceback:
    end = header + 1
    while end < len(lines) and FRAME.match(lines[end]):
        end += 1
    frames = lines[header + 1 : end]
    kept = (lines[index], *([lines[header]] if header > index else []), *frames[:FRAMES])
    return Traceback(
        exception=summary,
        place=place(frames[::-1]),
        lines=kept,
        message=(summary,),
        start=index,
        end=max(end, index + 1),
    )


def _terminate(lines: Sequence[str], index: int, _match: re.Match[str]) -> Traceback:
    """Read an uncaught C++ exception; several threads may have written into each other."""
    following = lines[index : index + WHAT_LIMIT]
    at = next((number for number, line in enumerate(following) if "what():" in line), -1)
    head = " ".join(following[: at + 1] if at >= 0 else following[:1])
    kind = _CPP_TYPE.search(re.sub(r"terminate called \w+ (?:\w+ )*|what\(\):.*", " ", head))
    if at < 0:
        return _of(lines, index, 1, kind[0] if kind else lines[index])
    end = index + at + 1
    while end < min(len(lines), index + at + FRAMES) and lines[end].strip() and not _CPP_FRAME.match(lines[end]):
        end += 1
    what = lines[index + at].partition("what():")[2].strip()
    summary = f"{kind[0]}: {what}" if kind else what
    kept = (lines[index], *lines[index + at : end]) if at else tuple(lines[index:end])
    return Traceback(
        exception=summary.rstrip(": "),
        lines=kept,
        message=(summary, *lines[index + at + 1 : end]),
        start=index,
        end=end,
    )


_CPP_TYPE: Final = re.compile(r"(?:[A-Za-z_]\w*::)+(?:[A-Za-z_]*?(?:Error|Exception|error|exception)\b|\w+)")
_CPP_FRAME: Final = re.compile(r"frame #\d+|Exception raised from ")


def _native_stack(lines: Sequence[str], index: int, match: re.Match[str]) -> Traceback:
    """Read a signal that a library's handler reports, with its stack; the first named function is the place."""
    end = index + 1
    symbol = ""
    while end < min(len(lines), index + 4 * FRAMES) and (frame := _NATIVE_FRAME.search(lines[end])):
        symbol = symbol or _symbol(frame["symbol"] or "")
        end += 1
    return _of(lines, index, min(end - index, FRAMES), match["text"] + (f" in {symbol}" if symbol else ""), symbol)


def _symbol(text: str) -> str:
    """Return a function's name, unless it is unknown or the signal's own machinery."""
    text = re.sub(r"  \S+:\d+$", "", text)  # UCX appends the place
    name = re.sub(r"[+)\]].*|^.*\(", "", text).strip() if "(" in text and "/" in text else text.strip()
    return "" if _MACHINERY.search(name) else name


_MACHINERY: Final = re.compile(
    r"unknown|sigreturn|^0x|^\W*$|libpthread|libc\.so|pthread_kill|abort$|raise$|^gsignal|terminate|^__funlockfile"
)


_NATIVE_FRAME: Final = re.compile(
    r"(?:^\s*@\s+0x[0-9a-f]+\s+|\]\s\[\s?\d+\]\s|^\s*\d+ +0x[0-9a-f]+ |^  File \".+\", line \d+, in )(?P<symbol>.+)"
    r"|\] (?:Signal code|Failing at address|Associated errno)|^=+ backtrace"
)


def _java(lines: Sequence[str], index: int, match: re.Match[str]) -> Traceback:
    """Read an uncaught exception of the JVM; the last "Caused by" says why."""
    end, summary = index + 1, match["text"]
    while end < min(len(lines), index + 20 * FRAMES) and re.match(
        r"\s+at |\s*Caused by: |\s+\.\.\. \d+ more", lines[end]
    ):
        summary = lines[end].partition("Caused by: ")[2] or summary
        end += 1
    return _of(lines, index, min(end - index, FRAMES), summary)


def _next_line(lines: Sequence[str], index: int, match: re.Match[str]) -> Traceback:
    """Read a message that may be on the next line (Rust)."""
    text = match["text"] or (lines[index + 1].strip() if index + 1 < len(lines) else "")
    return _of(lines, index, 1 if match["text"] else 2, f"panic: {text}", match["place"])


def _mindspore(lines: Sequence[str], index: int, _match: re.Match[str]) -> Traceback | None:
    """Read an exception of MindSpore that a program has logged: its message is above the first heading."""
    above = index - 1
    while above >= 0 and (not lines[above].strip() or lines[above].startswith("---")):
        above -= 1
    if above < 0 or lines[above][0].isspace():  # a source line of MindSpore's own call stack
        return None
    end = index + 1
    while end < min(len(lines), index + 3 * FRAMES) and not _RULED.match(lines[end - 2]):
        end += 1
    return _of(lines, above, end - above, lines[above])


def _compiler(lines: Sequence[str], index: int, match: re.Match[str]) -> Traceback:
    """Read the first error of a compiler; the errors below it are often its consequences."""
    end = next((at for at in range(index, min(len(lines), index + ABORT_GAP)) if _BUILT.match(lines[at])), index) + 1
    return attrs.evolve(_of(lines, index, FRAMES // 4, match[0]), end=end)


_BUILT: Final = re.compile(r"ninja: build stopped|compilation terminated|make(?:\[\d\])?: \*\*\*|\d+ errors? generated")
_RULED: Final = re.compile(r"- C\+\+ Call Stack")
# Most lines match neither. Without anchors, a search can skip to the first letters of the alternatives.
_HINT_AT_START: Final = re.compile(r"- [A-Z]|F\d{4}|OMP|OpenBLAS|libgomp|Intel |<jemalloc>|FAILED |ERROR |Timeout \(")
_HINT: Final = re.compile(
    r"Fatal Python error|terminate called|\*\*\*|\[F\d{4}|Check failed|p(?:anic|ure virtual)|Exception in thread"
    r"|Signal: |: Assertion|\(\): |corrupt|error while loading|error: |can't open file|Seg(?:mentation|fault enc)"
    r"|Bus error|Killed|Aborted|Process name: |No module named|noticed that process|MPI_ABORT|not enough slots"
    r"|(?:command|:) not found|FatalError|detected by the|Worker exit type|function error: |call acl"
    r"|Unhandled exception|has lost comm|HYDRA_FULL_ERROR|was unable to |unbound var|Permission denied|cannot exec"
    r"|No such file or dir|yntax error|oom.kill|tcmalloc|ld: cannot find -l|unexpectedly disconnected"
)
_SHELL: Final = r"(?:\S+: line \d+|(?:\S*/)?(?:ba|da)?sh(?:: \d+)?|(?:\S*/)?env)"
_READERS: Final[Sequence[tuple[re.Pattern[str], Reader]]] = tuple(
    (re.compile(pattern), read)
    for pattern, read in (
        (r"Fatal Python error: .+", _faulthandler),
        (r"terminate called (?:after throwing|without an active|recursively)", _terminate),
        (r"\*\*\* (?P<text>SIG[A-Z]+ .*?received by PID \d+).*", _native_stack),
        (r"\[[\w.-]+:\d+\] (?P<text>Signal: [A-Z][\w ]+\(\d+\))", _native_stack),
        (r"^\[[\w.-]+:\d+ *:\d+:\d+\] (?P<text>Caught signal \d+ \(.+\))", _native_stack),
        (r"!{7} (?P<text>Segfault encountered) !{7}", _native_stack),
        (r"^- (?:Framework|Ascend|C\+\+|Memory|The |Internal|Illegal)[\w +]*(?: Message| Raised| Stack)?:", _mindspore),
        (r"\[F\d{4} [\d:.]+ (?P<text>\S+:\d+\] .+)", _line),
        (r"^F\d{4} \d\d:\d\d:\d\d\S*\s+\d+ (?P<text>\S+:\d+\] .+)", _line),
        (r"(?P<text>Check failed: .+)", _line),
        (r"FatalError: .*is detected by the operating system.*", _line),
        (r"(?:(?:double )?free|munmap_chunk|realloc|malloc(?:_consolidate)?)\(\): .+", _line),
        (r"^pure virtual method called", _line),
        (
            r"^(?:OMP: Error #\d+|libgomp: Thread creation failed|Intel MKL FATAL ERROR|<jemalloc>: Unsupported).+",
            _line,
        ),
        (r"\btcmalloc\.cc:\d+\] (?P<text>.+)", _line),
        (r"slurmstepd: error: (?P<text>Detected \d+ oom[-_]kill event.*)", _line),
        (r"double free or corruption.*|corrupted (?:size|double-linked list).*", _line),
        (r"\*\*\* (?:stack smashing|buffer overflow) detected \*\*\*.*", _line),
        (r"^\S+: \S+:\d+: .+: Assertion .+ failed\.", _line),
        (r"^panic: .+", _line),
        (r"thread '[^']*' (?:\(\d+\) )?panicked at (?:'(?P<text>[^']*)', )?(?P<place>\S+?):?$", _next_line),
        (r'Exception in thread "[^"]*" (?P<text>[\w.$]+(?::.*)?)$', _java),
        (r"(?<!\S)\S+: error while loading shared libraries: .+", _line),
        (r"^\S*python[\d.]*: (?:can't open file|No module named|Error while finding) .+", _line),
        (r"^[\w./-]+\.py: error: .+", _line),
        (r"^\S+: line \d+: +\d+ (?:Killed|Segmentation fault|Bus error|Aborted|Illegal instruction).*", _line),
        (r"^(?:Killed|Segmentation fault|Bus error|Aborted|Illegal instruction)(?: \(core dumped\))?$", _line),
        (r"^\S+: (?:line \d+: |\d+: )?\S+: command not found|^(?:\S*/)?(?:da)?sh: \d+: \S+: not found$", _line),
        (rf"^{_SHELL}: .+: (?:unbound variable|Permission denied|cannot execute.+|No such file or directory)$", _line),
        (rf"^{_SHELL}: [Ss]yntax error.+", _line),
        (r"^\S*\bld: cannot find -l.+", _compiler),
        (r"^\S+\.\w+(?::\d+:\d+|\(\d+\)): (?:fatal )?error: .+", _compiler),
        (r"^OpenBLAS blas_thread_init: pthread_create(?: failed|:) .+", _line),
        (r"^(?:FAILED|ERROR) \S+\.py::\S+ - .+", _line),  # of pytest
        (r"^Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!$", _line),  # of faulthandler.dump_traceback_later
        (r"(?P<text>Process name: \[\[\d+,\d+\],\d+\])", _line),
        (r"There are not enough slots available in the system.*", _line),
        (r"(?:mpirun|prterun|mpiexec|orterun) noticed that process rank \d+ with PID .+", _line),
        (r"(?P<text>Worker exit type: .+)", _line),  # of ray
        (r"logging\.cc:\d+: Unhandled exception: \S+ what\(\): (?P<text>.+)", _line),  # of ray, in a native thread
        (r"(?P<text>(?:ORTE|PRTE) has lost communication with a remote daemon)", _block),
        (r"(?P<text>An MPI communication peer process has unexpectedly disconnected)", _block),
        (
            r"(?P<text>(?:mpirun|mpiexec|prterun|orterun) was unable to (?:launch|start) the specified application)",
            _block,
        ),
        (r"^Set the environment variable HYDRA_FULL_ERROR=1", _hydra),
        (
            r"\[E(?:\d{3,4} [\d:.]+)? \S+\] (?P<text>.*\b(?:(?:NPU|HCCL|OPS) function error: |call acl\w+ failed).+)",
            _block,  # of torch_npu
        ),
        (r"MPI_ABORT was invoked on rank \d+.*", _line),
    )
)
