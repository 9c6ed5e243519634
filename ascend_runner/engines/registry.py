"""The engines. The runner supervises one process per node, which starts the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ascend_runner.engines import local, node_0
from ascend_runner.engines.command import LAUNCH_MODULE, LLAMA_FACTORY, MEGATRON_SWIFT, PROGRAMS, SWIFT
from ascend_runner.engines.local import Handover, Request

DIRECT: Final = "direct"  # no engine: the runner starts the ranks
RAY: Final = "ray"
# Commands that start torchrun themselves: engines without --launcher.
BY_VARIABLES: Final = (LLAMA_FACTORY, SWIFT, MEGATRON_SWIFT)
# How each engine rewrites a command, by its name as `--launcher` takes it; a SettingsError means that it cannot run it.
ENGINES: Final[Mapping[str, Callable[[Request], Handover]]] = {
    "torchrun": local.rewrite_for_torchrun,
    LAUNCH_MODULE: local.rewrite_for_launch,
    "init-method": local.rewrite_for_init_method,
    "mpirun": node_0.rewrite_for_mpirun,
    "deepspeed": node_0.rewrite_for_deepspeed,
    "msrun": local.rewrite,
    RAY: local.rewrite_for_ray,
    **dict.fromkeys(BY_VARIABLES, local.give_place),
}
# The Python module of each engine that has one.
MODULES: Final[Mapping[str, str]] = {
    name: module for name, _program, module in PROGRAMS if name in ENGINES and "." in module
}
NAMES: Final = (DIRECT, *(name for name in ENGINES if name not in BY_VARIABLES))
