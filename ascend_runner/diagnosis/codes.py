"""The error codes of CANN, HCCL and the frameworks above them: what each means, and who is usually to blame.

Codes and kinds follow HCCL's own table of messages (hcomm, docs/en/error_codes and its err_msg sources), the fault
knowledge base of MindCluster's FaultDiag, and CANN's acl/error_codes/rt_error_codes.h; the words are ours.
"""

from __future__ import annotations

import enum
import re

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Kind(enum.Enum):
    """Where the reason lies, when a rank reports this."""

    ROOT = "usually the root"
    EITHER = "the rank itself or a peer"
    SECONDARY = "usually points at a peer"


class Code(NamedTuple):
    """One code, or one telling phrase, `name`. A `is_wrapper` code only says that something inside went wrong."""

    name: str
    meaning: str
    kind: Kind
    is_wrapper: bool = False


class Found(NamedTuple):
    """A code and the line that carries it."""

    code: Code
    line: str


def first_code(lines: Sequence[str]) -> Found | None:
    """Find the first known code; wrappers count only where nothing more telling stands."""
    wrapper = None
    for line in lines:
        for code in _codes_in(line):
            if not code.is_wrapper:
                return Found(code, line)
            wrapper = wrapper or Found(code, line)
    return wrapper


def first_phrase(lines: Sequence[str]) -> Found | None:
    """Find the first line that says without a code what a code would. For the lines around a failure only."""
    for line in lines:
        for pattern, code in PHRASES:
            if pattern.search(line):
                return Found(code, line)
    return None


def _codes_in(line: str) -> list[Code]:
    names = _LETTERED.findall(line) if "E" in line else []
    lower = line.lower()
    if "code" in lower or "ret" in lower:  # most lines of a log have neither, and need no pattern tried at every letter
        names += _NUMERIC.findall(line)
    return [CODES[name] for name in names if name in CODES]


# "EI0006: [PID: 7]", "Communication_Error_Get_Socket(EI0006): ", "EZ9999[PID: 7] ": the name is followed by one of the
# three. What merely mentions a code ('search for the keyword "EI0002" on ...') is not a report of it.
_LETTERED: Final = re.compile(r"(?<![A-Za-z0-9_])(E[A-Z0-9][0-9]{4})(?=[:)\[])")

# Return codes are bare numbers, so they count only behind the words that announce one: "error code is 507015",
# "retCode=507015", "errorCode: 507015".
_NUMERIC: Final = re.compile(
    r"\b(?:error[ _]?code|errcode|ret(?:_?code)?)\b\s*(?:is|[:=])?\s*\[?([0-9]{6})(?![0-9])", re.IGNORECASE
)

_ROOT, _EITHER, _SECONDARY = Kind.ROOT, Kind.EITHER, Kind.SECONDARY

_ALL: Final = (
    Code("EI0001", "an HCCL environment variable has an invalid value", _ROOT),
    Code("EI0002", "a collective waited for a peer in vain: it died, is slow, or runs another collective", _SECONDARY),
    Code("EI0003", "a collective was called with an invalid argument", _ROOT),
    Code("EI0004", "the rank table cannot be parsed", _ROOT),
    Code("EI0005", "ranks called the same collective with different arguments", _ROOT),
    Code("EI0006", "no connection to a peer within HCCL_CONNECT_TIMEOUT: not started, ended, or cut off", _SECONDARY),
    Code("EI0007", "HCCL has run out of a resource (streams, notifies, queue pairs)", _ROOT),
    Code("EI0008", "ranks run different versions of CANN or HCCL", _ROOT),
    Code("EI0009", "the link of this device could not be brought up (optical module, IP address, switch)", _ROOT),
    Code("EI0010", "peer-to-peer access between devices of this server failed", _ROOT),
    Code("EI0011", "not enough device memory for HCCL's buffers", _ROOT),
    Code("EI0012", "a copy between devices (SDMA) failed: hardware, a wrong address, or the peer has ended", _EITHER),
    Code("EI0013", "a RoCE transfer was not completed: the network, or the peer has ended", _EITHER),
    Code("EI0014", "a value in the rank table does not fit the devices", _ROOT),
    Code("EI0015", "some ranks never joined the communicator", _SECONDARY),
    Code("EI0016", "a setting is invalid or differs between nodes (such as the TLS switch)", _ROOT),
    Code("EI0017", "an entry is missing in the rank table", _ROOT),
    Code("EI0018", "a UB transfer was not completed: the network, or the peer has ended", _EITHER),
    Code("EI0019", "the host's port is taken: a leftover process, or two jobs on one server", _ROOT),
    Code("EI0020", "the device's port (16666) is taken: a leftover process, or two ranks on one device", _ROOT),
    Code("EJ0001", "the device is still held, mostly by a run that was just killed: wait 10 s, end leftovers", _ROOT),
    Code("EL0004", "memory could not be allocated", _ROOT),
    Code("E30008", "an operator on the device's own CPU (AICPU) timed out", _EITHER),
    Code("EI9999", "inner error of HCCL: its first inner line says more", _EITHER, is_wrapper=True),
    Code("EE9999", "inner error of the runtime: its first inner line says more", _EITHER, is_wrapper=True),
    Code("EZ9999", "inner error of an operator: its first inner line says more", _EITHER, is_wrapper=True),
    Code("E19999", "inner error of the graph engine: its first inner line says more", _EITHER, is_wrapper=True),
    Code("107001", "there is no device with this id: a mistake in the visible devices", _ROOT),
    Code("207001", "not enough device memory", _ROOT),
    Code("507014", "a kernel ran into its time limit", _EITHER, is_wrapper=True),
    Code("507015", "a kernel faulted on the AI core", _ROOT),
    Code("507018", "an operator failed on the device's own CPU (AICPU)", _EITHER, is_wrapper=True),
    Code("507035", "a kernel faulted on the vector core", _ROOT),
    Code("507046", "waiting for a stream timed out", _EITHER, is_wrapper=True),
    Code("507048", "a task on the device timed out, mostly one that waits for a peer", _EITHER, is_wrapper=True),
    Code("507049", "a copy on the device (SDMA) failed", _ROOT),
    Code("507899", "inner error of the driver, mostly after an earlier one", _EITHER, is_wrapper=True),
)
CODES: Final = {code.name: code for code in _ALL}


def _phrase(name: str, meaning: str, kind: Kind, pattern: str = "") -> tuple[re.Pattern[str], Code]:
    return re.compile(pattern or re.escape(name), re.IGNORECASE), Code(name, meaning, kind)


# The first that matches a line counts, so the telling ones stand above the common ones.
PHRASES: Final = (
    _phrase("the last training process is running", "the device is still held by a run that was just killed", _ROOT),
    _phrase("other processes occupying this card", "another process holds the device", _ROOT),
    _phrase("RANK_ID has not been exported", "MindSpore was started without the ranks' variables", _ROOT),
    _phrase(
        "libhccl.so",
        "CANN's libraries are not on the path: set_env.sh was not sourced",
        _ROOT,
        r"libhccl\.so.*cannot open shared object",
    ),
    _phrase(
        "HcomLoadRanktableFile",
        "the rank table file is not where HCCL looks for it",
        _ROOT,
        r"HcomLoadRanktableFile.*real path",
    ),
    _phrase(
        "cqe error status[12]",
        "a transfer between devices was repeated in vain: network, or the peer has ended",
        _EITHER,
    ),
    _phrase("Memory cgroup out of memory", "the kernel ended a process for lack of memory", _ROOT),
    _phrase("is killed by signal: Killed", "a data loader's worker was killed, mostly for lack of memory", _ROOT),
    _phrase("Out of memory", "not enough memory", _ROOT, r"\bout of memory\b"),
    _phrase("No space left on device", "a disk, or /dev/shm, is full", _ROOT),
    _phrase("Address already in use", "a port is taken: a leftover process, or two jobs on one server", _ROOT),
    _phrase(
        "Failed to connect to the meta server",
        "MindSpore's scheduler was not reached",
        _SECONDARY,
        r"Failed to connect to the meta server node",
    ),
    _phrase(
        "It may exit with exception",
        "MindSpore's scheduler has lost a worker",
        _SECONDARY,
        r"is timed out.*It may exit with exception",
    ),
    _phrase("Spawned worker process number is not as expected", "a worker of MindSpore ended early", _SECONDARY),
    _phrase(
        "Timed out waiting for clients",
        "not all ranks came to the rendezvous",
        _SECONDARY,
        r"timed out.*waiting for clients",
    ),
    # What ranks of torch say when their peer has died, but also what a lost storage or database looks like.
    _phrase("Connection closed by peer", "the other side of a connection has gone", _EITHER),
    _phrase("Connection reset by peer", "the other side of a connection has gone", _EITHER),
    _phrase("Connection refused", "who was called is not there yet, or has gone", _EITHER),
    _phrase("Broken pipe", "who was written to has gone", _EITHER),
    _phrase("Socket Timeout", "who was called did not answer", _EITHER),
)
