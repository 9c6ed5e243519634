"""A rank for the rows about teardown: one exits with 7 some seconds after the others are ready; these obey SIGTERM.

Arguments: a directory, the seconds, the number of ranks, and the one that exits. Each rank writes times (monotonic, in
nanoseconds) to files in this directory: `died-N`, or `told-N` and `ended-N`.
"""

from __future__ import annotations

import os
import signal
import sys
import time

FOLDER, SECONDS, RANKS = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
DYING = sys.argv[4]
RANK = next(os.environ[name] for name in ("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK") if name in os.environ)
SAVING = 0.05  # seconds; an exit keeps a core busy for a millisecond, and would delay SIGTERM for others


def main() -> None:
    if RANK == DYING:
        died = open_stamp("died")
        while sum(name.startswith("ready-") for name in os.listdir(FOLDER)) < RANKS - 1:
            time.sleep(0.01)
        time.sleep(SECONDS)
        stamp(died)
        os._exit(7)

    told, ended = open_stamp("told"), open_stamp("ended")

    def end(_signum: int, _frame: object) -> None:
        stamp(told)
        time.sleep(SAVING)
        stamp(ended)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    os.close(open_stamp("ready"))
    while True:
        signal.pause()


def open_stamp(name: str) -> int:
    return os.open(os.path.join(FOLDER, f"{name}-{RANK}"), os.O_WRONLY | os.O_CREAT)


def stamp(fd: int) -> None:
    os.write(fd, str(time.monotonic_ns()).encode())


main()
