"""Train with torch until a checkpoint is asked for, save it and end; started again, go on with the step after it."""

from __future__ import annotations

import torch
from recipe import FOLDER, RANK, note_begin, note_save
from torch import distributed

import ascend_runner

distributed.init_process_group("gloo")
asked, latest = ascend_runner.on_checkpoint(), ascend_runner.latest_checkpoint(FOLDER)
state = torch.load(latest) if latest else {"step": -1, "weight": torch.zeros(1)}
weight, step = state["weight"], state["step"] + 1
note_begin(step)
while True:
    gradient = torch.tensor([RANK + 1.0])
    distributed.all_reduce(gradient)
    weight += gradient
    if asked.at(step):
        path = FOLDER / f"checkpoint-{step}.pt"
        if RANK == 0:
            torch.save({"step": step, "weight": weight}, path)
        distributed.barrier()
        asked.saved(path)
        note_save(step)
    step += 1
