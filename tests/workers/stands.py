"""A rank that hangs: rank 1 while loading, the others in a collective; with `fork`, in a child process."""

from __future__ import annotations

import os
import sys
import threading
import time


def all_reduce() -> None:
    stand()


def load() -> None:
    stand()


def stand() -> None:
    print("ready", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    if "fork" in sys.argv and (pid := os.fork()):
        os.waitpid(pid, 0)
        sys.exit(0)
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    load() if os.environ.get("RANK_ID") == "1" else all_reduce()
