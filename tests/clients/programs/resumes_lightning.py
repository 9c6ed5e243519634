"""Train with Lightning until a checkpoint is asked for, save it and end; started again, go on with the next step."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.demos.boring_classes import BoringModel

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


class Saver(Callback):  # type: ignore[misc]  # Lightning is not installed where types are checked
    """Saves a checkpoint when one is asked for."""

    def __init__(self) -> None:
        self.asked = ascend_runner.on_checkpoint()
        self.has_begun = False

    def on_train_batch_end(self, trainer: Trainer, _module: LightningModule, *_: object) -> None:
        """Look after each step."""
        step = trainer.global_step - 1
        if not self.has_begun:
            self.has_begun = True
            note_begin(step)
        if self.asked.at(step):
            path = f"{FOLDER}/epoch={trainer.current_epoch}-step={step}.ckpt"
            trainer.save_checkpoint(path)
            self.asked.saved(path)
            note_save(step)


torch.manual_seed(0)
trainer = Trainer(
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    max_epochs=10**6,
    callbacks=[Saver()],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(BoringModel(), ckpt_path=ascend_runner.latest_checkpoint(FOLDER))
