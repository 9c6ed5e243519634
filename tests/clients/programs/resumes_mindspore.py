"""Save a checkpoint with MindSpore when one is asked for, and end; started again, go on with the next step.

A step only takes time: operators need a NumPy of the right version, which checkpoints do not depend on.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import mindspore
from mindspore import nn

import ascend_runner

FOLDER = Path(sys.argv[1])
RANK = int(os.environ["RANK_ID"])


def note_begin(step: int) -> None:
    print(f"first step {step}", flush=True)
    (FOLDER.parent / f"ready-{RANK}").touch()
    if step:
        os._exit(0)  # that it has resumed is shown


def note_save(step: int) -> None:
    print(f"saved after step {step}", flush=True)
    os._exit(0)  # not by torch, whose clean-up at the end of Python aborts now and then


net = nn.Dense(2, 1)
asked, latest = ascend_runner.on_checkpoint(), ascend_runner.latest_checkpoint(FOLDER)
if latest:
    mindspore.load_checkpoint(str(latest), net)
step = int(latest.stem.rpartition("_")[2]) + 1 if latest else 0
note_begin(step)
while True:
    time.sleep(0.01)
    if asked.at(step):
        path = f"{FOLDER}/net-1_{step}.ckpt"
        if RANK == 0:
            mindspore.save_checkpoint(net, path)
        asked.saved(path)
        note_save(step)
    step += 1
