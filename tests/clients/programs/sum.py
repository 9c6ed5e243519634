"""Print the sum of all ranks, each plus one, with MindSpore's all-reduce on CPU."""

from __future__ import annotations

import mindspore
import numpy as np
from mindspore import Tensor, communication, nn, ops


class Sum(nn.Cell):  # type: ignore[misc]  # a checker does not know MindSpore
    """One all-reduce."""

    def __init__(self) -> None:
        super().__init__()
        self.reduce = ops.AllReduce()

    def construct(self, numbers: Tensor) -> Tensor:
        """Add up."""
        return self.reduce(numbers)


mindspore.set_device("CPU")
communication.init()
rank = communication.get_rank()
total = Sum()(Tensor(np.array([rank + 1.0], np.float32)))
size = communication.get_group_size()
# With its newline in one write: an engine's processes share a pipe.
print(f"rank {rank} of {size}: the sum is {float(total.asnumpy()[0]):g}\n", end="", flush=True)
