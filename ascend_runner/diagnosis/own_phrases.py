"""The rules of `phrases` for errors of a rank itself or of its machine.

Above each group is the source whose messages it knows; the first rule that matches counts, but one with `*` only where
no code is found either.
"""

from __future__ import annotations

from typing import Final

OWN: Final = r"""
# HCCL (EJ0001); torch_npu NPUException.cpp; CUDA driver API, cudaErrorDevicesUnavailable; DCMI (-8020)
root the last training process is running = device still held by a job that was just killed: wait 10 s, then retry
    the last training process is running
root other processes occupying this card = device in use by another process
    other processes occupying this card
root device busy or unavailable = device in use by another process
    device\(s\) is/are busy or unavail|initialized failed, because the device is used
# MindSpore ascend_memory_adapter.cc; vLLM worker/worker_base.py, gpu_worker.py and kv_cache_utils.py; TensorFlow
# bfc_allocator.cc; torch_npu NPUCachingAllocator.cpp; torch CUDACachingAllocator.cpp; cuBLAS and CUDA status names;
# NCCL checks.h; CANN npu_driver.cc
root Device memory isn't enough = out of memory on the device: use a smaller batch, or stop other processes on it
    Device\S* memory isn't enough|Allocate (?:device memory failed|memory failed$)
    |is more than total mem size
root no memory for cache blocks = out of memory on the device: use a smaller batch, or stop other processes on it
    No available memory for the cache blocks
root KV cache = not enough device memory for the KV cache: reduce the maximum model length
    larger than the (?:available KV cache memory|maximum number of tokens that can be stored in KV cache)
root free memory on startup = not enough free device memory: stop other processes on the device
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
    (?:malloc|alloc\w*) (?:\w+ )?device memory failed|(?<!CPU )(?<!host )memory not enough:
# CUDA error strings; CANN task scheduler (RTS_HWTS); MindSpore ascend_kernel_runtime.cc and CANN's AICPU
root device-side assert = an index is out of range or an assertion failed in a kernel
    device-side assert(?!ions)
root aicore exception = exception in a kernel on the AI core
    \baicore (?:exception|error)
root aivec exception = exception in a kernel on the vector core
    \bai(?:vec|vector) error|vector core exception
root getnext timeout = the input data arrived too late: check the speed of data loading, or set dataset_sink_mode=False
    getnext timeout|GetNext error may be caused|fault (?:op|kernel)_name=\S*GetNext
# CANN's runtime and bishengir-compile (Triton-Ascend); LLVM CommandLine.cpp; MindSpore kernel/oplib/op_info_utils.cc
root on-chip memory = a kernel needs more on-chip memory than the chip has: use smaller blocks
    \b(?:ub|cbuf|cc|l1|l0[abc]) overflow, requires
root too many blocks = a kernel was started with more than 65535 blocks: use a smaller grid
    coreDim=\d+ can't be greater than UINT16_MAX
root compiler's target = the compiler of CANN does not support this chip: check the version of CANN
    Cannot find option named 'Ascend
root MindSpore's operators = this version of MindSpore has no operators for this chip
    Load op info (?:form )?json (?:config )?failed
# Linux mm/oom_kill.c; Kubernetes; ModelArts; ray memory_monitor
root check of the devices = the platform's check of the devices failed: see its log, and npu-smi info
    dsmi-checker detect failed
root Memory cgroup out of memory = a process was killed by the OOM killer
    Memory cgroup out of memory|OOMKilled
root node running low on memory = ray killed a worker: not enough memory
    node running low on memory
# ray gcs_actor_manager and node_manager: the exit types of workers
either ray node died = a node of ray's cluster failed or was lost: see its log
    because its node has died|Owner's node has crashed
either ray owner died = the process that started an actor of ray has ended: see its log
    because its owner has (?:died|exited)
either ray actor's name = ray has no actor with this name: it was not created, or has died, see its log
    Failed to look up actor
either ray worker died = a worker of ray died: killed by the OOM killer, stopped by ray, or crashed
    Worker exit type: SYSTEM_ERROR|actor is dead because its worker process has died|Worker unexpectedly exits
    |actor died unexpectedly before finishing|worker died or was killed while executing
# torch DataLoader.cpp, utils/data/_utils/signal_handling.py and MapAllocator.cpp; batchgenerators; CPython's
# multiprocessing
root DataLoader worker killed = a data loader worker was killed, usually by the OOM killer
    is killed by signal: Killed
root DataLoader worker: bus error = no space left in /dev/shm: increase it or use fewer data loader workers
    killed by signal: Bus error|bus error encountered in worker|workers are out of shared memory
root shared memory = no space left in /dev/shm: increase it or use fewer data loader workers
    unable to (?:allocate|resize) shared memory|unable to (?:write to|resize) file </torch_
either DataLoader worker terminated = a data loader worker was stopped by SIGTERM from outside
    DataLoader worker .*killed by signal: Terminated
root DataLoader worker crashed = a data loader worker crashed
    DataLoader worker .*killed by signal
root DataLoader timed out = a data loader worker returned no data in time: slow storage, or a worker that hangs
    DataLoader timed out after
root DataLoader worker ended = a data loader worker ended unexpectedly
    DataLoader worker .*exited unexp|background workers are no longer alive
    |multiprocessing/resource_sharer\.py", line \d+, in detach
# torch utils/data/sampler.py; DeepSpeed runtime/fp16/loss_scaler.py, fairseq optim/fp16_optimizer.py, Megatron-LM
# param_and_grad_buffer.py
root empty dataset = the dataset is empty: check its path
    num_samples should be a positive integer value, but got num_samples=0
root loss scale = the gradients overflow or are NaN: check the data and the learning rate, or use bf16
    loss scale already at minimum|Minimum loss scale reached|found NaN in local grad norm
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
    ^(?:(?!\b(?:if|may|might|possibl[ey]|perhaps) ).)*\bout of memory\b
# watchdog observers/inotify_c.py (inotify(7)); HDF5 H5FDsec2.c
root inotify = too many watched files: raise fs.inotify.max_user_watches or max_user_instances
    inotify (?:watch|instance) limit reached
root HDF5 file lock = an HDF5 file cannot be locked: in use by another process, or see HDF5_USE_FILE_LOCKING
    unable to lock file, errno
# errno(3): ENFILE, ENOSPC, EDQUOT, EIO, ESTALE, EMFILE, EROFS, EACCES; torch inline_container.cc,
# multiprocessing/reductions.py
root No space left on device = a disk or /dev/shm is full
    No space left on device
root Disk quota exceeded = a disk is over quota: free some space, or request a higher quota
    Disk quota exceeded
root file write failed = a file cannot be written, usually because its disk is full or over quota
    PytorchStreamWriter failed|iostream error|inline_container\.cc:\d+\] \. unexpected pos
root file cannot be opened = a file cannot be created: check its directory, its permissions and the space on the disk
    RuntimeError: File \S+ cannot be opened\.$
root input/output error = a disk or network file system failed
    \[Errno 5\]|Stale file handle|\[Errno 107\] Transport endpoint is not connected: '
root files of the system = too many open files on this server: check fs.file-max and which processes have them open
    Too many open files in system
root Too many open files = too many open files: raise ulimit -n
    Too many open files|received \d+ items of ancdata
root Read-only file system = a file cannot be written: its file system is mounted read-only
    Read-only file system
root PermissionError = no permission to use a file or device
    PermissionError: \[Errno 13?\]
# torch PyTorchFileReader, serialization.py and _weights_only_unpickler.py; safetensors SafeTensorError; Pillow; CPython
# pickle, zipfile and gzip;
# torch module.py and distributed/checkpoint/default_planner.py; MindSpore train/serialization.py
root incomplete file = a file is incomplete or damaged: copy or download it again
    PytorchStreamReader failed|deserializing header|HeaderTooLarge|MetadataIncompleteBuffer|invalid load key
    |Ran out of input|pickle data was truncated|BadZipFile|File is not a zip file|Compressed file ended before
    |The file may be corrupted, and the content cannot be parsed|crc check is failed
    |unexpected EOF, expected \d+ more bytes|image file is truncated
root Weights only load failed = torch.load refuses an object in a checkpoint: see its argument weights_only
    Weights only load failed
root Error(s) in loading state_dict = a checkpoint does not match the model
    Error\(s\) in loading state_dict|Missing key in checkpoint state_dict|Size mismatch between saved
    |load_param_into_net'.* should have the same
root number of ranks of a checkpoint = a checkpoint was saved by another number of ranks: use the same, or convert it
    used a DP world size of \d+ but|Loading a checkpoint for MP=\d+ but
# slurmstepd; huggingface_hub; transformers utils/hub.py and models/auto; wandb sdk/wandb_login.py; OpenSSL; urllib3 and
# botocore; CPython signal handling; CUDA error strings; CPython _thread; fork(2), pthread_create(3), std::thread of
# libstdc++; CPython input()
root DUE TO TIME LIMIT = the job reached the platform's time limit
    DUE TO TIME LIMIT
root DUE TO PREEMPTION = the scheduler has preempted the job
    DUE TO PREEMPTION
root DUE TO NODE FAILURE = a node of the job has failed
    DUE TO NODE FAILURE
either CANCELLED = the job was cancelled: by a user, by the scheduler, or after the failure of another task
    slurmstepd.* CANCELLED AT
root gated repo = a model or dataset is restricted: request access on its page, then log in or set HF_TOKEN
    access (?:a |to a )?gated repo
root Repository Not Found = no such model or dataset, or no access: check its name, then log in or set HF_TOKEN
    Repository Not Found for url|is not a valid model identifier
root not in the cache = a model or dataset is not cached, and its server cannot be reached: download it first
    cannot find the requested files in the (?:local|disk) cache
root path taken for a name = the directory of a model does not exist, so its path is taken for a name: check the path
    (?:Incorrect path_or_model_id: '|Repo id must be in the form .*: ')(?:\.{0,2}/|~)
root transformers is too old = this version of transformers does not recognize the model: install a newer one
    but Transformers does not recognize this architecture
root wandb's key = wandb has no API key: set WANDB_API_KEY, or WANDB_MODE=offline
    api_key not configured \(no-tty
root access refused = a server refuses access: check the token or key, and its permissions
    40[13] Client Error|AccessDenied\b
root certificate = a server's certificate cannot be verified: see REQUESTS_CA_BUNDLE and SSL_CERT_FILE
    CERTIFICATE_VERIFY_FAILED
root server not reachable = a server cannot be reached: check the network and its proxy, or use local files
    couldn't connect to 'https?://|Max retries exceeded with url|<urlopen error |HTTPS?ConnectionPool\(.*timed out
    |Could not connect to the endpoint URL|unable to access 'https?://
    |Cannot connect to host \S+:\d+ ssl|^httpx?\w*\.Connect\w*
root KeyboardInterrupt = interrupted by SIGINT: Ctrl-C, or a platform that stops the job
    KeyboardInterrupt
root SignalException = a launcher was stopped by a signal from outside: from a user or the platform
    SignalException: Process \d+ got signal
root illegal memory access = a kernel accessed an invalid address of the device
    illegal memory access|unspecified launch failure
root Can't start new thread = too many processes: raise ulimit -u
    can't start new thread|fork: retry
    |(?:fork|pthread_create|BlockingIOError|\bthread:|Thread creation failed).*Resource temporarily unavailable
    |std::system_error: Resource temporarily unavailable
root EOFError = input() reached the end of standard input
    EOFError: EOF when reading a line
# torch elastic/multiprocessing/errors; DeepSpeed launcher/launch.py; CPython subprocess.py; Open MPI and PRRTE; bash
# jobs.c and srun (strsignal(3))
root SIGSEGV = killed by SIGSEGV: native code touched memory that it must not access
    signal SIGSEGV|Signal 11 \((?:SIGSEGV|Segmentation fault)\)|Signals\.SIGSEGV|exitcode\s*: -11|return code = -11\b
    |(?:line \d+: +\d+|srun: .*tasks? \S+:) Segmentation fault|^Segmentation fault(?: \(core dumped\))?$
root* SIGABRT = killed by SIGABRT: native code gave up and aborted
    Signal 6 \((?:SIGABRT|Aborted)\)|Signals\.SIGABRT|exitcode\s*: -6|return code = -6\b
    |(?:line \d+: +\d+|srun: .*tasks? \S+:) Aborted\b|^Aborted(?: \(core dumped\))?$
root SIGBUS = killed by SIGBUS, usually because /dev/shm is full
    Signal 7 \((?:SIGBUS|Bus error)\)|Signals\.SIGBUS|exitcode\s*: -7|return code = -7\b
    |(?:line \d+: +\d+|srun: .*tasks? \S+:) Bus error|^Bus error(?: \(core dumped\))?$
root oom_kill = a process was killed by the OOM killer
    oom[-_]kill event|Killed process \d+.{1,80}(?:total-vm|UID)
"""
