"""The meaning of exit statuses and signals."""

from __future__ import annotations

from signal import SIGABRT, SIGBUS, SIGILL, SIGINT, SIGKILL, SIGSEGV, SIGTERM, SIGUSR1

import attrs
import pytest

from ascend_runner.diagnosis.endings import Circumstances, is_out_of_memory, meaning, signal_behind
from ascend_runner.supervision.causes import Ending

GIB = 1 << 30
KILLED = Ending(signum=SIGKILL)


@pytest.mark.parametrize(
    ("signum", "ending"),
    [
        (SIGSEGV, Ending(signum=SIGSEGV)),
        (SIGKILL, Ending(exit_code=137)),
        (SIGTERM, Ending(exit_code=143)),
        (SIGKILL, Ending(exit_code=247)),
        (SIGABRT, Ending(exit_code=250)),
        (0, Ending(exit_code=1)),
        (0, Ending(exit_code=128)),
        (0, Ending(exit_code=255)),
        (SIGINT, Ending(exit_code=130)),
        (0, Ending()),
    ],
)
def test_signal_behind(signum: int, ending: Ending) -> None:
    """A shell reports its child's signal as 128 + S; a Python script that exits with returncode -S as 256 - S."""
    assert signum == signal_behind(ending)


def test_killed_in_the_own_cgroup() -> None:
    """SIGKILL with an OOM kill in the own cgroup means out of memory, with limit and peak."""
    circumstances = Circumstances(
        own_oom_kills=1, machine_oom_kills=1, memory_limit=64 * GIB, memory_peak=64 * GIB - 4096
    )

    assert "out of memory, killed by the OOM killer (limit 64.0 GiB, peak 64.0 GiB)" == meaning(KILLED, circumstances)
    assert is_out_of_memory(KILLED, circumstances)
    named = attrs.evolve(circumstances, oom_victims=("python (pid 7)", "sh (pid 8)"))
    assert meaning(KILLED, named).endswith(" peak 64.0 GiB); the kernel killed python (pid 7), sh (pid 8)")


def test_killed_somewhere_on_the_machine() -> None:
    """An OOM kill elsewhere on the machine makes it probable only, for the victim may be another process."""
    circumstances = Circumstances(own_oom_kills=0, machine_oom_kills=2, memory_peak=GIB)

    assert (
        "probably out of memory: the OOM killer has killed 2 processes on this machine since the start of the job"
        " (no memory limit, peak 1.0 GiB)"
    ) == meaning(KILLED, circumstances)


def test_killed_by_somebody() -> None:
    """The sender of a SIGKILL without an OOM kill is unknown: a process can kill itself."""
    circumstances = Circumstances(own_oom_kills=0, machine_oom_kills=0)

    assert (
        "killed by SIGKILL, sent by the platform, the driver, another process or the rank itself; the kernel reports"
        " no OOM kill"
    ) == meaning(KILLED, circumstances)
    assert not is_out_of_memory(KILLED, circumstances)


def test_oom_kill_in_the_log() -> None:
    """A report of the OOM killer in the log is believed, also if the runner's own counters do not show it."""
    circumstances = Circumstances(own_oom_kills=0, machine_oom_kills=0)

    assert "out of memory, killed by the OOM killer" == meaning(KILLED, circumstances, "Detected 1 oom_kill event")


def test_wrong_build() -> None:
    """SIGILL is explained by a package for another CPU."""
    assert (
        "illegal CPU instruction: a package was built for another type of CPU: install its build for this CPU"
    ) == meaning(Ending(signum=SIGILL), Circumstances())


def test_killed_without_counters() -> None:
    """Without counters nothing is certain."""
    assert (
        "killed from outside, usually by the kernel for lack of memory: check the memory limit, and dmesg"
    ) == meaning(KILLED, Circumstances())


def test_only_sigkill_is_lack_of_memory() -> None:
    """An OOM kill does not explain a rank that ended in another way."""
    assert not is_out_of_memory(Ending(exit_code=1), Circumstances(own_oom_kills=3))
    assert "" == meaning(Ending(exit_code=1), Circumstances(own_oom_kills=3))


@pytest.mark.parametrize(
    ("words", "used"), [("increase the container's shared memory", 64), ("space is freed when its users exit", 1)]
)
def test_bus_error(words: str, used: int) -> None:
    """SIGBUS is explained with the size of /dev/shm and the space in use."""
    circumstances = Circumstances(shm_size=64 << 20, shm_used=used << 20)
    sentence = meaning(Ending(signum=SIGBUS), circumstances)

    assert f"{used}.0 MiB of 64.0 MiB in use" in sentence
    assert words in sentence


@pytest.mark.parametrize("signum", [4, 6, 7, 8, 9, 11, 15, 1])
def test_every_meaning_is_one_line(signum: int) -> None:
    """Each common signal is explained in one line."""
    sentence = meaning(Ending(signum=signum), Circumstances())

    assert sentence.isprintable()
    assert 20 < len(sentence) < 200


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        (
            (
                "its child process was killed by SIGKILL from outside, usually by the kernel for lack of memory: check"
                " the memory limit, and dmesg"
            ),
            Ending(exit_code=137),
        ),
        (
            "its child process was killed by SIGTERM: stopped by SIGTERM from outside, not by the runner",
            Ending(exit_code=143),
        ),
        (
            "its child process was killed by SIGINT: interrupted by SIGINT from outside, not by the runner",
            Ending(exit_code=130),
        ),
    ],
)
def test_signal_reported_by_a_shell(words: str, ending: Ending) -> None:
    """If the rank is a shell, the signal that ended its child is explained."""
    assert words == meaning(ending, Circumstances())


def test_signal_without_explanation() -> None:
    """A signal whose name says enough is not explained."""
    assert "" == meaning(Ending(signum=SIGUSR1), Circumstances())


def test_crash_that_has_printed_its_stack() -> None:
    """The advice to set PYTHONFAULTHANDLER is left out if it has just printed the stack."""
    assert "PYTHONFAULTHANDLER" in meaning(Ending(signum=SIGSEGV), Circumstances())
    assert "PYTHONFAULTHANDLER" not in meaning(Ending(signum=SIGSEGV), Circumstances(), has_stack=True)


def test_abort_of_a_watchdog() -> None:
    """A library that aborts because of a peer has no corrupted heap."""
    assert "corrupted heap" in meaning(Ending(signum=SIGABRT), Circumstances())
    assert "peer" in meaning(Ending(signum=SIGABRT), Circumstances(), is_consequence=True)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("a corrupted heap", "free(): invalid pointer"),
        ("an uncaught C++ exception", "std::bad_alloc: std::bad_alloc"),
        ("a failed assertion", "python: a.c:7: f: Assertion `n' failed."),
        ("see the last lines", ""),
    ],
)
def test_reason_of_an_abort(reason: str, told: str) -> None:
    """The reason for an abort in the log is not followed by a list of other possible ones."""
    assert reason in meaning(Ending(signum=SIGABRT), Circumstances(), told)
