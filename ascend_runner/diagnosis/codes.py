"""The error codes of CANN, HCCL and the driver: the tables of their meanings, and how they are found in a log.

The tables are text: a line has a code (or a range), a kind (root, either, peer; with * it only announces another one)
and a meaning. A rank's log contains CANN's own sentence beside the code, so codes with one remedy share a line.
Sources: CANN's error_code.json (in its runtime, src/dfx/error_manager), its documents with a page for each code (newer
ones, such as EE1025 and EL0016), GE's error_registry.cc and opbase's log.cpp; kinds of HCCL's codes follow its
docs/en/error_codes and the fault knowledge base of MindCluster's FaultDiag.

Sources: acl/error_codes/rt_error_codes.h and ge_error_codes.h, the documents "aclError" (1xxxxx: the caller's fault,
2xxxxx: lack of a resource, 5xxxxx: internal) and "aclnn return codes", hccl_types.h and ascend_hal_error.h.

A code that no table has is judged by its module and its range.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

LETTERED: Final = """
EI0001 root an HCCL environment variable has an invalid value
EI0002 peer timeout: waited for a peer that died, is slow, or runs a different collective
EI0003 root a collective was called with an invalid argument
EI0004 root HCCL cannot parse the rank table
EI0005 either ranks called the same collective with different arguments
EI0006 peer no connection to a peer within HCCL_CONNECT_TIMEOUT: not started, exited or unreachable
EI0007 root HCCL ran out of a resource (memory, streams, notifies or queue pairs)
EI0008 either ranks run different versions of CANN or HCCL
EI0009 either no link to a peer: check this device's network (optical module, IP, switch) and the other end
EI0010 root peer-to-peer access between devices of this server failed
EI0011 root not enough device memory for HCCL's buffers
EI0012 either SDMA copy between devices failed: hardware fault, invalid address, or the peer exited
EI0013 either RoCE transfer failed: network fault, or the peer exited
EI0014 root a value in the rank table is invalid or does not match the devices
EI0015 peer some ranks never joined the communicator
EI0016 root a setting is invalid or differs between nodes (such as the TLS switch)
EI0017 root the rank table lacks an entry
EI0018 either UB transfer failed: network fault, or the peer exited
EI0019 root the host port is taken: a leftover process, or two jobs on one server
EI0020 root device port 16666 already in use: a leftover process, or two ranks on one device
EJ0001 root device still held, usually by a job that was just killed: wait 10 s, kill leftover processes
EJ0002 root the device's network port is down
EJ0003 root the device's IP address and port cannot be bound: a leftover process, or two ranks on one device
EJ0004 root the device's IP address is invalid: check hccn_tool and the rank table
EK0001 root the profiler was called with an invalid value
EK0002 root the profiler's functions were called in the wrong order
EK0003-EK0005 root a setting of the profiler is invalid or not supported
EK0006 root the profiler was called with a null pointer
EK0007 root the profiler was started twice, in different modes
EK0201-EK0202 root not enough memory for the profiler
EK0203 root too many processes: raise ulimit -u
EK0204 root a disk is full: the profiler cannot write
EL0001 root the device is missing or abnormal: see npu-smi info
EL0002 root invalid device id: check the list of visible devices
EL0003 root* invalid argument passed to the driver
EL0004 root not enough memory, usually on the device: use a smaller batch, or stop other processes on it
EL0005 root device busy: used by another process, or still being cleaned up
EL0006 root the device ran out of a resource
EL0007 root no permission to use the device: check the user's groups and the container's devices
EL0008 root the device ran out of events
EL0009 root the device ran out of streams
EL0010 root the device ran out of notifies
EL0011 root the device ran out of models
EL0012 root a queue of the device is full
EL0013 root the device ran out of CDQM resources
EL0014 root operation not supported by this device or driver
EL0015 root invalid access to a device: it is not in the list of visible devices
EL0016-EL0017 root invalid argument passed to the driver
EL0018 root not enough host memory for the driver
EL0019 root not enough device memory: use a smaller batch, or stop other processes on it
EL0020 root device in use by several containers
EL0021 root operation not supported by this device or driver
EL0023 root a resource of the driver is missing or misconfigured; see its message
EL0024 root device memory is freed while it is in use
EE1001 root* invalid argument passed to the runtime
EE1002 either timeout waiting for a stream, usually for a peer
EE1003-EE1004 root invalid argument passed to the runtime
EE1005-EE1006 root feature not supported by this version of CANN, driver or chip
EE1007 root a stream is bound to two models
EE1009 root a model failed on the device
EE1010 root an object is used in a context other than its own
EE1011-EE1012 root invalid argument passed to the runtime
EE1013 root not enough memory for the runtime
EE1014 root a kernel's binary is damaged or was built with wrong options
EE1015 root the driver is too old for this version of CANN
EE1016 root feature not supported by this version of CANN, driver or chip
EE1017 root invalid argument passed to the runtime
EE1018 root the runtime's functions were called in the wrong order
EE1019 root too many tasks on one stream
EE1020 root a system call of the runtime failed
EE1021 root too many processes or locks: raise ulimit -u
EE1022 root invalid argument passed to the runtime
EE1023 root the device ran out of a resource
EE1024 root an AICPU operator timed out after the device ran out of memory
EE1025 root a library of the runtime cannot be loaded: check the installation of CANN
EE1026 either timeout waiting for an event, perhaps for a peer
EE2002 root an environment variable has an invalid value
EE4001-EE4002 root a stream cannot be bound to a model
EE4004 root the profiler was started twice
EF2001-EF2008 root automatic parallelization failed: see the message
EH0001-EH0002 root invalid argument passed to ACL
EH0003-EH0004 root a path or a file passed to ACL is invalid
EH0005 root invalid image preprocessing (AIPP) setting
EH0006 root feature not supported by this version of CANN, driver or chip
EH0007-EH0009 root invalid argument passed to ACL
EH0010 root not enough memory for ACL
EH0011 root feature not supported by this version of CANN, driver or chip
EH0012 root invalid argument passed to ACL
EH0013 root a system call of ACL failed
EH0014 root invalid argument passed to ACL
EO0001-EO0004 root a setting of the model compression is invalid
EP0001-EP0008 root a setting of CANN's data dump is invalid
EZ0001-EZ0028 root an operator was called with an invalid shape, type, format or attribute
EZ0501 root an operator is not registered: check the versions of CANN and its kernels
EZ1001 root an operator was called with an invalid argument
EZ2001 root a kernel failed on the device: hardware fault or invalid address
EZ3002 root an operator does not support these types or this chip
EZ3003 root no kernel for this operator: check the versions of CANN and its kernels
EZ9010 root an operator is not registered: check the versions of CANN and its kernels
EZ9903 either* the runtime reported an error to an operator
E10001-E10061 root the graph engine was called with an invalid option or shape
E10401-E10406 root an operator was called with a wrong number or size of inputs or outputs
E10410 root a file passed to the graph engine does not exist
E10501 root an operator is not registered: check ASCEND_OPP_PATH and the versions of CANN and its kernels
E11001-E11037 root the Caffe model is invalid
E12004-E12029 root the TensorFlow model is invalid
E13000-E13006 root the graph engine cannot read or write a file
E13009 root two operators of a graph have the same name
E13010 root no plugin for an operator: install the package that contains it
E13014 root an operator was called with an invalid argument
E13015-E13023 root a file or a model is invalid or too large
E13024 root an environment variable has an invalid value
E13025-E13026 root the graph engine was called with an invalid tensor or path
E13027 either the graph engine cannot connect to a peer
E13028-E13030 root a custom fusion pass failed
E13031 root the graph engine was called with an invalid tensor
E20001 root an operator cannot be compiled: invalid argument, or an error in a custom operator
E20002 root an environment variable has an invalid value
E20003 root a configuration file of the operator compiler is invalid
E20007 root a graph fusion pass failed
E20101-E20103 root CANN was initialized with an invalid option
E21001-E21002 root the operator compiler cannot read a file: check the installation of CANN
E22001 root a process of the operator compiler crashed
E30003 root too many processes on the device: wait 10 s, kill leftover processes
E30004 root a program on the device is damaged: hardware fault (ECC)
E30005 root no connection to the device: reset the device
E30006 root CANN's operators failed verification: reinstall them
E30007 root the AICPU scheduler cannot join its cgroup
E30008 either an AICPU operator timed out
E30009 root a package failed verification on the device
E39001 root invalid argument of an AICPU operator
E39002 root the driver does not list its devices: see npu-smi info
E39004-E39007 root a process on the device cannot be started
E39008 root a program on the device is damaged: hardware fault (ECC)
E39009 root no connection to the device: reset the device
E39010-E39011 root a process on the device cannot be started
E39999 root* internal error of an AICPU operator; see the first line of its details
E40001 root an environment variable has an invalid value
E40002 root this version of Python is too old for CANN
E40003 root the operator compiler cannot open a file
E40020 root the operator compiler cannot import a Python module: install it, and source set_env.sh
E40021 root an operator cannot be compiled: see the Python stack in the plog
E40022-E40023 root the operator compiler was called with an invalid value or path
E40024 root a Python function of the operator compiler failed: check numpy and the packages that CANN requires
E76002 root an operator of the ONNX model is not supported
E80001 root CANN's operators are incomplete: reinstall them
EB0000 root an operator cannot be compiled for this shape: it exceeds a limit of the chip
EB0500 root an operator cannot be compiled: see the message
EB1000 root an operator cannot be compiled: its schedule is invalid
EB3000 root an operator cannot be compiled for this shape: it exceeds the memory of the chip
EB4000 root an operator cannot be compiled: an instruction has an invalid argument
EC0010 root the operator compiler cannot import a Python module: install it, and source set_env.sh
"""

# The sources of codes that are not in the table, by their second character: 0000 to 8999 blame the caller,
# 9000 to 9999 are internal errors (CANN's troubleshooting guide, "error codes").
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


RETURNED: Final = """
100000 root invalid argument passed to ACL
100001 root ACL is not initialized
100002 root ACL is initialized twice
100003-100010 root a file or a setting passed to ACL is missing or invalid
100011-100019 root a model does not match this version of CANN or its inputs
100020-100023 root an operator was called with an invalid argument
100024 root an operator is not in the library of operators: check the versions of CANN and its kernels
100025 root an operator cannot be loaded: check the versions of CANN and its kernels
100026-100027 root a data type or format is not supported by an operator
100028-100031 root a kernel is not registered, or registered twice
100032-100041 root ACL's functions were called in the wrong order
100039 root a stub library is loaded in place of CANN's: check LD_LIBRARY_PATH
100042-100045 root the profiler or the data dump was started twice, or never
107000 root invalid argument passed to the runtime
107001 root invalid device id: check the list of visible devices
107002 root no context: a device is used before it is set, or by a thread that has not set it
107003 root a stream is used in a context other than its own
107004-107005 root a model is used in a context or with a stream other than its own
107006-107008 root invalid argument passed to the runtime
107009-107010 root a file cannot be opened or written
107011-107016 root invalid argument passed to the runtime
107017 root invalid handle passed to the runtime
107018 root invalid argument passed to the runtime
107019 either* timeout waiting for the device
107020 either* a device task timed out, usually while waiting for a peer
107021 root a parameter of the context is not set
107022 either device tasks were aborted by the program
107023 either the tasks of a stream were aborted
107024-107034 root an operation is not allowed while a graph is captured
107035 either device tasks were aborted by the program
107036-107038 root an operation is not allowed while a graph is captured
145000-145022 root the graph engine was called with an invalid argument or model
148046-148047 root the profiler was started twice
148048 root invalid argument passed to ACL
148049 root CANN's operators are not installed or ASCEND_OPP_PATH is not set
148050 root an operator does not support dynamic shapes
148051-148053 root invalid argument passed to ACL
161001 root an operator was called with a null pointer
161002 root an operator was called with an invalid argument
176000-176007 root a kernel cannot be compiled at run time
200000 root not enough memory
200001 root interface not supported by this version of CANN, driver or chip
200002 root invalid device id: check the list of visible devices
200003 root invalid argument passed to ACL
200004-200005 root a stream or context is used in the wrong place, or after it was destroyed
200006-200007 root feature not supported by this version of CANN, driver or chip
207000 root feature not supported by this version of CANN, driver or chip
207001 root not enough device memory: use a smaller batch, or stop other processes on it
207002 root device memory cannot be freed
207003 root overflow on the AI core
207004 root no device: see npu-smi info
207005 root the device ran out of a resource
207006 root no permission to use the device: check the user's groups and the container's devices
207007 root the device ran out of events
207008 root the device ran out of streams
207009 root the device ran out of notifies
207010 root the device ran out of models
207011 root the device ran out of a resource
207012 root a limit of the device is exceeded
207013-207015 root a queue of the device is empty, full or initialized twice
207016 root overflow on the vector core
207017 root overflow in a kernel
207018 root not enough device memory: use a smaller batch, or stop other processes on it
207019 root the driver is too old for this version of CANN
245000 root not enough memory
245001 root the graph engine cannot access memory
245002 root not enough device memory
276000-276001 root not enough memory to compile a kernel at run time
300000 root not enough space
345102-345104 root a user-defined function of a data flow graph failed
361001 either* the runtime reported an error to an operator
500000 either* internal error of ACL
500001 root* ACL failed, usually because the graph engine or an operator compiler cannot be initialized
500002 root* the graph engine failed
500003 either* the runtime failed
500004 root* the driver failed
500005 root* the profiler failed
507000 either* internal error of the runtime
507001 root internal error of the device's task scheduler
507002-507009 root* internal error of the runtime
507008 root the type of the chip does not match or cannot be read: check CANN and the mounted driver
507010 root the device's task scheduler stopped responding: reset the device
507011 root* a model or kernel failed on the device; see the plog for the kernel
507012 either* timeout waiting for the device's report
507013 root DMA error of the device
507014 either* a kernel timed out
507015 root exception in a kernel on the AI core
507016 root trap in a kernel on the AI core: it accessed an invalid address
507017 either* an AICPU operator timed out
507018 either* an AICPU operator failed
507019-507020 root an AICPU process on the device does not respond
507021 root* the profiler failed
507022 either* the connection between processes failed
507023 either a model was stopped on the device
507024-507026 root* internal error of the runtime
507027 root kernel not found: check the versions of CANN and its kernels
507028-507032 root* internal error of the runtime
507033 root* the device cannot be set up: in use, reset or not visible in this container
507034 either* a kernel on the vector core timed out
507035 root exception in a kernel on the vector core
507036 root trap in a kernel on the vector core: it accessed an invalid address
507037 root* internal error of the runtime
507038-507041 root invalid id or mode of a die
507042 root a kernel on the AI core read beyond its memory
507043 root a kernel on the AI core wrote beyond its memory
507044 root a kernel on the vector core read beyond its memory
507045 root a kernel on the vector core wrote beyond its memory
507046 either* timeout waiting for a stream
507047 either* timeout waiting for an event
507048 either* a device task timed out, usually while waiting for a peer
507049 root SDMA copy on the device failed
507050 root trap in a device task: it accessed an invalid address
507051 root cannot send a message to the device: its daemon or driver does not respond
507052 root copy to or from the device failed
507053 root memory error of the device: hardware fault
507054 root uncorrectable memory (HBM ECC) error of the device: hardware fault
507055 either* memory fault of a remote device: check the errors of its rank
507056 either* a link between devices failed
507057 either* memory fault of a remote device, or an invalid address
507899 either* internal error of the driver, usually after an earlier error
507900 either* internal error of an AICPU operator
507901 root the connection to the device was closed: it was reset, or its daemon exited
507902 root an AICPU process on the device failed
507903 root a graph capture failed: an operation in it cannot be captured
507904 either HCCL's retry of a collective failed: network fault, or the peer exited
507905-507913 root* internal error of the runtime
507910 root host memory is registered twice
507911 root host memory is not registered
545000 root* internal error of the graph engine
545001-545009 root the graph engine cannot load or run a model
545601 either a model timed out on the device
545602 either the graph engine is moving a model to another device
561000 root* internal error of an operator
561001 root an operator cannot infer the shape of its output
561002 root an operator cannot be tiled for this input
561003 root no kernel for this operator: check the versions of CANN and its kernels
561101-561102 root an operator cannot be started
561103 root internal failure of an operator: check the versions of CANN, its kernels and torch_npu
561104-561106 root an operator does not match its kernel: check the versions of CANN and its kernels
561107 root CANN's operators are not installed or ASCEND_OPP_PATH is not set
561108-561111 root CANN's list of kernels is missing or damaged: reinstall CANN's kernels
561112 root CANN's kernels for this chip are not installed
561113 root CANN's list of kernels is missing or damaged: reinstall CANN's kernels
561114-561116 root an operator does not match its kernel: check the versions of CANN and its kernels
561117-561119 root CANN's list of kernels is missing or damaged: reinstall CANN's kernels
574006-574009 root the device failed a stress test: hardware fault
576000 root* a kernel cannot be compiled at run time
"""

# HcclResult, as torch_npu ("HCCL function error: ..., error code is 7"), MindSpore ("Ascend collective Error: ... |
# Error Number 7") and HCCL ("errNo[0x0000000005000007]") show it.
HCCL: Final = """
1 root* a collective was called with an invalid argument, or the rank table does not match the job
2 root* HCCL was called with a null pointer, or is not initialized
3 root* not enough memory for HCCL
4 either* internal error of HCCL; see the plog
5 root* operation not supported by this version of HCCL or this type of device
6 either* a resource or a connection of HCCL is missing; see the plog
7 either* a resource of HCCL is unavailable: a port or device is in use, usually by a leftover process
8 either* a system call of HCCL failed; see the plog
9 either* HCCL timed out: a peer is slow, was not started, or has exited
10 root* HCCL cannot open a file: check the rank table's path
11 either* no TCP connection to a peer: check whether it runs, and HCCL_SOCKET_IFNAME
12 either* no RoCE connection to a peer: check whether it runs, and the devices' network
13 either* TCP transfer failed: network fault, or the peer exited
14 either* RoCE transfer failed: network fault, or the peer exited
15 either* the runtime reported an error to HCCL; see the plog
16 either* the driver reported an error to HCCL; see the plog
17-18 either* internal error of HCCL; see the plog
19 either* the devices' network reported an error to HCCL; see the plog
20 either* HCCL is busy; see the plog
21 either* transfer between devices failed: network fault, or the peer exited
22 either* the communicator is suspended
23 either* HCCL's retry of a collective failed: network fault, or the peer exited
24 root* not enough device memory for HCCL
1041 either* a communicator failed; see the plog
"""

# drvError_t, as the runtime prints it: "halMemAlloc failed: device_id=0, ..., drvRetCode=6!", and ATRACE: "drvErr=87".
DRIVER: Final = """
1 root* no device: see npu-smi info
2 root* invalid device id: check the list of visible devices
3-5 root* invalid argument passed to the driver
6 root* not enough device memory
7 either* internal error of the driver
8 root* invalid argument passed to the driver
9 root* the driver is not initialized
13 root* device busy: used by another process, or still being cleaned up
14 root* the device ran out of a resource
16 either* timeout waiting for the device
17 either* a system call of the driver failed
33-34 root* the device is not ready: see npu-smi info
37 root* a limit of the device is exceeded
39-40 root* not enough memory
42-43 either* a process on the device exited or hangs
45 root* the device is being reset
46 root* no permission to use the device: check the user's groups and the container's devices
47-50 root* the device ran out of events, streams, notifies or models
54 root* no space left on the device
62 either* a process on the device exited
87 root* device in use, usually by another container or process
88 root* no permission to use the device: check the user's groups and the container's devices
90 root* no permission to use the device: check the user's groups and the container's devices
95 either* network or device not reachable
65534 root* operation not supported by this device or driver
"""


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
