"""Finds out whether a command is an engine itself, which starts the processes of a node or of all nodes.

To run such a command once per device would start n x n processes.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from typing import Final

from ascend_runner.engines import deepspeed, msrun, torchrun
from ascend_runner.engines.command import calls, python_command

# The name in messages, the program and the module of each engine.
PROGRAMS: Final = (
    ("torchrun", "torchrun", torchrun.TORCHRUN_MODULE),
    (torchrun.LAUNCH_MODULE, torchrun.LAUNCH_MODULE, torchrun.LAUNCH_MODULE),
    ("msrun", "msrun", msrun.MODULE),
    ("mpirun", "mpirun", "mpirun"),
    ("mpiexec", "mpiexec", "mpiexec"),
    ("deepspeed", "deepspeed", deepspeed.MODULE),
    ("horovodrun", "horovodrun", "horovod.runner.launch"),
    ("accelerate launch", "accelerate-launch", "accelerate.commands.launch"),
)
ACCELERATE: Final = (("accelerate", "accelerate"), ("accelerate", "accelerate.commands.accelerate_cli"))
# Programs that run the rest of their words as a command, each with its options that take the next word as a value.
WRAPPERS: Final[Mapping[str, frozenset[str]]] = {
    "env": frozenset({"-u", "--unset", "-C", "--chdir"}),
    "numactl": frozenset({"-m", "--membind", "-N", "--cpunodebind", "-C", "--physcpubind", "-i", "--interleave", "-p"}),
    "nice": frozenset({"-n"}),
    "ionice": frozenset({"-c", "-n"}),
    "taskset": frozenset(),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "nohup": frozenset(),
    "setsid": frozenset(),
    "timeout": frozenset({"-s", "--signal", "-k", "--kill-after"}),
    "time": frozenset({"-f", "-o"}),
}
TAKES_A_WORD: Final = frozenset({"taskset", "timeout"})  # a mask or list of cores, a duration


def engine_in(argv: Sequence[str]) -> str:
    """Return the name of the engine that a command is, also behind a wrapper such as `env`; "" if it is none."""
    command = without_wrappers(argv)
    if not command:
        return ""
    if any(calls(command, program, module) for program, module in ACCELERATE):
        python = python_command(command)
        arguments = python.arguments if python else command[1:]
        return "accelerate launch" if tuple(arguments[:1]) == ("launch",) else ""

    return next((name for name, program, module in PROGRAMS if calls(command, program, module)), "")


def without_wrappers(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command without `env A=B`, `numactl -N 0`, `nice -n 5` and the like before it."""
    words = list(argv)
    while words and (wrapper := os.path.basename(words[0])) in WRAPPERS:
        words.pop(0)
        while words and (words[0].startswith("-") or (wrapper == "env" and "=" in words[0])):
            if words.pop(0) in WRAPPERS[wrapper]:
                del words[:1]
        if wrapper in TAKES_A_WORD:
            del words[:1]
    return tuple(words)
