"""The choice of the error that explains the end of a rank, among several in its log."""

from __future__ import annotations

import pytest

from ascend_runner.diagnosis import statements
from ascend_runner.diagnosis.statements import is_raised_in_one
from ascend_runner.diagnosis.tracebacks import only_passes_on


def traceback(exception: str, *frames: str) -> list[str]:
    """Make a traceback with these frames, outermost first."""
    return ["Traceback (most recent call last):", *(frames or ('  File "train.py", line 5, in step',)), exception, ""]


NAN = traceback("ValueError: loss is nan")
LOST = traceback(
    "RuntimeError: [/x/gloo/tcp/pair.cc:9] Connection closed by peer",
    '  File "t.py", line 1, in f',
    "    dist.barrier()",
)
KILLED = traceback("subprocess.CalledProcessError: Command '['x']' died with <Signals.SIGSEGV: 11>.")
ABOVE = traceback("RuntimeError: Engine failed. See root cause above.")
QUEUE = traceback("EOFError", '  File "/x/multiprocessing/connection.py", line 383, in _recv', "    raise EOFError")
SPAWNED = traceback("EOFError: Ran out of input", '  File "/x/multiprocessing/spawn.py", line 1, in spawn_main')
THREADS = ["OpenBLAS blas_thread_init: pthread_create failed for thread 9 of 64: Resource temporarily unavailable"]
INTERRUPT = traceback("KeyboardInterrupt")
STEPS = [f"step {number}" for number in range(400)]
WATCHDOG = [
    "terminate called after throwing an instance of 'c10::DistBackendError'",
    "  what():  [Rank 1] HCCL watchdog thread terminated: collective operation timeout",
]
DECODE = traceback(
    "data.decode.DecodeError: block 7 of shard-3.tar is cut off",
    '  File "/job/data/decode.py", line 5, in decode',
    "    raise DecodeError(block)",
)
DUMP = [
    f"[rank1]:[E102 03:04:05 x.cpp:{number}] [Rank 1] HCCL watchdog: timeout of work {number}" for number in range(60)
]
DURING = ["During handling of the above exception, another exception occurred:", ""]
EI0006 = traceback(
    "RuntimeError: HCCL function error: HcclBarrier, error code is 6",
    '  File "/job/train.py", line 9, in main',
    "    dist.barrier()",
)
EI0006[-1:] = ["EI0006: [PID: 7] Getting socket times out.", ""]
NOT_SAVED = traceback(
    "OSError: [Errno 28] No space left on device", '  File "/job/save.py", line 9, in save', "    out.write(data)"
)


def chosen(*parts: list[str], is_late: bool = False) -> str:
    """Return the error that explains a log of these parts."""
    found = statements.choose([line for part in parts for line in part], is_late=is_late)
    return found.exception if found else ""


@pytest.mark.parametrize(
    ("expected", "parts"),
    [
        ("ValueError: loss is nan", [NAN]),
        ("ValueError: loss is nan", [LOST, NAN]),
        ("ValueError: loss is nan", [NAN, LOST]),  # the clean-up noticed that the peers are gone
        ("ValueError: loss is nan", [NAN, ABOVE]),
        ("ValueError: loss is nan", [NAN, LOST, ABOVE]),
        ("RuntimeError: Engine failed. See root cause above.", [ABOVE]),
        ("ValueError: loss is nan", [NAN, QUEUE]),
        ("EOFError", [QUEUE]),
        ("ValueError: loss is nan", [NAN, SPAWNED]),  # the child could not read what its parent wanted to send
        (
            "RuntimeError: [/x/gloo/tcp/pair.cc:9] Connection closed by peer",
            [NAN, STEPS, LOST],
        ),  # it survived the first
        (*THREADS, [THREADS, INTERRUPT]),  # which OpenBLAS has raised
        ("KeyboardInterrupt", [NAN, INTERRUPT]),
        ("free(): invalid pointer", [NAN, ["free(): invalid pointer"]]),
        ("subprocess.CalledProcessError: Command '['x']' died with <Signals.SIGSEGV: 11>.", [LOST, KILLED]),
        ("ValueError: loss is nan", [LOST, NAN, KILLED]),
        (
            "RuntimeError: [/x/gloo/tcp/pair.cc:9] Connection closed by peer",  # its watchdog ended the worker
            [LOST, [line.replace("SIGSEGV: 11", "SIGABRT: 6") for line in KILLED]],
        ),
        ("", [STEPS]),
    ],
)
def test_choice(expected: str, parts: list[list[str]]) -> None:
    """The last error counts, except for those that pass on another or report a peer."""
    assert expected == chosen(*parts)


def test_late_error() -> None:
    """After a death by a signal only the last lines count, and of these a crash first."""
    assert "" == chosen(NAN, STEPS[:30], is_late=True)
    assert "free(): invalid pointer" == chosen(["free(): invalid pointer"], NAN, is_late=True)
    assert "free(): invalid pointer" == chosen(LOST, ["free(): invalid pointer"], is_late=True)
    assert "ValueError: loss is nan" == chosen(NAN, STEPS[:30], ABOVE, is_late=True), "the last lines speak of it"
    assert "RuntimeError: Engine failed. See root cause above." == chosen(NAN, STEPS, ABOVE, is_late=True)


def test_epilogue() -> None:
    """What libraries print on the way out does not part an error from the end of the log."""
    summary = ["wandb: ", *(f"wandb:  metric_{number} 0.5" for number in range(30)), "wandb: Find logs at: ./wandb/run"]
    native = [
        "[rank1]:[W1112 07:12:00.2 TCPStore.cpp:125] recvValue failed",
        *["frame #3: f() + 0x2a (0x7e in x.so)"] * 30,
    ]

    assert "ValueError: loss is nan" == chosen(NAN, summary, is_late=True)
    assert "ValueError: loss is nan" == chosen(NAN, native, is_late=True)
    glibc = ["======= Memory map: ========", *["7f1c00-7f1d00 r-xp 00000000 08:02 77  /usr/lib64/x.so"] * 40]
    assert "free(): invalid size" == chosen(["free(): invalid size"], glibc, is_late=True)
    assert "" == chosen(NAN, summary * 20, is_late=True)


def test_crash_on_the_way_out() -> None:
    """Where native threads crash while the interpreter ends after an exception, the exception is the cause."""
    terminate = ["terminate called after throwing an instance of 'std::system_error'", "  what():  aborted"]

    assert "ValueError: loss is nan" == chosen(NAN, terminate, is_late=True)


@pytest.mark.parametrize(
    "error",
    [
        NAN,
        DECODE,
        traceback("Diverged: at step 7", '  File "train.py", line 5, in step', "    raise Diverged(step)"),
        traceback("cfg.errors.NoKey: lr", '  File "/x/site-packages/cfg/node.py", line 5, in get', "    raise NoKey"),
        traceback("RuntimeError: no slot", '  File "train.py", line 5, in step', "    queue.put(batch)"),
    ],
)  # fmt: skip
def test_error_of_the_program_before_the_watchdog(error: list[str]) -> None:
    """An exception of any class counts if the watchdog of a collective, which waits for this rank, aborts it later."""
    assert error[-2] == chosen(error, WATCHDOG, is_late=True)
    assert error[-2] == chosen(error, DUMP, WATCHDOG, is_late=True)


def test_lost_peer_before_the_watchdog() -> None:
    """Of two errors that report a peer, the last one counts."""
    assert chosen(WATCHDOG) == chosen(LOST, WATCHDOG, is_late=True)


def test_chain_that_ends_with_a_lost_peer() -> None:
    """What a rank has raised before it noticed that its peers are gone is the origin, and not the report of them."""
    assert "ValueError: loss is nan" == chosen(NAN, DURING, EI0006)
    assert "data.decode.DecodeError: block 7 of shard-3.tar is cut off" == chosen(DECODE, DURING, EI0006, DURING, LOST)
    assert "RuntimeError: HCCL function error: HcclBarrier, error code is 6" == chosen(NAN, STEPS, EI0006)


def test_chain_that_begins_with_a_lost_peer() -> None:
    """What a rank raises because its peers are gone is a consequence."""
    assert EI0006[-3] == chosen(EI0006, DURING, NOT_SAVED)
    assert EI0006[-3] == chosen(
        EI0006, ["The above exception was the direct cause of the following exception:", ""], NAN
    )


def test_report_of_a_lost_peer_between_two_errors() -> None:
    """Printed below an exception that states its cause, it does not make that a consequence."""
    report = "EI0006: [PID: 7] 2026-01-02-03:04:05.123.456 Getting socket times out."

    assert "ValueError: loss is nan" == chosen([*traceback("ValueError: loss is nan")[:-1], report, ""], LOST)


def test_abort_just_below_an_exception() -> None:
    """An abort that gives no reason yields to an exception just above it, but not to one further up."""
    abort = ["[node-0:00366] *** Process received signal ***", "[node-0:00366] Signal: Aborted (6)"]
    failed = traceback("RuntimeError: SET StreamOverflowSwitch Failed.")

    assert "RuntimeError: SET StreamOverflowSwitch Failed." == chosen(failed, abort, is_late=True)
    assert "Signal: Aborted (6)" == chosen(failed, STEPS[:8], abort, is_late=True)
    terminate = ["terminate called after throwing an instance of 'std::system_error'", "  what():  no threads"]
    assert "std::system_error: no threads" == chosen(failed, terminate, abort, is_late=True)


def test_error_record() -> None:
    """An error record explains the end of a rank without any other sign: of one that was stopped, the last lines."""
    record = "2026-01-02 03:04:05 | ERROR | no such table"

    assert record == statements.error_line([record, *STEPS[:30]], is_stopped=False)
    assert record == statements.error_line([*STEPS, record, "exiting"], is_stopped=True)
    assert "" == statements.error_line([record, *STEPS[:30]], is_stopped=True)
    assert "" == statements.error_line([*STEPS, "validation error 0.31"], is_stopped=True)
    notebook = "RuntimeError: not enough dimensions"
    assert notebook == statements.error_line([*STEPS, "     12 x = f()", notebook], is_stopped=True)
    stopping = "Loss is nan, stopping training"
    assert stopping == statements.error_line([*STEPS, stopping], is_stopped=True)
    assert stopping == statements.error_line([*STEPS, stopping], is_stopped=False)
    orphan = "[ERROR] TBE Subprocess[task_distribute] raise error[], main process disappeared!"
    assert "" == statements.error_line([*STEPS, orphan], is_stopped=False)
    structured = '{"level": "error", "msg": "no such table"}'
    assert structured == statements.error_line([*STEPS, structured], is_stopped=True)
    assert "" == statements.error_line([*STEPS, structured.replace("error", "info")], is_stopped=True)


@pytest.mark.parametrize(
    "line",
    [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
        "subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        "RuntimeError: Distributed job exited with error. Please check logs in path: /tmp/msrun_log",
        "ray.exceptions.RayTaskError(ValueError): ray::train() (pid=7, ip=10.0.0.4)",
        "vllm.v1.engine.exceptions.EngineDeadError: See stack trace (above) for the root cause.",
        "RuntimeError: The Inner error is reported as above. The process exits for this inner error",
        "RuntimeError: Error building extension 'fused_adam'",
        "datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset",
        "RuntimeError: cancelled",
        "RuntimeError: Executor failed.",
        "ChildProcessError: worker died",
        "run.sh: line 12:  4711 Segmentation fault      (core dumped) python train.py",
        "Segmentation fault (core dumped)",
        "ray.train.base_trainer.TrainingFailedError: Please inspect the previous error messages for a cause.",
    ],
)  # fmt: skip
def test_errors_that_pass_on(line: str) -> None:
    """An error of a launcher, pool or engine about its workers refers to another error."""
    assert only_passes_on([line])


def test_errors_of_their_own() -> None:
    """An ordinary error passes nothing on."""
    assert not only_passes_on(["ValueError: see the documentation of lr"])
    assert not only_passes_on(["RuntimeError: NPU out of memory. Tried to allocate 2 GiB"])


@pytest.mark.parametrize(
    ("is_collective", "exception", "frame"),
    [
        (True, "RuntimeError: timed out", "    dist.all_reduce(loss)"),
        (
            True,
            "torch.distributed.DistBackendError: socket closed",
            '  File "/x/torch/distributed/distributed_c10d.py", line 1, in f',
        ),
        (True, "RuntimeError: NCCL communicator was aborted", "    step()"),
        (
            True,
            "torch.distributed.rendezvous.api.RendezvousConnectionError: The c10d store has failed",
            "frame",
        ),
        (True, "c10::DistBackendError: [Rank 1] Process group watchdog thread terminated: HCCL error", "frame"),
        (True, "std::runtime_error: [Rank 1] HCCL watchdog thread terminated with exception: remote process", "frame"),
        (False, "ValueError: tensors have different shapes", "    dist.all_reduce(loss)"),
        (False, "RuntimeError: shapes cannot be multiplied", "    model(x)"),
    ],
)
def test_collectives(is_collective: bool, exception: str, frame: str) -> None:  # noqa: FBT001  a parameter
    """An exception of a backend in a collective may be a peer's fault, a wrong argument is the caller's own."""
    assert is_collective == is_raised_in_one(exception, [frame, exception])


def test_command_that_a_shell_has_survived() -> None:
    """A shell goes on after a command that fails, so that only the end of a log tells whether it mattered."""
    failed = ["train.sh: line 3: nvidia-smi: command not found"]

    assert "" == chosen(failed, STEPS)
    assert failed[0] == chosen(STEPS, failed, ["srun: error: n1: task 3: Exited with exit code 127"] * 9)
    assert "" == statements.error_line([*failed, *STEPS[:20]], is_stopped=False)
    assert "ValueError: loss is nan" == chosen(failed, NAN, is_late=True)
    assert failed[0] == chosen(failed, ABOVE)
