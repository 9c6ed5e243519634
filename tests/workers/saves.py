"""A rank that trains in uneven steps until it is asked for a checkpoint."""

from __future__ import annotations

import random
import time

import ascend_runner


def main() -> None:
    asked = ascend_runner.on_checkpoint()
    print("ready", flush=True)
    step = 0
    while not asked.at(step):
        time.sleep(random.choice([0, 0.001, 0.003]))  # noqa: S311  not for cryptography
        step += 1
    asked.saved(f"checkpoint-{step}")
    print(f"saved {step}", flush=True)


if __name__ == "__main__":
    main()
