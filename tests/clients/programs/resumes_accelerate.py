"""Train with accelerate until a checkpoint is asked for, save it and end; started again, go on with the next step."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from recipe import FOLDER, note_begin, note_save

import ascend_runner

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
        path = FOLDER / f"step_{step}"
        accelerator.save_state(str(path))
        accelerator.wait_for_everyone()
        asked.saved(path)
        note_save(step)
    step += 1
