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
        return self.name.endswith("9999")


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


def _codes_in(line: str) -> list[Code]:
    names = _LETTERED.findall(line) if "E" in line else []
    if _NUMERIC_HINT.search(line):
        names += _NUMERIC.findall(line)
    return [CODES[name] for name in names if name in CODES]


# "EI0006: [PID: 7]", "Communication_Error_Get_Socket(EI0006): ", "EZ9999[PID: 7] ": one of ":", ")" and "[" follows the
# code. A line that only mentions a code ('search for the keyword "EI0002" on ...') does not report it.
_LETTERED: Final = re.compile(r"(?<![A-Za-z0-9_])(E[A-Z0-9][0-9]{4})(?=[:)\[])")

# Return codes are plain numbers, so they count only after a word that announces one: "error code is 507015",
# "retCode=507015", "runtime result = 507035", "aclrtSetDevice(0) failed: 507033".
_NUMERIC: Final = re.compile(
    r"(?:\b(?:error[ _]?code|errcode|ret(?:_?code)?|result)\b\s*(?:is|[:=])?\s*\[?|\bfailed[:,]\s*)"
    r"([1-5][0-9]{5})(?![0-9])",
    re.IGNORECASE,
)
_NUMERIC_HINT: Final = re.compile(r"(?<![0-9])[1-5][0-9]{5}(?![0-9])")  # cheap: most log lines contain no such number

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
    Code(
        "EI0009",
        "no link to a peer: check this device's network (optical module, IP, switch) and the other end",
        _EITHER,
    ),
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
    Code("EK0001", "CANN cannot be initialised: its installation is incomplete or not readable", _ROOT),
    Code("EL0001", "the device is missing or abnormal: see npu-smi info", _ROOT),
    Code("EL0002", "invalid device id: check the list of visible devices", _ROOT),
    Code("EL0003", "invalid argument passed to the driver", _ROOT),
    Code("EL0004", "memory allocation failed", _ROOT),
    Code("EL0005", "device busy: used by another process, or still being cleaned up", _ROOT),
    Code("EL0006", "the device ran out of a resource", _ROOT),
    Code("EL0007", "no permission to use the device: check the user's groups and the container's devices", _ROOT),
    Code("EL0008", "the device ran out of events", _ROOT),
    Code("EL0009", "the device ran out of streams", _ROOT),
    Code("EL0010", "the device ran out of notifies", _ROOT),
    Code("EL0011", "the device ran out of models", _ROOT),
    Code("EL0012", "a queue of the device is full", _ROOT),
    Code("EL0013", "the device ran out of CDQM resources", _ROOT),
    Code("EL0014", "operation not supported by this device or driver", _ROOT),
    Code("EL0015", "invalid access to a device: it is not in the list of visible devices", _ROOT),
    Code("EE1001", "invalid argument passed to the runtime", _ROOT, is_wrapper=True),
    Code("EE1002", "timeout waiting for a stream, usually for a peer", _EITHER),
    Code("EE1003", "invalid argument passed to the runtime", _ROOT),
    Code("EE1006", "feature not supported by this version of CANN, driver or chip", _ROOT),
    Code("EE1011", "invalid argument passed to the runtime", _ROOT),
    Code("EZ1001", "an operator was called with an invalid argument", _ROOT),
    Code("EZ3002", "an operator does not support these types or this chip", _ROOT),
    Code("E30008", "an AICPU operator timed out", _EITHER),
    Code("E39001", "invalid argument of an AICPU operator", _ROOT),
    Code("E39999", "internal error of an AICPU operator; see the first line of its details", _ROOT, is_wrapper=True),
    Code("EI9999", "internal error of HCCL; see the first line of its details", _EITHER, is_wrapper=True),
    Code("EH9999", "internal error of the ACL interface; see the first line of its details", _EITHER, is_wrapper=True),
    Code("EE9999", "internal error of the runtime; see the first line of its details", _EITHER, is_wrapper=True),
    Code("EZ9999", "internal error of an operator; see the first line of its details", _EITHER, is_wrapper=True),
    Code("EJ9999", "internal error of HCCP; see the first line of its details", _EITHER, is_wrapper=True),
    Code("EK9999", "internal error of CANN's tools; see the first line of its details", _EITHER, is_wrapper=True),
    Code("EL9999", "internal error of the driver; see the first line of its details", _EITHER, is_wrapper=True),
    Code("E19999", "internal error of the graph engine; see the first line of its details", _EITHER, is_wrapper=True),
    Code("E29999", "internal error of the operator compiler's front end", _EITHER, is_wrapper=True),
    Code("E49999", "internal error of the operator compiler", _EITHER, is_wrapper=True),
    Code("100000", "invalid argument passed to ACL", _ROOT),
    Code("100001", "ACL is not initialised", _ROOT),
    Code("100024", "an operator is not in the library of operators: check the versions of CANN and its kernels", _ROOT),
    Code("107000", "invalid argument passed to the runtime", _ROOT),
    Code("107001", "invalid device id: check the list of visible devices", _ROOT),
    Code("107002", "no context: a device is used before it is set, or by a thread that has not set it", _ROOT),
    Code("107003", "a stream is used in a context other than its own", _ROOT),
    Code("107017", "invalid handle passed to the runtime", _ROOT),
    Code("107019", "timeout waiting for the device", _EITHER, is_wrapper=True),
    Code("107020", "a device task timed out, usually while waiting for a peer", _EITHER, is_wrapper=True),
    Code("107022", "device tasks were aborted by the program", _EITHER),
    Code("107023", "the tasks of a stream were aborted", _EITHER),
    Code("161001", "an operator was called with a null pointer", _ROOT),
    Code("161002", "an operator was called with an invalid argument", _ROOT),
    Code("200000", "not enough memory", _ROOT),
    Code("200001", "interface not supported by this version of CANN, driver or chip", _ROOT),
    Code("200006", "feature not supported by this version of CANN, driver or chip", _ROOT),
    Code("207000", "feature not supported by this version of CANN, driver or chip", _ROOT),
    Code("207001", "not enough device memory", _ROOT),
    Code("207003", "overflow on the AI core", _ROOT),
    Code("207004", "no device: see npu-smi info", _ROOT),
    Code("207005", "the device ran out of a resource", _ROOT),
    Code("207006", "no permission to use the device: check the user's groups and the container's devices", _ROOT),
    Code("207007", "the device ran out of events", _ROOT),
    Code("207008", "the device ran out of streams", _ROOT),
    Code("207009", "the device ran out of notifies", _ROOT),
    Code("207010", "the device ran out of models", _ROOT),
    Code("207012", "a limit of the device is exceeded", _ROOT),
    Code("207018", "not enough device memory", _ROOT),
    Code("361001", "the runtime reported an error to an operator", _EITHER, is_wrapper=True),
    Code("500000", "internal error of ACL", _EITHER, is_wrapper=True),
    Code("500001", "ACL failed, usually because the graph engine or an operator compiler cannot be initialised", _ROOT),
    Code("500002", "the graph engine failed", _ROOT, is_wrapper=True),
    Code("500003", "the runtime failed", _EITHER, is_wrapper=True),
    Code("500004", "the driver failed", _ROOT, is_wrapper=True),
    Code("507000", "internal error of the runtime", _EITHER, is_wrapper=True),
    Code("507001", "internal error of the device's task scheduler", _ROOT),
    Code("507008", "the program was built for another type of chip", _ROOT),
    Code("507010", "the device's task scheduler stopped responding: reset the device", _ROOT),
    Code("507011", "a model or kernel failed on the device; see the plog for the kernel", _ROOT),
    Code("507012", "timeout waiting for the device's report", _EITHER, is_wrapper=True),
    Code("507013", "DMA error of the device", _ROOT),
    Code("507014", "a kernel timed out", _EITHER, is_wrapper=True),
    Code("507015", "exception in a kernel on the AI core", _ROOT),
    Code("507016", "trap in a kernel on the AI core: it accessed an invalid address", _ROOT),
    Code("507017", "an AICPU operator timed out", _EITHER, is_wrapper=True),
    Code("507018", "an AICPU operator failed", _EITHER, is_wrapper=True),
    Code("507027", "kernel not found: check the versions of CANN and its kernels", _ROOT),
    Code("507033", "the device cannot be set up: in use, reset or not visible in this container", _ROOT),
    Code("507034", "a kernel on the vector core timed out", _EITHER, is_wrapper=True),
    Code("507035", "exception in a kernel on the vector core", _ROOT),
    Code("507036", "trap in a kernel on the vector core: it accessed an invalid address", _ROOT),
    Code("507042", "a kernel on the AI core read beyond its memory", _ROOT),
    Code("507043", "a kernel on the AI core wrote beyond its memory", _ROOT),
    Code("507044", "a kernel on the vector core read beyond its memory", _ROOT),
    Code("507045", "a kernel on the vector core wrote beyond its memory", _ROOT),
    Code("507046", "timeout waiting for a stream", _EITHER, is_wrapper=True),
    Code("507047", "timeout waiting for an event", _EITHER, is_wrapper=True),
    Code("507048", "a device task timed out, usually while waiting for a peer", _EITHER, is_wrapper=True),
    Code("507049", "SDMA copy on the device failed", _ROOT),
    Code("507050", "trap in a device task: it accessed an invalid address", _ROOT),
    Code("507051", "cannot send a message to the device: its daemon or driver does not respond", _ROOT),
    Code("507052", "copy to or from the device failed", _ROOT),
    Code("507053", "memory error of the device: hardware fault", _ROOT),
    Code("507054", "uncorrectable memory (HBM ECC) error of the device: hardware fault", _ROOT),
    Code("507055", "suspected memory error of the device: hardware fault", _ROOT),
    Code("507056", "a link between devices failed", _EITHER),
    Code("507057", "suspected error of a remote device", _EITHER),
    Code("507899", "internal error of the driver, usually after an earlier error", _EITHER, is_wrapper=True),
    Code("507900", "internal error of an AICPU operator", _EITHER, is_wrapper=True),
    Code("507901", "the connection to the device was closed: it was reset, or its daemon exited", _ROOT),
    Code("561001", "an operator cannot infer the shape of its output", _ROOT),
    Code("561002", "an operator cannot be tiled for this input", _ROOT),
    Code("561003", "no kernel for this operator: check the versions of CANN and its kernels", _ROOT),
    Code("561103", "internal failure of an operator: check the versions of CANN, its kernels and torch_npu", _ROOT),
    Code("561107", "CANN's operators are not installed or ASCEND_OPP_PATH is not set", _ROOT),
    Code("561112", "CANN's kernels for this chip are not installed", _ROOT),
    Code("507904", "HCCL's retry of a collective failed: network fault, or the peer exited", _EITHER),
)
CODES: Final = {code.name: code for code in _ALL}
