"""The error codes that CANN writes with letters: their meanings, and where their causes usually lie.

The tables are text: a line has a code (or a range), a kind (root, either, peer; with * it only announces another one)
and a meaning. A rank's log contains CANN's own sentence beside the code, so codes with one remedy share a line.
Sources: CANN's error_code.json (in its runtime, src/dfx/error_manager), its documents with a page for each code (newer
ones, such as EE1025 and EL0016), GE's error_registry.cc and opbase's log.cpp; kinds of HCCL's codes follow its
docs/en/error_codes and the fault knowledge base of MindCluster's FaultDiag.
"""

from __future__ import annotations

from typing import Final

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
