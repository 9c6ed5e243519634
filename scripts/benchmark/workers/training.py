"""A rank that trains in steps of a second: it beats, prints a line for each step, and saves when it is asked."""

from __future__ import annotations

import os
import time

import ascend_runner

SECONDS = 1.0


def main() -> None:
    asked = ascend_runner.on_checkpoint()
    step = 0
    while True:
        step += 1
        time.sleep(SECONDS)
        ascend_runner.beat(step)
        print(f"[train] step {step} hw 701.521 e2e 1000.794", flush=True)
        if asked.at(step):
            os.makedirs(f"checkpoint-{step}", exist_ok=True)
            asked.saved(f"checkpoint-{step}")


main()
