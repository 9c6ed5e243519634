"""Train with HF Trainer until a checkpoint is asked for, save it and end; started again, go on with the next step."""

from __future__ import annotations

import torch
from recipe import FOLDER, note_begin, note_save
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

import ascend_runner


class Saver(TrainerCallback):  # type: ignore[misc]  # transformers is not installed where types are checked
    """Saves a checkpoint when one is asked for, and ends the training."""

    def __init__(self) -> None:
        self.asked = ascend_runner.on_checkpoint()

    def on_train_begin(self, _args: TrainingArguments, state: TrainerState, *_: object, **_options: object) -> None:
        """Show the first step; the trainer counts the finished ones."""
        note_begin(state.global_step + 1)

    def on_step_end(self, _args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Look after each step."""
        if self.asked.at(state.global_step):
            control.should_save = control.should_training_stop = True

    def on_save(self, args: TrainingArguments, state: TrainerState, *_: object, **_options: object) -> None:
        """Tell the runner."""
        self.asked.saved(f"{args.output_dir}/checkpoint-{state.global_step}")


class Model(torch.nn.Module):  # type: ignore[misc]  # torch is not installed there either
    """A linear model that returns its loss, as Trainer expects it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the mean squared error."""
        return {"loss": ((self.linear(x) - labels) ** 2).mean()}


examples = [{"x": [1.0, float(number)], "labels": [float(number)]} for number in range(1000)]
options = TrainingArguments(str(FOLDER), max_steps=10**6, save_strategy="no", report_to="none", use_cpu=True)
trainer = Trainer(Model(), options, train_dataset=examples, callbacks=[Saver()])
trainer.train(resume_from_checkpoint=ascend_runner.latest_checkpoint(FOLDER))
note_save(trainer.state.global_step)
