"""Explains an exit status or signal in one sentence, with a remedy where there is a certain one."""

from __future__ import annotations

import re
from signal import SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGTERM
from typing import Final

import attrs

from ascend_runner.diagnosis import catalogue
from ascend_runner.supervision.causes import Ending
from ascend_runner.text import signal_name, size

SIGNAL_LIMIT: Final = 64  # the highest signal number on Linux (signal(7))
SHELL_BASE: Final = 128  # a shell exits with 128 + the signal that ended its command (POSIX, XCU 2.8.2)
VICTIMS: Final = 3  # named processes, of all that the OOM killer has ended
TIGHT: Final = 0.95  # fraction of /dev/shm in use above which lack of space explains a SIGBUS

# A script that calls sys.exit(Popen.returncode) with -9 exits with 256 - 9. Signals 1 to 3 are left out because many
# programs use -1 for any failure.
_NEGATIVE: Final = {256 - signum: signum for signum in (SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGTERM)}


@attrs.frozen(kw_only=True)
class Circumstances:
    """The memory counters and full disks of the machine after the rank ended. None means unknown. Sizes are in bytes.

    `own_oom_kills` and `machine_oom_kills` count the processes that the OOM killer has ended since the job began: in
    the runner's memory cgroup, and on the whole machine, where the victims may belong to others. `oom_victims` are
    these processes, as far as the kernel's log is readable.
    """

    own_oom_kills: int | None = None
    machine_oom_kills: int | None = None
    oom_victims: tuple[str, ...] = ()
    memory_limit: int | None = None
    memory_peak: int | None = None
    shm_size: int | None = None
    shm_used: int | None = None
    full_disks: tuple[str, ...] = ()
    listeners: tuple[str, ...] = ()  # on ports that were in use


def signal_behind(ending: Ending) -> int:
    """Return the signal that ended the process or its own child (`bash train.sh` exits with 137); 0 if none."""
    if ending.signum:
        return ending.signum
    if SHELL_BASE < ending.exit_code <= SHELL_BASE + SIGNAL_LIMIT:
        return ending.exit_code - SHELL_BASE
    return _NEGATIVE.get(ending.exit_code, 0)


def is_out_of_memory(ending: Ending, circumstances: Circumstances) -> bool:
    """Whether the process was killed with SIGKILL while the OOM killer was active."""
    is_counted = bool(circumstances.own_oom_kills or circumstances.machine_oom_kills)
    return signal_behind(ending) == SIGKILL and is_counted


def meaning(
    ending: Ending,
    circumstances: Circumstances,
    told: str = "",
    *,
    has_stack: bool = False,
    is_consequence: bool = False,
) -> str:
    """Explain an ending in one sentence, or "" if there is nothing to add to the exit status.

    `told` is the error in the log, "" if there is none; with `has_stack` it has the stack of the crash, and with
    `is_consequence` it reports a lost peer.
    """
    signum = signal_behind(ending)
    if signum == SIGKILL:
        sentence = _killed(circumstances, told)
    elif signum == SIGBUS:
        sentence = _bus_error(circumstances)
    else:
        sentence = _of_signal(signum)
    if signum == SIGABRT and is_consequence:
        sentence = "a library ended the process because it cannot continue without a peer"
    elif signum == SIGABRT:
        general = "native code called abort()" if told else sentence
        sentence = next((sentence for form, sentence in _ABORTS if form.search(told)), general)
    elif signum == SIGSEGV and not has_stack:
        sentence += _NO_STACK
    if not signum or ending.signum:
        return sentence

    killed = f"killed by {signal_name(signum)}"
    if sentence.startswith("killed "):
        return f"its child process was {killed}{sentence.removeprefix(killed).removeprefix('killed')}"
    return f"its child process was {killed}: {sentence}" if sentence else f"its child process was {killed}"


CRASHES: Final = frozenset({SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE})  # signals of a crash in native code


def _of_signal(signum: int) -> str:
    """Return what a signal means in general, "" if that is not known."""
    entry = catalogue.entry_of(signal_name(signum)) if signum else None
    return entry.advice if entry else ""


_ABORTS: Final = tuple(
    (re.compile(pattern), f"native code called abort(): {reason}")
    for pattern, reason in (
        (
            r"^\w+\(\): |double free|free invalid|corrupted (?:size|double)|smashing|overflow detected",
            "a corrupted heap or stack",
        ),
        (r"Assertion|Check failed", "a failed assertion"),
        (r"^\w+(?:::\w+)+|terminate called", "an uncaught C++ exception"),
        (r"Fatal Python error", "the Python interpreter cannot continue"),
    )
)
_OOM_REPORT: Final = re.compile(r"oom[-_]kill event")  # of Slurm, which reads it from the kernel
_NO_STACK: Final = "; set PYTHONFAULTHANDLER=1 to get the Python stack"


def _killed(circumstances: Circumstances, told: str) -> str:
    if circumstances.own_oom_kills:
        return f"out of memory, killed by the OOM killer {_memory(circumstances)}"
    if _OOM_REPORT.search(told):
        return "out of memory, killed by the OOM killer"
    if circumstances.machine_oom_kills:
        return (
            f"probably out of memory: the OOM killer has killed {circumstances.machine_oom_kills} processes on this"
            f" machine since the start of the job {_memory(circumstances)}"
        )
    if circumstances.own_oom_kills is None and circumstances.machine_oom_kills is None:
        return _of_signal(SIGKILL)

    return (
        "killed by SIGKILL, sent by the platform, the driver, another process or the rank itself; the kernel reports no"
        " OOM kill"
    )


def _memory(circumstances: Circumstances) -> str:
    limit, peak = circumstances.memory_limit, circumstances.memory_peak
    facts = [f"limit {size(limit)}" if limit is not None else "no memory limit"]
    if peak is not None:
        facts.append(f"peak {size(peak)}")
    victims = ", ".join(circumstances.oom_victims[:VICTIMS])
    return f"({', '.join(facts)})" + (f"; the kernel killed {victims}" if victims else "")


def may_be_a_full_disk(code: str) -> bool:
    """Return whether an error may be due to a full disk, so that `Circumstances.full_disks` explains it."""
    return _beside(code) == "disks"


def may_be_a_listener(code: str) -> bool:
    """Return whether an error may be due to another process that listens on a port."""
    return _beside(code) == "ports"


def beside(code: str, circumstances: Circumstances) -> str:
    """Return how the present state of the machine explains an error, such as a full disk, or "" if it does not."""
    shown = _beside(code)
    if shown == "disks" and circumstances.full_disks:
        return f"full now: {', '.join(circumstances.full_disks)}"
    if shown == "ports" and circumstances.listeners:
        return f"listening now: {', '.join(circumstances.listeners)}"
    usage = _shm_usage(circumstances)
    if shown == "shm" and usage:
        return f"/dev/shm {'is full' if _is_shm_full(circumstances) else 'now'}: {usage}"  # noqa: S108  only named
    if shown == "memory" and circumstances.own_oom_kills:
        return f"the OOM killer was active {_memory(circumstances)}"
    is_excluded = circumstances.own_oom_kills == circumstances.machine_oom_kills == 0
    return "but the kernel reports no OOM kill" if shown == "memory" and is_excluded else ""


def _beside(code: str) -> str:
    """Return which state of the machine is shown beside an error."""
    entry = catalogue.entry_of(code)
    return entry.beside if entry else ""


def _bus_error(circumstances: Circumstances) -> str:
    general = "no space left for a memory-mapped file"
    usage = _shm_usage(circumstances)
    if not usage:
        return f"{general}, usually because /dev/shm is too small for the data loader's workers"
    if _is_shm_full(circumstances):
        return (
            f"{general}: /dev/shm is full ({usage}); increase the container's shared memory or use fewer data loader"
            " workers"
        )

    return f"{general}, usually /dev/shm ({usage} now, but space is freed when its users exit)"


def _is_shm_full(circumstances: Circumstances) -> bool:
    total, used = circumstances.shm_size, circumstances.shm_used
    return total is not None and used is not None and used >= total * TIGHT


def _shm_usage(circumstances: Circumstances) -> str:
    total, used = circumstances.shm_size, circumstances.shm_used
    return "" if total is None or used is None else f"{size(used)} of {size(total)} in use"
