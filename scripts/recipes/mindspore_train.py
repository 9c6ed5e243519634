"""Trains a tiny model with MindSpore, data-parallel over all ranks."""

from __future__ import annotations

import mindspore
from mindspore import Tensor, communication, nn, ops

communication.init()
rank, size = communication.get_rank(), communication.get_group_size()
mindspore.set_seed(1)  # all ranks start with the same weights
net = nn.Dense(16, 1)
optimizer = nn.SGD(net.trainable_params(), learning_rate=0.05)
add_up = ops.AllReduce()


def loss_of(inputs: Tensor) -> Tensor:
    """Return the loss of a batch whose sum the model learns."""
    return ops.square(net(inputs) - inputs.sum(1, keepdims=True)).mean()


find_gradients = mindspore.value_and_grad(loss_of, None, optimizer.parameters)
mindspore.set_seed(100 + rank)  # each rank has its own data
for step in range(1, 6):
    loss, gradients = find_gradients(ops.randn(8, 16))
    optimizer(tuple(add_up(gradient) / size for gradient in gradients))
    mean = float(add_up(loss)) / size
    if rank == 0:
        print(f"step {step} of {size} processes, loss {mean:.4f}", flush=True)
