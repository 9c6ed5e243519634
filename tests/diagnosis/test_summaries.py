"""The cause in one line: the innermost statement, and what was said first."""

from __future__ import annotations

from signal import SIGABRT, SIGKILL, SIGSEGV

import pytest

from ascend_runner.diagnosis.finding import Finding
from ascend_runner.diagnosis.log_evidence import SUMMARY_LIMIT, read
from ascend_runner.supervision.causes import Ending

STEP = 'Traceback (most recent call last):\n  File "/job/train.py", line 61, in step\n    loss.backward()\n'
TENSOR_CODE = (
    "synchronize:x.cpp:361 NPU function error: c10_npu::acl::AclrtSynchronizeStreamWithTimeout(stream), error code is "
)
ABOVE = "RuntimeError: The Inner error is reported as above. The process exits for this inner error\n"
LATER = (
    " Since the operator is called asynchronously, the stacktrace may be inaccurate.\n"
    "If you want to get the accurate stacktrace, please set the environment variable ASCEND_LAUNCH_BLOCKING=1.\n"
)
HINTS = (
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace may be incorrect.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
ASSERTIONS = "".join(
    f"/src/Gather.cu:93: gather: block: [7,0,0], thread: [{thread},0,0] Assertion `i < rows` failed.\n"
    for thread in range(90)
)
FIRST_ASSERTION = ASSERTIONS.splitlines()[0]


def summary(log: str, *plog: str) -> str:
    """Return the cause in one line of a rank with this log."""
    return read(log.encode(), Ending(exit_code=1), plog).summary


@pytest.mark.parametrize(
    ("statement", "log"),
    [
        pytest.param(
            "EI0004: Failed to verify the rank table. Reason: no server has the ID 10.0.0.9.",
            f"{STEP}RuntimeError: init:x.cpp:9 HCCL function error: HcclCommInitClusterInfo(path), error code is 11\n"
            "[ERROR] 2026-01-02-03:04:05 (PID:7, Device:0, RankID:0) ERR02200 DIST call hccl api failed.\n"
            "EI0004: [PID: 7] 2026-01-02-03:04:05.123.456 Failed to verify the rank table. Reason: no server has the"
            " ID 10.0.0.9.\n",
            id="number",
        ),
        pytest.param(
            "The error from device(chipId:0), an exception of aicore error, the read address is out of range.",
            f"EZ9999: Inner Error!\nEZ9999: [PID: 7] 2026-01-02-03:04:05.123.456 (EZ9999):\n"
            "        The error from device(chipId:0), an exception of aicore error, the read address is out of range."
            f"[FUNC:PrintCoreInfo][FILE:device_error.cc][LINE:645]\n{STEP}{ABOVE}{LATER}",
            id="above",
        ),
        pytest.param(
            "errorStr: the tiling key is not supported.",
            f"{STEP}RuntimeError: {TENSOR_CODE}507035\n[ERROR] 2026-01-02-03:04:05 (PID:7) ERR00100 PTA call failed\n"
            "EZ9999: Inner Error!\n        errorStr: the tiling key is not supported."
            "[FUNC:ProcessError][FILE:task.cc][LINE:9]\n",
            id="details",
        ),
        pytest.param(
            "EI0006: Getting socket times out. Reason: no reply from server 10.0.0.5, device ID 3.",
            f"{STEP}RuntimeError: HCCL function error: HcclAllreduce, error code is 6\n"
            "EI0006: [PID: 7] 2026-01-02-03:04:05.123.456 Getting socket times out. Reason: \n"
            "no reply from server 10.0.0.5, device ID 3.\n",
            id="next line",
        ),
        pytest.param(
            "OSError: [Errno 28] No space left on device",
            f"{STEP}OSError: [Errno 28] No space left on device\n\n"
            f"During handling of the above exception, another exception occurred:\n\n{STEP}OSError:\n",
            id="chain",
        ),
        pytest.param(
            "writer: cannot flush shard 7: disk quota exceeded",
            f"writer: cannot flush shard 7: disk quota exceeded\n{STEP}OSError:\n",
            id="empty",
        ),
        pytest.param(
            "ncclInternalError: Internal check failed. Last error: no such node",
            f"{STEP}torch.distributed.DistBackendError: NCCL error in: x.cpp:7\n"
            "ncclInternalError: Internal check failed.\nLast error:\nno such node\n",
            id="NCCL",
        ),
        pytest.param(
            "ncclInvalidUsage: Invalid usage. Last error: Duplicate GPU detected : rank 1 and rank 0 both on device 50",
            f"{STEP}torch.distributed.DistBackendError: NCCL error in: x.cpp:7, invalid usage\nncclInvalidUsage: "
            "Invalid usage.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on device 50\n",
            id="known reason of NCCL",
        ),
        pytest.param(
            "NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory",
            "NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory\nNCCL INFO net.cc:7 -> 2\n"
            f"{STEP}RuntimeError: NCCL Error 2: unhandled system error (run with NCCL_DEBUG=INFO for details)\n",
            id="log of NCCL",
        ),
        pytest.param(
            "Wrong_Argument(EZ1001): Tensor key has 3 dimensions.",
            f"{STEP}RuntimeError: NPU function error: call aclnnFoo failed, error code is 161002\n"
            "[PID: 7] 2026-01-02-03:04:05.123.456 Wrong_Argument(EZ1001): Tensor key has 3 dimensions.\n",
            id="named code",
        ),
        pytest.param(
            "EE1001: The argument is invalid.Reason: the list 1,0 must be in ascending order",
            f"{STEP}RuntimeError: NPU function error: aclrtGetDeviceCount(&count), error code is 207004\n"
            "EE1001: [PID: 7] 2026-01-02-03:04:05.123.456 The argument is invalid.Reason: "
            "the list 1,0 must be in ascending order\n",
            id="reason of CANN",
        ),
        pytest.param(
            "Exception: the kernel is too large",
            f"{STEP}RuntimeError: E40021: Failed to compile Op [Foo]. (oppath: [Compile foo.py failed with "
            'errormsg/stack: File "/cann/build.py", line 7, in build\n    raise Exception(text)\n'
            "Exception: the kernel is too large\n], optype: [Foo])\n",
            id="compiler of operators",
        ),
        pytest.param(
            "DEVICE:Report] Task failed, retcode: 507011",
            "[ERROR] DEVICE(7,7f,python):2026-01-02-03:04:05.123.456 [a.cc:9] Report] Task failed, retcode: 507011\n"
            f"{STEP}RuntimeError: Run task for graph:g_7 error! The details refer to 'Ascend Error Message'.\n",
            id="details elsewhere",
        ),
        pytest.param(
            "OpenBLAS blas_thread_init: pthread_create: Resource temporarily unavailable",
            "step 7\nOpenBLAS blas_thread_init: RLIMIT_NPROC 90 current, 90 max\n"
            "OpenBLAS blas_thread_init: pthread_create: Resource temporarily unavailable\n",
            id="old OpenBLAS",
        ),
    ],
)
def test_exception_that_gives_no_reason(statement: str, log: str) -> None:
    """An exception with a number, a reference or nothing in place of a reason yields to the line that says why."""
    assert statement == summary(log)


def test_report_in_a_json_string() -> None:
    """The report of CANN that a JSON object holds is read like one in lines of its own."""
    log = (
        '{"detail":"NPU function error: SetDevice(7), error code is 507033\\n[Error]: Failed to start \\"it\\".\\n'
        'E30006: 2026-01-02-03:04:05.123.456 Failed to verify the OPP"}\n'
    )
    found = read(log.encode(), Ending(exit_code=1))

    assert ("E30006", "E30006: Failed to verify the OPP") == (found.code, found.summary)


def test_records_up_to_a_return_code() -> None:
    """In a log of CANN without an exception, the first record of the error says why, not the one with its code."""
    log = (
        "step 7\n[ERROR] RUNTIME(7,python):2026-01-02-03:04:05.123.456 [runtime.cc:5]7 Check: the range is [0-2)\n"
        "[ERROR] RUNTIME(7,python):2026-01-02-03:04:05.123.457 [api.cc:9]7 rtSetDevice:ErrCode=107001, desc=[x]\n"
    )

    assert "RUNTIME:7 Check: the range is [0-2)" == summary(log)
    assert "RUNTIME:7 rtSetDevice:ErrCode=107001, desc=[x]" == summary(log.replace("\n", "\nstep 8\n", 2))


@pytest.mark.parametrize(
    ("statement", "ending"),
    [("ring buffer: cannot map 7 pages", SIGABRT), ("", SIGSEGV), ("", SIGKILL)],
)
def test_last_words_before_a_signal(statement: str, ending: int) -> None:
    """Native code says why it aborts in its last line, which explains no other signal."""
    found = read(b"step 7\nring buffer: cannot map 7 pages\n", Ending(signum=ending))

    assert statement == found.summary


def test_advice_by_the_log_of_nccl() -> None:
    """The warning of NCCL that an exception refers to decides what the error means."""
    finding = read(
        b"NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory\n"
        + f"{STEP}RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO)\n".encode()
    )

    assert "memory-for-rdma" == finding.code


def test_plog_of_an_exception_that_gives_no_reason() -> None:
    """The first error in the plog says why, also if it has no code."""
    log = f"{STEP}RuntimeError: {TENSOR_CODE}507011\n"
    error = "[ERROR] RUNTIME(7,python):2026-01-02-03:04:05.123.456 [task.cc:9] 71 Report: the kernel Add_fp16 has hung"

    assert "RUNTIME:71 Report: the kernel Add_fp16 has hung" == summary(log, error)
    assert f"RuntimeError: {TENSOR_CODE}507011" == summary(log)


@pytest.mark.parametrize(
    "exception",
    [
        "ValueError: the batch of step 17 is empty",
        "ValueError: time data '2026-01-02 03:04:05' does not match",
        "RuntimeError: no slot is free",
        "KeyboardInterrupt",
        "AssertionError: n % 4 == 0",
    ],
)
def test_exception_that_says_why(exception: str) -> None:
    """Neither an error that was logged before nor one in the plog replaces a reason."""
    plog = "[ERROR] HCCL(7,python):2026-01-02-03:04:05 [socket.cc:9] the peer is gone"

    assert exception == summary(f"ERROR the tracker cannot be reached\n{STEP}{exception}\n", plog)


def test_record_without_its_frills() -> None:
    """Time, logger and place of a record are left out."""
    record = "2026-01-02 03:04:05,678 | ERROR | no such table"

    assert "no such table" == summary(f"step 1\n{record}\n")
    record = "(EngineCore pid=7) ERROR 01-02 03:04:05 [core.py:9] EE1001: [PID: 7] the stream is closed"
    assert "EE1001: the stream is closed" == summary(f"{record}\n")


def test_long_statement() -> None:
    """A statement fits into a line of a few hundred characters, with both ends."""
    found = summary(f"{STEP}ValueError: {'x' * 400} at step 17\n")

    assert SUMMARY_LIMIT == len(found)
    assert found.endswith(" at step 17")


def test_any_finding_has_a_summary() -> None:
    """Without an exception it is the line of the code, or the code."""
    assert "EI0006" == Finding(code="EI0006").summary
    assert "EI0006: x" == Finding(code="EI0006", code_line="EI0006: x").summary
    assert "" == Finding().summary


@pytest.mark.parametrize(
    ("first", "log"),
    [
        pytest.param(
            FIRST_ASSERTION,
            f"step 7\n{ASSERTIONS}{STEP}RuntimeError: CUDA error: device-side assert triggered\n{HINTS}",
            id="assertion",
        ),
        pytest.param(
            FIRST_ASSERTION,
            f"step 7\n{ASSERTIONS}terminate called after throwing an instance of 'c10::Error'\n"
            f"  what():  CUDA error: device-side assert triggered\n{HINTS}",
            id="assertion and abort",
        ),
        pytest.param(
            "LinearOperation setup failed: weight has 3 columns",
            "[2026-01-02 03:04:05.123] [error] [71] [op.cpp:27] LinearOperation setup failed: weight has 3 columns\n"
            f"{STEP}{ABOVE}{LATER}",
            id="ATB",
        ),
        pytest.param(
            "E0102 03:04:05.123456 4711 queue.cc:88] cannot map the ring buffer",
            "E0102 03:04:05.123456 4711 queue.cc:88] cannot map the ring buffer\nFatal Python error: Aborted\n",
            id="glog",
        ),
        pytest.param(
            "ring.cc:7] Check that the ring is not empty",
            f"F0102 03:04:05.123456 4711 ring.cc:7] Check that the ring is not empty\n{STEP}{ABOVE}{LATER}",
            id="fatal record of glog",
        ),
        pytest.param(
            "RUNTIME:the queue of kernel 7 is lost",
            "[FATAL] RUNTIME(7,python):2026-01-02-03:04:05.123.456 [a.cc:9] the queue of kernel 7 is lost\n"
            f"{STEP}RuntimeError: {TENSOR_CODE}507011\n{LATER}",
            id="fatal record of CANN",
        ),
        pytest.param(
            "/op/gather.cpp:31: Assertion `index < rows' The index is 7.",
            "step 7\n[ASSERT] /op/gather.cpp:31: Assertion `index < rows' The index is 7.\n"
            f"{STEP}RuntimeError: {TENSOR_CODE}507015\n{LATER}",
            id="assertion on an NPU",
        ),
        pytest.param(
            "[ASSERT][CANN_VERSION : 8.0][TimeStamp : 20260102] /op/gather.cpp:31: Assertion `index < rows'",
            "step 7\n[ASSERT][CANN_VERSION : 8.0][TimeStamp : 20260102] /op/gather.cpp:31: Assertion `index < rows'\n"
            f"{STEP}{ABOVE}{LATER}",
            id="assertion on an NPU with a version",
        ),
        pytest.param(
            "Loaded runtime CuDNN library: 8.5.0 but source was compiled with: 8.6.0.",
            "2026-01-02 03:04:05.123456: E xla/cuda_dnn.cc:9] Unable to register cuDNN factory: already registered\n"
            "2026-01-02 03:04:05.123457: E xla/cuda_dnn.cc:427] Loaded runtime CuDNN library: 8.5.0 but source was "
            f"compiled with: 8.6.0.\n{STEP}XlaRuntimeError: initialization failed. Look at the errors above.\n",
            id="XLA",
        ),
        pytest.param(
            "shard 7 has no index",
            f"ERROR: shard 7 has no index\n{STEP}RuntimeError: Executor failed.\n",
            id="logging",
        ),
    ],
)
def test_first_record_of_an_error_that_came_later(first: str, log: str) -> None:
    """For an asynchronous error, one without a reason, or an abort, what was said first is the cause, and is shown."""
    found = read(log.encode(), Ending(exit_code=1))

    assert first == found.summary
    assert any(first.partition(" ")[2] in line for line in found.excerpt)  # with the place that the summary leaves out


@pytest.mark.parametrize(
    "log",
    [
        f"ERROR: the tracker cannot be reached\n{STEP}RuntimeError: CUDA error: illegal instruction\n{HINTS}",
        f"{FIRST_ASSERTION}\nstep 8 loss 2.31\n{STEP}RuntimeError: CUDA error: illegal instruction\n{HINTS}",
        f"{FIRST_ASSERTION}\n{STEP}RuntimeError: CUDA error: illegal instruction\n",
    ],
    ids=["logging", "before progress", "synchronous"],
)
def test_record_that_did_not_come_first(log: str) -> None:
    """A record of a logger of Python, one before progress, and one before a synchronous error explain nothing."""
    assert "RuntimeError: CUDA error: illegal instruction" == summary(log)


def test_record_above_a_number() -> None:
    """A record of a logger of Python says less than an exception with a number: it often announces that."""
    record = "ERROR 01-02 03:04:05 [worker.py:9] WorkerProc hit an exception."
    log = f"step 7\n{record}\n{STEP}RuntimeError: {TENSOR_CODE}507011\n"

    assert f"RuntimeError: {TENSOR_CODE}507011" == summary(log)
