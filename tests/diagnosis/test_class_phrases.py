"""What the class of an error means where no rule knows its message."""

from __future__ import annotations

import pytest

from ascend_runner.diagnosis.catalogue import class_of
from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.log_evidence import read
from ascend_runner.supervision.causes import Ending

IN_THE_PROGRAM = 'Traceback (most recent call last):\n  File "/job/train.py", line 61, in main\n    step(batch)\n'
IN_A_COLLECTIVE = (
    'Traceback (most recent call last):\n  File "/opt/torch/distributed/distributed_c10d.py", line 9, in barrier\n'
    "    work = group.barrier(opts=opts)\n"
)


def code_of(text: str) -> str:
    """Return the code that is found in a log."""
    return read(text.encode(), Ending(exit_code=1)).code


@pytest.mark.parametrize(
    "message",
    [
        "ValueError: loss is nan at step 17",
        "RuntimeError: 训练失败",
        "KeyError: 'labels'",
        "ValueError: the model needs 8 GPUs",
        "RuntimeError: corrupt state: the step went backwards",
        "ValueError: unable to open the valve",
        "ImportError: this program requires a license",
        "ValueError: dataset foo/bar not found in the registry",
        "RuntimeError: cannot load plugin 'a' of the checkpoint manager",
        "ValueError: name 'a' is not a valid file",
        "FileNotFoundError: no checkpoint in epoch 3",
        "ValueError: --fp16 and --bf16 are mutually exclusive",
        "ValueError: key /a/b is unknown",
        "AssertionError: status 4030 is not 200",
        "ValueError: error code 401 rows remain",
        "RuntimeError: silent data corruption detected on rank 3",
        "ValueError: object key 'apple' occurs twice",
        "ValueError: bucket 17 of the histogram does not exist",
        "ValueError: the slowdown must not exceed 2",
        "ValueError: Failed to find function search_web in the answer",
        "RuntimeError: image tiling failed for slide 3",
        "RuntimeError: rank model failed to reach 0.8",
        "RuntimeError: Killed process 12 of the pool after 9 s",
        "ValueError: api_key not configured for the judge",
        "RuntimeError: Timed out waiting for key 'answer'",
        "RuntimeError: image operation setup failed",
        "RuntimeError: CPU memory not enough for the cache",
        "RuntimeError: workers diverge if one of them is out of memory",
        "TypeError: main() missing 1 required positional argument: 'args'",
    ],
)
def test_no_class(message: str) -> None:
    """A message that says all there is to say gets no advice."""
    assert "" == code_of(f"{IN_THE_PROGRAM}{message}\n")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("container-not-started", "docker: Error response from daemon: error gathering device information"),
        ("container-not-started", "slurmstepd: error: pyxis: couldn't start container"),
        ("launch-by-slurm", "srun: error: Task launch for StepId=7.0 failed on node n1: Job credential expired"),
        ("launch-by-slurm", "srun: error: task 0 launch failed: Plugin initialization failed"),
        ("setting-refused-by-a-parser", "Error: Extra inputs are not permitted"),
        ("cores-not-available", "taskset: failed to set pid 0's affinity: Invalid argument"),
        ("version-for-pip", "ERROR: No matching distribution found for torch_npu==2.1.0.post12"),
        ("other-format", "tar: Unexpected EOF in archive"),
        ("version-for-pip", "ERROR: torch_npu-2.5.1-cp310-cp310-linux_aarch64.whl is not a supported wheel"),
        ("object-in-a-storage", "ERROR: downloader.py: Get object key failed: 'Contents'"),
        ("argument-of-a-program", "FATAL Flags parsing error: Unknown command line flag 'index'"),
    ],
)
def test_last_words(name: str, line: str) -> None:
    """The last line of a program that is not in Python has a class as well, though it is weak evidence."""
    evidence = read(f"step 1\n{line}\n".encode(), Ending(exit_code=1))

    assert name == evidence.code
    assert evidence.kind is (Kind.EITHER if evidence.is_weak else Kind.ROOT)


def test_last_words_of_a_program() -> None:
    """What a program writes on its way out is in its own words."""
    for line in ("ERROR the judge does not support this claim", "[ERROR] 裁判不支持该答案", "ERROR no examples found"):
        assert "" == code_of(f"step 1\n{line}\n")


def test_program_not_started() -> None:
    """A FileNotFoundError of subprocess is a missing program, unlike that of open()."""
    in_subprocess = 'Traceback (most recent call last):\n  File "/py/subprocess.py", line 9, in _execute_child\n'

    assert "program-not-started" == code_of(
        f"{in_subprocess}FileNotFoundError: [Errno 2] No such file or directory: 'x'\n"
    )


def test_only_the_error_itself() -> None:
    """Other lines have no class, nor has an error that may be a peer's or that passes another one on."""
    assert "" == code_of(f"HTTPError: 503 Server Error\n{IN_THE_PROGRAM}RuntimeError: no\n")
    assert "" == code_of(f"{IN_A_COLLECTIVE}RuntimeError: socket closed, status 503\n")
    assert "" == code_of(
        f"{IN_THE_PROGRAM}CalledProcessError: Command 'a' returned non-zero exit status 1. 503 Server Error\n"
    )


def test_reason_above() -> None:
    """An error without a class has that of the ERROR lines of MindSpore just above its traceback."""
    reason = "[ERROR] PARALLEL(7): the strategy is (1, 3), but shape 1024 cannot be divisible by 3\n"

    assert "not-divisible" == code_of(f"{reason}{IN_THE_PROGRAM}RuntimeError: Failure:operator MatMul init failed\n")


def test_known_message_precedes_class() -> None:
    """A rule that knows a message precedes its class."""
    message = ["OSError: [Errno 28] No space left on device: File too large"]

    assert class_of(message)
    assert "no-space-left-on-device" == code_of(f"{IN_THE_PROGRAM}{message[0]}\n")


def test_parallel_strategy() -> None:
    """MindSpore names an operator whose strategy is wrong, and logs the reason just above."""
    reason = "[ERROR] PARALLEL(7): MatMul: the strategy is ((1, 3)), the length must be 2\n"
    error = 'Traceback (most recent call last):\n  File "/job/train.py", line 6, in f\n    a()\nRuntimeError: failed\n'

    assert "parallel-strategy" == read(f"{reason}{error}".encode(), Ending(exit_code=1)).code
