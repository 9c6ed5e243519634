"""The explanations in a finding besides the evidence."""

from __future__ import annotations

from signal import SIGABRT, SIGKILL, SIGSEGV

import pytest

from ascend_runner.diagnosis import log_evidence
from ascend_runner.diagnosis.endings import Circumstances
from ascend_runner.diagnosis.root_cause import Death, diagnose
from ascend_runner.supervision.causes import Ending

ABORT = Ending(signum=SIGABRT)
GIB = 1 << 30


@pytest.mark.parametrize(
    ("error", "circumstances", "fact"),
    [
        ("OSError: No space left on device", Circumstances(full_disks=("/dev/shm",)), "full now: /dev/shm"),
        ("OSError: No space left on device", Circumstances(), "a disk or /dev/shm is full"),
        ("OSError: [Errno 98] Address already in use", Circumstances(), "a leftover process or another job"),
        (
            "OSError: [Errno 98] Address already in use",
            Circumstances(listeners=("process 7 (python) on port 29500",)),
            "another job; listening now: process 7 (python) on port 29500",
        ),
        (
            "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. ",
            Circumstances(shm_size=GIB, shm_used=GIB),
            "no space left in /dev/shm; /dev/shm is full: 1.0 GiB of 1.0 GiB in use",
        ),
        (
            "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ",
            Circumstances(own_oom_kills=1, memory_limit=GIB, oom_victims=("pt_data_worker (pid 7)",)),
            "the OOM killer was active (limit 1.0 GiB); the kernel killed pt_data_worker (pid 7)",
        ),
        (
            "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ",
            Circumstances(own_oom_kills=0, shm_size=GIB, shm_used=GIB, full_disks=("/tmp",)),
            "a data loader worker was killed, usually by the OOM killer",
        ),
        (
            "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ",
            Circumstances(own_oom_kills=0, machine_oom_kills=0),
            "usually by the OOM killer; but the kernel reports no OOM kill",
        ),
        (
            "ModuleNotFoundError: No module named 'torch_npuu'",
            Circumstances(),
            "a package is missing in this Python: torch_npuu",
        ),
        (
            "ModuleNotFoundError: No module named 'swift'",
            Circumstances(),
            "a package is missing in this Python: swift (pip install ms-swift)",
        ),
    ],
)
def test_facts_beside_a_code(error: str, circumstances: Circumstances, fact: str) -> None:
    """The machine's present state is shown with an error that reports it: full disks, /dev/shm, OOM kills."""
    log = f'Traceback (most recent call last):\n  File "x.py", line 5, in save\n{error}\n'.encode()
    death = Death(rank_id=0, ending=Ending(exit_code=1), evidence=log_evidence.read(log))
    meaning = diagnose([death], circumstances, {}).findings[0].code_meaning

    assert meaning.endswith(fact)


def test_crash_of_a_child() -> None:
    """The crash that a launcher's log reports is explained, although the launcher has an exit status."""
    log = b"Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
    death = Death(rank_id=0, ending=Ending(exit_code=1), evidence=log_evidence.read(log))

    assert diagnose([death], Circumstances(), {}).findings[0].meaning.startswith("native code accessed invalid memory")


@pytest.mark.parametrize(
    ("is_explained", "log", "ending"),
    [
        (True, "[ERROR] DRV(7,python): halMemAlloc failed: device_id=7\n", Ending(signum=SIGSEGV)),
        (True, "terminate called after throwing an instance of 'x::Error'\n  what():  CUDA out of memory\n", ABORT),
        (False, "terminate called after throwing an instance of 'x::Error'\n  what():  no slot\n", ABORT),
        (False, "step 1\n", Ending(signum=SIGSEGV)),
        (False, "[ERROR] DRV(7,python): halMemAlloc failed: device_id=7\n", Ending(signum=SIGKILL)),
    ],
)
def test_signal_beside_a_cause(is_explained: bool, log: str, ending: Ending) -> None:  # noqa: FBT001  a parameter
    """A crash means nothing more where the log says why, such as a lack of memory on the device; a kill does."""
    death = Death(rank_id=0, ending=ending, evidence=log_evidence.read(log.encode(), ending))
    finding = diagnose([death], Circumstances(), {}).findings[0]

    assert is_explained == (finding.meaning == "")


def test_message_of_a_python_function() -> None:
    """A message that names a Python function is no report of the C library."""
    log = b'Traceback (most recent call last):\n  File "x.py", line 5, in f\nTypeError: f(): incompatible arguments\n'
    death = Death(rank_id=0, ending=Ending(exit_code=1), evidence=log_evidence.read(log))

    assert "" == diagnose([death], Circumstances(), {}).findings[0].meaning
