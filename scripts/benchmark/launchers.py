"""The launchers that are compared: the program, and those of its peers that are installed."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Final

import attrs


@attrs.frozen
class Launcher:
    """A program that starts ranks. `words(ranks, log_dir)` is its command line up to the command of the ranks."""

    name: str
    words: Callable[[int, str], Sequence[str]]
    is_slow: bool = False  # takes seconds to start: measured only a few times
    starts_scripts_only: bool = False  # Python scripts, no other programs

    def command(self, log_dir: str, *argv: str, ranks: int) -> list[str]:
        """Return the command line that starts so many ranks."""
        return [*self.words(ranks, log_dir), *argv]


def peers() -> list[Launcher]:
    """Return the peers that are in PATH."""
    return [peer for peer in PEERS if shutil.which(peer.name)]


def machine() -> str:
    """Describe the machine and the versions of the programs."""
    peer_versions = "".join(f", {_version(peer.name)}" for peer in peers() if not peer.is_slow)
    return (
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Linux {platform.release()},"
        f" Python {platform.python_version()}{peer_versions}"
    )


def _own_words(ranks: int, log_dir: str) -> Sequence[str]:
    return (PROGRAM, "--nproc-per-node", str(ranks), "--log-dir", log_dir)


def _own_words_with_table(ranks: int, log_dir: str) -> Sequence[str]:
    if ranks != TABLE_RANKS:
        raise ValueError(f"the rank table has {TABLE_RANKS} ranks, expected {ranks}")
    return (PROGRAM, "--rank-table", TABLE, "--log-dir", log_dir)


def _mpirun_words(ranks: int, _log_dir: str) -> Sequence[str]:
    more = ("--allow-run-as-root", "--oversubscribe") if "Open MPI" in _version("mpirun") else ()
    return ("mpirun", *more, "-n", str(ranks))


def _mpirun_words_with_logs(ranks: int, log_dir: str) -> Sequence[str]:
    return (*_mpirun_words(ranks, log_dir), "--tag-output", "--output-filename", log_dir)


def _torchrun_words(ranks: int, _log_dir: str) -> Sequence[str]:
    return ("torchrun", "--standalone", "--no-python", f"--nproc-per-node={ranks}")


def _msrun_words(ranks: int, log_dir: str) -> Sequence[str]:
    return ("msrun", f"--worker_num={ranks}", f"--local_worker_num={ranks}", "--join=True", f"--log_dir={log_dir}")


@functools.cache
def _version(program: str) -> str:
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return answer.stdout.partition("\n")[0]


PROGRAM: Final = os.path.join(sys.prefix, "bin", "ascend-runner")
FIXTURES: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "fixtures")
TABLE: Final = os.path.join(FIXTURES, "valid", "group_list_8_devices.json")  # completed
TABLE_RANKS: Final = 8

OURS: Final = Launcher("ascend-runner", _own_words)
OURS_WITH_TABLE: Final = Launcher("ascend-runner with a table", _own_words_with_table)
MPIRUN_WITH_LOGS: Final = Launcher("mpirun", _mpirun_words_with_logs)
PEERS: Final = (
    Launcher("mpirun", _mpirun_words),
    Launcher("torchrun", _torchrun_words, is_slow=True),
    Launcher("msrun", _msrun_words, is_slow=True, starts_scripts_only=True),
)
