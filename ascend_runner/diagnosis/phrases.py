"""Telling phrases of errors without a code: what each one means, and where its cause usually lies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ascend_runner.diagnosis.codes import Code, Found, Kind


def first_phrase(lines: Sequence[str]) -> Found | None:
    """Find a telling phrase, the most specific first. Meant for the lines around a failure only."""
    for pattern, code in PHRASES:
        for line in lines:
            if pattern.search(line):
                return Found(code, line)
    return None


def _phrase(name: str, meaning: str, kind: Kind, pattern: str = "") -> tuple[re.Pattern[str], Code]:
    return re.compile(pattern or re.escape(name), re.IGNORECASE), Code(name, meaning, kind)


def _connection(name: str, meaning: str, pattern: str = "") -> tuple[re.Pattern[str], Code]:
    return re.compile(pattern or re.escape(name), re.IGNORECASE), Code(name, meaning, Kind.EITHER, is_connection=True)


_ROOT, _EITHER, _SECONDARY = Kind.ROOT, Kind.EITHER, Kind.SECONDARY
_NO_MEMORY: Final = "not enough device memory: use a smaller batch, or free the device of other processes"
_LOST: Final = "a peer exited, or the network failed"
_LATE: Final = "a collective timed out: a peer did not join it, is slow, or exited"

# The first one that matches counts: what a rank does wrong itself precedes what it notices of others.
PHRASES: Final = (
    # Devices and memory: torch's and torch_npu's allocators, CANN's driver, the C++ runtime, Linux.
    _phrase("the last training process is running", "device still in use by a job that was just killed", _ROOT),
    _phrase("other processes occupying this card", "device in use by another process", _ROOT),
    _phrase(
        "device busy or unavailable", "device in use by another process", _ROOT, r"device\(s\) is/are busy or unavail"
    ),
    _phrase("Device memory isn't enough", _NO_MEMORY, _ROOT, r"memory isn't enough|Allocate (?:device )?memory failed"),
    _phrase("no memory for the cache blocks", _NO_MEMORY, _ROOT, r"No available memory for the cache blocks"),
    _phrase("NPU out of memory", _NO_MEMORY, _ROOT),
    _phrase("CUDA out of memory", _NO_MEMORY, _ROOT),
    _phrase("halMemAlloc failed", _NO_MEMORY, _ROOT, r"hal(?:Mem|Host\w*)Alloc failed|heap_alloc\w* out of memory"),
    _phrase(
        "malloc device memory failed",
        _NO_MEMORY,
        _ROOT,
        r"(?:malloc|alloc\w*) (?:\w+ )?device memory failed|memory not enough",
    ),
    _phrase(
        "device-side assert",
        "an index is out of range or an assertion failed in a kernel",
        _ROOT,
        r"device-side assert",
    ),
    _phrase("Memory cgroup out of memory", "a process was killed by the OOM killer", _ROOT),
    _phrase("is killed by signal: Killed", "a data loader worker was killed, usually by the OOM killer", _ROOT),
    _phrase(
        "worker is killed by signal: Bus error",
        "no space left in /dev/shm: increase the container's shared memory or use fewer data loader workers",
        _ROOT,
        r"killed by signal: Bus error|bus error encountered in worker|out of shared memory",
    ),
    _phrase(
        "DataLoader worker killed",
        "a data loader worker crashed",
        _ROOT,
        r"DataLoader worker .*(?:killed by signal|exited unexp)",
    ),
    _phrase(
        "SIGKILL",
        "killed by SIGKILL, usually by the OOM killer",
        _ROOT,
        r"signal SIGKILL|Signal 9 \(SIGKILL\)|exitcode\s*: -9|return code = -9\b",
    ),
    _phrase(
        "out of host memory",
        "not enough memory",
        _ROOT,
        r"std::bad_alloc|MemoryError\b|cannot allocate memory(?! in static)|DefaultCPUAllocator",
    ),
    _phrase("Out of memory", "not enough memory", _ROOT, r"\bout of memory\b"),
    _phrase("No space left on device", "a disk or /dev/shm is full", _ROOT),
    _phrase("Disk quota exceeded", "disk quota exceeded", _ROOT),
    _phrase(
        "file write failed",
        "a file cannot be written, usually because its disk is full or over quota",
        _ROOT,
        r"PytorchStreamWriter failed",
    ),
    _phrase("input/output error", "a disk or network file system failed", _ROOT, r"\[Errno 5\]|Stale file handle"),
    _phrase("Too many open files", "too many open files: raise ulimit -n", _ROOT),
    _phrase("Read-only file system", "a file cannot be written: its file system is mounted read-only", _ROOT),
    _phrase("DUE TO TIME LIMIT", "the job reached the platform's time limit", _ROOT),
    _phrase(
        "server not reachable",
        "a server cannot be reached: check the network and its proxy, or use local files",
        _ROOT,
        r"couldn't connect to 'https?://|Max retries exceeded with url",
    ),
    _phrase("KeyboardInterrupt", "interrupted by SIGINT: Ctrl-C, or a platform that stops the job", _ROOT),
    _phrase(
        "illegal memory access", "a kernel accessed an invalid address of the device", _ROOT, r"illegal memory access"
    ),
    _phrase(
        "Can't start new thread",
        "too many processes: raise ulimit -u",
        _ROOT,
        r"can't start new thread|Resource temporarily unavailable|fork: retry",
    ),
    _phrase(
        "EOFError",
        "input() found no input: ranks have no terminal, see --stdin",
        _ROOT,
        r"EOFError: EOF when reading a line",
    ),
    _phrase(
        "SIGSEGV",
        "killed by SIGSEGV: native code accessed invalid memory",
        _ROOT,
        r"signal SIGSEGV|Signal 11 \(SIGSEGV\)|exitcode\s*: -11",
    ),
    _phrase("SIGABRT", "killed by SIGABRT: native code aborted", _ROOT, r"Signal 6 \(SIGABRT\)|exitcode\s*: -6"),
    _phrase(
        "SIGBUS", "killed by SIGBUS, usually because /dev/shm is full", _ROOT, r"Signal 7 \(SIGBUS\)|exitcode\s*: -7"
    ),
    _phrase("oom_kill", "a process was killed by the OOM killer", _ROOT, r"oom[-_]kill event|Killed process \d+"),
    # Installation: the dynamic loader, CANN's environment.
    _phrase(
        "libhccl.so",
        "CANN's libraries are not on LD_LIBRARY_PATH: source set_env.sh",
        _ROOT,
        r"lib(?:hccl|ascend\w*|ge_\w+|runtime|acl_?\w*|opapi|msprof\w*|tsdclient)\.so[.\d]*: cannot open shared object",
    ),
    _phrase(
        "libatb.so",
        "the library of transformer operators is not on LD_LIBRARY_PATH: source nnal/atb/set_env.sh",
        _ROOT,
        r"lib(?:atb|mki)\w*\.so[.\d]*: cannot open shared object",
    ),
    _phrase("cannot open shared object file", "a library is not installed or not on LD_LIBRARY_PATH", _ROOT),
    _phrase(
        "GLIBC not found",
        "a package was built for a newer system library than this image has",
        _ROOT,
        r"version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found",
    ),
    _phrase("static TLS block", "a library is loaded too late: add it to LD_PRELOAD", _ROOT),
    _phrase("No module named", "a package is not installed in this Python", _ROOT, r"No module named '?[\w.]+"),
    _phrase("undefined symbol", "incompatible packages: check the versions of torch, torch_npu and CANN", _ROOT),
    _phrase(
        "not in libopapi.so",
        "this version of CANN lacks an operator: check the versions of CANN and torch_npu",
        _ROOT,
        r"not in libopapi\.so",
    ),
    _phrase("RANK_ID has not been exported", "MindSpore was started without the rank variables", _ROOT),
    _phrase(
        "HcomLoadRanktableFile", "HCCL cannot find the rank table file", _ROOT, r"HcomLoadRanktableFile.*real path"
    ),
    # What a program does wrong with collectives.
    _phrase(
        "ncclInvalidUsage",
        "a collective was called incorrectly, for example by two ranks on one device",
        _ROOT,
        r"ncclInvalidUsage|Duplicate GPU detected",
    ),
    _phrase(
        "process group not initialised",
        "a collective was called before init_process_group",
        _ROOT,
        r"process group has not been initialized|trying to initialize the default process group twice",
    ),
    _phrase(
        "mismatch between collectives",
        "ranks run different collectives",
        _ROOT,
        r"mismatch between collectives on ranks",
    ),
    _phrase("ncclUnhandledCudaError", "NCCL reported a device error", _EITHER),
    _phrase("ncclSystemError", "NCCL reported a system or network error", _EITHER),
    _phrase(
        "Name or service not known",
        "cannot resolve the host name of node 0: check MASTER_ADDR",
        _ROOT,
        r"Name or service not known|Temporary failure in name resolution|gai error",
    ),
    # Ports.
    _phrase(
        "Address already in use",
        "port already in use: a leftover process, or two jobs on one server",
        _ROOT,
        r"address already in use|EADDRINUSE",
    ),
    # Lost peers: HCCL, torch's c10d, gloo, NCCL, MindSpore's cluster.
    _phrase("Failed to connect agent", "some ranks did not join the communicator in time", _SECONDARY),
    _phrase("topo exchange server get socket timeout", "some ranks did not join the communicator in time", _SECONDARY),
    _phrase(
        "wait socket establish timeout",
        "no connection to a peer within HCCL_CONNECT_TIMEOUT: not started, exited or unreachable",
        _SECONDARY,
    ),
    _phrase(
        "cqe error status[12]",
        "transfer between devices failed after retries: network fault, or the peer exited",
        _EITHER,
    ),
    _phrase(
        "watchdog timeout", _LATE, _SECONDARY, r"watchdog (?:thread terminated .*|caught )collective operation timeout"
    ),
    _phrase(
        "heartbeat monitor",
        "a process group's watchdog is stuck, usually because a peer did not join a collective",
        _EITHER,
        r"heartbeat monitor (?:timed out|thread)",
    ),
    _phrase(
        "collective timeout", _LATE, _SECONDARY, r"due to (?:collective timeout|watchdog hang)|watchdog got stuck for"
    ),
    _phrase("ncclRemoteError", _LOST, _SECONDARY),
    _phrase("remote process exited or there was a network error", _LOST, _SECONDARY),
    _phrase("taking the entire process down", _LATE, _SECONDARY),
    _phrase(
        "recvValue failed",
        _LOST,
        _SECONDARY,
        r"recvValue\w* failed|remote server shutdown or crash|Failed to recv, got 0 bytes",
    ),
    _phrase(
        "store timeout",
        _LATE,
        _SECONDARY,
        r"wait timeout after \d+ms|Timed out waiting (?:\d+ms )?for (?:recv|send|key)|store->get\('\d+'\) got error",
    ),
    _phrase(
        "monitored barrier failed",
        _LATE,
        _SECONDARY,
        r"monitoredBarrier|failed to pass monitoredBarrier|Ranks? .* failed to (?:report|reach)",
    ),
    _phrase(
        "Failed to connect to the meta server",
        "cannot reach MindSpore's scheduler",
        _SECONDARY,
        r"Failed to connect to the meta server node",
    ),
    _phrase(
        "Failed to register the compute graph node",
        "not all MindSpore workers joined in time",
        _SECONDARY,
        r"Failed to register the compute graph node|Topology build timed out",
    ),
    _phrase(
        "It may exit with exception",
        "MindSpore's scheduler lost a worker",
        _SECONDARY,
        r"is timed out.*It may exit with exception|The total number of timed out node",
    ),
    _phrase("Spawned worker process number is not as expected", "a MindSpore worker exited early", _SECONDARY),
    _phrase(
        "Timed out waiting for clients",
        "not all ranks joined the rendezvous",
        _SECONDARY,
        r"timed out.*(?:waiting for clients|trying to connect to)|clients joined",
    ),
    _connection(
        "Connection closed by peer",
        "the remote side closed the connection",
        r"Connection closed by (?:remote )?peer|Connection was likely closed",
    ),
    _connection("Connection reset by peer", "the remote side closed the connection"),
    _connection("Connection refused", "the remote side is not listening: not started yet, or exited"),
    _connection(
        "Connection timed out", "the remote side did not answer in time", r"Connection timed out|No route to host"
    ),
    _connection("Broken pipe", "the remote side of a connection or pipe exited"),
    _connection("Socket Timeout", "the remote side did not answer in time", r"Socket ?Timeout"),
)
