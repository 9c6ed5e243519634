"""Detecting that a command is an engine itself."""

from __future__ import annotations

import pytest

from ascend_runner.engines.called import engine_in


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("torchrun --nproc_per_node 2 x.py", "torchrun"),
        ("/opt/bin/torchrun x.py", "torchrun"),
        ("python -m torch.distributed.run x.py", "torchrun"),
        ("python -u -m torch.distributed.launch x.py", "torch.distributed.launch"),
        ("msrun --worker_num=8 x.py", "msrun"),
        ("mpirun -np 8 python x.py", "mpirun"),
        ("deepspeed x.py", "deepspeed"),
        ("horovodrun -np 8 python x.py", "horovodrun"),
        ("accelerate launch x.py", "accelerate launch"),
        ("env A=1 B=2 torchrun x.py", "torchrun"),
        ("env -i -u RANK torchrun x.py", "torchrun"),
        ("numactl -m 0,1 --cpunodebind=0 nice -n 5 torchrun x.py", "torchrun"),
        ("timeout -k 5 72h deepspeed x.py", "deepspeed"),
        ("taskset -c 0-7 python -m torch.distributed.run x.py", "torchrun"),
    ],
)
def test_engines(line: str, engine: str) -> None:
    """An engine is detected by its program or module, also behind a wrapper."""
    assert engine == engine_in(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --engine torchrun",
        "env ENGINE=torchrun python train.py",
        "accelerate config",
        "bash train.sh torchrun",
        "nice -n 5 python train.py",
        "env",
        "timeout",
    ],
)
def test_other_commands(line: str) -> None:
    """The name of an engine among the arguments does not make a command one."""
    assert "" == engine_in(line.split())
