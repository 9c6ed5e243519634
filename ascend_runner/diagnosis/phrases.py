"""Telling phrases of errors without a code, as tables: their meanings, and where their causes usually lie.

Above each group is the source whose messages it knows; the first rule that matches counts, but one with `*` only where
no code is found either. The tables are about a rank itself (OWN), its peers (a lost connection, of the kind "lost", is
a lost peer in a collective), and what a rank needs (its setup).

The rules for classes of errors, also those of frameworks and MindSpore, count if no other rule does. They are applied
to the message of the chosen error only, since their words are common in logs, and only if it is the rank's own. A rule
holds for every error of its class, so it says what to check, not what is wrong. A line that begins with a frame is made
of the innermost frame of the traceback and its exception: an error inside a package has other reasons than the same one
in a program. Of an AssertionError or KeyError, the source line of that frame is searched as well. A rule of the kind
"words" is one of the kind "root" that counts only for the words of a package, not for those that the user's program has
chosen: there, anything "must be positive" or is "not supported".

The Chinese words are those of glibc, bash and coreutils in a Chinese locale, and common ones of training programs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ascend_runner.diagnosis.codes import KINDS, Code, Found, Kind

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
# torch elastic/multiprocessing/errors; DeepSpeed job/runner.py; CPython subprocess.py; Open MPI and PRRTE; bash
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
# torch elastic/multiprocessing/errors; DeepSpeed job/runner.py; CPython subprocess.py; Open MPI and PRRTE; bash
# jobs.c and srun (strsignal(3))
root SIGSEGV = killed by SIGSEGV: native code accessed invalid memory
    signal SIGSEGV|Signal 11 \((?:SIGSEGV|Segmentation fault)\)|Signals\.SIGSEGV|exitcode\s*: -11|return code = -11\b
    |(?:line \d+: +\d+|srun: .*tasks? \S+:) Segmentation fault|^Segmentation fault(?: \(core dumped\))?$
root* SIGABRT = killed by SIGABRT: native code called abort()
    Signal 6 \((?:SIGABRT|Aborted)\)|Signals\.SIGABRT|exitcode\s*: -6|return code = -6\b
    |(?:line \d+: +\d+|srun: .*tasks? \S+:) Aborted\b|^Aborted(?: \(core dumped\))?$
root SIGBUS = killed by SIGBUS, usually because /dev/shm is full
    Signal 7 \((?:SIGBUS|Bus error)\)|Signals\.SIGBUS|exitcode\s*: -7|return code = -7\b
    |(?:line \d+: +\d+|srun: .*tasks? \S+:) Bus error|^Bus error(?: \(core dumped\))?$
root oom_kill = a process was killed by the OOM killer
    oom[-_]kill event|Killed process \d+.{1,80}(?:total-vm|UID)
"""


PEERS: Final = r"""
# Open MPI and PRRTE (help-errmgr-base.txt, help-plm-base.txt, help-mpi-btl-tcp.txt)
peer lost communication with a remote daemon = mpirun lost another node: its daemon, the node or the network failed
    (?:ORTE|PRTE) has lost communication with a remote daemon
peer peer hung up = a peer exited, or the network failed
    MPI communication peer process has unexpectedly disconnected
either UCX = no connection between servers through UCX: check the network interfaces, or a peer exited
    Failed to (?:receive|resolve) UCX
# HCCL topology detection and transport; torch_npu and torch ProcessGroup*.cpp watchdogs
peer Failed to connect agent = some ranks never joined the communicator
    Failed to connect agent
peer topo exchange server get socket timeout = some ranks never joined the communicator
    topo exchange server get socket timeout|Wait timeout for sockets recv
peer topo exchange agent get socket timeout = no connection to rank 0 of the communicator: not started or unreachable
    topo exchange agent get socket timeout
peer wait socket establish timeout = no connection to a peer within HCCL_CONNECT_TIMEOUT: it may not have started
    wait socket establish timeout
either cqe error status[12] = transfer between devices failed after retries: network fault, or the peer exited
    cqe error status\[12\]
peer watchdog timeout = a collective timed out: it waited for a peer that is missing, slow or has exited
    watchdog (?:thread terminated .*|caught )collective operation timeout
either heartbeat monitor = a process group's watchdog is stuck, usually because a peer did not join a collective
    heartbeat monitor (?:timed out|thread)
peer another rank's dump signal = another rank has reported a timeout or an error first
    dump signal (?:from another rank|due to .+ from +rank \d)|Another rank reported a timeout
    |a collective timeout on some other rank
# CANN runtime device_error_proc.cc; torch_npu NPUQueue.cpp; TensorFlow base_collective_executor.cc; XLA
# coordination_service_agent.cc
either event wait timeout = timeout waiting for an event, usually for a peer
    event wait timeout occurred
either link between devices = a link to another device failed: network fault, or the peer exited
    HCCS LINK ERROR|HCCL OP RETRY FAILED
either memory of a remote device = memory fault of a remote device, or an invalid address
    SUSPECT (?:MEM|REMOTE) ERROR
either FORCE STOP = device tasks were stopped by the program, usually after an error of another rank
    \bFORCE STOP\b|PTA force stop
peer Collective ops is aborted by = a peer exited, or the network failed
    Collective ops is aborted by
peer coordination service = a peer exited, or the network failed
    distributed service detected fatal errors|coordination service has returned error
# CPython faulthandler.c (dump_traceback_later)
either limit of faulthandler = the program exceeded its own time limit, perhaps because it waits for a peer
    ^Timeout \(\d+:\d\d:\d\d
# Horovod common/common.h (SHUT_DOWN_ERROR)
peer Horovod has been shut down = another rank has failed or ended
    Horovod has been shut down
peer collective timeout = a collective timed out: it waited for a peer that is missing, slow or has exited
    due to (?:collective timeout|watchdog hang)|watchdog got stuck for
peer ncclRemoteError = a peer exited, or the network failed
    ncclRemoteError
peer remote process exited or there was a network error = a peer exited, or the network failed
    remote process exited or there was a network error
peer taking the entire process down = a collective timed out: it waited for a peer that is missing, slow or has exited
    taking the entire process down
either call of a worker = a worker of vLLM or ray did not answer in time: it hangs or has ended, see its log
    RPC call to \w+ timed out|ray\.exceptions\.(?:Get|RayChannel)TimeoutError
either communicator aborted = a communicator was aborted: another rank failed, or a collective timed out
    (?:NCCL|HCCL) communicator was aborted
# torch c10d TCPStore.cpp, ProcessGroupGloo.cpp; gloo transport/tcp
peer recvValue failed = a peer exited, or the network failed
    recvValue\w* failed|Stop_waiting response is expected|remote server shutdown or crash|Failed to recv, got 0 bytes
peer connectFullMesh failed = no connection to a peer: not started, exited or unreachable
    connectFullMesh failed
peer store timeout = a collective timed out: it waited for a peer that is missing, slow or has exited
    wait timeout after \d+ms|Timed out waiting (?:\d+ms )?for (?:recv|send|key:)
    |store->get\('[^']+'\) got error: .*tim(?:ed |e)out
peer store->get failed = a communicator cannot be set up: a peer exited, did not start in time, or is unreachable
    store->get\('[^']+'\) got error
peer monitored barrier failed = a collective timed out: it waited for a peer that is missing, slow or has exited
    monitoredBarrier\b(?! ?[=:])|failed to pass monitoredBarrier|\branks? [\d, ]+ failed to (?:report|reach)
# MindSpore distributed/cluster/topology and msrun; torch c10d rendezvous
peer Failed to connect to the meta server = cannot reach MindSpore's scheduler
    Failed to connect to the meta server node
peer Failed to register the compute graph node = not all MindSpore workers joined in time
    Failed to register the compute graph node|Topology build timed out
peer It may exit with exception = MindSpore's scheduler lost a worker
    is timed out.*It may exit with exception|The total number of timed out node
peer Spawned worker process number is not as expected = a MindSpore worker exited early
    Spawned worker process number is not as expected
peer Timed out waiting for clients = not all ranks joined the rendezvous
    RendezvousTimeoutError|timed out.*(?:waiting for clients|trying to connect to|in store based barrier)|clients joined
peer RendezvousConnectionError = the server of the rendezvous cannot be reached: not started, ended, or unreachable
    RendezvousConnectionError
peer RendezvousClosedError = the rendezvous was closed: the launcher of another node has ended
    RendezvousClosedError
# ray gcs_client and gcs_rpc_client.h
either ray's head node = ray's head node cannot be reached: not started, ended, or at another address
    Failed to connect to GCS|Timed out while waiting for GCS
# errno(3): ECONNRESET, ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, EPIPE; CPython http.client; gloo
# transport/tcp/pair.cc; torch c10d Utils.hpp
lost Connection closed by peer = the remote side closed the connection
    Connection closed by (?:remote )?peer|Connection was likely closed|Remote end closed connection without response
lost Connection reset by peer = the remote side closed the connection
    Connection reset by peer
lost Connection refused = the remote side is not listening: not started yet, or exited
    Connection refused
lost Connection timed out = the remote side did not answer in time
    Connection timed out
lost No route to host = the remote side cannot be reached: check its address and the network interfaces
    No route to host|Network is unreachable
lost Broken pipe = the remote side of a connection or pipe exited
    Broken pipe
lost Socket Timeout = the remote side did not answer in time
    Socket ?Timeout
# torch_npu NPUQueue.cpp: an operator that runs asynchronously
either* asynchronous operator = an operator of the device failed: see its error above, or use ASCEND_LAUNCH_BLOCKING=1
    The Inner error is reported as above
"""


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
root Address already in use = the port is in use: by another rank, a leftover process or another job
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


CLASSES: Final = r"""
# bash and env(1); CPython subprocess.py; pip; docker, containerd and apptainer; taskset(1) and numactl(8)
root compiler = a C or C++ compiler is missing: install gcc and g++
    Failed to find C compiler
root Windows line endings = a script has Windows line endings: convert it, for example with dos2unix
    \\r\W?: No such file or directory$
root ssh = ssh to another server is refused: check its keys and known hosts
    Permission denied \(publickey|Host key verification failed
root permission of a command = no permission to execute, read or write a file: check its mode and owner
    ^(?:\S+: line \d+|(?:\S*/)?(?:ba|da|z)?sh(?:: (?:line )?\d+)?|(?:\S*/)?env): .+: Permission denied$
    |\berrno\W{1,4}13\b
root version for pip = pip finds no matching version of a package: check its name, the version of Python and the index
    No matching distribution found|is not a supported wheel|Could not find a version that satisfies|ResolutionImpossible
root container = a container cannot be started: check its image, mounts and devices
    Error response from daemon|container creation failed|failed to create (?:containerd task|shim)|oci runtime
    |pyxis: .*\bfail|pyxis: couldn't start
root launch by Slurm = Slurm cannot launch a task: see the log of slurmd on its node
    ^srun: error: (?:task \S+ launch|Task launch for .*|Application launch) failed|^srun: error: slurm_receive_msgs?:
root cores = CPU cores or NUMA nodes are not available here: check their numbers, and the container's cpuset
    failed to set pid \d+'s affinity|^<[\d,-]+> is invalid|cpu argument \S+ is out of range
root program not started = a program cannot be started: check that it is installed, executable and on PATH
    in _execute_child:
# errno(3): ENAMETOOLONG, ETXTBSY, ELOOP, EXDEV, EBUSY, ENOTEMPTY, ENXIO, ENODEV, E2BIG, ENOEXEC, EFBIG, ENOLCK,
# EREMOTEIO, EUCLEAN, EHOSTDOWN, EHWPOISON, ENOSYS, EOPNOTSUPP
root name too long = a file name is longer than 255 bytes, or a path longer than 4095
    File name too long
root text file busy = a file is replaced while another process runs it: build it once, before the ranks start
    Text file busy
root loop of links = symbolic links form a loop
    Too many levels of symbolic links
root cross-device link = a file cannot be renamed or linked across file systems
    Invalid cross-device link
root resource busy = a file, directory, mount or device is in use: open, mounted or held by a process
    \[Errno 16\]
root directory not empty = a directory cannot be removed: another rank or process writes to it, or has its files open
    Directory not empty
root no such device = a device or its driver is missing: check the devices of the container
    \[Errno (?:6|19)\]
root argument list = the arguments and variables of a program are too long
    Argument list too long
root exec format = a program was built for another type of CPU, or a script lacks its first line (#!)
    Exec format error
root file too large = a file exceeds the limit of its file system, or ulimit -f
    File too large
root file locks = a file system provides no file locks: see its mount options, or use a local directory
    No locks available
root lock of a file = a file is locked: by another process, or by one that has ended without releasing it
    file lock '.*could not be acquired|database is locked
root file system = a disk or network file system failed
    disk I/O error|Remote I/O error|Structure needs cleaning|\[Errno 112\] Host is down
root memory of the host = uncorrectable memory error of the server: hardware fault
    Memory page has hardware error
root not supported = a file system or device does not support an operation
    \[Errno (?:38|95)\]
# tarfile, zlib, lzma and gzip of CPython; Pillow; Arrow; HDF5; NumPy; sentencepiece; libsndfile; OpenCV
root other format = a file is incomplete, damaged or in another format: copy or download it again
    tarfile\.\w*Error|zlib\.error|LZMAError|Not a gzipped file|cannot identify image file|broken data stream
    |Parquet magic bytes|Parquet file size is|Not an Arrow file|file signature not found|truncated file: eof
    |unexpected end of file|Unexpected EOF in archive|not in gzip format|End-of-central-directory signature not found
    |unexpected EOF|\b(?:file|archive|image|checkpoint|shard)\b.{0,40}\bcorrupt
    |\bcorrupt(?:ed)? (?:file|archive|image|checkpoint|record at|shard|jpeg|png|zip|tar|gzip)
    |is not (?:a|an|the) (?!valid file|regular file|local file|file)[\w-]+ (?:\w+ )?file\b
    |Failed to interpret file|could not parse ModelProto|Format not recognised|PyTorchFileReader|invalid magic number
root no image = an image cannot be read: its file is missing or damaged
    _src\.empty\(\)|load image failed|invalid image data|imread\w*\(.*can't open
# CPython json, codecs and PyYAML
root JSON = invalid JSON: the text is empty, incomplete or in another format
    ^(?:[\w.]+\.)?JSONDecodeError:
root YAML = invalid YAML: see the line and column that the message names
    ^yaml\.\w+\.\w+Error
root encoding of a text = a file is not text in the expected encoding: see open(encoding=...), and LANG=C.UTF-8
    ^UnicodeDecodeError:
root encoding of the output = the locale cannot encode a character: set LANG=C.UTF-8 or PYTHONUTF8=1
    ^UnicodeEncodeError: '(?:ascii|latin-1|gbk|charmap)'
# CPython built-in exceptions; MindSpore dataset/core/validator_helpers.py
root path exists = a file or directory already exists, perhaps created by another rank at the same moment
    ^FileExistsError:
root is a directory = a path refers to a directory, but a file is expected
    ^IsADirectoryError:
root not a directory = a part of a path is a file, but a directory is expected
    ^NotADirectoryError:
root no such checkpoint = a checkpoint is missing or incomplete: check its path on this node
    (?:can't|cannot|could not|couldn't|unable to|failed to) (?:find|locate|load|read) (?:a |the |any )?
    (?:\w+ ){0,2}checkpoints?\b|Unable to find 'latest' file|Error: no (?:valid )?checkpoints? found
root file not opened = a file cannot be opened: check its path on this node, and its permissions
    (?:(?:fail(?:ed)?|unable) to|cannot|can't|could not|couldn't) open (?:the )?
    (?:['"]|\S*/|(?:\w+ )?(?:files?|index)\b)
    |open file failed
root invalid file = a file is incomplete, damaged or in another format: copy or create it again
    Invalid file,
root no such path = a file or directory is missing on this node: check its path, the working directory and the mounts
    ^(?:[\w.]+\.)?FileNotFoundError: .*\[Errno 2\] .*: b?['\"]|does not exist or permission denied
    |^RuntimeError: Parent directory \S+ does not exist
    |^FileNotFoundError: .*['" ][.~]{0,2}/\w
    |\b(?:file|path|dir|directory|folder|checkpoint|dataset):? ['"]?[.~]*/\S* (?:does not|doesn't|not) (?:exist|found)
    |^assert (?:(?!\bnot ).)*\b(?:is_?file|is_?dir|exists)\(
# CPython pickle.py and import system (import_from in ceval.c: a namespace package has no location); transformers
# utils/versions.py and import_utils.py; tokenizers; peft; setuptools
root extension loaded twice = a native extension is loaded twice, or in two versions: check the installed packages
    generic_type: (?:type|cannot initialize type) "|with the same name (?:and overload name )?multiple times
    |Only a single TORCH_LIBRARY|illegal RegisterFlag|flag '\S+' was defined more than once
root no native module = a native extension was built for another version of Python: install it again
    does not define module export function
root protocol of a pickle = a file was pickled by a newer version of Python: use that version, or write the file again
    unsupported pickle protocol
root circular import = modules import each other, or a file has the name of a package
    partially initialized module|\(consider renaming '
root namespace package = a directory without __init__.py is taken for a package: see the working directory and sys.path
    cannot import name '\w+' from '(?!(?:_\w+|sys|builtins|math|time|itertools|gc|posix|array)')[\w.]+'
    \s\(unknown location\)
root submodule = a submodule was not imported: import it by its full name
    ^AttributeError: module '(?:importlib' has no attribute '(?:util|machinery|metadata|resource)
    |distutils' has no attribute '\w|concurrent' has no attribute 'futures|logging' has no attribute 'handlers
    |xml' has no attribute '\w|urllib' has no attribute '(?:parse|request|error))
root name of a module = a module lacks a name that its caller expects: check its version, and that no file shadows it
    ^AttributeError: module '[\w.]+' has no attribute|cannot import name '\w+' from '[\w.]+' \(/
root class of a pickle = a pickled object needs a name that its module lacks: check its version, or define it there
    ^AttributeError: Can't get attribute '
root name of a class = a class lacks an attribute that its caller expects: check the versions of both
    ^AttributeError: type object '\w+' has no attribute
root keyword of a function = a function lacks an argument that its caller passes: check the versions of both
    got an unexpected keyword argument|keyword argument \S+ is not recognized
words version of a package = a package has the wrong version: install the one that the message asks for
    is required for a normal functioning of this module|(?:ContextualVersion|Version)Conflict
    |^\w*Error: .*requires [\w. -]+[<>=~]=? ?\d+\.\d
root package named = a package is missing or too old: install the one that the message names
    ^(?:Import|ModuleNotFound)Error: .*(?:requires .*(?:package|library|module|>=|==)|not installed|\binstall\b)
    |PackageNotFoundError|DistributionNotFound
    |^\w+Error: .*\bpip3? install|^ImportError: .*(?:\binstalled\b|unable to import)
root package of a tokenizer = a package that the tokenizer needs, such as sentencepiece, or one of its files is missing
    Cannot instantiate this tokenizer from a slow version|Couldn't instantiate the backend tokenizer
root processor of a model = the processor of a model cannot be loaded: check its files, and the packages it needs
    Processor was not found
root tokenizer's file = a tokenizer's file needs newer versions of tokenizers and transformers
    did not match any variant of untagged enum|Tokenizer class \w+ does not exist or is not currently imported
root files of a model = files of a model cannot be found: check its path or name, and that its download is complete
    does not appear to have a file named|no file named |Can't find 'adapter_config|Can't load (?:the )?[\w ]+ for '
    |Unable to load (?:weights|vocabulary)|Cannot find any model weights
root code of a model = a model or dataset brings its own code: pass trust_remote_code=True if you trust it
    trust_remote_code=True|requires you to execute the configuration file in that repo
root torch is too old = transformers refuses torch.load with this torch: install torch 2.6 or newer, or use safetensors
    serious vulnerability issue in `?torch\.load
root modules to train = the modules to train do not exist in this model: see target_modules
    Target modules .* not found in the base model|Please specify `?target_modules
root quantized model = a quantized model cannot be trained itself: attach adapters, or load its full weights
    fine-tuning on purely quantized models
# Megatron-LM and its users; DeepSpeed runtime/config.py; PyTorch nn/functional.py
root batch sizes = train_batch_size must be micro batch size x gradient accumulation steps x data-parallel ranks
    Check batch related parameters
root not divisible = sizes do not match: ranks, parallel sizes, batch sizes, layers or heads must divide one another
    \bdivisible by\b|must be (?:a )?multiples? of|is not a multiple of|\d ?% ?\d+ ?!= ?0|^assert .*\S % .*== ?0
# Megatron-LM core/dist_checkpointing and rerun_state_machine.py; torch optim/optimizer.py, autograd and distributions
root distributed checkpoint = a distributed checkpoint is incomplete, or does not match the model or its parallel sizes
    CheckpointingException
root location of a checkpoint = a checkpoint was saved on other devices: see map_location, and import torch_npu first
    Attempting to deserialize object on|don't know how to restore data location
root optimizer's state = the optimizer's state in a checkpoint does not match the model
    different number of parameter groups|parameter group that doesn't match
root learning rate of a checkpoint = a scheduler resumes without its optimizer: load the state of both
    param 'initial_lr' is not specified
root NaN = a value is NaN or infinite: check the data, the learning rate and the precision
    probability tensor contains|but found invalid values:|Unexpected result nan|returned nan values|Input contains NaN
    |Non-finite|\[xla\] nan|^assert .*\b(?:isfinite|isnan|isinf)\(
# torch's operators, autograd and DistributedDataParallel; collate.py; torch_npu/npu/amp/grad_scaler.py; transformers'
# attention (modeling_*.py)
root shapes in a batch = the samples of a batch have different shapes: crop or pad them, or see collate_fn
    stack expects each tensor to be equal size|each element in list of batch should be of equal size
    |Trying to resize storage that is not resizable|expects same shape|Inconsistent batch shapes
root index of an embedding = an index is out of range for an embedding: compare the vocabularies of tokenizer and model
    IndexError: index out of range in self
root label = a label is not one of the classes: check the data and the number of classes
    Target -?\d+ is out of bounds
root shapes of tensors = the shapes of tensors do not match: check the model's settings, the data and the checkpoint
    shapes cannot be multiplied|size of tensor a \(\d+\) must match|Sizes of tensors must match
    |shape '\[.*\]' is invalid for input of size|to have \d+ channels, but got|Expected input batch_size
    |must match the existing size|shape mismatch|be broadcast together|inhomogeneous shape
    |size mismatch, m1|should be of size \(|einsum\(\): .* (?:does not|size)|expected input with shape
    |should contain \d+ elements not|kernel size can't be greater|split_sizes to sum|Dimension out of range
    |tensors? must be \d-?D\b|(?:with|has|have) negative dimension|same number of dimensions|Padding size should be less
    |\bexpected (?:to be )?(?:\d-?D(?:imensional)? (?:or|\(|input|tensor)|\d or \d dim)|Can't broadcast from
root devices of tensors = tensors are on different devices: move the model and its inputs to the same one
    (?:to|must|should) be on the same device|indices should be either on|is on cpu, but expected
    |^RuntimeError: Expected \w+ tensor, please check whether the input tensor device
    |only supports single device modules|but found one of them on device
    |Input type \(torch\.(?:(?:npu|cuda)\.)?(\w+)Tensor\) and weight type \(torch\.(?:(?:npu|cuda)\.)?\1Tensor\)
root generator = a random number generator is on a different device than the tensors: create it on theirs
    device type for generator but found
root tensor to NumPy = a tensor on the device cannot be converted to NumPy: call cpu() first
    can't convert \S+ device type tensor to numpy
root types of tensors = the data types of tensors differ: convert them, or use autocast
    expected (?:object of )?scalar type \w+ but (?:found|got)|expected dtype \S+ but got|cast to the desired output type
    |type conversion of 'Parameter' is not supported
    |Found dtype \w+ but expected|must have the same dtype|to have the same dtype
    |The type of data we are trying to retrieve|Input type \(.*\) and (?:weight|bias) type
root float16 gradients = the trained parameters are in float16: load them in float32, or train in bfloat16
    Attempting to unscale FP16 gradients
root type of an operator = an operator does not support a data type on this device: is the model still on the CPU?
    not implemented for '(?:Half|BFloat16|Float8\w*|Long|Int|Bool)'
root no gradient = the loss depends on no trained parameter: all are frozen, or see enable_input_require_grads()
    does not require grad and does not have a grad_fn|DistributedDataParallel is not needed when
root no parameters = the optimizer has no parameters: all are frozen, or an iterator over them is exhausted
    optimizer got an empty parameter list
root no scaled gradient = the gradient scaler found no gradients: none were computed for the optimizer's parameters
    No inf checks were recorded
root loss = the loss is not a scalar: reduce it, for example with mean()
    grad can be implicitly created only for scalar outputs$
root parameter used twice = a parameter is used twice in a backward pass: see use_reentrant=False and static graphs
    Expected to mark a variable ready only once
root in-place = a tensor needed for the backward pass was changed in place: see torch.autograd.set_detect_anomaly
    modified by an inplace operation
root in-place change of a view = a view of a tensor was changed in place: use clone(), or an out-of-place operation
    is a view and (?:is being|its base or another view).*modified in-?place
root inference mode = a tensor of inference mode is used for training: clone it, or use no_grad() instead
    to inference tensor outside|Inference tensors cannot
root gradient of an integer = an integer parameter, such as a quantized one, cannot be trained
    Only Tensors of floating point .*can require gradients
root empty list of tensors = a list of tensors is empty: check the data
    expect(?:ed|s) a non-empty (?:list of Tensors|TensorList)
root arguments of a function of torch = a function of torch was called with arguments of the wrong types, or None
    received an invalid combination of arguments
root device of a wrapped model = the model is not on the device that DistributedDataParallel is given: move it there
    device_ids and output_device arguments only work
root pinned memory = the samples are on the device, so they cannot be pinned: keep them on the CPU
    only dense CPU tensors can be pinned
root samples of a batch = a sample is None or of a type that cannot be put into a batch: check the dataset
    default_collate: batch must contain
root arguments of a data loader = the arguments of a data loader contradict each other: see the message
    ^ValueError: .*(?:disables auto-batching|prefetch_factor option|num_workers option|sampler option)
root value of a condition = a condition has several values: use any() or all()
    Boolean value of Tensor with more than one|truth value of an array with more than one
root probabilities = the inputs of a loss are not between 0 and 1, or NaN: is a sigmoid missing?
    all elements of (?:input|target) should be between 0 and 1
root no tensor = a value cannot be converted to a tensor: look for None, strings and ragged lists in the data
    Could not infer dtype of|too many dimensions '|can't convert np\.ndarray of type|expected Tensor as element \d+ in
root internal check of torch = an internal check of torch failed: check the versions of torch and torch_npu
    INTERNAL ASSERT FAILED|something has gone horribly wrong
root layers for FSDP = the model lacks the layer class that FSDP is to wrap: check its name in the settings
    Could not find the transformer layer class
root frozen parameters in FSDP = FSDP cannot mix frozen and trained parameters: see use_orig_params=True
    Must flatten tensors with uniform `?requires_grad
root meta tensor = parameters have no data (device meta): the model was not loaded completely
    Cannot copy out of meta tensor|Tensor on device meta is not on
root batch of one = batch normalization needs more than one sample in a batch: see drop_last
    Expected more than 1 value per channel
root not contiguous = a tensor is not contiguous: use reshape() or contiguous()
    view size is not compatible with input tensor|Tensors must be contiguous
root torch.compile = torch.compile cannot compile this model: train without it, or set TORCHDYNAMO_DISABLE=1
    ^torch\._(?:dynamo|inductor)\.exc\.
# Checks of flash-attn, bitsandbytes and others; HCCL and MindSpore
root CUDA only = a feature needs a CUDA device: use its variant for NPUs, or leave it out
    (?:requires?|needs?|only supports?|only works? (?:on|with)) (?:\w+ ){0,3}(?:CUDA|NVIDIA|Ampere)\b
    |CUDA driver version is insufficient|^assert torch\.cuda\.is_available\(
root rank table = the rank table does not match the job: compare its ranks with the processes that are started
    (?:invalid|wrong|illegal) rank ?table|rank ?table .*(?:is invalid|inconsistent|not match|not equal)
# CPython multiprocessing and pickle
root pickle = an object cannot be pickled, for a file or a process: define it at the top level of a module
    Can't (?:pickle|get local (?:object|attribute)) |cannot pickle '
# CPython _posixsubprocess.c (its descriptors must differ); torch multiprocessing/reductions.py
root shared twice = a spawned process gets a shared tensor twice: clone it, or use set_sharing_strategy('file_system')
    bad value\(s\) in fds_to_keep
root start method = set_start_method was called twice: see its argument force
    context has already been set
root main module = worker processes import the main module: start the program below if __name__ == '__main__'
    has finished its bootstrapping phase
root daemonic process = a worker of a data loader or pool cannot start processes of its own
    daemonic processes are not allowed to have children
# HTTP status codes (RFC 9110) as requests, aiohttp, OBS, S3, wandb and MLflow show them; huggingface_hub; MoXing; ray
root access to a server = a server or storage service refuses access: check the token or key, and its permissions
    \b(?:stat(?:us)?(?:[ _]code)?|error(?:[ _]?code)?|code|http)\b['\"]?[:= (]{1,3}40[13]\b(?! [a-z])
    |\(40[13]\)|\b40[13],? (?:Forbidden|Unauth)|reason: ?(?:Forbidden|Unauthorized)|permission to access
    |SignatureDoesNotMatch|InvalidAccessKeyId|invalid api key
root object in a storage = an object, bucket or page does not exist: check its name
    NoSuch(?:Key|Bucket)|hub\.errors\.NotExistError|doesn't exist on the Hub
    |\b(?:stat(?:us)?(?:[ _]code)?|http)\b['\"]?[:= (]{1,3}404\b(?! [a-z])|404 (?:Client Error|Not Found)
    |\bspecified (?:bucket|key) does not exist|file or directory or bucket not found|\bget object key failed
root server failed = a server failed or is overloaded: see its log, or try again
    Internal Server Error|\b(?:429|50[0234]) (?:Client|Server) Error|(?:code|error)\W{1,3}SlowDown\b
    |Too ?Many ?Requests|Service Unavailable|Bad Gateway
    |\bstat(?:us)?(?:[ _]code)?['\"]?[:= (]{1,3}50[0234]\b(?! [a-z])
words retries = all attempts at a request have failed: see the error of the last one, the server and the network
    \bfailed after \d+ (?:retries|attempts)|\b(?:retries|attempts) exhausted
root download cut off = a download was cut off: try again
    ChunkedEncodingError|IncompleteRead|ContentTooShort|Consistency check failed
words download = a download failed: check the network, the address and the free space on the disk
    \bdownload(?:s|ed|ing)?\b.{0,40}\bfail|\bfail\w* .{0,40}\bdownload
root resources of ray = ray's cluster has fewer free devices than the job asks for: see ray status
    is less than total desired|Current node has no \w+ available|No available node types can fulfill
    |[Pp]lacement group .*time(?:d )?out
"""


FRAMEWORKS: Final = r"""
# torch utils/cpp_extension.py and _ops.py; DeepSpeed ops/op_builder; pybind11
root native extension = a native extension cannot be built: see the first error of its compiler above
    Error building extension '|Command '\['ninja',|Unable to JIT load the |has no attribute 'ds_opt_\w+'
    |unable to build \w+\.o\b
root ninja = the package ninja is missing: native extensions are built with it
    Ninja is required to load
root native operator = a native operator is not registered: its extension is missing, not loaded or of another version
    '_OpNamespace' '\w+' object has no attribute|operator \w+::\w+ does not exist
    |Could not find an implementation of \w+::|NotImplementedError: _C\w*::
root arguments of a native function = a native function got arguments of the wrong types: check the package's version
    incompatible function arguments
# torch nn/parallel; transformers models/auto; calls from one package into another
root wrapped model = the model is wrapped for parallel training: use the attribute of its module
    '(?:DistributedDataParallel|DataParallel|FullyShardedDataParallel|Float16Module)' object has no attribute
root type of a model = this version of transformers does not recognize the model: install a newer one
    /transformers/models/auto/\S+", line .*: KeyError: '
root unwrapped model = the model is not wrapped for parallel training: only a wrapper has the attribute module
    ^AttributeError: '(?!(?:NoneType|list|tuple|dict|str|int|\w*(?:namespace|config|args|arguments))')\w+'
    \sobject has no attribute 'module'$
root call between packages = packages, or the program and a package, do not fit together: check their versions
    /(?:(?:site|dist)-packages|megatron|mindspeed\w*|vllm\w*|sglang|deepspeed)/\S+", line \d+,
    \sin (?!_\w*call|__call__|wrap|inner|apply|decorate|_run_code)
    \S+: (?:NameError: name '\w+' is not defined
    |AttributeError: '(?!(?:NoneType|str|bytes|list|dict|tuple|set|int|float|bool|function|method|Tensor|Parameter
    |ndarray)')\w+' object has no attribute
    |TypeError: .*(?:missing \d+ required |takes .*positional arguments? but|got multiple values for))
# torch distributed/checkpoint; Megatron-LM training/checkpointing.py; vLLM and transformers: loading of weights
root loading of weights = the weights of a checkpoint do not match the model: check its configuration and the versions
    , in (?:\w*load_(?:\w*weights?|w\d+|state_dict|checkpoint)|weight_loader): (?:(?:Key|Index)Error
    |AssertionError(?:$|.*(?:shape|size|weight|param|key|\d [!=]= \d)))
root loading of a checkpoint = a checkpoint cannot be loaded: check its path, its format and the version that saved it
    , in \w*load_\w*(?:checkpoint|ckpt)\w*: (?:Attribute|Type|Value|Index)Error
root plan of a checkpoint = a distributed checkpoint is incomplete, or does not match the model or its parallel sizes
    /(?:distributed|_shard|core)/(?:dist_)?checkpoint(?:ing)?/\S+", line .*: (?:Key|Assertion|Value|Index)Error
root key of a checkpoint = a checkpoint lacks a key that the program expects: check what saved it, and in which version
    \b\w*(?:ckpt|checkpoint|state_dict)\[(['"][^'"]+['"])\].*: KeyError: \1
root settings of a checkpoint = a checkpoint was saved with other settings: use the same, or convert it
    value from checkpoint \(
root weights of a model = the weights of a checkpoint do not match the model: check its configuration and the versions
    Trying to set a tensor of shape|Attempted to load weight \(|weights were not initialized from checkpoint
    |no module or parameter named|size mismatch for [\w.]+:|^KeyError: '(?:[\w.]+\.)?layers?\.\d+\.(?![\w.]*attn')
    |^KeyError: '[\w.]+\.(?:weight|bias|qweight|scales)\b
root shared weights = parameters share memory: save them without safetensors, or with its save_model()
    Some tensors share memory
root configuration of a model = a model's config.json is missing or is that of another type of model: check its path
    Unrecognized model in |Unrecognized configuration class
root architecture of a model = this version of a package does not support the model: check its name and the version
    Model architectures? .*not supported|Can't find class type \w+ class name|unsupported model type
# Megatron-LM training/arguments.py; MindFormers parallel_config; torch distributed/device_mesh.py; vLLM; JAX
words number of devices = the sizes of a parallel layout do not match the ranks or the visible devices
    ^(?:Value|Assertion|Runtime)Error: (?!.*(?:time[ds]? ?out|waiting|watchdog|connect)).*
    (?:number of (?:\w+ )?(?:devices|npus|gpus|ranks)\b|not enough (?:devices|npus|gpus|ranks)
    |\b(?:devices?|npus?|gpus?|ranks?)(?:\(s\))?\b.{0,60}\b(?:but|only)\b.{0,20}\d+ (?:device|npu|gpu|rank)
    |world[ _]?size\b.{0,40}(?:!=|not (?:equal|match)|(?:less|more|smaller|larger|greater|bigger) than)
    |than default world size|\bdevice_num\b.*\b(?:must|should|not)\b|\b(?:must|should)\b.*\bdevice_num\b)
words parallel settings = parallel settings contradict each other or the model: check sizes, layers and micro-batches
    ^(?:Value|Assertion|NotImplemented)Error: (?!.*\b(?:nan|inf|infinite|overflow)\b).*
    (?:virtual pipeline|pipeline stage|micro[ _-]?batch
    |(?:tensor|pipeline|context|expert|sequence)[ _-](?:model[ _-])?parallel)
root number of a rank = a rank is not below the world size: check the world size and the number of nodes
    Invalid rank \d+, rank should be
words device mesh = an operator got tensors of different device meshes, or does not support DTensor
    ^\w*Error: .*(?:\bthe same mesh\b|\bdevice ?mesh\b|\bdtensor\b|a sharding strategy)
root layout of a device mesh = a device mesh does not match the ranks or its use: check the parallel settings
    /torch/distributed/device_mesh\.py", line
# OmegaConf and Hydra; pydantic; CPython argparse; absl; transformers hf_argparser.py and integrations/deepspeed.py
root setting = a setting is unknown, missing or of a wrong type: check its name, and the version of the package
    ^(?:omegaconf|hydra)\.errors\.|not used by the HfArgumentParser|validation errors? for \w+
    |Extra (?:inputs are|fields) not permitted
    |Override '[\w.-]+' not found
root argument of a program = a program refuses its arguments: check their spelling, and the program's version
    : error: (?:unrecognized arguments|no such option|the following arguments are required|argument \S+: )
    |unknown command line flag|(?:unknown|unrecognized) (?:[\w-]+ ){0,2}(?:argument|option|flag)s?:? ?[\['"`]*-
words quantization = a quantization method is unknown or not supported: check its name, and the version of the package
    (?:unknown|invalid|unsupported) quanti[sz]ation|no available \w+ quantizer|quanti[sz]ation .*not supported
words registry = a name in the configuration is not registered: check its spelling, its import and the version
    \b(?!\w*(?:label|word|token|id_))\w*(?:mapping|registry|_map|_classes|_factory)
    \[[\w.]*(?:name|type|method|mode|kind|arch\w*|model|backend|strategy)\].*: KeyError: '|is not in the [\w: ]*registry
    |is not registered (?:in|as)\b|^ValueError: Template \S+ does not exist
root options of the allocator = PYTORCH_NPU_ALLOC_CONF or its CUDA form has an unknown option: check it, and the version
    Unrecognized CachingAllocator option|ALLOC_CONF.*(?:unknown|unrecognized|invalid)
root buffer of HCCL = the buffer of HCCL is too small for an operator: raise HCCL_BUFFSIZE
    HCCL_BUFFSIZE.*(?:too small|increase|larger|at least|insufficient)
root no environment variable = an environment variable is not set: the message names it
    (?:/os\.py|<frozen os>)", line \d+, in __getitem__: KeyError: '
root libuv = this torch has no libuv: set USE_LIBUV=0
    built without libuv
root actor of verl = an actor of verl did not register in time: see ray's logs, and ray_wait_register_center_timeout
    failed to get register_center_actor
root automatic device map = device_map="auto" spreads a model over devices: leave it out in distributed training
    loaded with `device_map=.auto
root quantized model's device = a quantized model is not on the rank's own device: load it there, see device_map
    loaded in (?:8-bit|4-bit).*(?:on a different device|offload)
root accelerator created twice = an Accelerator was created twice with different settings: create it once
    AcceleratorState has already been initialized
root unbalanced memory = some devices have less free memory than others: other processes use them
    memory capacity is unbalanced
words environment variable = an environment variable is missing or wrong: set it as the message says
    ^\w*Error: (?!.*(?:LAUNCH_BLOCKING|_DEBUG|_VERBOSE|_LOG)).*(?:\bset(?:ting)? (?:the )?env(?:ironment)? variable
    |env(?:ironment)? variable \S+ (?:is not set|must|should))
root batch size of DeepSpeed = DeepSpeed needs the batch size: prepare a data loader, or set it in its configuration
    requires you to pass at least one of training or evaluation dataloaders
root optimizer on the CPU = DeepSpeedCPUAdam needs parameters on the CPU: use it only with offload of the optimizer
    CPUAdam param is on
root DeepSpeed's settings = the configuration of DeepSpeed contradicts the trainer's arguments: set it to "auto"
    DeepSpeed config values that mismatch
root length of an input = an input is longer than the limit of its output: compare max_length and the data
    Input length of input_ids is \d+, but
words length of a sequence = a sequence is too long for the model or its settings: compare max_model_len and the data
    ^\w*Error: .*(?:longer|larger|greater|smaller) than .*
    (?:max(?:imum)?[ _](?:model|seq\w*|context)[ _]len|max_position)
# HF datasets; LlamaFactory data/parser.py; tokenizers; transformers tokenization_utils_base.py; collators; pandas
words no data = the dataset is empty: check its path, and what is filtered out
    ^\w*Error: (?:.*\b(?:data ?set|data|data ?loader) is empty\b|no (?:train\w* |valid\w* )?(?:data|samples|examples)
    (?:$| (?:found|loaded|provided|remain|left\b(?! in file)|after|in|at|to train|(?:was|were) (?:found|loaded))\b))
root format of samples = no sample has the expected form: check the dataset's columns, roles and template
    Cannot find valid samples
words images of a sample = the images of a sample do not match its text: check the data and the cut-off length
    ^ValueError: .*\bimages?\b.{0,80}(?:do(?:es)? not match|different from|mismatch)
root columns removed = the dataset is empty, or its columns were removed: see remove_unused_columns
    Invalid key: \d+ is out of bounds for size 0
root cached dataset = incompatible packages: update datasets, or install an older fsspec
    dataset cached in a LocalFileSystem
root column = samples lack a column that the program expects: check the names of the dataset's columns
    Column name .* not in the dataset|, in (?:\w*collat\w*|get_loc): KeyError: '|collat\w*\.py", line .*: KeyError: '
    |/llamafactory/data/\w+\.py", line .*: KeyError: '|supply an encoding or a list of encodings
    |No columns in the dataset match|specify (?:either|exactly one of) \S*input_ids
root labels = the model got no labels, so it returns no loss: check the columns of the dataset and label_names
    did not return a loss from the inputs
root dataset for a step = a dataset for the training or the evaluation is missing: pass it, or turn this step off
    (?:training|evaluation) requires an? (?:train|eval)_dataset
root types of columns = the files of a dataset differ in their columns or types
    Couldn't cast|column names don't match
root JSON of a dataset = a file of a dataset cannot be read as JSON: see the row that the message names
    JSON parse error
root split of a dataset = a dataset or split with this name does not exist, or has no data: check its name and files
    Unknown split "|corresponds to no data|Undefined dataset \S+ in|at least one example when writing data
root text = the text of a sample is not a string: look for empty or missing values in the data
    TextEncodeInput must be|text input must be of type
root padding = samples differ in length: pad and truncate them
    you should probably activate truncation|expected sequence of length \d+ at dim
root padding token = the tokenizer has no padding token: set pad_token, for example to eos_token
    does not have a padding token|if no padding token is defined
root chat template = the tokenizer has no chat template: set one, or use a model that has one
    chat_template is not set
root roles of a conversation = a template refuses its input: for a chat template, check the roles and their order
    ^jinja2\.exceptions\.(?:Template|Undefined)Error: |roles must alternate
words token of a tokenizer = the tokenizer lacks a token that the program needs: check its files, type and version
    ^\w*Error: (?:can ?not find|could not find|missing|no) .{0,60}\b(?:in|of|for) (?:the |this )?
    (?:tokeni[sz]er|vocab\w*)\b
root file of a tokenizer = a file of the tokenizer is missing: check the files of the model
    /sentencepiece/\S+", line .*: TypeError: not a string|No tokenizer file found
# torch_npu npu/__init__.py, npu/graphs.py and dynamo/torchair; bitsandbytes; CUDA graphs; torch inductor; torch
# autograd; transformers quantizers; Triton
root capture of a graph = an operation cannot be captured in a graph: run it outside of the graph, or in eager mode
    during (?:\w+ )?graph capture|stream is capturing
root converter of torchair = torchair cannot compile an operator: use a newer torch_npu, or run the model in eager mode
    op converter is not implemented|Unsupported torch op
root triton's resources = a kernel needs more on-chip memory than the chip has: use smaller blocks
    OutOfResources: out of resource
root kernel of triton = a Triton kernel cannot be compiled: check the versions of Triton and CANN
    ^triton\.compiler\.errors\.|MLIRCompilationError
root no Triton = a working Triton is missing: install the one for Ascend, or train without torch.compile
    working triton installation|TritonMissing|0 active drivers
root second backward pass = a graph is used in two backward passes: detach tensors of earlier steps, or retain_graph
    backward through the graph a second time
root leaf = a parameter was changed in place: change it where no gradients are computed, or use a copy
    a leaf (?:variable|parameter) that requires grad
root order of modules = ZeRO-3 lost track of the modules: all ranks must run them in the same order; see leaf modules
    inflight params|parameter fetch queue|disagreement between rank0 and rank|^AssertionError: \{'id': \d+, 'status': '
root initialization of the device = the device cannot be initialized: check CANN and the driver, and who uses the device
    /torch_npu/npu/__init__\.py", line \d+, in _lazy_init: RuntimeError
root bitsandbytes = bitsandbytes has no native part for this device: install a build that has it, or leave it out
    /bitsandbytes/\S+", line .*: (?:Attribute|Runtime|Name|Type)Error
root profiler = the profiler failed: check its arguments, or train without it
    (?:-packages|/torch|/torch_npu|/mindspore)/(?:\S+/)?profiler/\S+", line .*: \w*Error
root compiler of graphs = a graph cannot be compiled: use a newer torch_npu, or run the model in eager mode
    /(?:torchair|torch/_inductor)/\S+", line .*: (?:Assertion|NotImplemented|Runtime|Value|Type|Key|Attribute)Error
words memory for a model = not enough memory on the device or the server: check what else uses it, and the settings
    ^\w*Error: (?:.*\b)?(?:not enough|insufficient) (?:\w+ )?memory
    |^ValueError: (?:Some modules are dispatched on the CPU or the disk|The current .*weights offloaded to the disk)
    |a model that has some modules offloaded
# Checks by words or places that many packages share
words versions = incompatible versions: install those that the message asks for
    ^[\w.]*(?:Error|Exception): .*(?:the installed version|version mismatch|(?:newer|higher|later|older) version
    |(?:is|are) too (?:old|new)\b|version.*(?:not compatible|incompatible)
    |compiled with different (?:\w+ ){0,2}versions|version .{1,60}(?:does not|doesn't|do not) match
    |please (?:upgrade|update|downgrade|reinstall)\b)
words index of a tensor = an index is out of range for a tensor: check the model's sizes, the data and parallel settings
    ^\w*Error: .*(?:out of bounds for (?:axis|dimension)|\bstart out of range|exceeds dimension size
    |selected index k out of range)
words equal parts = sizes do not match: ranks, parallel sizes, batch sizes, layers or heads must divide one another
    equal (?:chunks?|splits?|parts)\b|\bevenly (?:divi|split)|(?:cannot|can't|could not|not) be (?:evenly )?divided
words data types = the data types of tensors differ: convert them, or use autocast
    ^(?:Value|Type|Runtime|Assertion)Error: .*(?:\b(?:d|data )?types? (?:should|must) be (?:the )?same
    |\b(?:same|identical|uniform|consistent) (?:data ?)?(?:d?type|precision)s?\b|\bdtype mismatch)
words sizes of tensors = the sizes of tensors do not match: check the model's settings, the data and the checkpoint
    ^(?:Value|Type|Runtime|Assertion|Index)Error: (?!.*\b(?:files?|bytes|download\w*)\b).*
    (?:\bdim(?:ension)?s? of \S+ (?:should|must) be \d|\bshapes? of \S+ and \S+ (?:is|are) (?:inconsistent|different)
    |\b(?:shape|(?<!world )size|dimension)s? (?:of \S+ )?
    (?:mismatch|do(?:es)? ?n[o']t match|(?:must|should) (?:match|be (?:the )?(?:same|equal)))
    |\b(?:must|should) have (?:[\w-]+ ){0,4}(?:shape|size|length|dimension|dim)s?\b
    |\b(?:identical|same|different|inconsistent|mismatched) (?:batch |tensor )?(?:shape|size|dimension)s?\b)
words configuration of DeepSpeed = DeepSpeed refuses its configuration: check ZeRO's stage, optimizer, offload and types
    (?:DeepSpeedConfigError|ZeRORuntimeException):
    |^(?:Value|Assertion)Error: .*\b(?:deepspeed config|zero[ -]?(?:\d|stage|offload|inference))
    |/deepspeed/\S+", line \d+, in (?:__init__|_configure\w*|_do_\w*check\w*|_\w*assertion):
    \s(?:Value|Assertion|Key|Type|NotImplemented)Error: \S
root FSDP = FSDP cannot be used like this: check its settings, and that all calls go through the wrapped model
    (?:/torch/distributed/(?:fsdp|_composable)/|/accelerate/utils/fsdp_utils)\S*", line .*:
    \s(?:Value|Assertion|Type|Attribute)Error
root check of settings = a check of the settings failed: compare the ones that the message names
    , in (?:__post_init__|\w*(?:validate|verify|check|parse)_(?:\w*_)?(?:arg|config|setting|option)\w*):
    \s(?:Value|Assertion)Error: \S
root check of a configuration = a check of the settings failed: compare the ones that the message names
    /(?:config/\w+|\w*config\w*|\w*arguments?|\w*args|arg_utils|platform)\.py", line .*:
    \s(?:Value|Assertion)Error: (?!invalid literal|could not convert|not enough values|too many values)\S
root samples of a dataset = a sample cannot be processed: check the format of the data
    (?<!torch/utils/data)/(?:\w*dataset\w*|\w*collat\w*|\w*preprocess\w*)\.py", line \d+, in
    \s(?:\S+: (?:Value|Assertion)Error|(?!__init__|__len__|<module>|main\b)\S+: (?:Type|Index)Error)
root data of a dataset = a dataset cannot be read: check the format, the columns and the data types of its files
    ^(?:pyarrow\.lib|datasets\.\w+)\.\w+:|/datasets/(?:builder|table|arrow_writer|features/\w+)\.py", line
words data type = a data type is not supported here: convert the data or the model to another one, such as float32
    ^(?:Value|Runtime|Type|NotImplemented)Error: .*(?:unsupport(?:ed)? (?:data ?|d)types?\b
    |\b(?:data ?|d)types? .{0,40}\bnot support|not support .{0,20}(?:data ?|d)types?\b
    |\b(?:data ?|d)type .{1,60} not (?:inexact|in (?:the )?list))
root scalar = a tensor has one value instead of several, or the reverse: see item(), and the data's shapes
    \b0-d(?:im)? tensor|only one element tensors|elements cannot be converted to Scalar
words not available here = something is not available here: check its installation, the versions and the device
    ^(?:Value|Runtime|Import|Assertion|NotImplemented)Error: (?!.*\b(?:port|address|memory|checkpoint|file|rank)\b).*
    (?:\b(?:is|are) not available\b|\bnot installed\b
    |\bno available (?!\w+ (?:node|port|slot)))
root values to unpack = a shape or tuple in a model has an unexpected length: check the data and the versions
    (?:/(?:modeling_\w+|\w*attention\w*)|-packages/\S+/(?:models?|layers)/\S+)\.py", line .*:
    \sValueError: (?:not enough|too many) values to\b
words not supported here = something is not supported here: check the versions, the device and what the message names
    ^(?:Value|Runtime|Type|Assertion|NotImplemented)Error: (?!.*object does not support).*
    (?:not (?:yet )?(?:be )?support(?:ed)?\b(?! between)|\bis not (?:\w+ )?implemented\b
    |only supported|only supports? \w+ ?[<>=]|do(?:es|se)? ?n[o']t support
    |unsupported (?!operand|format|pickle))
    |-packages/\S+", line .*: NotImplementedError: \S
words equal numbers = numbers that must be equal differ: check the model's settings, the data and the checkpoint
    ^(?:Value|Runtime|Assertion)Error: (?!.*\b(?:files?|bytes|download\w*)\b).*
    \b(?:num|number|size|length|count|dim)\w*\b.*
    (?:(?:must|should) be equal|(?:must|should|do(?:es)? not|don't) match|\bdifferent from\b|\bmismatch|not equal to)
words refused value = an argument or setting is refused: check its value, and the version of the package
    (?:-packages|/megatron\w*|/mindspeed\w*)/\S+", line .*: (?:Key|Type|Value|Assertion)Error: .*
    (?:\bis not a valid \w+(?:, please|$)
    |\b(?:must|should) (?:contain\b
    |be (?:an? |one of|of type|either|in |set|greater|less|positive|smaller|larger|[<>])))
words refused setting = an argument or setting is refused: check its value
    ^(?:Value|Assertion)Error: (?!.*\b(?:nan|inf|input_ids|labels?|loss\w*|grad\w*|\w*mask)\b)
    [`'"(-]*(?:\w+\.)?[a-z0-9]+(?:[_-][a-z0-9]+)+\b.{0,60}\b(?:must|should) (?:not )?be\b
words setting named = a setting or variable has to be changed: the message names it
    ^\w*Error: (?!.*(?:LAUNCH_BLOCKING|_DEBUG|_VERBOSE|_LOG|time[ds]? ?out)).*
    \b(?:please|you (?:must|should|need to|can)|try|consider) (?:to )?
    (?:set|export|unset|pass|specify|enable|disable|increas|reduc|adjust)(?:ing|e)?
    \s[`'"-]{0,3}(?!input_ids|attention_mask)\w+[_-]\w
# Assertions, by their source lines
root assertion on settings = a check of the settings failed: see the ones in the condition
    ^assert (?:not )?(?:self\.)?(?:\w*args|\w*config|cfg|hparams)\.
root assertion on a value = a value is None: check the settings and the data that it comes from
    ^assert (?:\w+\.)*\w+ is not None\b
root assertion on versions = incompatible versions: see the condition
    ^assert .*(?:__version__|\bversion\b|\w_version\b ?[<>=])
root assertion on the number of ranks = the number of ranks does not match the settings: see the condition
    ^assert .*\bworld_size\b
root assertion on types = a tensor has a different data type than expected: check the precision settings
    ^assert .*\.dtype\b
root assertion on sizes = sizes that must be equal differ: check the model's settings, the data and the checkpoint
    ^assert (?!.*(?:argv|== ?0\b)).*(?:\b(?:len|size|numel)\(.*\)|\.shape\b.*) ?==
"""


MINDSPORE: Final = r"""
# MindSpore's operators, runtime and packages, with its guides on network construction and on errors of CANN
root arguments of an operator = an operator was called with an argument of a wrong type or shape: see the message
    ^(?:Value|Type)Error: For (?:primitive\[|'[a-z0-9]+',)
root kernel of MindSpore = an operator has no kernel for these data types or this device: see the supported ones
    Can not select a valid kernel info|Select \w+ (?:operator|kernel)\b.*\bfail|Unsupported op \[
root tensors in a dataset = the functions of a dataset cannot use tensor operations: use NumPy there
    The pointer\[cnode\] is null
root runtime of MindSpore = the device was not set up: see MindSpore's first ERROR, and whether the device is in use
    The pointer\[stream\] is null
root compiler of MindSpore = a process that compiles operators hangs or has ended: see the errors above, and the memory
    ^RuntimeError: (?:Response is empty|Try to (?:send request|get response) before Open)
root operators' compiler = the compiler of CANN's operators cannot be started: check set_env.sh and Python's packages
    TbeInitialize \w+ failed
root internal error of MindSpore = an internal check of MindSpore failed: see its ERROR lines, and try a newer version
    The pointer\W?[\w()>.:-]+(?: tensor)?\W? is null|framework's unexpected error
root device of MindSpore = this package of MindSpore was built for another type of device: install the one for Ascend
    package type mindspore-\w+ support
# MindSpore minddata and its documentation, "data processing debugging methods and common errors"
root MindRecord = a MindRecord file exists already or is incomplete: delete it, or pass overwrite=True
    MRMOpenError|MindRecord File could not open
root page of MindRecord = a sample is larger than a page of its MindRecord file: see set_page_size()
    Page size: \d+ is too small
root workers of a dataset = a dataset has more workers than there are CPU cores: see num_parallel_workers
    num_(?:parallel_)?workers=\d+, this value is not within
root tree of a dataset = a dataset is used by two pipelines: create it once for each
    data pipeline is not a tree
root source of a dataset = the source of a dataset does not match its declaration: check its columns, length and reset
    Unable to fetch data from GeneratorDataset|'source' of '?GeneratorDataset'? (?:should|is different)
root function of a pipeline = a function of the dataset's pipeline failed: see its exception in the message
    Exception thrown from user defined Python function|map operation: \[PyFunc\] failed
root transform of a sample = a transform of the dataset failed: check the shape, type and file of the sample
    map operation: \[\w+\] failed
root sample = a sample of the dataset cannot be loaded: see the file that the message names
    Exception thrown from dataset pipeline
# MindSpore, graph mode: frontend/parallel, pipeline/jit and the FAQ on network compilation
root parallel strategy = an operator's parallel strategy does not match its shapes: see MindSpore's ERROR lines above
    ^\[ERROR\] PARALLEL|can ?not be (?:split|divisible) by strategy|The strategy is .*(?:strategy len|shape)
root branches of a graph = branches of the code return different types or shapes: see the lines that the message names
    (?:Type|Shape) Join Failed|Cannot join the return values of different branches
root depth of a graph = recursion or loops are too deep for graph mode: see max_call_depth
    function call depth limit|There isn't any branch that can be evaluated
root arguments of construct = a network is called with arguments that its construct() does not accept
    function construct (?:needs?|requires?) |Multipl[ey] values for specific argument
    |The parameters number of the function is
root code in graph mode = graph mode does not support this code: see the line that the message names, or use PyNative
    Unsupported (?:statement|expression|syntax|parsing type)|(?:unsupported|not supported|invalid) in graph mode
    |Should not use Python object in runtime|Do not support to (?:convert|get attribute)|Parse \w+ Function Fail
    |Only support comparison with|supports True, False and None|can not compile temporary source code|Illegal AnyValue
    |comparator 'AnyValue'|should be (?:defined|initialized) .*'__init__' function
root backend of MindSpore = MindSpore has no backend for this device: check its package, CANN and device_target
    device address type is wrong|Create device context failed|(?:unsupported|not supported) device[ _]target
    |Device target \[\w+\] is not supported
"""


CHINESE: Final[Mapping[str, str]] = {
    # strerror(3) and bash in the locale zh_CN: ENOSPC, ENOMEM, EMFILE, EACCES, EADDRINUSE, ECONNRESET, ECONNREFUSED,
    # ETIMEDOUT, EHOSTUNREACH, EPIPE
    "No space left on device": "设备上没有空间|磁盘(?:空间)?(?:不足|已满)",
    "out of host memory": "无法分配内存|(?:主机|系统)内存不足",
    "Too many open files": "打开的文件过多",
    "PermissionError": "权限不够|权限不足|没有权限",
    "Address already in use": "地址已在使用|端口.{0,12}(?:占用|冲突)",
    "Connection reset by peer": "连接被对(?:方|端)重置",
    "Connection refused": "拒绝连接|连接被拒绝",
    "Connection timed out": "连接超时",
    "No route to host": "没有到主机的路由",
    "Broken pipe": "断开的管道",
    "command not found": "未找到命令$",
    # training programs
    "NPU out of memory": "显存(?:不足|不够|溢出)",
    "no such path": "没有那个文件或目录|(?:文件|目录|路径|权重).{0,80}(?:不存在|没有找到)"
    "|(?:找不到|未找到).{0,8}(?:文件|目录|路径|权重)",
    "not divisible": "整除",
    "versions": "版本.{0,40}(?:不匹配|不兼容|不一致|过低|过高)",
    "check of settings": "(?:参数|配置).{0,20}(?:错误|无效|非法|不合法|不匹配|不正确)",
    "sizes of tensors": "(?:维度|形状|尺寸).{0,40}不(?:匹配|一致|相等|同)",
    "no data": "数据集?为空",
    "samples of a dataset": "数据.{0,40}(?:缺少|格式)",
    "not supported here": "不支持",
    "download": "下载失败",
}


BEGINNING: Final = 1000  # characters; the time that some rules for classes take grows with their square


def first_phrase(lines: Sequence[str]) -> Found | None:
    """Find a telling phrase, the most specific first. Meant for the lines around a failure only."""
    return _first(PHRASES, lines)


def class_of(message: Sequence[str], *, is_own: bool = False) -> Found | None:
    """Find the class of an error with an unknown message, by the beginnings of its lines.

    With `is_own`, the user's program has chosen the words, not a package.
    """
    return _first(_classes(is_own=is_own), [line[:BEGINNING] for line in message])


def _first(rules: Sequence[tuple[re.Pattern[str], Code]], lines: Sequence[str]) -> Found | None:
    lowered = [line.lower() for line in lines]
    for pattern, code in rules:
        for line, text in zip(lines, lowered):
            if pattern.search(text):
                return Found(code, line)
    return None


# A rule takes two lines: kind, name and meaning, then the pattern. The first rule that matches counts: errors of a rank
# itself precede those that it reports about others.
_KINDS: Final = {**KINDS, "lost": Kind.EITHER, "words": Kind.ROOT}
_RULE: Final = r"^(\w+)(\*?) (.+?) = (.+)\n((?: {4}.+\n)+)"
_WORDS: Final = re.compile(_RULE.replace(r"(\w+)", "words"), re.MULTILINE)


def _parsed(table: str) -> Iterator[tuple[re.Pattern[str], Code]]:
    rules = re.findall(_RULE, table, re.MULTILINE)
    for kind, star, name, meaning, pattern in rules:
        # Case does not matter. With re.IGNORECASE, a search cannot skip to the first letters of a pattern and takes
        # almost three times as long. A letter after a backslash is a class of characters.
        expression = re.sub(r"(?<!\\)[A-Z]", lambda found: found[0].lower(), pattern[4:-1].replace("\n    ", ""))
        expression = f"{expression}|{CHINESE[name]}" if name in CHINESE else expression
        yield (
            re.compile(expression),
            Code(name, meaning, _KINDS[kind], is_wrapper=bool(star), is_connection=kind == "lost"),
        )


PHRASES: Final = tuple(_parsed(OWN + SETUP + PEERS))


@functools.cache  # only errors that no other rule knows need them
def _classes(*, is_own: bool) -> tuple[tuple[re.Pattern[str], Code], ...]:
    table = CLASSES + MINDSPORE + FRAMEWORKS
    return tuple(_parsed(re.sub(_WORDS, "", table) if is_own else table))
