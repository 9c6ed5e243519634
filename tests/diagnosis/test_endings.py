"""What endings mean."""

from __future__ import annotations

from signal import SIGABRT, SIGBUS, SIGILL, SIGINT, SIGKILL, SIGSEGV, SIGTERM

import pytest

from ascend_runner.diagnosis.endings import Circumstances, is_out_of_memory, meaning, signal_behind, size
from ascend_runner.supervision.events import Ending

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
    """A shell hands a signal on as 128 + S, a Python script that exits with a returncode of -S as 256 - S."""
    assert signum == signal_behind(ending)


def test_killed_in_the_own_cgroup() -> None:
    """SIGKILL with a risen counter of the own cgroup is lack of memory, told with limit and peak."""
    circumstances = Circumstances(
        own_oom_kills=1, machine_oom_kills=1, memory_limit=64 * GIB, memory_peak=64 * GIB - 4096
    )

    assert "killed for lack of memory: limit 64.0 GiB, peak 64.0 GiB" == meaning(KILLED, circumstances)
    assert is_out_of_memory(KILLED, circumstances)


def test_killed_somewhere_on_the_machine() -> None:
    """Where only the machine's counter has risen, somebody else may have been the victim, and the sentence says so."""
    circumstances = Circumstances(own_oom_kills=0, machine_oom_kills=2, memory_peak=GIB)

    assert (
        "most likely killed for lack of memory: since the start the kernel has ended 2 of the machine's processes for"
        " that; no limit of its own, peak 1.0 GiB"
    ) == meaning(KILLED, circumstances)


def test_killed_by_somebody() -> None:
    """SIGKILL without lack of memory came from outside."""
    circumstances = Circumstances(own_oom_kills=0, machine_oom_kills=0)

    assert "killed from outside (kill -9, the platform, the driver); the kernel counted no lack of memory" == meaning(
        KILLED, circumstances
    )
    assert not is_out_of_memory(KILLED, circumstances)


def test_wrong_build() -> None:
    """SIGILL is told as what it usually means."""
    assert "an instruction that this processor does not have: a package built for another CPU" == meaning(
        Ending(signum=SIGILL), Circumstances()
    )


def test_killed_without_counters() -> None:
    """Where nothing can be read, nothing is claimed."""
    assert "killed from outside, mostly for lack of memory; this system does not tell" == meaning(
        KILLED, Circumstances()
    )


def test_only_sigkill_is_lack_of_memory() -> None:
    """A risen counter says nothing of a rank that died of something else."""
    assert not is_out_of_memory(Ending(exit_code=1), Circumstances(own_oom_kills=3))
    assert "" == meaning(Ending(exit_code=1), Circumstances(own_oom_kills=3))


@pytest.mark.parametrize(
    ("words", "used"), [("give the container more shared memory", 64), ("which is freed when its users end", 1)]
)
def test_bus_error(words: str, used: int) -> None:
    """SIGBUS is told with the size of /dev/shm, and how full it is."""
    circumstances = Circumstances(shm_size=64 << 20, shm_used=used << 20)
    sentence = meaning(Ending(signum=SIGBUS), circumstances)

    assert f"/dev/shm has 64.0 MiB, {used}.0 MiB of it in use" in sentence
    assert words in sentence


@pytest.mark.parametrize("signum", [4, 6, 7, 8, 9, 11, 15, 1])
def test_every_meaning_is_one_line(signum: int) -> None:
    """Each of the usual signals has one plain line."""
    sentence = meaning(Ending(signum=signum), Circumstances())

    assert sentence.isprintable()
    assert 20 < len(sentence) < 200


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        ("SIGTERM ended what it had run: somebody asked it to stop, and it was not the runner", Ending(exit_code=143)),
        ("SIGINT ended what it had run", Ending(exit_code=130)),
    ],
)
def test_signal_that_a_shell_hands_on(words: str, ending: Ending) -> None:
    """Where the rank is a shell the meaning is that of the signal which ended what the shell had run."""
    assert words == meaning(ending, Circumstances())


def test_a_signal_that_says_enough() -> None:
    """A signal that means no more than its name has no meaning added."""
    assert "" == meaning(Ending(signum=SIGINT), Circumstances())


@pytest.mark.parametrize(
    ("words", "count"),
    [("0 B", 0), ("1023 B", 1023), ("1.0 KiB", 1024), ("1.5 GiB", 3 * GIB // 2), ("2048.0 TiB", 1 << 51)],
)
def test_size(words: str, count: int) -> None:
    """Sizes are told in the largest unit that gives a whole number before the point."""
    assert words == size(count)
