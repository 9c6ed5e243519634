"""Finds the error codes of CANN, HCCL and the driver in a log.

The codes with letters are in `cann_codes`, those that are numbers in `return_codes`. A code that neither table has is
judged by its module and its range.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from ascend_runner.diagnosis.cann_codes import LETTERED, MODULES
from ascend_runner.diagnosis.return_codes import DRIVER, HCCL, RETURNED


class Kind(enum.Enum):
    """The usual place of the cause when a rank reports a code."""

    ROOT = "usually the root cause"
    EITHER = "this rank or a peer may be at fault"
    SECONDARY = "usually caused by a peer"


@attrs.frozen
class Code:
    """An error code, or a telling phrase, `name`.

    With `is_wrapper` it only announces another error. With `is_connection` it reports a lost connection, which in a
    collective is a lost peer, and elsewhere may be a storage or a database.
    """

    name: str
    meaning: str
    kind: Kind
    is_wrapper: bool = False
    is_connection: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it says only that something failed inside."""
        return self.name.startswith("E") and self.name[2:4] == "99"


@attrs.frozen
class Found:
    """A code and the line that contains it."""

    code: Code
    line: str


def first_code(lines: Sequence[str]) -> Found | None:
    """Find the first known code. A wrapper counts only if there is no other code, an inner error last."""
    wrapper = None
    for line in lines:
        for code in _codes_in(line):
            if not code.is_wrapper:
                return Found(code, line)
            if wrapper is None or (wrapper.code.is_empty and not code.is_empty):
                wrapper = Found(code, line)
    return wrapper


def _codes_in(line: str) -> Iterator[Code]:
    for match in _LETTERED.finditer(line) if "E" in line else ():
        code = CODES.get(match["name"]) or (_by_module(match["name"]) if _OF_CANN.match(line, match.end()) else None)
        if code:
            yield code
    if _NUMERIC_HINT.search(line):
        numbers = [*_NUMERIC.findall(line), *(_RESULT.findall(line) if _OF_CALLS.search(line) else [])]
        codes = (CODES[name] for name in numbers if name in CODES)
        yield from (_OF_THE_SERVER.get(code.name, code) if "MallocHost" in line else code for code in codes)
    if "Stage][" in line:
        yield from (CODES[_OF_STAGES[name]] for name in _STAGE.findall(line))
    is_of_hccl = "rror code is " in line or "errNo[0x" in line or "Ascend collective Error" in line
    if is_of_hccl or "drvRetCode=" in line or "drvErr=" in line:
        yield from (CODES[name] for name in map(_small_name, _SMALL.finditer(line)) if name in CODES)


def _by_module(name: str) -> Code | None:
    """Judge a code that is not in the table: 9000 to 9999 are internal errors, the others blame the caller."""
    module = MODULES.get(name[1])
    if module is None:
        return None
    if name[2] != "9":
        return Code(name, f"{module} rejects an argument or a setting; see its message", Kind.ROOT)
    meaning = f"internal error of {module}; see the first line of its details"
    return Code(name, meaning, Kind.EITHER, is_wrapper=True)


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


def _parsed(table: str, prefix: str = "") -> Iterator[Code]:
    """Yield the codes of a table; of several lines with a code, the last one counts."""
    for line in table.strip().splitlines():
        names, kind, meaning = line.split(maxsplit=2)
        first, _, last = names.partition("-")
        letters = first.rstrip("0123456789")
        for number in range(int(first[len(letters) :]), int((last or first)[len(letters) :]) + 1):
            digits = f"{number:0{len(first) - len(letters)}d}" if letters else str(number)
            yield Code(f"{prefix}{letters}{digits}", meaning, KINDS[kind.rstrip("*")], is_wrapper=kind.endswith("*"))


KINDS: Final = {"root": Kind.ROOT, "either": Kind.EITHER, "peer": Kind.SECONDARY}
_ALL: Final = (
    *(code for letter in MODULES if (code := _by_module(f"E{letter}9999"))),
    *_parsed(LETTERED),
    *_parsed(RETURNED),
    *_parsed(HCCL, "HCCL "),
    *_parsed(DRIVER, "driver "),
)
CODES: Final = {code.name: code for code in _ALL}
_OF_THE_SERVER: Final = {"207001": Code("207001", "not enough host memory that can be pinned", Kind.ROOT)}
