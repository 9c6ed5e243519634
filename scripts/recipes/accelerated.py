"""Trains a tiny model with accelerate."""

from __future__ import annotations

import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=not hasattr(torch, "npu"))
model = torch.nn.Linear(4, 1)
inputs = torch.randn(64, 4)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
for step, (batch, wanted) in enumerate(loader):
    loss = torch.nn.functional.mse_loss(model(batch), wanted)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    mean = accelerator.reduce(loss.detach(), "mean")
    accelerator.print(f"step {step} of {accelerator.num_processes} processes, loss {mean.item():.4f}", flush=True)
accelerator.end_training()
