"""Let one of several torch ranks that reduce together raise: `one_fails.py RANK KIND`.

KIND is what it does between its exception and its end: "" nothing; "finally" it destroys the process group; "workers"
it ends the workers of a data loader; "slow" it takes a while at exit.
"""

from __future__ import annotations

import atexit
import sys
import time

import torch
from torch import distributed
from torch.utils.data import DataLoader, TensorDataset

STEPS, FATAL_STEP = 50, 20

culprit, kind = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo")
loss = torch.ones(1000)


def train() -> None:
    batches = DataLoader(TensorDataset(torch.zeros(STEPS, 1)), num_workers=2 if kind == "workers" else 0)
    for step, _batch in enumerate(batches):
        if distributed.get_rank() == culprit and step == FATAL_STEP:
            raise ValueError(f"loss is nan at step {step}")
        distributed.all_reduce(loss)


if kind == "slow":
    atexit.register(time.sleep, 0.15)
try:
    train()
finally:
    if kind == "finally":
        distributed.destroy_process_group()
