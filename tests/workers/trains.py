"""A rank that trains forever in short steps, and saves when it is asked: in as many seconds as its argument says.

With `deaf`, it handles no signal; with `stuck`, a save never ends; with `full`, it fails; with `last`, it ends after
the first save; with `until=PATH`, a save ends when that file exists. It begins when the file in START exists, if there
is one.
"""

from __future__ import annotations

import errno
import os
import sys
import time

import ascend_runner

NAP = 0.01


def main() -> None:
    """Train."""
    print("importing", flush=True)
    while "START" in os.environ and not os.path.exists(os.environ["START"]):
        time.sleep(NAP)
    words = dict.fromkeys(sys.argv[1:])
    if "deaf" in words or f"deaf={os.environ['RANK_ID']}" in words:
        print("ready", flush=True)
        time.sleep(1000)
    ends = [word[len("until=") :] for word in words if word.startswith("until=")]
    asked = ascend_runner.on_checkpoint()
    print("ready", flush=True)
    step = 0
    while True:
        step += 1
        time.sleep(NAP)
        if asked.at(step):
            print("saving", flush=True)
            time.sleep(1000 if f"stuck={os.environ['RANK_ID']}" in words else float(sys.argv[1]))
            while not all(map(os.path.exists, ends)):
                time.sleep(NAP)
            if f"full={os.environ['RANK_ID']}" in words:
                raise OSError(errno.ENOSPC, "no space left")
            asked.saved(f"checkpoint-{step}")
            print("saved", flush=True)
            if "last" in words:
                return


if __name__ == "__main__":
    main()
