"""The error codes of CANN, HCCL and the frameworks: what each one means, and where its cause usually lies.

Codes and kinds follow HCCL's table of messages (hcomm, docs/en/error_codes and its err_msg sources), the fault
knowledge base of MindCluster's FaultDiag, and CANN's acl/error_codes/rt_error_codes.h; the wording is our own.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import Final

import attrs


class Kind(enum.Enum):
    """Where the cause lies when a rank reports a code."""

    ROOT = "usually the root cause"
    EITHER = "caused by this rank or by a peer"
    SECONDARY = "usually caused by a peer"


@attrs.frozen
class Code:
    """An error code, or a telling phrase, `name`.

    With `is_wrapper` it only announces an inner error. With `is_connection` it tells of a lost connection, which in a
    collective is a lost peer, and elsewhere may be a storage or a database.
    """

    name: str
    meaning: str
    kind: Kind
    is_wrapper: bool = False
    is_connection: bool = False


@attrs.frozen
class Found:
    """A code and the line that contains it."""

    code: Code
    line: str


def first_code(lines: Sequence[str]) -> Found | None:
    """Find the first known code; a wrapper counts only if there is no other code."""
    wrapper = None
    for line in lines:
        for code in _codes_in(line):
            if not code.is_wrapper:
                return Found(code, line)
            wrapper = wrapper or Found(code, line)
    return wrapper


def first_phrase(lines: Sequence[str]) -> Found | None:
    """Find the first line with a telling phrase instead of a code. Meant for the lines around a failure only."""
    for line in lines:
        for pattern, code in PHRASES:
            if pattern.search(line):
                return Found(code, line)
    return None


def _codes_in(line: str) -> list[Code]:
    names = _LETTERED.findall(line) if "E" in line else []
    lower = line.lower()
    if "code" in lower or "ret" in lower:  # cheap: most log lines contain neither word
        names += _NUMERIC.findall(line)
    return [CODES[name] for name in names if name in CODES]


# "EI0006: [PID: 7]", "Communication_Error_Get_Socket(EI0006): ", "EZ9999[PID: 7] ": one of ":", ")" and "[" follows the
# code. A line that only mentions a code ('search for the keyword "EI0002" on ...') does not report it.
_LETTERED: Final = re.compile(r"(?<![A-Za-z0-9_])(E[A-Z0-9][0-9]{4})(?=[:)\[])")

# Return codes are plain numbers, so they count only after a word that announces one: "error code is 507015",
# "retCode=507015", "errorCode: 507015".
_NUMERIC: Final = re.compile(
    r"\b(?:error[ _]?code|errcode|ret(?:_?code)?)\b\s*(?:is|[:=])?\s*\[?([0-9]{6})(?![0-9])", re.IGNORECASE
)

_ROOT, _EITHER, _SECONDARY = Kind.ROOT, Kind.EITHER, Kind.SECONDARY

_ALL: Final = (
    Code("EI0001", "an HCCL environment variable has an invalid value", _ROOT),
    Code(
        "EI0002",
        "timeout waiting for a peer in a collective: it died, is slow, or runs a different collective",
        _SECONDARY,
    ),
    Code("EI0003", "a collective was called with an invalid argument", _ROOT),
    Code("EI0004", "HCCL cannot parse the rank table", _ROOT),
    Code("EI0005", "ranks called the same collective with different arguments", _ROOT),
    Code(
        "EI0006", "no connection to a peer within HCCL_CONNECT_TIMEOUT: not started, exited or unreachable", _SECONDARY
    ),
    Code("EI0007", "HCCL ran out of a resource (streams, notifies or queue pairs)", _ROOT),
    Code("EI0008", "ranks run different versions of CANN or HCCL", _ROOT),
    Code("EI0009", "the network link of this device is down (optical module, IP address or switch)", _ROOT),
    Code("EI0010", "peer-to-peer access between devices of this server failed", _ROOT),
    Code("EI0011", "not enough device memory for HCCL's buffers", _ROOT),
    Code("EI0012", "SDMA copy between devices failed: hardware fault, invalid address, or the peer exited", _EITHER),
    Code("EI0013", "RoCE transfer failed: network fault, or the peer exited", _EITHER),
    Code("EI0014", "a value in the rank table does not match the devices", _ROOT),
    Code("EI0015", "some ranks did not join the communicator in time", _SECONDARY),
    Code("EI0016", "a setting is invalid or differs between nodes (such as the TLS switch)", _ROOT),
    Code("EI0017", "the rank table lacks an entry", _ROOT),
    Code("EI0018", "UB transfer failed: network fault, or the peer exited", _EITHER),
    Code("EI0019", "host port already in use: a leftover process, or two jobs on one server", _ROOT),
    Code("EI0020", "device port 16666 already in use: a leftover process, or two ranks on one device", _ROOT),
    Code(
        "EJ0001",
        "device still in use, usually by a job that was just killed: wait 10 s, kill leftover processes",
        _ROOT,
    ),
    Code("EL0004", "memory allocation failed", _ROOT),
    Code("E30008", "an AICPU operator timed out", _EITHER),
    Code("EI9999", "inner error of HCCL; see the first line of its details", _EITHER, is_wrapper=True),
    Code("EE9999", "inner error of the runtime; see the first line of its details", _EITHER, is_wrapper=True),
    Code("EZ9999", "inner error of an operator; see the first line of its details", _EITHER, is_wrapper=True),
    Code("E19999", "inner error of the graph engine; see the first line of its details", _EITHER, is_wrapper=True),
    Code("107001", "invalid device id: check the list of visible devices", _ROOT),
    Code("207001", "not enough device memory", _ROOT),
    Code("507014", "a kernel timed out", _EITHER, is_wrapper=True),
    Code("507015", "exception in a kernel on the AI core", _ROOT),
    Code("507018", "an AICPU operator failed", _EITHER, is_wrapper=True),
    Code("507035", "exception in a kernel on the vector core", _ROOT),
    Code("507046", "timeout waiting for a stream", _EITHER, is_wrapper=True),
    Code("507048", "a device task timed out, usually while waiting for a peer", _EITHER, is_wrapper=True),
    Code("507049", "SDMA copy on the device failed", _ROOT),
    Code("507899", "inner error of the driver, usually after an earlier error", _EITHER, is_wrapper=True),
)
CODES: Final = {code.name: code for code in _ALL}


def _phrase(name: str, meaning: str, kind: Kind, pattern: str = "") -> tuple[re.Pattern[str], Code]:
    return re.compile(pattern or re.escape(name), re.IGNORECASE), Code(name, meaning, kind)


def _connection(name: str, meaning: str, pattern: str = "") -> tuple[re.Pattern[str], Code]:
    return re.compile(pattern or re.escape(name), re.IGNORECASE), Code(name, meaning, _EITHER, is_connection=True)


# The first match in a line counts, so specific phrases precede common ones.
PHRASES: Final = (
    _phrase("the last training process is running", "device still in use by a job that was just killed", _ROOT),
    _phrase("other processes occupying this card", "device in use by another process", _ROOT),
    _phrase("RANK_ID has not been exported", "MindSpore was started without the rank variables", _ROOT),
    _phrase(
        "libhccl.so",
        "CANN's libraries are not on LD_LIBRARY_PATH: source set_env.sh",
        _ROOT,
        r"libhccl\.so.*cannot open shared object",
    ),
    _phrase(
        "HcomLoadRanktableFile",
        "HCCL cannot find the rank table file",
        _ROOT,
        r"HcomLoadRanktableFile.*real path",
    ),
    _phrase(
        "cqe error status[12]",
        "transfer between devices failed after retries: network fault, or the peer exited",
        _EITHER,
    ),
    _phrase("Memory cgroup out of memory", "a process was killed by the OOM killer", _ROOT),
    _phrase("is killed by signal: Killed", "a data loader worker was killed, usually by the OOM killer", _ROOT),
    _phrase("Out of memory", "not enough memory", _ROOT, r"\bout of memory\b"),
    _phrase("No space left on device", "a disk or /dev/shm is full", _ROOT),
    _phrase("Address already in use", "port already in use: a leftover process, or two jobs on one server", _ROOT),
    _phrase(
        "Failed to connect to the meta server",
        "cannot reach MindSpore's scheduler",
        _SECONDARY,
        r"Failed to connect to the meta server node",
    ),
    _phrase(
        "It may exit with exception",
        "MindSpore's scheduler lost a worker",
        _SECONDARY,
        r"is timed out.*It may exit with exception",
    ),
    _phrase("Spawned worker process number is not as expected", "a MindSpore worker exited early", _SECONDARY),
    _phrase(
        "Timed out waiting for clients",
        "not all ranks joined the rendezvous",
        _SECONDARY,
        r"timed out.*waiting for clients",
    ),
    _connection("Connection closed by peer", "the remote side closed the connection"),
    _connection("Connection reset by peer", "the remote side closed the connection"),
    _connection("Connection refused", "the remote side is not listening: not started yet, or exited"),
    _connection("Broken pipe", "the remote side of a connection or pipe exited"),
    _connection("Socket Timeout", "the remote side did not answer in time"),
)
