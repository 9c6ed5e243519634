"""Train with Lightning until a checkpoint is asked for, save it and end; started again, go on with the next step."""

from __future__ import annotations

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from recipe import FOLDER, note_begin, note_save

import ascend_runner


class Saver(Callback):  # type: ignore[misc]  # Lightning is not installed where types are checked
    """Saves a checkpoint when one is asked for, and ends the training."""

    def on_train_start(self, trainer: Trainer, _module: LightningModule) -> None:
        """Note requests from now on."""
        self.asked = ascend_runner.on_checkpoint()
        note_begin(trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, _module: LightningModule, *_: object) -> None:
        """Look after each step."""
        step = trainer.global_step - 1
        if self.asked.at(step):
            path = FOLDER / f"epoch={trainer.current_epoch}-step={step}.ckpt"
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
