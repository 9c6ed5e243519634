"""The evidence in the end of a log, whatever it contains."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.finding import Peer
from ascend_runner.diagnosis.log_evidence import LINES_LIMIT, TRACEBACK_LINES, read
from ascend_runner.supervision.causes import Ending
from ascend_runner.text import LAST_LINES, LINE_LIMIT

FAILS: Final = os.path.join(os.path.dirname(__file__), "..", "workers", "fails.py")
HCCL_TIMEOUT: Final = (
    b"Traceback (most recent call last):\n"
    b'  File "/job/train.py", line 212, in train_step\n'
    b"    dist.all_reduce(loss)\n"
    b"RuntimeError: HCCL function error: HcclAllreduce, error code is 6\n"
    b"[ERROR] 2025-04-08-18:07:20 (PID:7, Device:1, RankID:1) ERR02200 DIST call hccl api failed.\n"
    b"EI0006: [PID: 7] 2025-04-08-18:07:20.444.436 Getting socket times out. Reason: \n"
    b"This node (server 10.0.0.4, device ID 1) detects that srcRank (server 10.0.0.4, device ID 1) fails to connect to"
    b" dstRank (server 10.0.0.5, device ID 3). Continue\n"
)


def failure(kind: str) -> bytes:
    """Run a rank that fails in this way and return its output."""
    ended = subprocess.run([sys.executable, FAILS, kind], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return ended.stdout


TRACEBACK: Final = b'Traceback (most recent call last):\n  File "/a.py", line 1, in f\n    f(x)\nValueError: 1\n'
SHAPES: Final = {
    "blank lines": b"\n",
    "short lines": b"a\n",
    "one line": b"x",
    "carriage returns": b"\r",
    "spaces": b" ",
    "brackets": b"[",
    "unicode": "é漢".encode(),
    "not UTF-8": b"\xff\xfe",
    "escapes": b"\x1b[",
    "prefix": b"[rank0]: x\n",
    "headers": b"Traceback (most recent call last):\n",
    "frames": b'  File "/a.py", line 11, in f\n',
    "tracebacks": TRACEBACK,
    "chain": TRACEBACK + b"\nDuring handling of the above exception, another exception occurred:\n\n",
    "tracebacks and crashes": TRACEBACK + b"free(): invalid pointer\n",
    "open boxes": b"+-- Traceback (most recent call last) --+\n",
    "shell": b"sh: 1: foo: not found\n",
    "kills": b"Killed\n",
    "hydra": b"x\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n",
    "aborts": b"free(): invalid pointer\nterminate called recursively\n",
    "crashes": b"Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n",
    "hints": b"please set set set set\n",
    "numbers": b"RuntimeError: error 1 " + b"-" * 2000 + b"x\n",
    "assertions": b"Assertion " * 300 + b"\n",
    "panics": b"thread 'main' panicked at a.rs:1:1:\nx\n",
}


@pytest.mark.deep
@pytest.mark.parametrize("unit", SHAPES.values(), ids=SHAPES)
def test_time_grows_with_the_size(unit: bytes) -> None:
    """16 times as much output, whatever its shape, takes far less than 256 times as long to read."""

    def seconds(size: int) -> float:
        tail = b"free(): invalid pointer\n" + unit * (size // len(unit))
        began = time.process_time()
        read(tail, Ending(exit_code=1))
        return time.process_time() - began

    seconds(1024)  # compiles patterns that are compiled when they are first used
    once, larger = (min(seconds(size) for _attempt in range(3)) for size in (1 << 15, 1 << 19))

    assert larger <= 64 * max(once, 0.01)  # four times of what is expected, a quarter of what the square would be


def test_blank_lines_hide_no_exception() -> None:
    """However many follow."""
    assert "ValueError: 1" == read(TRACEBACK + b"\n" * 3 * LINES_LIMIT, Ending(exit_code=1)).exception


def test_only_the_last_lines_are_read() -> None:
    """A log of a million lines does not hold up the end of the job."""
    assert "" == read(TRACEBACK + b"a\n" * LINES_LIMIT, Ending(exit_code=1)).exception
    assert "ValueError: 1" == read(TRACEBACK + b"a\n" * (LINES_LIMIT - 4), Ending(exit_code=1)).exception


def test_exception() -> None:
    """For a rank that raised, the exception, its place, the traceback and the last lines are found."""
    evidence = read(b"step 16\n" + failure("while_handling"), Ending(exit_code=1))

    assert "ValueError: loss is nan at step 17" == evidence.exception
    assert evidence.place.endswith(" in train_step")
    assert "Traceback (most recent call last):" == evidence.traceback[0]
    assert evidence.exception == evidence.last_lines[-1]
    assert ("", Kind.ROOT) == (evidence.code, evidence.kind)


def test_no_exception() -> None:
    """For a rank without an error message the last 20 lines are kept."""
    evidence = read(b"".join(b"step %d\n" % step for step in range(100)))

    assert ("", ()) == (evidence.exception, evidence.traceback)
    assert tuple(f"step {step}" for step in range(80, 100)) == evidence.last_lines


def test_report_of_a_peer() -> None:
    """An exception with an HCCL code yields the code, its kind, and the peer that it points at."""
    evidence = read(HCCL_TIMEOUT, Ending(exit_code=1))

    assert "RuntimeError: HCCL function error: HcclAllreduce, error code is 6" == evidence.exception
    assert ("EI0006", Kind.SECONDARY) == (evidence.code, evidence.kind)
    assert evidence.code_line.startswith("EI0006: [PID: 7]")
    assert (Peer(server_id="10.0.0.5", device_id=3),) == evidence.points_at


def test_own_failure_points_at_nobody() -> None:
    """A rank with a root-cause code suspects no peer, even if its messages name some."""
    evidence = read(HCCL_TIMEOUT.replace(b"EI0006", b"EI0011"))

    assert () == evidence.points_at


def test_exception_survived_long_ago() -> None:
    """An exception that a rank survived does not explain the SIGKILL that ended it a hundred lines later."""
    tail = failure("survived_long_ago")

    assert "" == read(tail, Ending(signum=9)).exception
    assert "ValueError: loss is nan at step 1" == read(tail, Ending(exit_code=1)).exception


@pytest.mark.parametrize("workers", [2, 60])
def test_table_of_torchrun_is_shown_to_its_end(workers: int) -> None:
    """The report of torchrun about its workers ends with the first one that failed, however many others there are."""
    entry = "[1]:\n  rank      : 1\n  exitcode  : 1 (pid: 7)\n  traceback : To enable traceback see: https://x\n"
    table = f"{'=' * 60}\ntrain.py FAILED\nFailures:\n{entry * workers}{'-' * 60}\n"
    end = f"Root Cause (first observed failure):\n{entry}{'=' * 60}"
    frame = '  File "torchrun", line 8, in <module>\n    sys.exit(main())\n'
    head = f"Traceback (most recent call last):\n{frame}torch.distributed.errors.ChildFailedError: \n"
    excerpt = read(f"{head}{table}{end}\n".encode(), Ending(exit_code=1)).excerpt

    assert ("torch.distributed.errors.ChildFailedError:", "train.py FAILED") == excerpt[:2]
    assert "Root Cause (first observed failure):" in excerpt[-6:]
    assert len(excerpt) < 30


def test_worker_that_the_launcher_killed_later() -> None:
    """The signals in a launcher's table do not explain an error of its own above it."""
    error = b'Traceback (most recent call last):\n  File "train.py", line 9, in f\n    g()\n'
    table = (
        b"E0907 api.py:874] failed (exitcode: 1)\n  exitcode  : -9 (pid: 71)\n  Signal 9 (SIGKILL) received by PID 71\n"
    )
    unknown = read(error + b"RuntimeError: no slot\n\n" + table)
    known = read(error + b"RuntimeError: OPS function error: HcclReduce, error code is 5\n\n" + table)

    assert "" == unknown.code
    assert "HCCL 5" == known.code


def test_launchers_error_in_one_line_keeps_its_frames() -> None:
    """Of a command that failed, the place that has called it is shown."""
    tail = b"""Traceback (most recent call last):
  File "train.py", line 3, in <module>
    subprocess.run(["make"], check=True)
subprocess.CalledProcessError: Command '['make']' returned non-zero exit status 2.
"""

    assert len(tail.splitlines()) == len(read(tail, Ending(exit_code=1)).excerpt)


OUT_OF_MEMORY: Final = b"""Traceback (most recent call last):
  File "/job/train.py", line 212, in train_step
    loss = model(batch)
RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 2; 60.97 GiB total capacity)
"""


@pytest.mark.parametrize(
    "record",
    [
        b"[W compiler_depend.ts:487] Warning: NPU warning, error code is 507013[Error]:",
        b"[W321 02:07:08.408271257 compiler_depend.ts:487] Warning: NPU warning, error code is 507013[Error]:",
        b"[rank2]:[W321 02:07:08.408271257 compiler_depend.ts:487] Warning: NPU warning, error code is 507013[Error]:",
    ],
)
def test_record_after_an_exception_that_says_why(record: bytes) -> None:
    """What torch_npu warns of while it tears down does not explain an exception that states its cause."""
    evidence = read(OUT_OF_MEMORY + record + b"\n", Ending(exit_code=1))

    assert "npu-out-of-memory" == evidence.code


def test_hint_of_torch_about_assertions() -> None:
    """The hint that torch appends to each CUDA error is not a failed assertion."""
    message = b"RuntimeError: CUDA error: invalid device ordinal\n"
    hint = b"Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    evidence = read(b"".join([*OUT_OF_MEMORY.splitlines(keepends=True)[:-1], message, hint]), Ending(exit_code=1))

    assert "invalid-device-ordinal" == evidence.code


@pytest.mark.parametrize(
    "line",
    [
        b"[rank1]:[E515 21:00:01.000 ProcessGroupNCCL.cpp:1682] Observed flight recorder dump signal from another rank",
        b"Received a dump signal due to a collective timeout from  rank 2 and we will try our best to dump",
        b"horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception",
    ],
)
def test_failure_that_another_rank_has_reported(line: bytes) -> None:
    """A library that knows of the failure of another rank says so, and its own rank is not the cause."""
    assert Kind.SECONDARY == read(line + b"\n", Ending(exit_code=1)).kind


def test_heartbeat_of_hccl() -> None:
    """The line of a timeout is the one that names the device and says what is wrong with it."""
    heartbeat = b"Cluster Exception Location[IP/ID]:[10.0.0.5/3], ExceptionType:[Stuck Occurred]"
    evidence = read(HCCL_TIMEOUT.replace(b"EI0006", b"EI0002") + heartbeat + b"\n", Ending(exit_code=1))

    assert heartbeat.decode() == evidence.code_line


def test_logs_that_msrun_quotes() -> None:
    """The lines of workers' logs that msrun prints through grep hold the error that its own only passes on."""
    quoted = b"""\
out/worker_1.log:110:Traceback (most recent call last):
out/worker_1.log-111-  File "/job/train.py", line 5, in <module>
--
out/worker_1.log-122-  File "/job/net.py", line 9, in build
out/worker_1.log:123:ImportError: nets>=0.3 is required
Traceback (most recent call last):
  File "/opt/lib/python3.9/site-packages/mindspore/parallel/cluster/run.py", line 150, in run
RuntimeError: Distributed job exited with exception. Please check logs in directory: out.
"""

    assert "ImportError: nets>=0.3 is required" == read(quoted, Ending(exit_code=1)).exception


def test_message_that_begins_with_a_rule() -> None:
    """A message of MindSpore that begins with a ruled heading is shown by what follows it."""
    rule = "-" * 52
    log = f'Traceback (most recent call last):\n  File "x.py", line 5, in f\nTypeError: {rule}\n'
    log += f"- The Type of Inputs Error:\n{rule}\nFailed calling Add.\n"

    assert "TypeError: Failed calling Add." == read(log.encode(), Ending(exit_code=1)).exception


def test_last_words() -> None:
    """The last line of a rank that reports no error is its summary if it refuses something, but weak evidence."""
    log = b"step 1\nThe directory /data does not exist, exiting\n"

    assert "The directory /data does not exist, exiting" == read(log, Ending(exit_code=1)).summary
    assert Kind.EITHER is read(log, Ending(exit_code=1)).kind
    assert "" == read(log, Ending(signum=9)).summary
    assert "" == read(log, is_stopped=True).summary
    assert "" == read(log + b"step 2\n", Ending(exit_code=1)).summary


def test_phrase_without_a_code() -> None:
    """A telling phrase counts if there is no code."""
    evidence = read(b"OSError: [Errno 28] No space left on device\n")

    assert "no-space-left-on-device" == evidence.code


def test_phrase_far_from_the_end() -> None:
    """A telling phrase long before the end does not count."""
    evidence = read(b"retrying: Connection refused\n" + b"step\n" * 100)

    assert "" == evidence.code


PLOG: Final = ("[ERROR] HCCL(7,python): Communication_Error_Get_Socket(EI0006): connect destRank[10.0.0.5/3] fail",)


def test_plog_of_a_silent_rank() -> None:
    """If the log contains no error, code and peer come from the plog."""
    evidence = read(b"step 1\n", Ending(signum=11), PLOG)

    assert (Kind.SECONDARY, (Peer(server_id="10.0.0.5", device_id=3),)) == (evidence.kind, evidence.points_at)


def test_plog_of_a_rank_that_raised() -> None:
    """HCCL's errors in the plog of a rank that raised are consequences and do not count."""
    evidence = read(failure("while_handling"), Ending(exit_code=1), PLOG)

    assert "" == evidence.code


def test_empty_log() -> None:
    """An empty log yields nothing."""
    evidence = read(b"")

    assert ("", (), (), "") == (evidence.exception, evidence.last_lines, evidence.traceback, evidence.code)


def test_escape_sequences() -> None:
    """Output cannot control the terminal: colors are removed, other control characters are escaped."""
    evidence = read(b"\x1b[31mred\x1b[0m \x1b]0;title\x07bell\x07 \x9b1m \x00 \x1b[\n")

    assert ("red bell\\x07 \ufffd1m \\x00 \\x1b[",) == evidence.last_lines


def test_progress_bar() -> None:
    """Of a progress bar the last state is kept, as on a terminal; CRLF line ends are handled."""
    evidence = read(b"a\r\n\r 10%\r 20%\r 30%\nlast\r")

    assert ("a", " 30%", "last") == evidence.last_lines


def test_very_long_lines() -> None:
    """A long line is shortened, and keeps both its ends."""
    evidence = read(b"begin" + b"x" * 200_000 + b"end\n")

    assert 1 == len(evidence.last_lines)
    assert evidence.last_lines[0].startswith("beginxxx")
    assert evidence.last_lines[0].endswith("xxxend")
    assert LINE_LIMIT == len(evidence.last_lines[0])


GRAPH_ERROR: Final = (
    b'Traceback (most recent call last):\n  File "/job/train.py", line 60, in <module>\n    model.train(ds)\n'
    b"ValueError: For 'MatMul', the dimensions 3 and 4 differ.\n\n"
    b"----------------------------------------------------\n- C++ Call Stack: (For framework developers)\n"
    b"----------------------------------------------------\nmindspore/core/ops/mat_mul.cc:107 InferShape\n\n"
    b"----------------------------------------------------\n- The Traceback of Net Construct Code:\n"
    b"----------------------------------------------------\n# 0 In file /job/model.py:212\n        return x @ y\n"
)


def test_source_of_a_graph_error() -> None:
    """The line of the user's network that MindSpore cannot compile is shown, however long the message is."""
    excerpt = read(GRAPH_ERROR, Ending(exit_code=1)).excerpt

    assert {"# 0 In file /job/model.py:212", "return x @ y"} <= {line.strip() for line in excerpt}


def test_message_that_begins_with_a_line_break() -> None:
    """The short form of an exception whose first line is empty has its first sentence."""
    heading = b"-----------------------\n- Memory not enough:\n-----------------------\n"
    header = b'Traceback (most recent call last):\n  File "train.py", line 9, in main\n    step()\n'

    assert (
        "RuntimeError: no room for Add-op3"
        == read(header + b"RuntimeError:\n" + heading + b"no room for Add-op3").exception
    )
    heading = b"///----[ERROR][Triton][BEG]----\n[Lower] encounters error:\n"
    assert (
        "CompileError: [Lower] encounters error: overflow"
        == read(header + b"CompileError:\n" + heading + b"overflow").exception
    )


def test_reason_of_nccl() -> None:
    """The line of an error of NCCL has the reason, which stands below a line of its own."""
    log = (
        b'[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in f\n[rank0]:     step()\n'
        b"[rank0]: torch.distributed.DistBackendError: NCCL error in: x.cpp:7\n"
        b"[rank0]: ncclInternalError: Internal check failed.\n[rank0]: Last error:\n[rank0]: no such node\n"
    )

    assert "ncclInternalError: Internal check failed. Last error: no such node" == read(log).code_line


@pytest.mark.parametrize(
    ("code", "above"),
    [
        ("asynchronous-operator", b"step 8\n"),
        ("EZ9999", b"EZ9999: Inner Error!\n"),
        ("EZ3003", b"EZ3003: [PID: 7] no\n"),
    ],
)
def test_asynchronous_operator(code: str, above: bytes) -> None:
    """An operator that runs asynchronously refers to an error above; any code there says more than this."""
    raised = b"RuntimeError: The Inner error is reported as above. The process exits for this inner error\n"
    log = above + b'Traceback (most recent call last):\n  File "/job/train.py", line 61, in main\n    step()\n' + raised

    assert code == read(log).code


def test_code_before_an_abort() -> None:
    """That native code aborts says less than a code that it has reported."""
    log = b"CANN error: EZ9903: [PID: 7] a kernel failed\n  current device: 0\n"

    assert "EZ9903" == read(log + b"Aborted (core dumped)\n", Ending(exit_code=134)).code


def test_detail_beside_a_phrase() -> None:
    """That the tiling failed is said in a line of its own; the reason, which CANN gives with its code, is shown."""
    log = (
        b'Traceback (most recent call last):\n  File "/job/train.py", line 61, in main\n    step()\n'
        b"RuntimeError: aclnnFooGetWorkspaceSize failed\nEZ9999: Inner Error!\n"
        b"        headDim only support 128, but got 96.[FUNC:CheckInput][FILE:a_tiling.cpp][LINE:188]\n"
        b"       Tiling failed\n"
    )
    evidence = read(log)

    assert "tiling" == evidence.code
    assert "headDim" in evidence.code_line


@pytest.mark.parametrize(("expected", "code"), [("bfloat16", "E90003"), ("EL0004", "EL0004")])
def test_phrase_beside_a_code(expected: str, code: str) -> None:
    """A code that no entry explains, but only its module, yields to a telling phrase."""
    error = f"{code}: [PID: 7] Compile operator failed: bfloat16 of dsl.add is not supported."
    log = f'Traceback (most recent call last):\n  File "/a.py", line 3, in f\nRuntimeError: call failed\n{error}\n'

    assert expected == read(log.encode(), Ending(exit_code=1)).code


def test_error_of_the_error_message() -> None:
    """That no message can be got without a context says nothing about the error itself."""
    log = (
        b"Call aclInit(nullptr) failed : 507008 at file runtime.cc line 403\n"
        b"EE1001: [PID: 7] The argument is invalid.\n        ctx is NULL![FUNC:GetDevErrMsg][FILE:api_impl.cc]\n"
    )

    assert "aclInit" in read(log).code_line


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Kind.EITHER, b"no such node"),
        (Kind.ROOT, b"Bootstrap : no socket interface found"),
        (Kind.SECONDARY, b"Net : Connection closed by remote peer node-2<4711>"),
    ],
)
def test_reason_of_nccl_decides(kind: Kind, reason: bytes) -> None:
    """An error of NCCL is the rank's own, or a peer's, by its reason."""
    log = (
        b'Traceback (most recent call last):\n  File "/opt/torch/distributed/distributed_c10d.py", line 9, in f\n'
        b"    work = group.allreduce([tensor], opts)\ntorch.distributed.DistBackendError: NCCL error in: x.cpp:7,\n"
        b"ncclInternalError: Internal check failed.\nLast error:\n" + reason + b"\n"
    )

    assert kind is read(log).kind


def test_inner_error_beside_a_code_that_says_more() -> None:
    """An internal error yields to the return code that stands above the exception."""
    log = (
        b"[ERROR] DEVICE(7,python) task failed, retcode: 507015\nTraceback (most recent call last):\n"
        b'  File "train.py", line 9, in f\n    step()\nRuntimeError: no result\nEE9999: Inner Error!\n'
    )
    found = read(log)

    assert "507015" == found.code


@pytest.mark.parametrize(
    ("kind", "source", "exception"),
    [
        (Kind.ROOT, "raise ValueError(message)", "ValueError: loss is nan at step 17"),
        (Kind.ROOT, "batch['x']", "KeyError: 'x'"),
        (Kind.ROOT, "loss.backward()", "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB"),
        (Kind.SECONDARY, "dist.barrier()", "RuntimeError: HCCL function error: HcclBarrier, error code is 6"),
        (Kind.SECONDARY, "raise RuntimeError(text)", "RuntimeError: the step failed: connection closed by peer"),
        (Kind.SECONDARY, "raise OSError", "OSError"),
    ],
)
def test_report_of_a_lost_peer_below_an_exception(kind: Kind, source: str, exception: str) -> None:
    """It says nothing about an exception that states a cause of its own."""
    report = "EI0006: [PID: 7] 2026-01-02-03:04:05.123.456 Getting socket times out."
    log = f'Traceback (most recent call last):\n  File "train.py", line 9, in f\n    {source}\n{exception}\n{report}\n'

    assert kind is read(log.encode()).kind


def test_error_at_the_exit_of_the_interpreter() -> None:
    """What fails at the exit, after the exception, does not explain it."""
    log = (
        b'Traceback (most recent call last):\n  File "train.py", line 9, in f\n    step()\n'
        b"RuntimeError: ExchangeDevice: NPU error, error code is 500000\nError in atexit._run_exitfuncs:\n"
        b'Traceback (most recent call last):\n  File "torch/__init__.py", line 429, in _npu_shutdown\n    shutdown()\n'
        b"RuntimeError: npuSynchronizeDevice: NPU error, error code is 200005.\n"
    )

    assert "500000" == read(log).code


def test_assertion_without_a_message() -> None:
    """The short form of a bare assertion has the condition that is not met."""
    log = (
        b'Traceback (most recent call last):\n  File "train.py", line 9, in f\n    assert n % 4 == 0\nAssertionError\n'
    )

    assert "AssertionError: n % 4 == 0" == read(log).exception


def test_code_beside_the_error_of_a_stopped_rank() -> None:
    """The code above an error counts wherever both are in the log."""
    error = (
        b'Traceback (most recent call last):\n  File "train.py", line 9, in f\n    start()\nRuntimeError: no start\n'
    )
    found = read(b"step 1\n" * 90 + b"EI0004: [PID: 7] the rank table is invalid\n" + error, is_stopped=True)

    assert "EI0004" == found.code


RULE: Final = "-" * 60
# Of torch_npu.
CALLED: Final = "Since the operator is called asynchronously, the stacktrace may be inaccurate."
SET: Final = "If you want to get the accurate stacktrace, pleace set the environment variable ASCEND_LAUNCH_BLOCKING=1."
FORCE: Final = "Note: ASCEND_LAUNCH_BLOCKING=1 will force ops to run in synchronous mode, resulting in degradation."
UNSET: Final = "Please unset ASCEND_LAUNCH_BLOCKING in time after debugging."
NEWS: Final = [f"line {name}" for name in "abcdefghijkl"]


@pytest.mark.parametrize(
    ("expected", "log"),
    [
        (
            [*NEWS[1:11], "worker-1:  waiting for task 7", NEWS[11]],
            [line for news in NEWS for line in (news, RULE, "", "worker-1:  waiting for task 7")][:-1],
        ),
        (
            ["step 1", "step 2", "worker-1: task 39 has failed"],
            ["step 1", "step 2", *(f"worker-1: task {number} has failed" for number in range(7, 40))],
        ),
        (
            ["step 1", "step 2", "09:47:39.12 worker-1: task ad3f of 0x7f9b has failed"],
            [
                "step 1",
                "step 2",
                "09:47:36.5 worker-1: task c07e of 0x7f3a has failed",
                "09:47:39.12 worker-1: task ad3f of 0x7f9b has failed",
            ],
        ),
        (
            ["RuntimeError: CUDA error: illegal instruction"],
            [
                "Traceback (most recent call last):",
                '  File "train.py", line 9, in f',
                "    g(",
                "    ~~^",
                "RuntimeError: CUDA error: illegal instruction",
                "CUDA kernel errors might be asynchronously reported at some other API call.",
                "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
                "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
            ],
        ),
        (
            ["RuntimeError: The Inner error is reported as above.", "[ERROR] ERR00100 PTA call acl api failed."],
            [
                "Traceback (most recent call last):",
                '  File "train.py", line 9, in f',
                "RuntimeError: The Inner error is reported as above.",
                f" {CALLED} {SET}",
                f"{FORCE} {UNSET}",
                f" {CALLED}",
                SET,
                "[ERROR] ERR00100 PTA call acl api failed.",
            ],
        ),
    ],
)  # fmt: skip
def test_rows_that_say_nothing(expected: list[str], log: list[str]) -> None:
    """Rules, blank lines, marks, hints on debugging, and errors again with other numbers, addresses or times."""
    excerpt = read("\n".join(log).encode(), Ending(exit_code=1)).excerpt

    assert expected == list(excerpt[-len(expected) :])
    assert len(set(excerpt)) == len(excerpt)


def test_operator_that_failed() -> None:
    """The operator that CANN names is shown, however long the message is."""
    cann = "".join(f"        Check {number} failed\n" for number in range(9))
    log = (
        'Traceback (most recent call last):\n  File "train.py", line 6, in step\n    sync()\n'
        f"RuntimeError: synchronize failed, ret: 507017\nE30008: [PID: 7] an operator timed out\n{cann}"
        "        Aicpu kernel execute failed, stream_id=8, fault op_name=Default/GetNext-op0[FUNC:GetError]\n"
    )

    assert any("Default/GetNext-op0" in line for line in read(log.encode(), Ending(exit_code=1)).excerpt)


def test_innermost_frames_of_a_crash() -> None:
    """Of a deep native stack, whose innermost frame is the first, the first frames are shown."""
    frames = b"".join(b'  File "/job/kernels.py", line %d in f\n' % line for line in range(40))
    crash = b"Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n" + frames
    excerpt = read(crash, Ending(signum=11)).excerpt

    assert '  File "/job/kernels.py", line 0 in f' in excerpt


def test_excerpt_of_a_deep_stack() -> None:
    """Where only frames of libraries fit, the excerpt begins with the frame of the user's code that called them."""
    library = '  File "/opt/lib/python3.11/site-packages/torch/nn/module.py", line {}, in call\n    return f(*args)\n'
    log = "Traceback (most recent call last):\n" + '  File "/job/train.py", line 88, in step\n    loss = model(batch)\n'
    log += "".join(map(library.format, range(20))) + "RuntimeError: shapes do not match\n"

    assert "  ... called from train.py:88 in step" == read(log.encode(), Ending(exit_code=1)).excerpt[0]


@pytest.mark.parametrize(
    "message",
    [
        "f:x.cpp:9 NPU function error: aclInit(nullptr), error code is 507899",
        "Compile graph kernel_graph0 failed.\n\nE19999: Inner Error!",
    ],
)
def test_step_before_the_rank_talks_to_others(message: str) -> None:
    """No peer can be at fault for what a rank does alone, although it may be for the same code elsewhere."""
    log = 'Traceback (most recent call last):\n  File "/job/train.py", line 8, in main\n    step()\nRuntimeError: {}\n'
    later = message.replace("aclInit(nullptr)", "aclrtRecordEvent(e)").replace("Compile", "Run")
    kinds = [read(log.format(text).encode(), Ending(exit_code=1)).kind for text in (message, later)]

    assert [Kind.ROOT, Kind.EITHER] == kinds


def test_excerpt_of_what_was_under_way() -> None:
    """Where a clean-up failed as well, the excerpt ends with what was under way."""
    log = (
        b'Traceback (most recent call last):\n  File "s.py", line 5, in save\n    out.write(data)\n'
        b"RuntimeError: basic_ios::clear: iostream error\n\n"
        b"During handling of the above exception, another exception occurred:\n\n"
        b'Traceback (most recent call last):\n  File "s.py", line 9, in __exit__\n    out.end()\nRuntimeError: pos 64\n'
    )
    found = read(log)

    assert "RuntimeError: basic_ios::clear: iostream error" == found.exception == found.excerpt[-1]
    assert "file-write-failed" == found.code


def test_end_of_a_c_string() -> None:
    """Native code may write the zero at the end of a string: it is not part of a line."""
    log = b"ERROR: fault in worker.\n\0[rank1]: Traceback (most recent call last):\n"
    log += b'[rank1]:   File "x.py", line 5, in f\n[rank1]:     g()\n[rank1]: RuntimeError: worker is gone\n'

    assert "RuntimeError: worker is gone" == read(log).exception


def test_pipe_that_has_ended() -> None:
    """The end of another process, which the log does not explain, may be the fault of another rank."""
    evidence = read(b"""Traceback (most recent call last):
  File "/lib/python3.11/multiprocessing/connection.py", line 399, in _recv
    raise EOFError
EOFError
""")

    assert ("", Kind.EITHER) == (evidence.code, evidence.kind)


def test_worker_whose_connection_ended() -> None:
    """A data loader's worker that is gone shows in the frames; no line of theirs is taken for a message."""
    log = (
        b'Traceback (most recent call last):\n  File "train.py", line 5, in main\n    for batch in loader:\n'
        b'  File "/lib/python3.11/multiprocessing/resource_sharer.py", line 57, in detach\n    with connect():\n'
        b'  File "/lib/python3.11/multiprocessing/connection.py", line 399, in _recv\n    raise EOFError\nEOFError\n'
    )
    found = read(log)

    assert "data-loader-worker-ended" == found.code
    assert "EOFError" == found.excerpt[-1]


def test_error_record_of_a_stopped_rank() -> None:
    """A record of an error at the end of a rank that was stopped is weak evidence: the rank may have survived it."""
    log = b"step 1\n2026-01-02 03:04:05 | ERROR | no such table\n"

    assert Kind.EITHER is read(log, Ending(signum=15), is_stopped=True).kind
    assert Kind.ROOT is read(log, Ending(exit_code=1)).kind


@pytest.mark.parametrize("seed", range(20))
def test_any_cut(seed: int) -> None:
    """Wherever the tail begins and whatever precedes it, a complete traceback at the end is found."""
    chance = random.Random(seed)  # noqa: S311  not for secrets
    noise = chance.randbytes(chance.randrange(70_000))

    assert "ValueError: loss is nan at step 17" == read((noise + b"\n" + NAN)[-65536:]).exception


NAN: Final = (
    b'Traceback (most recent call last):\n  File "/job/train.py", line 5, in step\n    raise ValueError(x)\n'
    b"ValueError: loss is nan at step 17\n"
)
PIECES: Final = (
    NAN,
    NAN[:40],
    NAN[60:],
    HCCL_TIMEOUT,
    b"  + Exception Group Traceback (most recent call last):\n",
    b"    | Traceback (most recent call last):\n",
    b"  | ",
    b"During handling of the above exception, another exception occurred:\n",
    b"Exception ignored in: x\n",
    b"Fatal Python error: x\n",
    b"terminate called after throwing an instance of 'x'\n",
    b"\r 50%|",
    b"[rank1]: ",
    b"\x1b[31m",
    b"\xff\x00",
    b"\n\n",
    b'  File "',
)


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=40))))
def test_anything(pieces: list[bytes]) -> None:
    """For any content of a log, the evidence is bounded and safe for a terminal."""
    evidence = read(b"".join(pieces), Ending(exit_code=1))
    texts = [*evidence.traceback, *evidence.last_lines, evidence.exception, evidence.place, evidence.code_line]

    assert len(evidence.last_lines) <= LAST_LINES
    assert len(evidence.traceback) <= TRACEBACK_LINES
    assert all(text.replace("\t", "").isprintable() for text in texts)


def test_warning_around_an_error() -> None:
    """What a library has only warned of does not explain an error that says nothing about its cause."""
    warning = (
        b"[W AclInterface.cpp:181] Warning: 0Failed to find function aclrtCreateEventExWithFlag (function operator())\n"
    )
    error = b'Traceback (most recent call last):\n  File "train.py", line 9, in f\n    g()\nRuntimeError: no slot\n'

    assert "" == read(warning + error, Ending(exit_code=1)).code


NOISE = (
    "INFO retrying in 5 s: Connection refused",
    "INFO optional dependency: No module named 'apex'",
    "[I ProcessGroup.cpp:812] heartbeat monitor thread of rank 0 is running",
    "DEBUG resumed after DUE TO TIME LIMIT",
    "Hint: if you see CUDA out of memory, lower the batch size",
    "storage.py:31: UserWarning: out of memory errors are likely",
    "config: timeout=1800, monitoredBarrier=False",
    "{'on_error': 'HCCL communicator was aborted -> restart', 'seed': 7}",
    "hccl: {'on_error': 'HCCL communicator was aborted -> restart'}",
)


@pytest.mark.parametrize("noise", NOISE)
def test_noise_before_the_end(noise: str) -> None:
    """A line that only informs, or advises what to do in a case, explains neither an error nor the end of a log."""
    error = 'Traceback (most recent call last):\n  File "train.py", line 9, in f\n    g()\nRuntimeError: no slot\n'

    assert "" == read(f"{noise}\n{error}".encode(), Ending(exit_code=1)).code
    assert "" == read(f"{noise}\nstep 7\n".encode(), Ending(exit_code=1)).code


def test_record_before_progress() -> None:
    """A rank that has gone on has survived the errors above, apart from those of CANN and of HCCL."""
    record = "ERROR uploader: No space left on device, will retry\n"
    of_hccl = "[ERROR] HCCL(7,python):2026-01-02-03:04:05 [socket.cc:9] wait socket establish timeout\n"
    progress = "step 17 loss 2.31\n"

    assert "" == read(f"{record}{progress}".encode(), Ending(exit_code=1)).summary
    assert "no-space-left-on-device" == read(f"{progress}{record}".encode(), Ending(exit_code=1)).code
    assert "wait-socket-establish-timeout" == read(f"{of_hccl}{progress}".encode(), Ending(exit_code=1)).code


@pytest.mark.parametrize(
    "record",
    [
        "wandb: ERROR Error while calling W&B API: Connection refused",
        "/bin/sh: nvcc: command not found",
        "ERROR:metrics:cannot bind the port: Address already in use",
        "fatal: unable to access 'https://github.com/x/y/': Could not resolve host: github.com",
        "Failed to load image Python extension: libtorch_cuda.so: cannot open shared object file",
        "ERROR summary writer: No space left on device, events are dropped",
    ],
)
def test_record_of_what_a_rank_survives(record: str) -> None:
    """A record of something else does not explain an error that does not refer to it."""
    error = 'Traceback (most recent call last):\n  File "train.py", line 9, in f\n    g()\nRuntimeError: no slot\n'

    assert "" == read(f"{record}\n{error}".encode(), Ending(exit_code=1)).code


def test_record_before_an_error_in_own_words() -> None:
    """A record of HCCL explains an error that says nothing, but not one that the program raises in its own words."""
    record = "[ERROR] HCCL(7,python):2026-01-02-03:04:05 [socket.cc:9] Connection refused\n"
    error = 'Traceback (most recent call last):\n  File "train.py", line 9, in f\n    {}\nRuntimeError: no slot\n'

    assert "connection-refused" == read(f"{record}{error.format('g()')}".encode(), Ending(exit_code=1)).code
    assert "" == read(f"{record}{error.format('raise RuntimeError(text)')}".encode(), Ending(exit_code=1)).code


@pytest.mark.parametrize(
    "epilogue",
    [
        "[W] Connection reset by peer while closing the tracker",
        "swanlab: Error uploading, Connection timed out",
        "Exception ignored in: <function DataLoader.__del__>\nOSError: [Errno 24] Too many open files",
        "Error in sys.excepthook:\nBrokenPipeError: [Errno 32] Broken pipe",
    ],
)
def test_epilogue_of_an_error(epilogue: str) -> None:
    """What follows an error on the way out is no part of its message."""
    error = 'Traceback (most recent call last):\n  File "train.py", line 9, in f\n    g()\nRuntimeError: no slot\n'

    assert "" == read(f"{error}{epilogue}\n".encode(), Ending(exit_code=1)).code


def test_hedge_after_a_record() -> None:
    """What a record says before it guesses counts."""
    assert "connection-refused" == read(b"ERROR Connection refused, the server may be down\n", Ending(exit_code=1)).code


def test_cancelled_job_does_not_explain_an_error() -> None:
    """That the scheduler has cancelled a job after the failure of a task does not explain the failure."""
    error = b'Traceback (most recent call last):\n  File "train.py", line 9, in f\n    g()\nRuntimeError: no slot\n'
    record = b"slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T16:38:01 ***\n"

    assert "" == read(error + record, Ending(exit_code=1)).code
    assert "slurm-cancelled" == read(b"step 7\n" + record, Ending(exit_code=143)).code


def test_long_message_at_the_end_of_a_log() -> None:
    """An error whose message is long is among the last lines of a rank that was stopped if its message is."""
    message = b"RuntimeError: Error(s) in loading state_dict for Net:\n"
    tensors = b"".join(b"\tsize mismatch for layers.%d.weight: copying a param\n" % layer for layer in range(200))
    error = b'Traceback (most recent call last):\n  File "train.py", line 9, in f\n    g()\n' + message + tensors
    steps = b"".join(b"step %d\n" % step for step in range(100))

    assert read(error + b"step 8\n", is_stopped=True).exception.startswith("RuntimeError: Error(s) in loading")
    assert "" == read(error + steps, is_stopped=True).exception


def test_kill_right_after_an_error() -> None:
    """A shell's report of a kill right after an error is how the program ended itself, but not long after it."""
    code = b"EE1001: [PID: 7] The argument is invalid.Reason: bad value\n"
    error = b'Traceback (most recent call last):\n  File "train.py", line 9, in f\n    g()\nRuntimeError: no slot\n'
    kill = b"run.sh: line 19: 34410 Killed                  python -m sglang.launch_server\n"
    steps = b"".join(b"step %d\n" % step for step in range(100))

    assert ("RuntimeError: no slot", "EE1001") == _told(error + code + b"\n" + kill)
    assert ("RuntimeError: no slot", "") == _told(error + b"\n" + kill)
    assert kill.decode().strip() == _told(error + steps + kill)[0]


def _told(tail: bytes) -> tuple[str, str]:
    found = read(tail, Ending(exit_code=137))
    return found.exception, found.code
