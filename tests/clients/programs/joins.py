"""Let torch ranks wait for one that does not join them: `joins.py RANK KIND`.

KIND is what that rank does instead of the last all_reduce: "nothing", or a "broadcast". torch's recorder has the
collectives of gloo, but only NCCL's monitor reads the pipe: here a thread does what that does.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch._dynamo  # as optimizers do: the first dump would take as long as that
from torch import distributed

culprit, kind = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo")
rank = distributed.get_rank()


def monitor() -> None:
    pipe = f"{os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}{rank}.pipe"
    os.mkfifo(pipe)
    fd = os.open(pipe, os.O_RDWR)
    while os.read(fd, 128):
        log = f"[rank{rank}]:[E606 09:09:08.17 ProcessGroupNCCL.cpp:1700] ProcessGroupNCCL preparing to dump debug info"
        print(log, file=sys.stderr, flush=True)
        dumped = torch._C._distributed_c10d._dump_fr_trace()  # noqa: SLF001  as NCCL's monitor does
        Path(f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{rank}").write_bytes(dumped)


threading.Thread(target=monitor, daemon=True).start()
loss = torch.ones(6, 4)
for _step in range(3):
    distributed.all_reduce(loss)
if rank != culprit:
    distributed.all_reduce(loss)
elif kind == "broadcast":
    distributed.broadcast(loss, src=culprit)
    distributed.barrier()
time.sleep(1000)
