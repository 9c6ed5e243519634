"""The engines. Each supervised process per node starts the other processes of its node itself."""

from __future__ import annotations

from typing import Final

from ascend_runner.engines import deepspeed, init_method, mpirun, msrun, torchrun
from ascend_runner.engines.handover import Engine, Handover, Request

DIRECT: Final = "direct"  # no engine: the runner starts the ranks
ENGINES: Final[tuple[Engine, ...]] = (
    torchrun.TORCHRUN,
    torchrun.LAUNCH,
    init_method.INIT_METHOD,
    mpirun.MPIRUN,
    deepspeed.DEEPSPEED,
    msrun.MSRUN,
)
NAMES: Final = (DIRECT, *(engine.name for engine in ENGINES))


def hand_over(name: str, request: Request) -> Handover:
    """Rewrite a command for the engine of this name, which is not `direct`.

    Raises:
        SettingsError: the engine cannot run the command.
    """
    return next(engine for engine in ENGINES if engine.name == name).rewrite(request)
