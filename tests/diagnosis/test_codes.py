"""The code that a log reports, in the forms that CANN, HCCL and torch_npu write."""

from __future__ import annotations

import pytest

from ascend_runner.diagnosis.codes import CODES, Kind, first_code
from ascend_runner.diagnosis.phrases import first_phrase


def name_of(*lines: str) -> str:
    """Name the first code, "" if there is none."""
    found = first_code(lines)
    return found.code.name if found else ""


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("EI0006", "EI0006: [PID: 1292363] 2025-04-08-18:07:20.444.436 Getting socket times out. Reason: Remote Rank"),
        ("EI0015", "[PID: 7] 2025-11-03-20:18:46.447.213 Communication_Error_Ranktable_Detect(EI0015): Failed"),
        ("EI0002", "(Worker_TP11 pid=15618) ERROR 10-11 11:32:59 [model_runner_v1.py:3556] EI0002: [PID: 15618] The"),
        ("EI0002", "The details refer to 'Ascend Error Message'.Ascend Error Message:EI0002: The wait execution of"),
        ("EZ9999", "EZ9999[PID: 8146] 2026-03-16-20:13:22.806.034 (EZ9999):  The error from device"),
        (
            "507015",
            "RuntimeError: npuSynchronizeDevice NPU function error: AclrtSynchronizeDevice, error code is 507015",
        ),
        ("507018", "[ERROR] RUNTIME(4711,python):ACL stream synchronize failed, error code:507018"),
        ("107002", "RuntimeError: HCCL error: 107002"),
        ("507035", "synchronize stream failed, runtime result = 507035[FUNC:ReportCallError]"),
        ("507033", "[ERROR] aclrtSetDevice(deviceId) failed: 507033 (main.cpp:98)"),
        ("107001", "acl.rt.set_device failed ret_int=107001"),
        ("100000", "RuntimeError: ACL error: 100000"),
        ("507008", "Call aclInit(nullptr) failed : 507008 at file runtime.cc line 403"),
        ("EE1001", "2026-07-21-09:16:41.017.602 Invalid_Argument(EE1001): The argument is invalid."),
        ("561103", "NPU function error: call aclnnInplaceZero failed, error code is 561103"),
        ("507049", "call rtStreamSynchronize failed, ret = 507049, dev=0"),
        ("107001", "aclrtSetDevice failed, retCode=107001"),
        ("507035", "RuntimeError: ACL stream synchronize failed, error code:507035"),
        ("507015", "[Bisheng] Kernel launch failure! return: 507015"),
        ("161002", "error no is 161002 & error msg is ERR01100 OPS call acl api failed"),
        ("EB0000", "TVMError: [EB0000] Check failed: need_nbits <= max_num_bits"),
        ("E80012", "RuntimeError: ({'errCode': 'E80012', 'op_name': 'reduce'}, 'In op, the number of dimensions')"),
        ("EZ2001", "[PID: 7] 2026-01-02-03:04:05.006.007 Execution_Error(EZ2001): aicore error"),
        ("HCCL 7", "HCCL function error: HcclCommInitRootInfo(numRanks, &root, rank, &(comm)), error code is 7"),
        ("HCCL 9", "OPS function error: HcclAllreduce, error code is 9"),
        ("HCCL 11", "[op_base.cc:974][Init][CommRootInfo]errNo[0x000000000500000b]HcclCommInitRootInfo failed."),
        ("HCCL 9", "[AllReduce][Result]errNo[0x0000000005010009] hcclComm AllReduce error"),
        ("HCCL 24", "OPS function error: HcclAllreduce, error code is 24"),
        ("EI0014", "[ERROR] HCCL(7,python) [agent.cc:9] [7][InitGroupStage][RanktableCheck]two devices have one id"),
        ("EI0005", "[checker.cc:9] [7][InitChannelStage][ParameterConflict]CMD information op check fail."),
        ("EI0006", "[manager.cc:9] [7][CreateLink][InitChannelStage][Timeout]no link."),
        ("driver 87", "[ERROR] ATRACE(7,python):2026 [api.c:9](tid:7) get platform info failed, drvErr=87."),
        ("driver 6", "[drv api] halMemAlloc failed: device_id=0, size=5046586573(bytes), drvRetCode=6!"),
    ],
)
def test_forms(code: str, line: str) -> None:
    """A code is found in every form in which it is reported."""
    assert code == name_of(line)


@pytest.mark.parametrize(
    "line",
    [
        'For detailed guidance, search for the keyword "EI0002" on https://www.hiascend.com/document/.',
        "loss 507015 at step 107001",
        "checkpoint-507015.pt: saved",
        "HEI0006: no such thing",
        "EI00061: no such thing",
        "EI0999: not in the table",
        "retries 507015",
        "error code is 5070151",
        "failed: 107002 samples",
        "result: 507015 rows written",
        "final result: 100000",
        "reward failed: 500001, kept 3",
        "kernel_EI0006_x: y",
        "RuntimeError: | GPU collective Error: no communicator | Error Number 3",
        "",
    ],
)
def test_not_a_report(line: str) -> None:
    """Text that looks like a code, or only mentions one, does not count."""
    assert "" == name_of(line)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (Kind.ROOT, "[PID: 7] 2026-01-02-03:04:05.006.007 Invalid_Argument(EH0815): Value 3 for count is invalid."),
        (Kind.EITHER, "[PID: 7] 2026-01-02-03:04:05.006.007 Inner_Error(E19001): cannot open the graph."),
    ],
)
def test_code_outside_the_table(kind: Kind, line: str) -> None:
    """A code that the table lacks is judged by its range: the caller's fault, or an internal error."""
    found = first_code([line])

    assert found
    assert kind is found.code.kind


def test_first_of_several() -> None:
    """The first code of a log counts: the following are mostly its consequences."""
    assert "EI0011" == name_of("step 1", "EI0011: [PID: 7] no memory", "EI0006: [PID: 7] Getting socket times out")


def test_wrapper_gives_way() -> None:
    """A code that only announces an inner error gives way to a specific one, and counts if it is alone."""
    wrapper = "NPU warning, error code is 507048[Error]:"

    assert "EI0002" == name_of(wrapper, "EI0002: [PID: 7277] The wait execution of the Notify register times out.")
    assert "507048" == name_of(wrapper, "EZ9999: Inner Error!")
    assert "107020" == name_of("EH9999: Inner Error!", "failed, runtime result = 107020.")
    assert "EJ0001" == name_of("HCCL function error: hcclCommInit, error code is 7", "EJ0001: [PID: 7] Failed to")
    assert "E40020" == name_of("AclSetCompileopt, error code is 500001", "E40020: [PID: 7] Failed to import module")
    assert "E30006" == name_of("c10_npu::SetDevice(id), error code is 507033", "E30006: [PID: 7] verification failed")
    assert "EI0002" == name_of("AclrtSynchronizeStream, error code is 507011", "EI0002: [PID: 7] Notify wait times out")
    assert "EI0013" == name_of("AclrtSynchronizeDevice, error code is 507057", "EI0013: [PID: 7] An error CQE occurred")
    assert "507011" == name_of("runtime result = 507011", "EZ9999: Inner Error!")
    assert "EL0005" == name_of("Invalid_Argument(EL0003): The argument is invalid.", "EL0005: [PID: 7] device busy")


def test_line_of_the_code() -> None:
    """The line that contains the code is returned with it."""
    found = first_code(["a", "EJ0001: [PID: 9] Failed to initialize the HCCP process.", "b"])

    assert found
    assert "EJ0001: [PID: 9] Failed to initialize the HCCP process." == found.line
    assert Kind.ROOT is found.code.kind


def test_no_memory_for_hccl() -> None:
    """HCCL's last results are a collective that cannot be repeated, and lack of memory of this rank."""
    assert (Kind.EITHER, Kind.ROOT) == (CODES["HCCL 23"].kind, CODES["HCCL 24"].kind)


@pytest.mark.parametrize("name", ["EI0002", "EI0006", "EI0015"])
def test_codes_that_point_at_peers(name: str) -> None:
    """Exactly the three codes that HCCL's documents attribute to another rank are secondary."""
    assert Kind.SECONDARY is CODES[name].kind
    assert 3 == sum(code.kind is Kind.SECONDARY for code in CODES.values())


def test_memory_of_the_server() -> None:
    """The code of a failed allocation means the server's memory where pinned memory was to be allocated."""
    found = first_code(["NPU function error: aclrtMallocHost(ptr, size), error code is 207001"])

    assert found
    assert "host memory" in found.code.meaning


def test_every_meaning_is_one_line() -> None:
    """Each code has a meaning that fits on one line of the failure screen."""
    meanings = [code.meaning for code in CODES.values()]

    assert all(meaning and len(meaning) < 100 and meaning.isprintable() for meaning in meanings)


@pytest.mark.parametrize(
    ("phrase", "kind", "line"),
    [
        ("No space left on device", Kind.ROOT, "OSError: [Errno 28] No space left on device"),
        ("NPU out of memory", Kind.ROOT, "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB"),
        ("Connection reset by peer", Kind.EITHER, "requests.exceptions.ConnectionError: Connection reset by peer"),
        ("recvValue failed", Kind.SECONDARY, "recvValue failed on SocketImpl: Connection reset by peer"),
        ("out of host memory", Kind.ROOT, "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7 GiB"),
        ("out of host memory", Kind.ROOT, "  what():  std::bad_alloc"),
        ("static TLS block", Kind.ROOT, "ImportError: libgomp.so.1: cannot allocate memory in static TLS block"),
        ("Address already in use", Kind.ROOT, "code: -98, name: EADDRINUSE, message: address already in use"),
        (
            "watchdog timeout",
            Kind.SECONDARY,
            "Watchdog caught collective operation timeout: WorkHCCL(SeqNum=1)",
        ),
        ("Duplicate GPU detected", Kind.ROOT, "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 5000"),
        ("ncclInvalidUsage", Kind.ROOT, "ncclInvalidUsage: This usually reflects invalid usage of NCCL library."),
        ("CUDA error: out of memory", Kind.ROOT, "RuntimeError: CUDA error: out of memory"),
        (
            "CUDA error: out of memory",
            Kind.ROOT,
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(h)`",
        ),
        ("KV cache", Kind.ROOT, "ValueError: 9 GiB is larger than the available KV cache memory (5 GiB)"),
        ("free memory on startup", Kind.ROOT, "Free memory on device (3/60 GiB) on startup is less than desired (54)"),
        ("command not found", Kind.ROOT, "/bin/sh: 1: ninja: not found"),
        ("module of a package", Kind.ROOT, "ModuleNotFoundError: No module named 'a.b'"),
        ("recvValue failed", Kind.SECONDARY, "RuntimeError: Stop_waiting response is expected"),
        ("DataLoader worker ended", Kind.ROOT, "One or more background workers are no longer alive. Exiting."),
        ("library of Python", Kind.ROOT, "ModuleNotFoundError: No module named 'encodings'"),
        ("variables of a launcher", Kind.ROOT, "rendezvous: environment variable RANK expected, but not set"),
        ("number of ranks of a checkpoint", Kind.ROOT, "checkpoint used a DP world size of 8 but the current one is 4"),
        ("Name or service not known", Kind.ROOT, "wget: unable to resolve host address 'a'"),
        ("server not reachable", Kind.ROOT, "Cannot connect to host 10.0.0.4:8000 ssl:default [Connect call failed]"),
        ("OOM when allocating tensor", Kind.ROOT, "ResourceExhaustedError: OOM when allocating tensor with shape[9]"),
        ("unable to mmap", Kind.ROOT, "unable to mmap 64 bytes from file </torch_1>: Cannot allocate memory (12)"),
        ("Can't start new thread", Kind.ROOT, "thread: Resource temporarily unavailable [system:11]"),
        ("process pool", Kind.ROOT, "RuntimeError: One of the subprocesses has abruptly died during map operation."),
        ("SignalException", Kind.ROOT, "torch.x.SignalException: Process 71 got signal: 15"),
        ("listen on ip", Kind.ROOT, "[Listen] socket type[1], listen on ip[10.0.0.4] and specific port[16666] fail."),
        ("different models", Kind.EITHER, "DDP expects same model across all ranks, but Rank 1 has 7 params"),
        (
            "lost communication with a remote daemon",
            Kind.SECONDARY,
            "PRTE has lost communication with a remote daemon.",
        ),
        ("peer hung up", Kind.SECONDARY, "An MPI communication peer process has unexpectedly disconnected.  This"),
        ("setup of an ATB operator", Kind.ROOT, "RuntimeError: LinearOperation setup failed!"),
        (
            "not supported by torch_npu",
            Kind.ROOT,
            "[ERROR] 2026 (PID:7, Device:0, RankID:0) ERR01007 OPS feature not supp",
        ),
        ("invalid argument of torch_npu", Kind.ROOT, "[ERROR] 2026 (PID:7, Device:0) ERR01003 OPS invalid value"),
        ("worker process", Kind.EITHER, "Worker proc VllmWorker-1 died unexpectedly, shutting down executor."),
        ("FORCE STOP", Kind.EITHER, "RuntimeError: FORCE STOP."),
        ("memory error of the device", Kind.ROOT, "RuntimeError: UCE ERROR"),
        ("certificate", Kind.ROOT, "SSLError: Max retries exceeded with url: /x ([SSL: CERTIFICATE_VERIFY_FAILED])"),
        ("limit of faulthandler", Kind.EITHER, "Timeout (0:10:00)!"),
        ("link between devices", Kind.EITHER, "RuntimeError: HCCS LINK ERROR"),
        ("event wait timeout", Kind.EITHER, "The error is: event wait timeout occurred during task execution, id:3"),
        ("aicore exception", Kind.ROOT, "there is an exception of fftsplus aicore error, core id is 3"),
        ("aivec exception", Kind.ROOT, "there is an exception of aivec error, core id is 3"),
        ("topo exchange agent get socket timeout", Kind.SECONDARY, "topo exchange agent get socket timeout! [9 s]"),
        ("ncclInvalidArgument", Kind.ROOT, "ncclInvalidArgument: Invalid value for an argument."),
        ("illegal memory access", Kind.ROOT, "CUDA error: unspecified launch failure"),
        ("Collective ops is aborted by", Kind.SECONDARY, "Collective ops is aborted by: Socket closed"),
        ("coordination service", Kind.SECONDARY, "The coordination service has returned error: heartbeat timeout"),
        (
            "Timed out waiting for clients",
            Kind.SECONDARY,
            "Timed out initializing process group in store based barrier",
        ),
        ("store timeout", Kind.SECONDARY, "but store->get('0:1') got error: wait timed out"),
        ("SIGKILL", Kind.ROOT, "  traceback : Signal 9 (SIGKILL) received by PID 4711"),
        ("SIGKILL", Kind.ROOT, "subprocess.CalledProcessError: Command '['x']' died with <Signals.SIGKILL: 9>."),
        ("SIGSEGV", Kind.ROOT, "mpirun noticed that process rank 1 exited on signal 11 (Segmentation fault)."),
        ("DataLoader worker killed", Kind.ROOT, "RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed."),
        (
            "DataLoader worker terminated",
            Kind.EITHER,
            "RuntimeError: DataLoader worker (pid 9) is killed by signal: Terminated.",
        ),
        ("incomplete file", Kind.ROOT, "SafetensorError: Error while deserializing header: HeaderTooLarge"),
        (
            "incomplete file",
            Kind.ROOT,
            "ValueError: Failed to read x.ckpt. The file may be corrupted, and the content cannot be parsed.",
        ),
        (
            "Error(s) in loading state_dict",
            Kind.ROOT,
            "RuntimeError: Missing key in checkpoint state_dict: head.weight.",
        ),
        (
            "Error(s) in loading state_dict",
            Kind.ROOT,
            "RuntimeError: For 'load_param_into_net', w in the argument 'net' should have the same shape as w",
        ),
        ("getnext timeout", Kind.ROOT, "there is an aicpu exception, errcode: 21008, msg: getnext timeout"),
        ("torch without CUDA", Kind.ROOT, "RuntimeError: Distributed package doesn't have NCCL built in"),
        ("torch_npu is not imported", Kind.ROOT, "AttributeError: module 'torch' has no attribute 'npu'"),
        (
            "operator not on NPUs",
            Kind.ROOT,
            "NotImplementedError: Could not run 'aten::_fft' with arguments from the 'PrivateUse1' backend.",
        ),
        ("ray's head node", Kind.EITHER, "gcs_rpc_client.h:9: Failed to connect to GCS within 60 seconds. GCS may"),
        ("ncclSystemError", Kind.EITHER, "RuntimeError: NCCL error in: x.cpp:272, unhandled system error"),
        ("NumPy is too new", Kind.ROOT, "AttributeError: `np.float_` was removed in the NumPy 2.0 release."),
        ("no kernel", Kind.ROOT, "        Op Softmax does not has any binary."),
        ("no kernel", Kind.ROOT, "EZ9903: [PID: 7] 2026-01-02-03:04:05.678 support for Ascend310P is not implemented"),
        ("tiling", Kind.ROOT, "EZ9999[PID: 7] 2026-01-02-03:04:05.678 (EZ9999):  Conv do tiling failed, ret is -1."),
        ("extension not built", Kind.ROOT, "/job/ops/adam.cpp:12:10: fatal error: omp.h: No such file or directory"),
        ("native part of a package", Kind.ROOT, "ModuleNotFoundError: No module named 'torch_npu._C'"),
        ("end of a command line", Kind.ROOT, "run.sh: line 7: --batch-size: command not found"),
        ("Repository Not Found", Kind.ROOT, "Repository Not Found for url: https://hub.example/api/models/x."),
        (
            "device busy or unavailable",
            Kind.ROOT,
            "dcmi model initialized failed, because the device is used. ret is -8020",
        ),
        ("incomplete file", Kind.ROOT, "_pickle.UnpicklingError: invalid load key, 'v'."),
        ("PermissionError", Kind.ROOT, "PermissionError: [Errno 13] Permission denied: '/data'"),
        ("Too many open files", Kind.ROOT, "RuntimeError: received 0 items of ancdata"),
        ("used before fork", Kind.ROOT, "RuntimeError: Cannot re-initialize NPU in forked subprocess. To use NPU"),
        ("connectFullMesh failed", Kind.SECONDARY, "Gloo connectFullMesh failed with [pair.cc:144] no error"),
        ("ray worker died", Kind.EITHER, "The actor is dead because its worker process has died."),
        ("SIGKILL", Kind.ROOT, "run.sh: line 28:  8156 Killed                  python3 main.py --epochs 400"),
        ("SIGSEGV", Kind.ROOT, "run.sh: line 12: 22113 Segmentation fault      (core dumped) python train.py"),
        ("SIGBUS", Kind.ROOT, "srun: error: node-18: task 289: Bus error"),
        (
            "DataLoader worker ended",
            Kind.ROOT,
            "RuntimeError: DataLoader worker (pid 9) exited unexpectedly with exit code 3.",
        ),
        ("process pool", Kind.ROOT, "BrokenProcessPool: A process in the process pool was terminated abruptly"),
        ("shared memory", Kind.ROOT, "unable to allocate shared memory(shm) for file </x>: No space left on device"),
        ("shared memory", Kind.ROOT, "RuntimeError: unable to write to file </torch_77_5>"),
        ("Too many open files", Kind.ROOT, "unable to open shared memory object </torch_7>: Too many open files (24)"),
        ("Can't start new thread", Kind.ROOT, "libgomp: Thread creation failed: Resource temporarily unavailable"),
        ("file write failed", Kind.ROOT, "RuntimeError: basic_ios::clear: iostream error"),
        ("shared memory segment", Kind.ROOT, "Error while creating shared memory segment /dev/shm/nccl-x (size 9)"),
        ("gated repo", Kind.ROOT, "OSError: You are trying to access a gated repo."),
        ("Cannot assign requested address", Kind.ROOT, "bind to 10.3.4.5:29500 (errno: 99 - EADDRNOTAVAIL)"),
        ("command not found", Kind.ROOT, "train.sh: line 4: torchrun: command not found"),
        ("library of the driver", Kind.ROOT, "ImportError: libascend_hal.so: cannot open shared object file: No such"),
        ("not in this CANN", Kind.ROOT, "NPU function error: Failed to find function HcclCommInitX in libhccl.so"),
        (
            "library of CANN",
            Kind.ROOT,
            "ImportError: libhccl.so: cannot open shared object file: No such file or directory",
        ),
        ("too many blocks", Kind.ROOT, "Reason: coreDim=123408 can't be greater than UINT16_MAX."),
        (
            "extension was not built",
            Kind.ROOT,
            "ImportError: /c/torch_extensions/a/cpu_adam.so: cannot open shared object",
        ),
        ("RendezvousClosedError", Kind.SECONDARY, "torch.distributed.elastic.rendezvous.api.RendezvousClosedError"),
        ("Device memory isn't enough", Kind.ROOT, "and plus alloc size : 3019 is more than total mem size : 2946."),
        ("no backend for a device", Kind.ROOT, "RuntimeError: No backend type associated with device type npu"),
        ("no backend for a device", Kind.ROOT, "Could not retrieve or create the backend 5 for device type npu."),
        (
            "process group initialized twice",
            Kind.ROOT,
            "RuntimeError: trying to initialize the default process group twice!",
        ),
        (
            "getnext timeout",
            Kind.ROOT,
            "EZ9999  Aicpu kernel execute failed, task_id=2, fault op_name=Default/GetNext-op3[FUNC:",
        ),
        (
            "invalid device ordinal",
            Kind.ROOT,
            "rtGetDeviceIndexByPhyId execute failed, reason=[device id error][FUNC:F",
        ),
        ("no kernel image", Kind.ROOT, "CUDA error: no kernel image is available for execution on the device"),
        ("on-chip memory", Kind.ROOT, "error: ub overflow, requires 3072000 bits while 1572864 bits available!"),
        (
            "compiler's target",
            Kind.ROOT,
            "bishengir-compile: for the --target option: Cannot find option named 'Ascend310P3'!",
        ),
        (
            "MindSpore's operators",
            Kind.ROOT,
            "RuntimeError: Load op info form json config failed, version: Ascend310P3",
        ),
        ("ray node died", Kind.EITHER, "The actor is dead because its node has died. Node Id: 7f42"),
        ("ray owner died", Kind.EITHER, "The actor is dead because its owner has died. Owner Id: 01"),
        ("ray worker died", Kind.EITHER, "RayActorError: The actor died unexpectedly before finishing this task."),
        ("DataLoader timed out", Kind.ROOT, "RuntimeError: DataLoader timed out after 1800 seconds"),
        ("empty dataset", Kind.ROOT, "num_samples should be a positive integer value, but got num_samples=0"),
        ("loss scale", Kind.ROOT, "Exception: Current loss scale already at minimum - cannot decrease scale anymore."),
        ("loss scale", Kind.ROOT, "AssertionError: Rank 3: found NaN in local grad norm in backward pass"),
        ("inotify", Kind.ROOT, "OSError: [Errno 28] inotify watch limit reached"),
        (
            "HDF5 file lock",
            Kind.ROOT,
            "Unable to open file (unable to lock file, errno = 11, error message = 'Resource tem",
        ),
        ("file cannot be opened", Kind.ROOT, "RuntimeError: File out/checkpoint_0.pt cannot be opened."),
        ("input/output error", Kind.ROOT, "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/obs'"),
        (
            "incomplete file",
            Kind.ROOT,
            "RuntimeError: unexpected EOF, expected 4096 more bytes. The file might be corrupted.",
        ),
        ("incomplete file", Kind.ROOT, "OSError: image file is truncated (12 bytes not processed)"),
        (
            "DUE TO PREEMPTION",
            Kind.ROOT,
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T09:09:37 DUE TO PREEMPTION ***",
        ),
        (
            "DUE TO NODE FAILURE",
            Kind.ROOT,
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T09:09:37 DUE TO NODE FAILURE ***",
        ),
        ("CANCELLED", Kind.EITHER, "slurmstepd-n1: error: *** STEP 204.0 ON n1 CANCELLED AT 2026-01-01T16:38:01 ***"),
        (
            "not in the cache",
            Kind.ROOT,
            "LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing",
        ),
        (
            "path taken for a name",
            Kind.ROOT,
            "OSError: Incorrect path_or_model_id: '/data/models/Qwen2.5-7B'. Please provide either",
        ),
        (
            "path taken for a name",
            Kind.ROOT,
            "Repo id must be in the form 'repo_name' or 'namespace/repo_name': './ckpt'. Use",
        ),
        (
            "transformers is too old",
            Kind.ROOT,
            "has model type `qwen3` but Transformers does not recognize this architecture.",
        ),
        (
            "wandb's key",
            Kind.ROOT,
            "wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        ),
        (
            "access refused",
            Kind.ROOT,
            "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://h",
        ),
        (
            "server not reachable",
            Kind.ROOT,
            "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
        ),
        (
            "server not reachable",
            Kind.ROOT,
            "ReadTimeoutError(\"HTTPSConnectionPool(host='h', port=443): Read timed out. (read timeout=10)",
        ),
        ("Name or service not known", Kind.ROOT, "socket.gaierror: [Errno -2] Name or service not known"),
        ("Can't start new thread", Kind.ROOT, "std::system_error: Resource temporarily unavailable"),
        (
            "library of CUDA",
            Kind.ROOT,
            "OSError: libcudart.so.12: cannot open shared object file: No such file or directory",
        ),
        ("library of CUDA", Kind.ROOT, "ImportError: libnvidia-ml.so.1: cannot open shared object file: No such file"),
        ("library of CUDA", Kind.ROOT, "MissingCUDAException: CUDA_HOME does not exist, unable to compile CUDA op(s)"),
        (
            "cannot open shared object file",
            Kind.ROOT,
            "libnvme.so.1: cannot open shared object file: No such file or directory",
        ),
        ("library of CANN", Kind.ROOT, "libcann_kb.so: cannot open shared object file: No such file or directory"),
        ("native part of a package", Kind.ROOT, "ModuleNotFoundError: No module named 'mindspore._c_expression'"),
        (
            "undefined symbol",
            Kind.ROOT,
            "a.so: symbol b, version C_1 not defined in file d.so with link time reference",
        ),
        ("damaged library", Kind.ROOT, "ImportError: /opt/a.so: file too short"),
        ("damaged library", Kind.ROOT, "ImportError: /opt/a.so: ELF load command alignment not page-aligned"),
        ("executable stack", Kind.ROOT, "OSError: a.so: cannot enable executable stack as shared object requires"),
        ("invalid device ordinal", Kind.ROOT, "RuntimeError: Device index must be -1 or non-negative, got -8"),
        ("torch_npu is not imported", Kind.ROOT, "RuntimeError: torch is not linked with support for npu devices"),
        ("communicator aborted", Kind.EITHER, "RuntimeError: NCCL communicator was aborted on rank 3."),
        ("--local-rank", Kind.ROOT, "KeyError: \"Override 'local-rank' not found in: ['seed']\""),
        ("torch_npu is not imported", Kind.ROOT, "AttributeError: 'Tensor' object has no attribute 'npu'"),
        ("call of a worker", Kind.EITHER, "TimeoutError: RPC call to execute_model timed out."),
        ("address of a device", Kind.ROOT, "the IP address(1) in the ranktable is inconsistent with the IP address(2)"),
        ("address of a device", Kind.ROOT, "[ERROR] HCCP(4120,python): ra rdev init failed, ret[-17]"),
        ("call of a worker", Kind.EITHER, "ray.exceptions.RayChannelTimeoutError: System error: Timed out"),
        ("ray actor's name", Kind.EITHER, "ValueError: Failed to look up actor with name 'buffer:0'."),
        ("files of the system", Kind.ROOT, "OSError: [Errno 23] Too many open files in system: '/job/a'"),
        ("no accelerator", Kind.ROOT, "RuntimeError: No NPUs are available"),
        ("torch_npu is not imported", Kind.ROOT, "NameError: name 'torch_npu' is not defined"),
        ("RendezvousConnectionError", Kind.SECONDARY, "RendezvousConnectionError: The connection to the store failed"),
        ("UCX", Kind.EITHER, "pml_ucx.c:175 Error: Failed to receive UCX worker address: Not found (-13)"),
        (
            "mismatch between collectives",
            Kind.ROOT,
            "what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 4 vs 3",
        ),
        ("asynchronous operator", Kind.EITHER, "RuntimeError: The Inner error is reported as above. The process"),
        ("Python packages of CANN", Kind.ROOT, "ModuleNotFoundError: No module named 'te.platform'"),
        ("No module named", Kind.ROOT, "ModuleNotFoundError: No module named 'tests'"),
        (
            "name of a package",
            Kind.ROOT,
            "ImportError: cannot import name 'Cache' from 'transformers' (/opt/lib/python3.10/site-packages/tr",
        ),
        ("protobuf", Kind.ROOT, "TypeError: Descriptors cannot be created directly."),
        ("--local-rank", Kind.ROOT, "train.py: error: unrecognized arguments: --local-rank=0"),
        ("--local-rank", Kind.ROOT, "error: unrecognized arguments: --lr 1 --local_rank=3"),
        (
            "NumPy's binary interface",
            Kind.ROOT,
            "module compiled against API version 0x10 but this version of numpy is 0xf",
        ),
        ("no CUDA device", Kind.ROOT, "RuntimeError: No CUDA GPUs are available"),
        ("no accelerator", Kind.ROOT, "ValueError: fp16 mixed precision requires a GPU (not 'cpu')."),
        ("torch_npu is not imported", Kind.ROOT, "RuntimeError: Distributed package doesn't have HCCL built in"),
        ("operator not on NPUs", Kind.ROOT, "The operator 'aten::foo' is not currently supported on the NPU backend"),
        (
            "tensor on the CPU",
            Kind.ROOT,
            "Could not run 'npu::npu_format_cast' with arguments from the 'CPU' backend.",
        ),
        ("store->get failed", Kind.SECONDARY, "but store->get('0') got error: Connection reset by peer"),
        ("No route to host", Kind.EITHER, "OSError: [Errno 101] Network is unreachable"),
        (
            "Connection closed by peer",
            Kind.EITHER,
            "RemoteDisconnected('Remote end closed connection without response')",
        ),
        (
            "It may exit with exception",
            Kind.SECONDARY,
            "The node: 3 is timed out. It may exit with exception, please check this node's log.",
        ),
    ],
)
def test_phrases(phrase: str, kind: Kind, line: str) -> None:
    """Errors of frameworks without a code are recognized by their text, in upper and lower case."""
    for text in (line, line.upper(), line.lower()):
        found = first_phrase(["step 1", text])

        assert found
        assert (phrase, kind, text) == (found.code.name, found.code.kind, found.line)


@pytest.mark.parametrize(
    "line",
    [
        "step 1, out of 100",
        "memory 3 GB",
        "loss scale 1.0, ub overflow 0",
        "RuntimeError: File a/b.pt cannot be opened. Retrying",
        "error: unrecognized arguments: --lr-rank=0",
        "ImportError: cannot import name 'foo' from 'utils' (/job/utils.py)",
        "ImportError: cannot import name 'foo' from partially initialized module 'bar' (/opt/site-packages/bar.py)",
        "OSError: Incorrect path_or_model_id: 'qwen/Qwen2.5-7B'. Please provide either the path to a local folder",
        "OSError: [Errno 107] Transport endpoint is not connected",
        "fault op_name=Default/MatMul-op3",
        "cannot find option named 'verbose'",
        "rank 3 was cancelled at step 7",
        "No GPU found, using the CPU",
        "train.bin: file too short",
        "two tests failed without raising an exception",
    ],
)
def test_no_phrase(line: str) -> None:
    """A line that has only words of a telling phrase is not taken for it."""
    assert first_phrase([line]) is None
