"""The rules of `phrases` for errors of a rank itself or of its machine.

Above each group is the source whose messages it knows; the first rule that matches counts.
"""

from __future__ import annotations

from typing import Final

OWN: Final = r"""
# HCCL (EJ0001); torch_npu NPUException.cpp; CUDA driver API, cudaErrorDevicesUnavailable; DCMI (-8020)
root the last training process is running = device still in use by a job that was just killed
    the last training process is running
root other processes occupying this card = device in use by another process
    other processes occupying this card
root device busy or unavailable = device in use by another process
    device\(s\) is/are busy or unavail|initialized failed, because the device is used
# MindSpore ascend_memory_adapter.cc; vLLM worker/worker_base.py, gpu_worker.py and kv_cache_utils.py; TensorFlow
# bfc_allocator.cc; torch_npu NPUCachingAllocator.cpp; torch CUDACachingAllocator.cpp; cuBLAS and CUDA status names;
# NCCL checks.h; CANN npu_driver.cc
root Device memory isn't enough = out of memory on the device: use a smaller batch, or stop other processes on it
    memory isn't enough|Allocate (?:device )?memory failed
root no memory for cache blocks = out of memory on the device: use a smaller batch, or stop other processes on it
    No available memory for the cache blocks
root KV cache = not enough device memory for the KV cache: reduce the maximum model length
    larger than the (?:available KV cache memory|maximum number of tokens that can be stored in KV cache)
root free memory on startup = not enough free device memory: free the device of other processes
    Free memory on device .*on startup .*is less than desired
root OOM when allocating tensor = not enough memory on the device that the message names: use a smaller batch
    OOM when allocating tensor
root NPU out of memory = out of memory on the device: use a smaller batch, or stop other processes on it
    NPU out of memory
root CUDA out of memory = out of memory on the device: use a smaller batch, or stop other processes on it
    CUDA out of memory
root halMemAlloc failed = out of memory on the device: use a smaller batch, or stop other processes on it
    hal(?:Mem|Host\w*)Alloc failed|heap_alloc\w* out of memory
root CUDA error: out of memory = out of memory on the device: use a smaller batch, or stop other processes on it
    CU\w+_STATUS_ALLOC_FAILED|(?:CUDA|HIP) error: out of memory|cuda failure .{0,3}'out of memory
    |CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation
root malloc device memory failed = out of memory on the device: use a smaller batch, or stop other processes on it
    (?:malloc|alloc\w*) (?:\w+ )?device memory failed|memory not enough
# CUDA error strings; CANN task scheduler (RTS_HWTS); MindSpore ascend_kernel_runtime.cc and CANN's AICPU
root device-side assert = an index is out of range or an assertion failed in a kernel
    device-side assert(?!ions)
root aicore exception = exception in a kernel on the AI core
    \baicore (?:exception|error)
root aivec exception = exception in a kernel on the vector core
    \bai(?:vec|vector) error|vector core exception
root getnext timeout = the input data arrived too late: check the speed of data loading, or set dataset_sink_mode=False
    getnext timeout|GetNext error may be caused
# Linux mm/oom_kill.c; Kubernetes; ray memory_monitor
root Memory cgroup out of memory = a process was killed by the OOM killer
    Memory cgroup out of memory|OOMKilled
root node running low on memory = ray killed a worker: not enough memory
    node running low on memory
# ray gcs_actor_manager and node_manager: the exit types of workers
either ray worker died = a worker of ray died: killed by the OOM killer, stopped by ray, or crashed
    Worker exit type: SYSTEM_ERROR|actor is dead because its worker process has died|Worker unexpectedly exits
# torch DataLoader.cpp, utils/data/_utils/signal_handling.py and MapAllocator.cpp; CPython multiprocessing
root DataLoader worker killed = a data loader worker was killed, usually by the OOM killer
    is killed by signal: Killed
root DataLoader worker: bus error = no space left in /dev/shm: increase it or use fewer data loader workers
    killed by signal: Bus error|bus error encountered in worker|out of shared memory
root shared memory = no space left in /dev/shm: increase it or use fewer data loader workers
    unable to (?:allocate|resize) shared memory|unable to (?:write to|resize) file </torch_
either DataLoader worker terminated = a data loader worker was stopped by SIGTERM from outside
    DataLoader worker .*killed by signal: Terminated
root DataLoader worker crashed = a data loader worker crashed
    DataLoader worker .*killed by signal
root DataLoader worker ended = a data loader worker ended unexpectedly
    DataLoader worker .*exited unexp|multiprocessing/resource_sharer\.py", line \d+, in detach
# torch elastic/multiprocessing/errors; DeepSpeed launcher/launch.py; CPython subprocess.py; Open MPI and PRRTE; bash
# jobs.c and srun (strsignal(3))
root SIGKILL = killed by SIGKILL, usually by the kernel for lack of memory
    signal SIGKILL|Signal 9 \((?:SIGKILL|Killed)\)|Signals\.SIGKILL|exitcode\s*: -9|return code = -9\b
    |(?:line \d+: +\d+|srun: .*tasks? \S+:) Killed\b
# vLLM multiproc_executor.py; CPython concurrent/futures/process.py; HF datasets utils/py_utils.py
either worker process = a worker process of vLLM died: killed, usually by the OOM killer, or crashed
    Worker proc \S+ died unexpectedly
root process pool = a worker process of a pool died: killed, usually by the OOM killer, or crashed
    A (?:child )?process in the process pool was terminated|A child process terminated abruptly
    |One of the subprocesses has abruptly died
# mmap(2), with torch MapAllocator.cpp; C++ standard library; CPython and NumPy MemoryError; errno ENOMEM; torch
# CPUAllocator.cpp
root unable to mmap = not enough memory, or too many memory-mapped files: see vm.max_map_count
    unable to mmap \d+ bytes from .*Cannot allocate memory
root out of host memory = not enough memory
    std::bad_alloc|MemoryError\b|cannot allocate memory(?! in static)|DefaultCPUAllocator
root Out of memory = not enough memory
    \bout of memory\b
# errno(3): ENOSPC, EDQUOT, EIO, ESTALE, EMFILE, EROFS, EACCES; torch inline_container.cc, multiprocessing/reductions.py
root No space left on device = a disk or /dev/shm is full
    No space left on device
root Disk quota exceeded = a disk is over quota: free some space, or request a higher quota
    Disk quota exceeded
root file write failed = a file cannot be written, usually because its disk is full or over quota
    PytorchStreamWriter failed|iostream error|inline_container\.cc:\d+\] \. unexpected pos
root input/output error = a disk or network file system failed
    \[Errno 5\]|Stale file handle
root Too many open files = too many open files: raise ulimit -n
    Too many open files|received \d+ items of ancdata
root Read-only file system = a file cannot be written: its file system is mounted read-only
    Read-only file system
root PermissionError = no permission to use a file or device
    PermissionError: \[Errno 13?\]
# torch PyTorchFileReader and _weights_only_unpickler.py; safetensors SafeTensorError; CPython pickle, zipfile and gzip;
# torch module.py and distributed/checkpoint/default_planner.py; MindSpore train/serialization.py
root incomplete file = a file is incomplete or damaged: copy or download it again
    PytorchStreamReader failed|deserializing header|HeaderTooLarge|MetadataIncompleteBuffer|invalid load key
    |Ran out of input|pickle data was truncated|BadZipFile|File is not a zip file|Compressed file ended before
    |The file may be corrupted, and the content cannot be parsed|crc check is failed
root Weights only load failed = torch.load refuses an object in a checkpoint: see its argument weights_only
    Weights only load failed
root Error(s) in loading state_dict = a checkpoint does not match the model
    Error\(s\) in loading state_dict|Missing key in checkpoint state_dict|Size mismatch between saved
    |load_param_into_net'.* should have the same
# slurmstepd; huggingface_hub; OpenSSL; urllib3; CPython signal handling; CUDA error strings; CPython _thread; fork(2),
# pthread_create(3); CPython input()
root DUE TO TIME LIMIT = the job reached the platform's time limit
    DUE TO TIME LIMIT
root gated repo = a model or dataset is restricted: request access on its page, then log in or set HF_TOKEN
    access (?:a |to a )?gated repo
root Repository Not Found = no such model or dataset, or no access: check its name, then log in or set HF_TOKEN
    Repository Not Found for url|is not a valid model identifier
root certificate = a server's certificate cannot be verified: see REQUESTS_CA_BUNDLE and SSL_CERT_FILE
    CERTIFICATE_VERIFY_FAILED
root server not reachable = a server cannot be reached: check the network and its proxy, or use local files
    couldn't connect to 'https?://|Max retries exceeded with url
root KeyboardInterrupt = interrupted by SIGINT: Ctrl-C, or a platform that stops the job
    KeyboardInterrupt
root SignalException = a launcher was stopped by a signal from outside: by a person or the platform
    SignalException: Process \d+ got signal
root illegal memory access = a kernel accessed an invalid address of the device
    illegal memory access|unspecified launch failure
root Can't start new thread = too many processes: raise ulimit -u
    can't start new thread|fork: retry
    |(?:fork|pthread_create|BlockingIOError|\bthread:|Thread creation failed).*Resource temporarily unavailable
root EOFError = input() reached the end of standard input
    EOFError: EOF when reading a line
# torch elastic/multiprocessing/errors; DeepSpeed launcher/launch.py; CPython subprocess.py; Open MPI and PRRTE; bash
# jobs.c and srun (strsignal(3))
root SIGSEGV = killed by SIGSEGV: native code touched memory that it must not access
    signal SIGSEGV|Signal 11 \((?:SIGSEGV|Segmentation fault)\)|Signals\.SIGSEGV|exitcode\s*: -11|return code = -11\b
    |(?:line \d+: +\d+|srun: .*tasks? \S+:) Segmentation fault|^Segmentation fault(?: \(core dumped\))?$
root SIGABRT = killed by SIGABRT: native code gave up and aborted
    Signal 6 \((?:SIGABRT|Aborted)\)|Signals\.SIGABRT|exitcode\s*: -6|return code = -6\b
    |(?:line \d+: +\d+|srun: .*tasks? \S+:) Aborted\b|^Aborted(?: \(core dumped\))?$
root SIGBUS = killed by SIGBUS, usually because /dev/shm is full
    Signal 7 \((?:SIGBUS|Bus error)\)|Signals\.SIGBUS|exitcode\s*: -7|return code = -7\b
    |(?:line \d+: +\d+|srun: .*tasks? \S+:) Bus error|^Bus error(?: \(core dumped\))?$
root oom_kill = a process was killed by the OOM killer
    oom[-_]kill event|Killed process \d+
# bash execute_cmd.c; glibc ld.so and dlopen(3); torch_npu FunctionLoader.cpp; CANN's set_env.sh; CPython importlib;
# NumPy's C API; gcc, clang and nvcc; CANN's op_api
root end of a command line = a command was split by a blank after a backslash, or by Windows line endings
    : (?:-{1,2}\w[\w-]*|\$?'?\\r'?): command not found$
root command not found = a program is not installed or not on PATH
    : command not found$
root library of the driver = the driver's libraries are not visible: check the mounted driver and LD_LIBRARY_PATH
    lib(?:ascend_hal|drv\w+|dcmi)\.so[.\d]*: cannot open shared object
root library of CANN = CANN's libraries are not on LD_LIBRARY_PATH: source set_env.sh
    lib(?:hccl|ascend\w*|ge_\w+|runtime|acl_?\w*|opapi|msprof\w*|tsdclient)\.so[.\d]*: cannot open shared object
root libatb.so = the library of transformer operators is not on LD_LIBRARY_PATH: source nnal/atb/set_env.sh
    lib(?:atb|mki)\w*\.so[.\d]*: cannot open shared object
root cannot open shared object file = a library is not installed or not on LD_LIBRARY_PATH
    cannot open shared object file
root GLIBC not found = a package was built for a newer system library than this image has
    version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found
root static TLS block = a library is loaded too late: add it to LD_PRELOAD
    static TLS block
root native part of a package = the native part of a package is missing: not built, or shadowed by a source directory
    No module named '?[\w.]+\._C\b
root No module named = a package is missing in this Python
    No module named '?[\w.]+
root undefined symbol = incompatible packages: check the versions of torch, torch_npu and CANN
    undefined symbol
root NumPy's binary interface = incompatible packages: one was built for another version of NumPy
    may indicate binary incompatibility|multiarray failed to import|_ARRAY_API not found
root NumPy is too new = a package needs an older version of NumPy
    was removed in the NumPy \d|module 'numpy' has no attribute '(?:bool|int|float|complex|object|str)\d?'
root extension not built = a native extension cannot be built: see the first error of the compiler
    \.(?:c|cc|cpp|cu|cxx|h|hpp|cuh|asc)(?::\d+(?::\d+)?|\(\d+\)): (?:fatal )?error:
root no kernel = an operator has no kernel for this chip: check the installation and the version of CANN's kernels
    does not has any binary|Parse dynamic kernel config fail|Cannot parse json for config file
root not in this CANN = this version of CANN lacks an operator or function: check the versions of CANN and torch_npu
    not in libopapi\.so|Failed to find function \w+
root driver not visible = the driver is not visible in this container: check its devices and the mounted driver
    dcmi mod\w* init\w* failed|Can't get ascend_hal device count
# MindSpore communication/_comm_helper.py and hccl_adapter.cc
root RANK_ID has not been exported = MindSpore was started without the rank variables
    RANK_ID has not been exported
root HcomLoadRanktableFile = HCCL cannot find the rank table file
    HcomLoadRanktableFile.*real path
# NCCL shmutils.cc and ncclResult_t; torch c10d distributed_c10d.py, reducer.cpp and ProcessGroupWrapper.cpp;
# torch_npu/npu/__init__.py
root shared memory segment = NCCL cannot create a segment in /dev/shm, usually because it is full
    Error while creating shared memory segment
root Duplicate GPU detected = two ranks on one device: check LOCAL_RANK and the list of visible devices
    Duplicate GPU detected
root ncclInvalidArgument = NCCL was called with an invalid argument
    ncclInvalidArgument|NCCL error.*invalid argument
root ncclInvalidUsage = a collective was called incorrectly, for example by two ranks on one device
    ncclInvalidUsage|NCCL error.*invalid usage
root process group not initialized = a collective was called before init_process_group
    process group has not been initialized|trying to initialize the default process group twice
root mismatch between collectives = ranks run different collectives
    mismatch between collectives on ranks
either different models = ranks have built different models: compare their settings
    DDP expects same model across all ranks|appears not to match (?:sizes|strides) of the same param
root unused parameters = some parameters got no gradient: see find_unused_parameters of DistributedDataParallel
    Expected to have finished reduction in the prior iteration
root used before fork = a device was used before a fork: start worker processes with the method spawn
    Cannot re-initialize \w+ in forked subprocess
root invalid device ordinal = invalid device id: check the list of visible devices
    invalid device ordinal
either ncclUnhandledCudaError = NCCL reported a device error
    ncclUnhandledCudaError|NCCL error.*unhandled cuda error
either ncclSystemError = NCCL reported a system or network error
    ncclSystemError|NCCL error.*unhandled system error
either ncclInternalError = NCCL reported an internal error, usually after a network error
    ncclInternalError|NCCL error.*internal error
# getaddrinfo(3); bind(2); c10d socket.cpp; gloo transport/tcp/device.cc; NCCL bootstrap.cc
root Name or service not known = cannot resolve the host name of node 0: check MASTER_ADDR
    Name or service not known|Temporary failure in name resolution|gai error
root Cannot assign requested address = an address is not one of this server's: check MASTER_ADDR
    Cannot assign requested address|EADDRNOTAVAIL
root Address already in use = the port is taken: a leftover process, or two jobs on one server
    address already in use|EADDRINUSE
root no such network interface = no such network interface: check GLOO_SOCKET_IFNAME and similar variables
    Unable to find address for: |no socket interface found
# HCCL hccl_socket.cc
root listen on ip = port of HCCL already in use: a leftover process, or two jobs on one server
    listen on ip\[[^\]]+\].{0,20} port\[\d+\] fail
# torch cuda/__init__.py, distributed_c10d.py and c10 Device.cpp; torch OperatorEntry.cpp (PrivateUse1 is the NPU)
root torch without CUDA = torch was built without CUDA: use npu and hccl, or import torch_npu.contrib.transfer_to_npu
    Torch not compiled with CUDA enabled|have NCCL built in|Found no NVIDIA driver
root torch_npu is not imported = import torch_npu is missing: it must precede the first use of npu or hccl
    module 'torch' has no attribute 'npu'|Invalid backend: 'hccl'|at start of device string: npu
    |Invalid device string: 'npu
root operator not on NPUs = an operator is not supported by this version of torch_npu: run it on the CPU
    Could not run '\S+' with arguments from the '(?:PrivateUse1|NPU)' backend
# torch_npu NPUQueue.cpp; CUDA error strings; torch_npu's operators of the transformer library (ATB); torch_npu
# utils/_error_code.py
root memory error of the device = uncorrectable memory error of the device: hardware fault
    \bUCE ERROR|HBM MULTI BIT ECC ERROR|uncorrectable ECC error
root setup of an ATB operator = an operator was called with an invalid argument, or does not support this chip
    Operation setup failed
root not supported by torch_npu = feature not supported by this version of torch_npu or CANN, or by this chip
    \bERR0\d007\b
root invalid argument of torch_npu = a function of torch_npu was called with an invalid argument
    \bERR0\d00[1-4]\b
"""
