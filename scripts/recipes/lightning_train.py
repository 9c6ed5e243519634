"""Trains a tiny model with Lightning, which takes its ranks from the variables that the runner sets."""

from __future__ import annotations

import os

from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel

trainer = Trainer(
    accelerator="auto",
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
    strategy="ddp",
    max_steps=4,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(BoringModel())
trainer.print(f"trained {trainer.global_step} steps in {trainer.world_size} processes")
