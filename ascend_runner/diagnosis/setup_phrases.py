"""The rules of `phrases` for what a rank needs: its installation, libraries, process groups and addresses.

The form is that of `own_phrases`.
"""

from __future__ import annotations

from typing import Final

SETUP: Final = r"""
# bash execute_cmd.c; glibc ld.so and dlopen(3); torch_npu FunctionLoader.cpp; CANN's set_env.sh; CPython argparse and
# importlib; torch distributed/launch.py; torch utils/cpp_extension.py; protobuf descriptor.py;
# NumPy's C API; gcc, clang and nvcc; CANN's op_api and opbase (checks and tiling precede a launch)
root end of a command line = a command was split by a space after a backslash, or by Windows line endings
    : (?:-{1,2}\w[\w-]*|\$?'?\\r'?): command not found$
root command not found = a program is not installed or not on PATH
    : command not found$|sh: \d+: \S+: not found$|^make: \S+: No such file or directory$
root library of the driver = the driver's libraries are not visible: check the mounted driver and LD_LIBRARY_PATH
    lib(?:ascend_hal|drv\w+|dcmi)\.so[.\d]*: cannot open shared object
root library of CANN = a library of CANN is not on LD_LIBRARY_PATH: source set_env.sh, and check CANN's version
    lib(?:hccl|hcom\w*|ascend\w*|cann_\w+|ge_\w+|graph|runtime|acl_?\w*|\w*opapi|nnopbase|msprof\w*|tsdclient
    |platform|register|exe_graph|error_manager|te_fusion|profapi|unified_dlog)\.so[.\d]*: cannot open shared object
root libatb.so = the library of transformer operators is not on LD_LIBRARY_PATH: source nnal/atb/set_env.sh
    lib(?:atb|mki)\w*\.so[.\d]*: cannot open shared object
root library of CUDA = a package was built for CUDA: install its build for NPUs or CPUs, or leave it out
    lib(?:cu(?:da|dart|blas\w*|dnn\w*|fft|sparse|rand|solver|pti)|nv(?:idia|rtc|tools|jitlink|shmem)[\w-]*
    |nccl|\w+_cuda)\.so[.\d]*: cannot open shared
    |CUDA_HOME (?:environment variable is not set|does not exist)
root extension was not built = a native extension was not built: see the compiler's errors, or delete its directory
    torch_extensions/\S+\.so: cannot open shared object
root cannot open shared object file = a library is not installed or not on LD_LIBRARY_PATH
    cannot open shared object file
root GLIBC not found = a package was built for a newer system library than this image has
    version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found
root static TLS block = a library is loaded too late: add it to LD_PRELOAD
    static TLS block
root native part of a package = the native part of a package is missing: not built, or shadowed by a source directory
    No module named '?(?:[\w.]+\._(?:C|ext|c_expression|native|cpp)|(?:\w+\.)*(?:a(?:mp|pex)_C|\w+_(?:cuda|ext)))\b
root Python packages of CANN = CANN's Python packages are not on PYTHONPATH: source set_env.sh
    No module named '?(?:tbe|te|acl|hccl|opc_tool|auto_tune|schedule_search|op_test_frame)\b
root library of Python = Python cannot find its own library: check PYTHONHOME and PYTHONPATH
    init_fs_encoding|No module named 'encodings'
root module of a package = a package lacks a module that its caller expects: check its version
    No module named '?\w+\.\w
root No module named = a package is missing in this Python
    No module named '?[\w.]+
root undefined symbol = incompatible packages: check the versions of the named library, torch, torch_npu and CANN
    undefined symbol|not defined in file \S+ with link time reference|initialization of \S+ failed without raising
root damaged library = a native library is damaged, or was built for another type of CPU or page size: install it again
    \.so[.\d]*: file too short$|invalid ELF header|wrong ELF class|ELF (?:load command|file's phentsize|file OS ABI)
root executable stack = a library needs an executable stack, which the system refuses: use a newer version of it
    cannot enable executable stack
root name of a package = a package lacks a name that its caller expects: check the versions of both
    cannot import name '\w+' from '[\w.]+' \(\S*/(?:site|dist)-packages/
root protobuf = incompatible packages: protobuf is newer than a package expects
    Descriptors cannot (?:not )?be created directly
root --local-rank = a launcher passes --local-rank, which the program does not accept: use torchrun and LOCAL_RANK
    unrecognized arguments:.* --local[_-]rank|Override 'local[_-]rank' not found
root NumPy's binary interface = incompatible packages: one was built for another version of NumPy
    may indicate binary incompatibility|multiarray failed to import|_ARRAY_API not found|Numpy is not available
    |module compiled against A[BP]I version
root NumPy is too new = a package needs an older version of NumPy
    was removed in the NumPy \d|module 'numpy' has no attribute '(?:bool|int|float|complex|object|str)\d?'
root extension not built = a native extension cannot be built: see the first error of the compiler
    \.(?:c|cc|cpp|cu|cxx|h|hpp|cuh|asc)(?::\d+(?::\d+)?|\(\d+\)): (?:fatal )?error:
root library for the linker = a native extension cannot be built: a library that the linker needs is missing
    ld: cannot find -l
root no kernel = an operator has no kernel for this chip: check the installation and the version of CANN's kernels
    does not has any binary|Parse dynamic kernel config fail|Cannot parse json for config file
    |support for Ascend\w+ is not implemented
root tiling = an operator cannot be tiled for this input: see its shapes, types and attributes
    \bdo tiling failed\b|^\W*(?:\w+\]:\s+)?tiling failed\b
root not in this CANN = this version of CANN lacks an operator or function: check the versions of CANN and torch_npu
    not in libopapi\.so|Failed to find function (?:acl|rt|hc|dcmi|prof|ms|ge)\w+
root chip of torch_npu = this version of torch_npu or CANN does not support this chip: install one that does
    Unsupported soc version
root driver not visible = the driver is not visible in this container: check its devices and the mounted driver
    dcmi mod\w* init\w* failed|Can't get ascend_hal device count
# MindSpore communication/_comm_helper.py, hccl_adapter.cc and the FAQ on distributed parallelism; HCCP ra_host.c
root memory for a communicator = not enough device memory for HCCL: let MindSpore reserve less, see max_device_memory
    HcclCommInitRootInfo failed\. \| Error Number 2\b
root variables of a launcher = a variable of the rank is not set: start the program with a launcher that sets it
    environment variable \w+ expected, but not set|using \w+:// rendezvous: |Role name '' is invalid
    |KeyError: '(?:LOCAL_RANK|RANK|WORLD_SIZE|MASTER_(?:ADDR|PORT))'
root address of a device = the rank table has another IP address for the device: compare it with hccn_tool -i N -ip -g
    in the ranktable is inconsistent with|ra rdev init failed, ret ?\[-17\]
root RANK_ID has not been exported = MindSpore was started without the rank variables
    RANK_ID has not been exported
root HcomLoadRanktableFile = HCCL cannot find the rank table file
    HcomLoadRanktableFile.*real path
# NCCL shmutils.cc and ncclResult_t; torch c10d distributed_c10d.py, reducer.cpp, ProcessGroup.hpp and
# ProcessGroupWrapper.cpp; torch_npu/npu/__init__.py and ProcessGroupHCCL.cpp
root shared memory segment = NCCL cannot create a segment in /dev/shm, usually because it is full
    Error while creating shared memory segment
root Duplicate GPU detected = two ranks on one device: check LOCAL_RANK and the list of visible devices
    Duplicate GPU detected
root ncclInvalidArgument = NCCL was called with an invalid argument
    ncclInvalidArgument|NCCL error.*invalid argument
root ncclInvalidUsage = a collective was called incorrectly, for example by two ranks on one device
    ncclInvalidUsage|NCCL error.*invalid usage
root process group not initialized = a collective was called before init_process_group
    process group has not been initialized|Distributed Communication has not been inited
    |The pointer\[hccl_comm\] is null
root process group initialized twice = init_process_group was called twice: call it only if is_initialized() is false
    trying to initialize the default process group twice
root no backend for a device = the process group has no backend for this device: use hccl for NPUs, gloo for CPUs
    No backend type associated with device type|Could not retrieve or create the backend \d+ for device
root tensor of a collective = a collective was called with a tensor on the CPU, or a sparse one: move it to the device
    Tensors must be (?:CUDA|NPU) and dense
root mismatch between collectives = ranks run different collectives
    mismatch between collectives on ranks|requires all workers to enter the function together
    |op\.preamble\.length <= op\.nbytes
either different models = ranks have built different models: compare their settings
    DDP expects same model across all ranks|appears not to match (?:sizes|strides) of the same param
root unused parameters = some parameters got no gradient: see find_unused_parameters of DistributedDataParallel
    Expected to have finished reduction in the prior iteration
root used before fork = a device was used before a fork: start worker processes with the method spawn
    Cannot re-initialize \w+ in forked subprocess
root invalid device ordinal = invalid device id: check the list of visible devices
    invalid device (?:ordinal|id\b|index)|device < num_gpus|reason=\[device id error\]|Device index must (?:be|not)
root no kernel image = torch or an extension was not built for this type of GPU
    no kernel image is available for execution|CUDA error: invalid device function
either ncclUnhandledCudaError = NCCL reported a device error: see its last error
    ncclUnhandledCudaError|NCCL error.*unhandled cuda error
either ncclSystemError = NCCL reported a system or network error
    ncclSystemError|NCCL error.*unhandled system error
either ncclInternalError = internal error of NCCL: see its last error
    ncclInternalError|NCCL error.*internal error
# getaddrinfo(3); bind(2); c10d socket.cpp; gloo transport/tcp/device.cc; NCCL bootstrap.cc; accelerate
# utils/launch.py
root Name or service not known = a host name cannot be resolved: check it (MASTER_ADDR or a URL) and the DNS
    Name or service not known|Temporary failure in name resolution|gai error|resolve host
root Cannot assign requested address = an address does not belong to this server: check MASTER_ADDR
    Cannot assign requested address|EADDRNOTAVAIL
root Address already in use = the port is taken: a leftover process, or two jobs on one server
    address already in use|EADDRINUSE|, but another process is utilizing it
root no such network interface = no such network interface: check GLOO_SOCKET_IFNAME and similar variables
    Unable to find address for: |no socket interface found
# HCCL hccl_socket.cc
root listen on ip = port of HCCL already in use: a leftover process, or two jobs on one server
    listen on ip\[[^\]]+\].{0,20} port\[\d+\] fail
# torch cuda/__init__.py, distributed_c10d.py and c10 Device.cpp; torch OperatorEntry.cpp (PrivateUse1 is the NPU);
# torch_npu VariableFallbackKernel.cpp; accelerate accelerator.py, transformers training_args.py
root torch without CUDA = torch was built without CUDA: use npu and hccl, or import torch_npu.contrib.transfer_to_npu
    Torch not compiled with CUDA enabled|have NCCL built in
root no CUDA device = there is no CUDA device: use npu and hccl, or import torch_npu.contrib.transfer_to_npu
    Found no NVIDIA driver|No CUDA GPUs are available|only supported with GPUs, no GPUs found
root no accelerator = no accelerator is found: check whether torch_npu can be imported and the devices are visible
    No supported gpu backend found|Error: No GPU found|No NPUs are available|Found no NPU driver
    |Torch not compiled with NPU enabled|mixed precision requires a (?:GPU|NPU)
    |can only be used on CUDA devices|setup doesn't support bf16/gpu
root torch_npu is not imported = torch_npu is not imported: import it before the first use of npu or hccl
    module 'torch' has no attribute 'npu'|Invalid backend: 'hccl'|Unknown backend type hccl|have HCCL built in
    |at start of device string: npu|not linked with support for (?:npu|privateuseone)
    |AttributeError: '(?!(?:NoneType|list|tuple|dict|str|int|ndarray|\w*(?:namespace|config|args|arguments))')\w+'
    \sobject has no attribute 'npu'|name 'torch_npu' is not defined
    |Invalid device string: 'npu
root operator not on NPUs = an operator is not supported by this version of torch_npu: run it on the CPU
    Could not run '\S+' with arguments from the '(?:PrivateUse1|NPU)' backend|not currently supported on the NPU backend
root tensor on the CPU = an operator for NPUs was called with a tensor on the CPU: move it to the NPU
    Could not run 'npu::\S+' with arguments from the 'CPU' backend
# torch_npu NPUQueue.cpp; CUDA error strings; torch_npu's operators of the transformer library (ATB); torch_npu
# utils/_error_code.py
root memory error of the device = uncorrectable memory error of the device: hardware fault
    \bUCE ERROR|HBM MULTI BIT ECC ERROR|uncorrectable ECC error
root setup of an ATB operator = an operator was called with an invalid argument, or does not support this chip
    \wOperation setup failed
root not supported by torch_npu = feature not supported by this version of torch_npu or CANN, or by this chip
    \bERR0\d007\b
root invalid argument of torch_npu = a function of torch_npu was called with an invalid argument
    \bERR0\d00[1-4]\b
"""
