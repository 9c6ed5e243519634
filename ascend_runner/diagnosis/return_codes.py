"""The return codes of CANN, HCCL and the driver, in the form of `cann_codes`: numbers, so each has its own meaning.

Sources: acl/error_codes/rt_error_codes.h and ge_error_codes.h, the documents "aclError" (1xxxxx: the caller's fault,
2xxxxx: lack of a resource, 5xxxxx: internal) and "aclnn return codes", hccl_types.h and ascend_hal_error.h.
"""

from __future__ import annotations

from typing import Final

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
