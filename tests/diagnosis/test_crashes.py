"""Last words of native code and other runtimes, in the form in which each prints them."""

from __future__ import annotations

import pytest

from ascend_runner.diagnosis.crashes import find_all
from ascend_runner.diagnosis.tracebacks import Traceback

TWO_FATAL_ERRORS = """\
Fatal Python error: Segmentation fault

Thread 0x00007f11 (most recent call first):
  File "/usr/lib/python3.10/threading.py", line 324 in wait
Fatal Python error: Segmentation fault

Current thread 0x00007f22 (most recent call first):
  File "/job/kernels.py", line 81 in fused_step
  File "/job/train.py", line 12 in <module>
"""
GLOG_SIGNAL = """\
*** Aborted at 1700000000 (unix time) try "date -d @1700000000" if you are using GNU date ***
PC: @                0x0 (unknown)
*** SIGSEGV (@0x8) received by PID 77 (TID 0x7f00) from PID 8; stack trace: ***
    @     0x7f00aa11 (unknown)
    @     0x7f00aa22 gather_kernel::Run()
"""
OPEN_MPI_SIGNAL = """\
[node-3:912] *** Process received signal ***
[node-3:912] Signal: Bus error (7)
[node-3:912] Signal code: Nonexistant physical address (2)
[node-3:912] Failing at address: 0x40
[node-3:912] [ 0] linux-vdso.so.1(__kernel_rt_sigreturn+0x0)[0xffff8000]
[node-3:912] [ 1] /opt/lib/libloader.so(read_batch+0x40)[0xffff9000]
[node-3:912] *** End of error message ***
"""
UCX_SIGNAL = """\
[node-3:912  :0:912] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)
==== backtrace (tid:    912) ====
 0 0x0000000000014420 __funlockfile()  ???:0
 1 0x00000000000a2f5c ring_allreduce()  ???:0
"""
TVM_SIGNAL = """\
!!!!!!! Segfault encountered !!!!!!!
  File "./nptl/pthread_kill.c", line 0, in __pthread_kill_implementation
  File "<unknown>", line 0, in codegen::visit(tir::Node const*)
"""
GLUED_TERMINATE = """\
terminate called after throwing an instance of 'terminate called after throwing an instance of 'std::runtime_error'
std::runtime_error'
step 12
  what():  queue is closed
"""
JAVA = """\
Exception in thread "main" java.lang.RuntimeException: cannot start
\tat org.example.Main.main(Main.java:5)
Caused by: java.io.IOException: no such table
\tat org.example.Table.open(Table.java:9)
\t... 1 more
"""
MINDSPORE = """\
ERROR:root:Step failed: The tensor's address is empty.

----------------------------------------------------
- Framework Unexpected Exception Raised:
----------------------------------------------------
Please report it.

----------------------------------------------------
- C++ Call Stack: (For framework developers)
----------------------------------------------------
mindspore/ccsrc/device/address.cc:24 Copy
"""


LOST_DAEMON = """\
--------------------------------------------------------------------------
PRTE has lost communication with a remote daemon.

  HNP daemon   : [prterun-node-1-77@0,0] on node node-1
  Remote daemon: [prterun-node-1-77@0,1] on node node-2
"""
HYDRA = """\
In 'train.yaml': Could not find 'data/small'

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
"""
HYDRA_SEARCH_PATH = """\
Cannot find primary config 'train'. Check that it's in your config search path.

Config search path:
\tprovider=main, path=file:///job/conf

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
"""
HYDRA_OVERRIDE = """\
Could not override 'model.depth'.
Key 'depth' is not in struct
    full_key: model.depth

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
"""
RAY = "[2026-01-02 03:04:05,006 E 77 77] logging.cc:113: Unhandled exception: St12out_of_range. what(): no such slot"


def last(text: str) -> Traceback:
    """Find the last words that must be there, after a line of a healthy rank."""
    return find_all(["step 11 loss 0.25", *text.splitlines()])[-1]


@pytest.mark.parametrize(
    ("summary", "text"),
    [
        ("Fatal Python error: Segmentation fault", TWO_FATAL_ERRORS),
        ("SIGSEGV (@0x8) received by PID 77 in gather_kernel::Run()", GLOG_SIGNAL),
        ("Signal: Bus error (7) in read_batch", OPEN_MPI_SIGNAL),
        (
            "Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8) in ring_allreduce()",
            UCX_SIGNAL,
        ),
        ("Segfault encountered in codegen::visit(tir::Node const*)", TVM_SIGNAL),
        ("std::runtime_error: queue is closed", GLUED_TERMINATE),
        ("java.io.IOException: no such table", JAVA),
        ("ERROR:root:Step failed: The tensor's address is empty.", MINDSPORE),
        ("terminate called without an active exception", "terminate called without an active exception"),
        (
            "pure virtual method called",
            "pure virtual method called\nterminate called without an active exception\nSignal: Aborted (6)",
        ),
        (
            "terminate called without an active exception",
            "terminate called without an active exception\n*** SIGABRT (@0x8) received by PID 77",
        ),
        ("OMP: Error #15: two runtimes", "OMP: Error #15: two runtimes\nOMP: Hint: see"),
        ("libgomp: Thread creation failed: Resource", "libgomp: Thread creation failed: Resource"),
        ("Intel MKL FATAL ERROR: Cannot load x.so.", "Intel MKL FATAL ERROR: Cannot load x.so."),
        ("<jemalloc>: Unsupported system page size", "<jemalloc>: Unsupported system page size"),
        ("Segmentation fault (core dumped)", "Segmentation fault (core dumped)"),
        ("run.sh: line 3: PORT: unbound variable",) * 2,
        ("run.sh: line 9: syntax error near unexpected token `fi'",) * 2,
        ("bash: ./run.sh: Permission denied",) * 2,
        ("/usr/bin/env: 'python3': No such file or directory",) * 2,
        ("FAILED tests/test_sum.py::test_sum - assert 6 == 10",) * 2,
        ("Timeout (0:10:00)!", "Timeout (0:10:00)!\nThread 0x00007f11 (most recent call first):"),
        ("op.cc:31] Check failed: n > 0", "F0407 03:12:45.123456  4711 op.cc:31] Check failed: n > 0"),
        ("double free or corruption (out)", "double free or corruption (out)"),
        ("/usr/bin/ld: cannot find -la", "/usr/bin/ld: cannot find -la\nninja: build stopped: subcommand failed."),
        ("Attempt to free invalid pointer 0x1", "src/tcmalloc.cc:283] Attempt to free invalid pointer 0x1"),
        ("Detected 1 oom_kill event in StepId=1.0.", "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0."),
        ("munmap_chunk(): invalid pointer", "munmap_chunk(): invalid pointer"),
        ("*** stack smashing detected ***: terminated", "*** stack smashing detected ***: terminated"),
        ("python: a.c:7: f: Assertion `n' failed.", "python: a.c:7: f: Assertion `n' failed."),
        ("double free or corruption (out)", "double free or corruption (out)\nFatal Python error: Aborted"),
        (
            "query: NPU function error: call aclnnAdd failed, error code is 507018",
            "[E608 07:07:47.727239970 x.ts:4] query: NPU function error: call aclnnAdd failed, error code is 507018",
        ),
        (
            "call aclnnSort failed, detail:EZ9999: Inner Error!",
            "[E OpParamMaker.cpp:9] call aclnnSort failed, detail:EZ9999: Inner Error!\nEZ9999: no such kernel",
        ),
        (
            "adam.cpp:1:9: fatal error: omp.h: No such file",
            "adam.cpp:1:9: fatal error: omp.h: No such file\na.cpp:5:1: error: expected ';'\nninja: build stopped",
        ),
        (
            "OpenBLAS blas_thread_init: pthread_create failed for thread 9 of 64: Resource temporarily unavailable",
        )
        * 2,
        ("panic: runtime error: index", "panic: runtime error: index\n\ngoroutine 1 [running]:"),
        ("panic: no table", "thread 'main' panicked at src/main.rs:5:9:\nno table"),
        ("panic: no table", "thread 'main' panicked at 'no table', src/main.rs:5:9"),
        ("train.py: error: argument --lr: no number", "train.py: error: argument --lr: no number"),
        ("PRTE has lost communication with a remote daemon", LOST_DAEMON),
        (
            "An MPI communication peer process has unexpectedly disconnected",
            "An MPI communication peer process has unexpectedly disconnected.  This\nusually indicates a failure\n",
        ),
        (
            "prterun was unable to launch the specified application",
            "prterun was unable to launch the specified application as it could not find an\nexecutable:",
        ),
        ("In 'train.yaml': Could not find 'data/small'", HYDRA),
        ("Could not override 'model.depth'.", HYDRA_OVERRIDE),
        ("Cannot find primary config 'train'. Check that it's in your config search path.", HYDRA_SEARCH_PATH),
        ("no such slot", RAY),
        ("run.sh: line 3:  4711 Killed     python x.py", "run.sh: line 3:  4711 Killed     python x.py"),
    ],
)  # fmt: skip
def test_summaries(summary: str, text: str) -> None:
    """Each form is found, and reported in one line."""
    assert summary == last(text).exception


def test_source_lines_above_a_heading() -> None:
    """A source line above a heading of MindSpore belongs to the call stack of an exception, and is no message."""
    assert not find_all(["In file /job/net.py:12", "        x = self.norm(x)", "", "- C++ Call Stack: (For me)"])


def test_current_thread_of_a_fatal_error() -> None:
    """The thread that crashed is the current one, whose frames are shown; others only waited."""
    found = last(TWO_FATAL_ERRORS)
    *_others, error, _empty, thread, inner, outer = TWO_FATAL_ERRORS.splitlines()

    assert ("kernels.py:81 in fused_step", (error, thread, inner, outer)) == (found.place, tuple(found.lines))


def test_hint_of_hydra_below_a_traceback() -> None:
    """Where hydra prints a traceback, what stands above its hint belongs to that."""
    traceback = ["Traceback (most recent call last):", '  File "train.py", line 5, in main', "ValueError: no data", ""]

    assert [] == find_all([*traceback, *HYDRA.splitlines()[2:]])


def test_node_that_is_lost() -> None:
    """The node is named below the first line of the message."""
    assert any("on node node-2" in line for line in last(LOST_DAEMON).message)


def test_stack_of_an_abort() -> None:
    """The message of native code before it aborted is joined with the stack that faulthandler prints."""
    found = last(f"corrupted double-linked list\n{TWO_FATAL_ERRORS.replace('Segmentation fault', 'Aborted')}")

    assert ("corrupted double-linked list", "kernels.py:81 in fused_step") == (found.exception, found.place)


def test_healthy_log() -> None:
    """An ordinary log holds no crash."""
    lines = [
        "step 1",
        "*** Epoch 2 ***",
        "f(): done",
        "loss: 0.1",
        "error: 3 samples skipped",
        "- Training:",
        "F1 0.93",
        "cp: cannot stat 'x': No such file or directory",
        "ERROR 10-22 20:45:14 [core.py:7] request 3 - aborted",
    ]

    assert [] == find_all(lines)
