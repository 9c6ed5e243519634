"""Print the rank that accelerate sees, and the sum of all ranks, each plus one."""

from __future__ import annotations

import os

import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
total = accelerator.reduce(torch.tensor([accelerator.process_index + 1.0]), "sum")
print(
    f"rank {accelerator.process_index} of {accelerator.num_processes}, local rank {accelerator.local_process_index},"
    f" main {accelerator.is_main_process}, sum {total.item():g}",
    flush=True,
)
accelerator.end_training()
os._exit(0)  # torch's own clean-up at Python's end aborts now and then: "terminate called without an active exception"
