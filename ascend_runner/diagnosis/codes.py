"""Error codes of CANN, HCCL and the driver: how they are found in a log. `catalogue` knows what they mean.

A code that no table has is judged by its module and its range (CANN's troubleshooting guide, "error codes").
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs


class Kind(enum.Enum):
    """The usual place of the cause when a rank reports a code."""

    ROOT = "usually the root cause"
    EITHER = "this rank or a peer may be at fault"
    SECONDARY = "usually caused by a peer"


@attrs.frozen
class Code:
    """An error code, or a telling phrase, `name`.

    With `is_wrapper` it only announces another error. With `is_connection` it reports a lost connection, which in a
    collective is a lost peer, and elsewhere may be a storage or a database. With `is_of_worker` it tells how a worker
    or the job was ended, which explains no error of its own. `next` is what to do about it, "" if that is not known.
    """

    name: str
    meaning: str
    kind: Kind
    next: str = ""
    is_wrapper: bool = False
    is_connection: bool = False
    is_of_worker: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it says only that something failed inside."""
        return self.name.startswith("E") and self.name[2:4] == "99"


@attrs.frozen
class Found:
    """A code and the line that contains it."""

    code: Code
    line: str


def first(lines: Sequence[str], known: Mapping[str, Code]) -> Found | None:
    """Find the first known code. A wrapper counts only if there is no other code, an inner error last."""
    wrapper = None
    for line in lines:
        for code in _codes_in(line, known):
            if not code.is_wrapper:
                return Found(code, line)
            if wrapper is None or (wrapper.code.is_empty and not code.is_empty):
                wrapper = Found(code, line)
    return wrapper


def _codes_in(line: str, known: Mapping[str, Code]) -> Iterator[Code]:
    for match in _LETTERED.finditer(line) if "E" in line else ():
        code = known.get(match["name"]) or (_by_module(match["name"]) if _OF_CANN.match(line, match.end()) else None)
        if code:
            yield code
    yield from (known[name] for name in _numbers_in(line) if name in known)


def _numbers_in(line: str) -> Iterator[str]:
    """Yield the names of the codes in a line that are numbers or words."""
    if _NUMERIC_HINT.search(line):
        suffix = OF_THE_SERVER if OF_THE_SERVER.strip() in line else ""
        for name in (*_NUMERIC.findall(line), *(_RESULT.findall(line) if _OF_CALLS.search(line) else [])):
            yield name + (suffix if name == OUT_OF_MEMORY else "")
    if "Stage][" in line:
        yield from (_OF_STAGES[name] for name in _STAGE.findall(line))
    is_of_hccl = "rror code is " in line or "errNo[0x" in line or "Ascend collective Error" in line
    if is_of_hccl or "drvRetCode=" in line or "drvErr=" in line:
        yield from map(_small_name, _SMALL.finditer(line))


OUT_OF_MEMORY: Final = "207001"
OF_THE_SERVER: Final = " MallocHost"  # after that code: of the server, where it was to be pinned


def _by_module(name: str) -> Code | None:
    """Judge a code that no entry has: 9000 to 9999 are internal errors, the others blame the caller."""
    module = MODULES.get(name[1])
    if module is None:
        return None
    if name[2] != "9":
        return Code(name, f"{module} rejects an argument or a setting; see its message", Kind.ROOT)
    meaning = f"internal error of {module}; see the first line of its details"
    return Code(name, meaning, Kind.EITHER, is_wrapper=True)


# The sources of codes by their second character.
MODULES: Final = {
    "1": "the graph engine",
    "2": "the operator compiler's front end",
    "3": "an AICPU operator",
    **dict.fromkeys("456789ABCD", "the operator compiler"),
    "E": "the runtime",
    "F": "automatic parallelization",
    "G": "the tuning engine",
    "H": "the ACL interface",
    "I": "HCCL",
    "J": "HCCP",
    "K": "CANN's profiler",
    "L": "the driver",
    "M": "the queue scheduler",
    "N": "image preprocessing",
    "O": "model compression",
    "P": "CANN's data dump",
    "Z": "an operator",
}


def _small_name(match: re.Match[str]) -> str:
    if match["driver"]:
        return f"driver {match['driver']}"
    return f"HCCL {match['hccl'] or int(match['hexadecimal'], 16)}"


# CANN writes EI0006: [PID: 7], Communication_Error_Get_Socket(EI0006): or EZ9999[PID: 7], its compiler [EB0000] or
# {'errCode': 'E80012', ...}. A line that only mentions one (search for the keyword "EI0002" on ...) does not report it.
_LETTERED: Final = re.compile(r"(?<![A-Za-z0-9_])(?P<name>E[A-Z0-9][0-9]{4})(?=[:)\[\]]|',)")
_OF_CANN: Final = re.compile(r"\):|:? ?\[PID: ?\d|: Inner Error|',|\]")  # what follows a code for certain

# Since CANN 8.5 HCCL's own log names a stage and a kind of error, each with its code (hcomm docs, "multi-level search
# keywords"): [InitGroupStage][RanktableCheck].
_OF_STAGES: Final = {
    "EnvConfig": "EI0001",
    "RanktableConfig": "EI0004",
    "RanktableCheck": "EI0014",
    "ParameterConflict": "EI0005",
    "VersionConflict": "EI0008",
    "InitChannelStage][Timeout": "EI0006",
    "TaskExecStage][Timeout": "EI0002",
}
_STAGE: Final = re.compile(rf"\[({'|'.join(map(re.escape, _OF_STAGES))})\]")

# Return codes are plain numbers, so they count only after a word that announces one: "error code is 507015",
# "retCode=507015", "HCCL error: 107002", and of CANN's functions "runtime result = 507035", "aclrtSetDevice(0) failed:
# 507033", "rtKernelLaunch failed, return: 507018". A number of things is none: "failed: 107002 samples".
_IS: Final = r"\s*(?:is)?\s*[:=]?\s*\[?"
_NUMBER: Final = r"([1-5][0-9]{5})(?![0-9]| [a-z]{3,}s\b)"
_NUMERIC: Final = re.compile(
    rf"(?:\b(?:error[ _]?(?:code|no)|errcode|ret(?:urn)?_?code)\b{_IS}|\b(?:ACL|HCCL) error: ){_NUMBER}",
    re.IGNORECASE,
)
_RESULT: Final = re.compile(rf"(?:\b(?:ret(?:urn)?(?:_?int)?|result)\b{_IS}|\bfailed ?[:,]\s*){_NUMBER}", re.IGNORECASE)
_OF_CALLS: Final = re.compile(
    r"\b(?:acl|rt[A-Z]|Hccl|hrt|Hcom|ge)|runtime|\[ERROR\]|E[A-Z]\d{4}|\[FUNC:|NPU|npu|[Kk]ernel"
)
_NUMERIC_HINT: Final = re.compile(r"(?<![0-9])[1-5][0-9]{5}(?![0-9])")  # cheap: most log lines contain no such number
_SMALL: Final = re.compile(
    r"(?:(?:HCCL function error|OPS function error: Hccl).*?error code is |Ascend collective Error.*?\| Error Number )"
    r"(?P<hccl>\d{1,4})(?!\d)"
    r"|errNo\[0x0{8}05[0-9a-f]{2}(?P<hexadecimal>[0-9a-f]{4})\]"  # before it HCCL's module, then a part of HCCL
    r"|drv(?:RetCode|Err)=(?P<driver>\d{1,5})(?!\d)"
)
