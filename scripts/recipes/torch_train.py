"""Trains a tiny model with tensor and data parallelism, as Megatron does.

torch_train.py --tensor-model-parallel-size 2
"""

from __future__ import annotations

import argparse
import os
import time

import torch
from torch import distributed

parser = argparse.ArgumentParser()
parser.add_argument("--tensor-model-parallel-size", type=int, default=1)
parser.add_argument("--train-iters", type=int, default=10)
options = parser.parse_args()

try:
    import torch_npu

    torch_npu.npu.set_device(int(os.environ["LOCAL_RANK"]))
    backend, device = "hccl", "npu"
except ImportError:
    backend, device = "gloo", "cpu"
distributed.init_process_group(backend)
rank, size, width = distributed.get_rank(), distributed.get_world_size(), options.tensor_model_parallel_size
tensor_groups = [distributed.new_group(list(range(first, first + width))) for first in range(0, size, width)]
data_groups = [distributed.new_group(list(range(first, size, width))) for first in range(width)]
tensor_group, data_group = tensor_groups[rank // width], data_groups[rank % width]

torch.manual_seed(rank % width)  # the ranks of a data group start with the same columns
layer = torch.nn.Linear(16, 16 // width, device=device)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
torch.manual_seed(1000 + rank // width)  # the ranks of a tensor group get the same data
for step in range(1, options.train_iters + 1):
    began = time.monotonic()
    inputs = torch.randn(8, 16, device=device)
    loss = (layer(inputs) - inputs[:, : 16 // width]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in layer.parameters():
        distributed.all_reduce(parameter.grad, group=data_group)
        parameter.grad /= size // width
    optimizer.step()
    total = loss.detach().clone()
    distributed.all_reduce(total, group=tensor_group)
    if rank == 0:
        print(
            f" iteration {step:8d}/{options.train_iters:8d} | elapsed time per iteration (ms):"
            f" {1000 * (time.monotonic() - began):.1f} | lm loss: {float(total) / width:.6E} |",
            flush=True,
        )
distributed.destroy_process_group()
