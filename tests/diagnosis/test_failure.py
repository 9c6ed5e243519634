"""The failures that permit a restart, and those that are the same."""

from __future__ import annotations

from signal import SIGKILL, SIGSEGV, SIGTERM

import attrs
import pytest

from ascend_runner.diagnosis import failure
from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.finding import Finding
from ascend_runner.supervision.causes import Cause, Ending, Exited, HangDetected, Restart, SpawnFailed

FAILED = Ending(exit_code=1)


def python(exception: str, place: str = "train.py:3 in step") -> Finding:
    """Return the finding on a Python exception."""
    return Finding(exception=exception, place=place)


def code(name: str, kind: Kind = Kind.ROOT, exception: str = "RuntimeError: x") -> Finding:
    """Return the finding on an error with a code or a telling phrase."""
    return Finding(code=name, code_kind=kind.value, exception=exception, place="train.py:3")


def judged(
    ending: Ending = FAILED, finding: Finding | None = None, *, progress: bool | None = False, is_alike: bool = False
) -> Restart:
    """Judge the failure of a rank."""
    return failure.judge(Exited(0, ending), ending, finding, has_progressed=progress, is_alike=is_alike)


NEVER = {
    "syntax": (FAILED, python("SyntaxError: invalid syntax")),
    "indentation": (FAILED, python("IndentationError: unexpected indent")),
    "module": (FAILED, code("no-module-named", exception="ModuleNotFoundError: No module named 'apex'")),
    "name in module": (FAILED, python("ImportError: cannot import name 'x' from 'torch'")),
    "arguments": (Ending(exit_code=2), Finding(last_lines=("usage: train.py [-h]", "train.py: error: argument --lr"))),
    "not executable": (Ending(exit_code=126), None),
    "not found": (Ending(exit_code=127), None),
    "verdict of a runner inside": (Ending(exit_code=93), None),
    "variable of HCCL": (FAILED, code("EI0001")),
    "rank table": (FAILED, code("EI0004")),
    "tls": (FAILED, code("EI0016")),
}
CONFIRM = {
    "exception": (FAILED, python("ValueError: loss is nan")),
    "library": (FAILED, python("ImportError: libhccl.so: cannot open shared object file")),
    "NPU memory": (FAILED, code("EL0004")),
    "memory": (FAILED, code("npu-out-of-memory")),
    "disk": (FAILED, code("no-space-left-on-device", exception="OSError: [Errno 28] No space left on device")),
    "killed for memory": (Ending(signum=SIGKILL), Finding(is_out_of_memory=True)),
    "exit status of a program of its own": (Ending(exit_code=2), python("KeyError: 'a'")),
}
TRANSIENT = {
    "peer": (FAILED, code("EI0002", Kind.SECONDARY)),
    "link": (FAILED, code("EI0009", Kind.EITHER)),
    "device exception": (FAILED, code("507015")),
    "device in use": (FAILED, code("EJ0001")),
    "port": (FAILED, code("address-already-in-use")),
    "connection": (FAILED, python("ConnectionResetError: [Errno 104] Connection reset by peer")),
    "store": (FAILED, python("torch.distributed.DistStoreError: timed out")),
    "crash": (Ending(signum=SIGSEGV), Finding(exception="Fatal Python error: Segmentation fault", place="a.py:1")),
    "killed": (Ending(signum=SIGKILL), None),
    "stopped from outside": (Ending(exit_code=128 + SIGTERM), None),
    "unknown": (Ending(exit_code=7), Finding(last_lines=("done",))),
    "two without usage": (Ending(exit_code=2), Finding(last_lines=("ls: cannot access x",))),
}


@pytest.mark.parametrize(
    ("expected", "case"),
    [
        *((Restart.NEVER, case) for case in NEVER.values()),
        *((Restart.CONFIRM, case) for case in CONFIRM.values()),
        *((Restart.TRANSIENT, case) for case in TRANSIENT.values()),
    ],
    ids=[*NEVER, *CONFIRM, *TRANSIENT],
)
def test_classes(expected: Restart, case: tuple[Ending, Finding | None]) -> None:
    """A permanent failure is never tried again, a probably permanent one once, and any other more often."""
    assert expected is judged(*case)


@pytest.mark.parametrize(
    ("expected", "cause"),
    [
        (Restart.TRANSIENT, HangDetected(60.0)),
        (Restart.NEVER, SpawnFailed(0, "no such file", 127)),
        (Restart.CONFIRM, SpawnFailed(0, "too many processes", 125)),
    ],
)
def test_classes_without_a_failed_rank(expected: Restart, cause: Cause) -> None:
    """A hang may pass, a missing program does not."""
    assert expected is failure.judge(cause, Ending(), None, has_progressed=False, is_alike=False)


@pytest.mark.parametrize("progress", [True, None])
def test_import_error_after_progress_is_confirmed(*, progress: bool | None) -> None:
    """A module that could be imported before is missing on this machine now: that can change."""
    assert Restart.CONFIRM is judged(FAILED, python("ImportError: x"), progress=progress)


@pytest.mark.parametrize(
    ("progress", "expected"), [(False, Restart.CONFIRM), (True, Restart.TRANSIENT), (None, Restart.TRANSIENT)]
)
def test_all_ranks_alike_before_progress(*, progress: bool | None, expected: Restart) -> None:
    """Where every rank fails the same way before anything was achieved, one restart shows whether that is chance."""
    ending, finding = TRANSIENT["device exception"]

    assert expected is judged(ending, finding, progress=progress, is_alike=True)


@pytest.mark.parametrize("place", ["train.py:3", "other.py:3 in step"])
@pytest.mark.parametrize("ending", [FAILED, Ending(exit_code=3)])
def test_fingerprint_of_an_exception_is_its_place(place: str, ending: Ending) -> None:
    """Values in the message, the rank and the exit status do not matter."""
    first = failure.fingerprint(Exited(0, FAILED), FAILED, python("ValueError: loss is 1.5", place))
    second = failure.fingerprint(Exited(5, ending), ending, python("torch.x.ValueError: loss is 2.5: x", place))

    assert f"ValueError at {place}" == first == second


@pytest.mark.parametrize(
    ("expected", "ending", "finding"),
    [
        ("EI0006", FAILED, code("EI0006", Kind.SECONDARY)),
        ("RuntimeError at train.py:3", FAILED, code("EL0004")),
        ("EL0004", FAILED, code("EL0004", exception="")),
        ("SIGSEGV", Ending(signum=SIGSEGV), None),
        ("SIGSEGV", Ending(exit_code=139), Finding(last_lines=("Segmentation fault",))),
        ("exit status 7", Ending(exit_code=7), None),
        ("KeyboardInterrupt", FAILED, Finding(exception="KeyboardInterrupt")),
    ],
)
def test_fingerprints(expected: str, ending: Ending, finding: Finding | None) -> None:
    """Without a place of its own, a failure is known by its code, its signal or its exit status."""
    assert expected == failure.fingerprint(Exited(0, ending), ending, finding)


def test_fingerprints_without_a_failed_rank() -> None:
    """All hangs are alike, whatever the limit."""
    causes: list[Cause] = [HangDetected(1.0), HangDetected(2.0), SpawnFailed(0, "x", 127), SpawnFailed(1, "y", 127)]
    hang, other_hang, missing, other_missing = (failure.fingerprint(cause, Ending(), None) for cause in causes)

    assert (hang, missing) == (other_hang, other_missing)
    assert hang != missing


def test_fingerprint_is_short() -> None:
    """A place of any length fits into an event."""
    finding = attrs.evolve(python("ValueError: x"), place="x" * 10_000)

    assert 200 == len(failure.fingerprint(Exited(0, FAILED), FAILED, finding))
