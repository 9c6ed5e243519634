"""Hands a command over to another engine: one supervised process per node, which starts the others itself."""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Callable, Final
from ascend_runner.lazy import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .handover import Handover, Request

DIRECT: Final = "direct"

# Each engine as a function of this room's files, and what it makes of `python train.py` on two nodes.
LAUNCHERS: Final[Mapping[str, str]] = {
    "torchrun": "torchrun.torchrun",  #                torchrun --nproc_per_node=N --nnodes=2 ... train.py
    "torch.distributed.launch": "torchrun.launch",  #  python -u -m torch.distributed.launch ... train.py
    "init-method": "init_method.init_method",  #       python train.py --init_method tcp://... --rank 0 ...
    "mpirun": "mpirun.mpirun",  #                      mpirun -np 2N ... python train.py, on node 0
    "deepspeed": "deepspeed.deepspeed",  #             deepspeed train.py, on node 0
    "msrun": "msrun.msrun",  #                         msrun --worker_num=2N ... python train.py
}
NAMES: Final = (DIRECT, *LAUNCHERS)


def hand_over(launcher: str, request: Request) -> Handover:
    """Rewrite a command for another engine than `direct`. Errors: SettingsError."""
    engine: Callable[[Request], Handover] = load(__package__, LAUNCHERS[launcher])
    return engine(request)
