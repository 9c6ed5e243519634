"""What an ending usually means, in one plain sentence, with what to do where that is certain."""

from __future__ import annotations

from signal import SIGABRT, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGKILL, SIGSEGV, SIGTERM

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple
from ascend_runner.supervision.events import signal_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascend_runner.supervision.events import Ending

SIGNAL_LIMIT: Final = 64  # the highest signal number of Linux (signal(7))
SHELL_BASE: Final = 128  # a shell ends with 128 + the signal of what it ran (POSIX, XCU 2.8.2)
TIGHT: Final = 0.95  # of a limit: so full that lack of room explains the rest

# A script that passes Popen.returncode (-9) on to sys.exit ends with 256 - 9. Signals 1 to 3 are left out: many
# programs use -1 for any failure.
_NEGATIVE: Final = {256 - signum: signum for signum in (SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGTERM)}


class Circumstances(NamedTuple):
    """What was seen on the machine when the rank had ended. None: not known. Sizes are in bytes.

    `own_oom_kills` and `machine_oom_kills` are how many processes the kernel has ended for lack of memory since the job
    began: in the own memory cgroup, and on the whole machine, where others may have been the victims.
    """

    own_oom_kills: int | None = None
    machine_oom_kills: int | None = None
    memory_limit: int | None = None
    memory_peak: int | None = None
    shm_size: int | None = None
    shm_used: int | None = None


def signal_behind(ending: Ending) -> int:
    """Give the signal that ended it, or ended what it had run in turn: `bash train.sh` hands 137 on. 0: none."""
    if ending.signum:
        return ending.signum
    if SHELL_BASE < ending.exit_code <= SHELL_BASE + SIGNAL_LIMIT:
        return ending.exit_code - SHELL_BASE
    return _NEGATIVE.get(ending.exit_code, 0)


def is_out_of_memory(ending: Ending, circumstances: Circumstances) -> bool:
    """Whether it was killed, while the kernel killed for lack of memory."""
    is_counted = bool(circumstances.own_oom_kills or circumstances.machine_oom_kills)
    return signal_behind(ending) == SIGKILL and is_counted


def meaning(ending: Ending, circumstances: Circumstances) -> str:
    """Say what such an ending usually means; "" where it says no more than itself."""
    signum = signal_behind(ending)
    if signum == SIGKILL:
        words = _killed(circumstances)
    elif signum == SIGBUS:
        words = _bus_error(circumstances)
    else:
        words = _MEANINGS.get(signum, "")
    if not signum or ending.signum:
        return words

    handed_on = f"{signal_name(signum)} ended what it had run"
    return f"{handed_on}: {words}" if words else handed_on


_MEANINGS: Final[Mapping[int, str]] = {
    SIGSEGV: "native code touched memory that is not its own: mostly an extension built for other versions of Python,"
    " CANN or the framework; PYTHONFAULTHANDLER=1 prints the Python stack",
    SIGILL: "an instruction that this processor does not have: a package built for another CPU",
    SIGFPE: "an integer division by zero in native code",
    SIGABRT: "native code gave up: a failed check, an uncaught C++ exception or a corrupted heap; its last lines mostly"
    " say which",
    SIGTERM: "somebody asked it to stop, and it was not the runner",
    SIGHUP: "its terminal or session was closed, or somebody asked it to stop",
}


def _killed(circumstances: Circumstances) -> str:
    if circumstances.own_oom_kills:
        return f"killed for lack of memory: {_memory_words(circumstances)}"
    if circumstances.machine_oom_kills:
        return (
            "most likely killed for lack of memory: since the start the kernel has ended"
            f" {circumstances.machine_oom_kills} of the machine's processes for that; {_memory_words(circumstances)}"
        )
    if circumstances.own_oom_kills is None and circumstances.machine_oom_kills is None:
        return "killed from outside, mostly for lack of memory; this system does not tell"

    return "killed from outside (kill -9, the platform, the driver); the kernel counted no lack of memory"


def _memory_words(circumstances: Circumstances) -> str:
    limit, peak = circumstances.memory_limit, circumstances.memory_peak
    words = [f"limit {size(limit)}"] if limit is not None else ["no limit of its own"]
    if peak is not None:
        words.append(f"peak {size(peak)}")
    return ", ".join(words)


def _bus_error(circumstances: Circumstances) -> str:
    total, used = circumstances.shm_size, circumstances.shm_used
    general = "a mapped file lost its room"
    if total is None or used is None:
        return f"{general}: mostly /dev/shm is too small for the data loader's workers"
    words = f"/dev/shm has {size(total)}, {size(used)} of it in use"  # noqa: S108  a fact told, not a file used
    if used >= total * TIGHT:
        return f"{general}: {words}: give the container more shared memory, or the data loader fewer workers"

    return f"{general}, mostly in /dev/shm, which is freed when its users end: {words} now"


def size(count: int) -> str:
    """Say a size: "512 B", "64.0 MiB", "1.5 TiB"."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:  # noqa: PLR2004  what these units are made of
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
