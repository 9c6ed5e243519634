"""A rank that trains on batches from spawned workers, like those of a DataLoader, until it is asked for a checkpoint.

It saves after it has got another batch of each worker, so a worker that a signal has killed prevents that.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Final

import ascend_runner

WORKERS: Final = 2
LIMIT: Final = 60.0  # seconds for a batch


def load(batches: Queue[int]) -> None:
    for number in itertools.count():
        batches.put(number)


def main() -> None:
    folder, rank = Path(sys.argv[1]), os.environ["RANK"]
    context = multiprocessing.get_context("spawn")
    loaders = [context.Queue(maxsize=4) for _ in range(WORKERS)]
    for batches in loaders:
        context.Process(target=load, args=(batches,), daemon=True).start()
    asked = ascend_runner.on_checkpoint()
    for step in itertools.count():
        for batches in loaders:
            batches.get(timeout=LIMIT)
        if step == 0:
            (folder / f"ready-{rank}").touch()
        if asked.at(step):
            for batches in loaders:
                for _ in range(10):  # more than are in the queue
                    batches.get(timeout=LIMIT)
            (folder / f"saved-{rank}").write_text(str(step))
            asked.saved(folder / f"saved-{rank}")
            return


if __name__ == "__main__":
    main()
