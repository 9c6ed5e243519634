"""Train with accelerate until a checkpoint is asked for, save it and end; started again, go on with the next step."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from accelerate import Accelerator

import ascend_runner

FOLDER = Path(sys.argv[1])
RANK = int(os.environ["RANK_ID"])


def note_begin(step: int) -> None:
    print(f"first step {step}", flush=True)
    (FOLDER.parent / f"ready-{RANK}").touch()
    if step:
        os._exit(0)  # that it has resumed is shown


def note_save(step: int) -> None:
    print(f"saved after step {step}", flush=True)
    os._exit(0)  # not by torch, whose clean-up at the end of Python aborts now and then


accelerator = Accelerator(cpu=True)
linear = torch.nn.Linear(2, 1)
model, optimizer = accelerator.prepare(linear, torch.optim.SGD(linear.parameters(), lr=0.01))
asked, latest = ascend_runner.on_checkpoint(), ascend_runner.latest_checkpoint(FOLDER)
if latest:
    accelerator.load_state(str(latest))
step = int(latest.name.rpartition("_")[2]) + 1 if latest else 0
note_begin(step)
while True:
    accelerator.backward(model(torch.ones(2)).sum())
    optimizer.step()
    if asked.at(step):
        path = f"{FOLDER}/step_{step}"
        accelerator.save_state(path)
        accelerator.wait_for_everyone()
        asked.saved(path)
        note_save(step)
    step += 1
