"""What is compared: the program, and those of its peers that are installed."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Callable, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Launcher(NamedTuple):
    """A program that starts ranks. `words(ranks, log_dir)` is what stands before the ranks' command."""

    name: str
    words: Callable[[int, str], Sequence[str]]
    is_slow: bool = False  # seconds to start: measured a few times only
    starts_scripts_only: bool = False  # Python scripts, no other programs

    def command(self, log_dir: str, *argv: str, ranks: int) -> list[str]:
        """Give the words that start so many ranks."""
        return [*self.words(ranks, log_dir), *argv]


def peers() -> list[Launcher]:
    """Give the peers that are found in PATH."""
    return [peer for peer in PEERS if shutil.which(peer.name)]


def machine() -> str:
    """Say what all this was measured on."""
    peer_versions = "".join(f", {_version(peer.name)}" for peer in peers() if not peer.is_slow)
    return (
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Linux {platform.release()},"
        f" Python {platform.python_version()}{peer_versions}"
    )


def _own_words(ranks: int, log_dir: str) -> Sequence[str]:
    program = os.path.join(sys.prefix, "bin", "ascend-runner")
    return (program, "--nproc-per-node", str(ranks), "--log-dir", log_dir)


def _mpirun_words(ranks: int, _log_dir: str) -> Sequence[str]:
    more = ("--allow-run-as-root", "--oversubscribe") if "Open MPI" in _version("mpirun") else ()
    return ("mpirun", *more, "-n", str(ranks))


def _torchrun_words(ranks: int, _log_dir: str) -> Sequence[str]:
    return ("torchrun", "--standalone", "--no-python", f"--nproc-per-node={ranks}")


def _msrun_words(ranks: int, log_dir: str) -> Sequence[str]:
    return ("msrun", f"--worker_num={ranks}", f"--local_worker_num={ranks}", "--join=True", f"--log_dir={log_dir}")


@functools.cache
def _version(program: str) -> str:
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return answer.stdout.partition("\n")[0]


OURS: Final = Launcher("ascend-runner", _own_words)
PEERS: Final = (
    Launcher("mpirun", _mpirun_words),
    Launcher("torchrun", _torchrun_words, is_slow=True),
    Launcher("msrun", _msrun_words, is_slow=True, starts_scripts_only=True),
)
