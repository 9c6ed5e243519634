"""Train a small model with Lightning; print the rank that its Trainer sees, and the sum of all ranks, each plus one."""

from __future__ import annotations

import os

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from torch import distributed

trainer = Trainer(accelerator="cpu", devices=2, strategy="ddp", max_steps=2, logger=False, enable_checkpointing=False)
trainer.fit(BoringModel())
total = trainer.strategy.reduce(torch.tensor([trainer.global_rank + 1.0]), reduce_op="sum")
print(
    f"rank {trainer.global_rank} of {trainer.world_size}, local rank {trainer.local_rank},"
    f" main {trainer.is_global_zero}, sum {total.item():g}",
    flush=True,
)
distributed.destroy_process_group()
os._exit(0)  # torch's own clean-up at Python's end aborts now and then: "terminate called without an active exception"
