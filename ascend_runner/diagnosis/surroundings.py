"""Tells what around an error may explain it: the frame that raised it, and the records at the end of its log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ascend_runner.diagnosis import collectives, statements
from ascend_runner.diagnosis.phrases import first_phrase
from ascend_runner.diagnosis.traceback_block import FRAME
from ascend_runner.diagnosis.tracebacks import Traceback
from ascend_runner.text import LAST_LINES


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
    elif not (statements.passes_on(told) or collectives.is_raised_in_one(told.exception, told.lines)):
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


def is_own(told: Traceback) -> bool:
    """Whether an exception is raised by the user's program in its own words, not by a package."""
    frame, source = innermost(told)
    return source.startswith(("raise ", "assert ")) and not _OF_PACKAGES.search(frame)


def innermost(told: Traceback) -> tuple[str, str]:
    """Return the frame that raised an exception, and its source line; both are "" where they are unknown."""
    trace = [line.strip() for line in up_to(told.message, told.lines)]
    frames = [at for at, line in enumerate(trace) if FRAME.match(line) and not line.endswith(_OF_MODULES)]
    return (trace[frames[-1]], "".join(trace[frames[-1] + 1 :][:1])) if frames else ("", "")


# Of torch.nn.Module, which raises the errors of its users.
_OF_MODULES: Final = ("in __getattr__", "in __delattr__", "in _call_impl", "in _wrapped_call_impl")
# Installed packages, and those that are often used from their repositories.
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
_ASIDE: Final = re.compile(  # what only informs or shows settings, or what a message says of other errors
    r"\b(?:INFO|DEBUG|NOTICE)\b|Warning: |^\[[DI]\d* |^\s*(?:\{|[\w-]+: \{?)['\"]"
    r"|\b(?:[Ii]f (?:you|it|the|this|your)|[Hh]int|may|might|could be|e\.g\.)\b"
)
_WARNING: Final = re.compile(r"\[W(?:\d{3,4})? |\bWARN(?:ING)?\b|\bWarning: ")  # what a rank has survived


def up_to(message: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Return the lines of a chain of exceptions up to the end of this message."""
    ends = range(len(lines), len(message) - 1, -1)
    return list(lines[: next((end for end in ends if lines[end - len(message) : end] == message), len(lines))])
