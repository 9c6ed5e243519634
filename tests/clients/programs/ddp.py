"""Train a small model with torch's DistributedDataParallel, and print the loss of every step.

The losses do not depend on the number of ranks: all of them together see the same examples. With `--die RANK [FOLDER]`,
that rank kills itself half-way, as the kernel does when memory runs out. Each step is saved in FOLDER, and the newest
checkpoint is where a restarted training goes on, to its end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

STEPS = 12
EXAMPLES = 64  # of all ranks together, in each step

distributed.init_process_group("gloo")
rank, size = distributed.get_rank(), distributed.get_world_size()
resumed = os.environ.get("ASCEND_RUNNER_CHECKPOINT")
doomed = int(sys.argv[2]) if sys.argv[1:2] == ["--die"] and not resumed else -1
folder = Path(sys.argv[3]) if sys.argv[3:] else None
torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first = 0
if resumed:
    state = torch.load(resumed)
    first = state["step"] + 1
    model.load_state_dict(state["model"])
    torch.set_rng_state(state["random"])

# With its newline in one write: an engine's processes share a pipe.
print(f"rank {rank} of {size}, local rank {os.environ['LOCAL_RANK']}\n", end="", flush=True)
for step in range(first, STEPS):
    inputs = torch.randn(EXAMPLES, 4)
    wanted = inputs.sum(dim=1, keepdim=True).sin()
    share = slice(rank * EXAMPLES // size, (rank + 1) * EXAMPLES // size)
    loss = torch.nn.functional.mse_loss(model(inputs[share]), wanted[share])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    mean = loss.detach().clone()
    distributed.all_reduce(mean)
    if rank == 0:
        print(f"step {step} loss {float(mean) / size:.12f}\n", end="", flush=True)
        if folder:
            folder.mkdir(exist_ok=True)
            state = {"step": step, "model": model.state_dict(), "random": torch.get_rng_state()}
            torch.save(state, folder / f"checkpoint-{step}.pt")
    if rank == doomed and step == STEPS // 2:
        os.kill(os.getpid(), signal.SIGKILL)

distributed.destroy_process_group()
os._exit(0)  # torch's own clean-up at Python's end aborts now and then: "terminate called without an active exception"
