"""A rank that trains in uneven steps and prints the steps after which it is asked for a checkpoint."""

from __future__ import annotations

import mmap
import random
import signal
import struct
import sys
import time

from ascend_runner.training.rank_calls import CheckpointRequests

FURTHEST = 3  # steps that a rank can be ahead of another, as a collective would keep it
HASTE = 1000.0  # so that a request is soon no copy of the one before


def main() -> None:
    """Train until the ninth number in the file of the steps is set."""
    folder, rank = sys.argv[1], int(sys.argv[2])
    requests = CheckpointRequests(f"{folder}/requests", clock=lambda: time.monotonic() * HASTE)
    signal.signal(signal.SIGUSR1, requests.note)
    pause = random.Random(rank)  # noqa: S311  not for cryptography
    with open(f"{folder}/steps", "r+b") as file, mmap.mmap(file.fileno(), 0) as steps:
        print("ready", flush=True)
        step = 0
        while True:
            struct.pack_into("<q", steps, 8 * rank, step)
            while min(struct.unpack_from("<8q", steps)) < step - FURTHEST and not steps[64]:
                time.sleep(0.0005)
            if steps[64]:
                return
            if requests.at(step):
                print(step, flush=True)
                time.sleep(pause.choice([0, 0.002]))
            time.sleep(pause.choice([0, 0, 0.001, 0.003]))
            step += 1


if __name__ == "__main__":
    main()
