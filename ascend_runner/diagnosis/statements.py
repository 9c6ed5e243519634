"""Chooses, of all errors in a log, the one that explains the end of its rank.

It judges by the names of libraries and calls in a traceback, and by the words of its message. An error in the arguments
of such a call is the caller's own: it has another class, or mentions no connection, wait or failed call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final

from ascend_runner.diagnosis import crashes, tracebacks
from ascend_runner.diagnosis.catalogue import first_code, first_phrase
from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.tracebacks import FRAME, Block, Traceback, is_hollow, only_passes_on, says_nothing
from ascend_runner.text import LAST_LINES

INNERMOST: Final = 8  # lines of a traceback, two per frame; further out everything is the training's own code

# Exceptions that a backend raises because of events, not because of its arguments.
_RAISED_BY_BACKENDS: Final = re.compile(
    r"^(?:[\w.]*\.|(?:std|c10)::)?(?:RuntimeError|runtime_error|Dist\w*Error|Rendezvous\w*Error|ConnectionError"
    r"|Connection\w+Error|BrokenPipeError|TimeoutError|OSError|EOFError|IncompleteReadError|Exception"
    r"|InternalError|HorovodInternalError|ActorDiedError|RayActorError)\b|^gloo::\w*Exception\b"
)
_LIBRARY: Final = re.compile(
    r'File "[^"]*/(?:torch(?:_npu)?/distributed/|deepspeed/(?:comm|runtime/comm)/|horovod/|mindspore/(?:communication|'
    r"parallel/_(?:ps|utils)|distributed)/|mpi4py/|hccl/)"
)
_CALL: Final = re.compile(
    r"\b(?:all_?reduce|all_?gather\w*|reduce_?scatter\w*|all_?to_?all\w*|broadcast\w*|(?:monitored_)?barrier|reduce"
    r"|i?send|i?recv|scatter|gather|init_process_group|destroy_process_group|new_group|TCPStore|init_cluster"
    r"|(?:work|handle)\.wait|_verify_params_across_processes|(?:npu|cuda)\.synchronize|stream\w*(?:\(\))?\.synchronize)\("
)
_OF_A_PEER: Final = re.compile(
    r"time(?:d )?[ -]?out|peer|remote|connect|socket|recv|received|closed|reset|refused|unreachable|heartbeat|network"
    r"|abort|broken pipe|lost|store|rendezvous|error code is|error in:|unhandled|watchdog|EOF|died|dead",
    re.IGNORECASE,
)
_MESSAGE: Final = re.compile(
    r"(?i:gloo|c10d|nccl|hccl|hcom|tcpstore|processgroup|rendezvous|mpi_|libfabric|remote (?:peer|rank))"
)


def is_raised_in_one(exception: str, traceback: Sequence[str]) -> bool:
    """Whether `exception` ("Type: message"), the last lines of whose traceback are given, comes from a collective."""
    if not _RAISED_BY_BACKENDS.match(exception) or not _OF_A_PEER.search(exception):
        return False
    if _MESSAGE.search(exception):
        return True
    frames = [line for line in traceback if line.startswith("  ")][-INNERMOST:]
    return any(_LIBRARY.search(line) or _CALL.search(line) for line in frames)


def reports_a_peer(error: Traceback | Block) -> bool:
    """Whether an error comes from a collective, or reports the loss of a peer."""
    return is_raised_in_one(error.exception, error.lines) or _kind(error) is Kind.SECONDARY


def names_one(line: str) -> bool:
    """Whether a message without a traceback comes from the library of a collective, such as a record of a logger."""
    return bool(_MESSAGE.search(line) and _OF_A_PEER.search(line))


FAR: Final = 200  # lines between two errors that belong together: other ranks of a launcher write in between
LAST_WORDS: Final = 4  # last lines in which the same may explain the end of a rank that was stopped
EPILOGUE_LINES: Final = 400  # lines after an error that libraries may print on the way out
CLUSTER: Final = 40  # last lines in which an ERROR record may explain an end without any other sign


def choose(lines: Sequence[str], *, is_late: bool) -> Traceback | None:
    """Choose the error that explains the end; with `is_late` it, or what passes it on, must be among the last lines.

    The last one counts, except for errors that only pass on another or report a lost peer: these yield to one before. A
    launcher that reports a worker's death by a signal precedes the other workers, which lost it.
    """
    crashed = crashes.find_all(lines)
    raised = tracebacks.find_all(lines, reports_a_peer)
    crashed = [crash for crash in crashed if not any(error.start < crash.start < error.end for error in raised)]
    crashed = [crash for crash in crashed if not _is_survived(lines, crash, raised)]
    told = sorted([*raised, *crashed], key=lambda error: error.start)
    if is_late:
        late = [error for error in told if _is_near_the_end(lines, error)]
        late = _at_the_crash(late, crashed) or late
        told = told if late and all(map(passes_on, late)) else late
    together = _without_a_kill(_last_together(told))
    own = [error for error in together if not passes_on(error)]
    is_interrupted = bool(own) and own[-1].exception.startswith("KeyboardInterrupt")
    if is_interrupted and any(error.exception.startswith("OpenBLAS ") for error in own[-2:]):
        own.pop()  # OpenBLAS raises SIGINT where it cannot start its threads (driver/others/blas_server.c)
    roots = list(filter(_is_root, own))
    if own and own[-1] not in roots and roots:
        return roots[-1]
    if own and all(_kind(error) is Kind.SECONDARY for error in own):
        own = [error for error in together if passes_on(error) and _reports_a_signal(error)] or own

    return next(iter([*own[::-1], *together[::-1]]), None)


def _is_survived(lines: Sequence[str], error: Traceback, raised: Sequence[Traceback]) -> bool:
    """Whether a shell has gone on after a command that failed; an exception below may pass its failure on."""
    if not _OF_A_SHELL.match(error.exception):
        return False
    below = [exception for exception in raised if exception.start > error.start]
    following = (line for line in lines[error.end :] if not line.startswith(("srun: ", "slurmstepd")))
    return not all(map(passes_on, below)) if below else len([*islice(following, LAST_WORDS + 1)]) > LAST_WORDS


_OF_A_SHELL: Final = re.compile(
    r"(?:\S+: line \d+|(?:\S*/)?(?:ba|da)?sh(?:: \d+)?): "
    r".*(?:[Pp]ermission denied|not found|No such file or directory)$"
)


def _is_near_the_end(lines: Sequence[str], error: Traceback) -> bool:
    """Whether an error is among the last lines, apart from what libraries print on the way out, and of lost peers."""
    following = [line for line in lines[error.end : error.end + EPILOGUE_LINES] if not _EPILOGUE.match(line)]
    is_near = len(following) <= LAST_LINES or sum(1 for line in following if not names_one(line)) <= LAST_LINES
    return is_near and len(lines) - error.end <= EPILOGUE_LINES


# wandb's and SwanLab's summaries, c10's warnings and their native stacks, the warnings of Python's own, glibc's stack
# and memory map, and what the compiler processes of CANN print when they notice that their parent has gone.
_EPILOGUE: Final = re.compile(
    r"\s*$|wandb: |swanlab: |(?:\[rank\d+\]: ?)?(?:\[[IW]\d* |frame #\d+: |Exception raised from )"
    r"|(?:\[ERROR\] )?TBE Subprocess\[|\S+\.py:\d+: \w*Warning: |  warnings\.warn\(|Extension modules: "
    r"|======= (?:Backtrace|Memory map)|/\S+\(\S*\)\[0x[0-9a-f]+\]$|[0-9a-f]{6,16}-[0-9a-f]{6,16} [r-][w-][x-][ps] "
)


def _at_the_crash(told: Sequence[Traceback], crashed: Sequence[Traceback]) -> list[Traceback]:
    """Return the explanation of a crash: the crash itself, unless the program had failed and was on its way out.

    An abort that gives no reason, just below a traceback, comes from libraries that are torn down after the exception,
    and one that reports a peer from a watchdog, which runs until the rank has ended.
    """
    crashes_told = [error for error in told if error in crashed]
    if not crashes_told:
        return []
    last = crashes_told[-1]
    before = told[: told.index(last)]
    own = [error for error in before if _is_root(error) and (reports_a_peer(last) or is_of_the_program(error))]
    above = [error for error in before[-1:] if crashes.is_bare_abort(last) and last.start - error.end <= LAST_WORDS]
    return own or above or crashes_told


def passes_on(error: Traceback | Block) -> bool:
    """Whether an error refers to another one, or to the end of another process of the rank."""
    return only_passes_on([error.exception, *error.message]) or _is_cut_off(error)


def message_of(error: Traceback | Block) -> Sequence[str]:
    """Return the message of an error, without the report of a lost peer below one that states its own cause.

    CANN prints its reports below any exception, also those of connections that were lost because of it.
    """
    report = first_code(error.message[1:])
    if report is None or report.code.kind is not Kind.SECONDARY or not _states_its_cause(error):
        return error.message
    return error.message[: error.message.index(report.line, 1)]


def _states_its_cause(error: Traceback | Block) -> bool:
    if is_hollow(error.exception, error.message):
        return False
    phrase = first_phrase(error.message[:1])
    is_known = phrase is not None and phrase.code.kind is Kind.ROOT and not phrase.code.is_wrapper
    may_be_a_peers = _RAISED_BY_BACKENDS.match(error.exception) and _OF_A_PEER.search(error.exception)
    return is_known or (is_of_the_program(error) and not may_be_a_peers)


def is_of_the_program(error: Traceback | Block) -> bool:
    """Whether Python code has raised an exception, so that nothing around it explains it.

    That is any exception of the user's own code, and one of a package unless its class is what native code raises: one
    of a backend, or one that is not built in and was raised by a call.
    """
    frame, source = innermost(error)
    name = _CLASS.match(error.exception)
    is_by_a_call = name is not None and "." in name[0] and not source.startswith(_RAISING)
    is_native = bool(_RAISED_BY_BACKENDS.match(error.exception)) or (is_by_a_call and bool(source))
    return bool(frame and name) and not passes_on(error) and (is_own(error) or not is_native)


def error_line(lines: Sequence[str], *, is_stopped: bool) -> str:
    """Return the first record of an error at the end of a log, "" if there is none.

    Of a rank that was stopped, only the very last lines count, and only a record of that level.
    """
    form, count = (_RECORD_OF_LEVEL, LAST_WORDS) if is_stopped else (_ERROR_RECORD, CLUSTER)
    last = [line for line in lines[-count:-LAST_WORDS] if not _OF_A_SHELL.match(line)] + list(lines[-LAST_WORDS:])
    found = (line.strip() for line in last if form.search(line) and not _EPILOGUE.match(line))
    return next(found, "")


def last_words(lines: Sequence[str]) -> str:
    """Return the last line of a log if it refuses something, as the message of a program that calls sys.exit does."""
    return next((line.strip() for line in lines[-1:] if _REFUSAL.search(line)), "")


def _is_cut_off(error: Traceback | Block) -> bool:
    """Whether the process at the other end of a pipe has ended (CPython multiprocessing/spawn.py, connection.py)."""
    return bool(_CUT_OFF.match(error.exception)) and any(_PIPE.search(line) for line in error.lines)


# What a child reads from its parent is cut off, or the semaphores that they share are gone.
_CUT_OFF: Final = re.compile(
    r"EOFError\b|_pickle\.UnpicklingError: pickle data was truncated|FileNotFoundError: \[Errno 2\] [\w ]+$"
)
_PIPE: Final = re.compile(r"in spawn_main$|/multiprocessing/connection\.py\", line \d+, in _recv")


def _reports_a_signal(error: Traceback) -> bool:
    """Whether the first worker to fail died of a signal; SIGABRT is what a watchdog ends a worker with."""
    first = next((index for index, line in enumerate(error.message) if line.startswith("Root Cause")), 0)
    found = first_phrase(error.message[first:])
    return found is not None and found.code.name in {"sigkill", "sigsegv", "sigbus"}


def _last_together(told: Sequence[Traceback]) -> list[Traceback]:
    """Return the last errors, back to the first large gap between two of them."""
    together: list[Traceback] = []
    for error in reversed(told):
        if together and together[0].start - error.end > FAR:
            break
        together.insert(0, error)
    return together


def _without_a_kill(told: Sequence[Traceback]) -> Sequence[Traceback]:
    """Leave out that a shell reports a kill right after another error, with which sglang and vLLM end themselves."""
    is_kill = len(told) > 1 and bool(_KILLED.search(told[-1].exception))
    return told[:-1] if is_kill and told[-1].start - told[-2].end <= LAST_LINES else told


_KILLED: Final = re.compile(r"^(?:\S+: line \d+: +\d+ )?Killed\b")  # bash jobs.c


def _is_root(error: Traceback) -> bool:
    return _kind(error) is Kind.ROOT and not passes_on(error)


def _kind(error: Traceback | Block) -> Kind:
    """Judge an error by itself, see `Finding.kind`."""
    is_in_collective = is_raised_in_one(error.exception, error.lines)
    message = message_of(error)
    found = first_code(message) or first_phrase(message)
    if found is None:
        return Kind.EITHER if is_in_collective else Kind.ROOT
    return Kind.SECONDARY if found.code.is_connection and is_in_collective else found.code.kind


_CLASS: Final = re.compile(r"[\w.<>]+(?=:\s|:?$|\()")
_RAISING: Final = ("raise ", "assert ")
_RECORD_OF_LEVEL: Final = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL)\b|^(?:\S+: )?[Ee]rror: |^[\w.]+(?:Error|Exception): |失败|异常|报错"
    r"|[Ll]oss is (?:nan|inf)\b.*\bstopping\b"
    r'|"(?:level|levelname|severity)": ?"(?i:error|critical|fatal)"'
)
_ERROR_RECORD: Final = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL|Error|error)|(?:Error|Exception):|^(?:Could not|Cannot|Failed to|Unable to)\b"
    r"|(?:No such file|not found|[Pp]ermission denied|[Uu]nexpected (?:EOF|end of file))|错误|失败|异常|报错|不存在"
    r"|[Ll]oss is (?:nan|inf)\b.*\bstopping\b"
)
_REFUSAL: Final = re.compile(
    r"\b(?:abort\w*|cannot|can't|could not|couldn't|does not|doesn't|must|invalid|missing|not supported|unable|unknown"
    r"|unsupported)\b|必须|无法|不能|缺少|不支持|未找到",
    re.IGNORECASE,
)


def records(lines: Sequence[str], told: Traceback | None) -> list[str]:
    """Return the last lines that record errors.

    A rank survives many an error, such as a program that is not installed, or an upload that is refused. So an error
    that refers to no other is explained only by those of its chain and of the libraries below the framework, and one
    that the program has raised in its own words only by its chain.
    """
    near = lines[-LAST_LINES:]
    if told is None:
        survived = len(near) - len(since_progress(near))
        near = [line for at, line in enumerate(near) if at >= survived or _OF_NATIVES.search(line)]
    elif not (passes_on(told) or is_hollow(told.exception) or is_raised_in_one(told.exception, told.lines)):
        has_own_words = is_own(told)
        near = [line for line in near if line in told.lines or (not has_own_words and _OF_NATIVES.search(line))]
    near = [line for line in near if _RECORD.search(line) and not (told and _WARNING.search(line))]
    return [line for line in near if not (aside := _ASIDE.search(line)) or first_phrase([line[: aside.start()]])]


def since_progress(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines after the last one that reports progress; the rank has survived what precedes it."""
    last = next((at for at in range(len(lines), 0, -1) if _is_progress(lines[at - 1])), 0)
    return lines[last:]


def _is_progress(line: str) -> bool:
    return bool(_PROGRESS.search(line)) and not _RECORD.search(line)


_PROGRESS: Final = re.compile(
    r"(?<![-\w])(?:(?:step|iter|iteration|epoch)\b\W{0,3}\d|loss\b\W{0,4}\d)|\d%\||\d(?:it/s|s/it)\b", re.IGNORECASE
)


def first_record(lines: Sequence[str], told: Traceback) -> str:
    """Return the first record of an error since the last progress above an error that came later than its cause.

    Such an error gives no reason, is raised by a call after the one that failed, refers to NCCL's log, or is an abort.
    The record is one of native code, or else of any logger if the error says nothing at all; "" if there is none.
    """
    is_later = is_hollow(told.exception, told.message) or crashes.is_bare_abort(told)
    if not (is_later or any(_ASYNCHRONOUS.search(line) for line in told.message)):
        return ""
    above = since_progress([line for line in lines[max(0, told.start - FAR) : told.start] if not _EPILOGUE.match(line)])
    first = first_of_natives(above)
    if first or not says_nothing(told.exception, told.message):
        return first
    return next((line.strip() for line in above if _RECORD_OF_LEVEL.search(line)), "")


def first_of_natives(lines: Sequence[str]) -> str:
    """Return the first error record of native code, "" if there is none."""
    return next((line.strip() for line in lines if _NATIVE_RECORD.search(line)), "")


_ASYNCHRONOUS: Final = re.compile(r"\basynchronous|LAUNCH_BLOCKING|NCCL_DEBUG=INFO", re.IGNORECASE)
# An assertion, or a record with a level and a place: of glog, c10 and XLA, of CANN's and ATB's loggers. XLA's
# records of libraries that are registered twice are harmless.
_NATIVE_RECORD: Final = re.compile(
    r"\bAssertion\b.{1,1000}\bfailed\b|\bCheck failed: |\bNCCL WARN .*\bfailed\b|\[(?:ERROR|FATAL)\] [A-Z]+\(\d+,"
    r"|(?:\[(?i:error|fatal|assert)\]|^(?:\[\w+\]: ?)?\[?[EF]\d{3,4} "
    r"|^[\d-]+ [\d:.]+: [EF] (?!\S+ Unable to register )).*?\.(?:cc|cpp|cxx|cu|cuh|hpp|h|c|ts):\d+"
)


def is_own(told: Traceback | Block) -> bool:
    """Whether an exception is raised by the user's program in its own words, not by a package."""
    frame, source = innermost(told)
    return source.startswith(_RAISING) and not _OF_PACKAGES.search(frame)


def innermost(told: Traceback | Block) -> tuple[str, str]:
    """Return the frame that raised an exception, and its source line; both are "" where they are unknown."""
    trace = [line.strip() for line in up_to(told.message, told.lines)]
    frames = [at for at, line in enumerate(trace) if FRAME.match(line) and not line.endswith(_OF_MODULES)]
    return (trace[frames[-1]], "".join(trace[frames[-1] + 1 :][:1])) if frames else ("", "")


# Of torch.nn.Module, which raises the errors of its users.
_OF_MODULES: Final = ("in __getattr__", "in __delattr__", "in _call_impl", "in _wrapped_call_impl")
# Installed packages, and packages that are often used from their repositories.
_OF_PACKAGES: Final = re.compile(
    r"-packages/|/lib(?:64)?/python3|\"<|/transformers_modules/|/(?:torch|torch_npu|transformers|accelerate|deepspeed"
    r"|megatron|mindspeed\w*|vllm\w*|sglang|verl|areal|trl|swift|llamafactory|mindspore|mindformers|fairseq|metaseq"
    r"|xtuner|mm\w+|colossalai|diffusers)/"
)
_RECORD: Final = re.compile(
    r"error|exception|fail|fatal|critical|abort|killed|denied|refused|cannot|could not|can't|unable|detected|not found"
    r"|no such|time(?:d )?out\b(?! ?[=:])|\[E\d* |\bE \d+ \d+\]|^ *File \"|错误|失败|异常|未找到|没有|不足",
    re.IGNORECASE,
)
_OF_NATIVES: Final = re.compile(  # of CANN, the driver, torch's backends and c10d
    r"\[ERROR\] [A-Z]+\(\d|\[E\d* \S+\.cpp:\d|\bai(?:core|vec)|dcmi|[hn]ccl|gloo|c10d|\bnpu|ascend|libatb|\bacl|chipId",
    re.IGNORECASE,
)
_ASIDE: Final = re.compile(  # lines that only inform or show settings, or mention other errors
    r"\b(?:INFO|DEBUG|NOTICE)\b|Warning: |^\[[DI]\d* |^\s*(?:\{|[\w-]+: \{?)['\"]"
    r"|\b(?:[Ii]f (?:you|it|the|this|your)|[Hh]int|may|might|could be|e\.g\.)\b"
)
_WARNING: Final = re.compile(r"\[W(?:\d{3,4})? |\bWARN(?:ING)?\b|\bWarning: ")  # a rank survives these


def up_to(message: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Return the lines of a chain of exceptions up to the end of this message."""
    ends = range(len(lines), len(message) - 1, -1)
    return list(lines[: next((end for end in ends if lines[end - len(message) : end] == message), len(lines))])
