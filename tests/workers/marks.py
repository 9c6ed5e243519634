"""A rank of scripts/chaos-nodes. For each process it leaves a mark in a folder: attempt, rank, pid, and start in ticks.

It fails or ends when a file asks it to, and records each process of another attempt that is alive beside it. No process
of it outlives `LIFE`, whatever has become of the others.
"""

import os
import signal
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[-1])
ATTEMPT, RANK = os.environ.get("ASCEND_RUNNER_ATTEMPT", "0"), os.environ.get("RANK", "0")
FIRST_STATUS = 10  # of rank 0; that of each rank tells them apart
LIFE = 600.0  # seconds


def started(pid: str) -> str:
    """Return when a process has started, "" if it has ended."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state in "ZX" else fields[18]


def mark(kind: str) -> None:
    """Record this process, and which ones of other attempts are alive."""
    pid = str(os.getpid())
    name = f"{ATTEMPT}-{RANK}-{pid}-{started(pid)}"
    (FOLDER / f"{kind}-{name}").touch()
    for other in FOLDER.iterdir():
        what, *words = other.name.split("-")
        if what in {"rank", "child"} and words[0] != ATTEMPT and started(words[2]) == words[3]:
            (FOLDER / f"overlap-{name} of attempt {ATTEMPT} beside {other.name} of attempt {words[0]}").touch()


def main() -> None:
    """Run until a file of the folder says how to end."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        mark("child")
        time.sleep(LIFE)
        os._exit(0)
    mark("rank")
    print("up", flush=True)
    end = time.monotonic() + LIFE
    while time.monotonic() < end:
        if (FOLDER / f"fail-{ATTEMPT}-{RANK}").exists():
            os._exit(FIRST_STATUS + int(RANK))
        if (FOLDER / "finish").exists():
            os.kill(child, signal.SIGKILL)
            (FOLDER / f"end-{ATTEMPT}-{RANK}").touch()
            os._exit(0)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
