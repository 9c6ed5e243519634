"""Start processes as scripts with an init method do, and print the sum of all ranks, each plus one.

--rank and --world_size count nodes, as in the guide of ModelArts; NPROC is the number of processes per node.
"""

from __future__ import annotations

import argparse
import os

import torch
from torch import distributed, multiprocessing

NPROC = int(os.environ["NPROC"])


def work(local_rank: int, where: argparse.Namespace) -> None:
    rank, size = where.rank * NPROC + local_rank, where.world_size * NPROC
    distributed.init_process_group("gloo", init_method=where.init_method, rank=rank, world_size=size)
    total = torch.tensor([rank + 1.0])
    distributed.all_reduce(total)
    # With its newline in one write: an engine's processes share a pipe.
    print(f"rank {rank} of {size}, sum {int(total)}, epochs {where.epochs}\n", end="", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--init_method")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world_size", type=int, default=1)
    parser.add_argument("--epochs", type=int)
    multiprocessing.spawn(work, (parser.parse_args(),), nprocs=NPROC)
