"""Slurm and mpirun, if they have started this process once per node. Pure.

The count and the list of the step decide, not the job's: a batch script runs on one node of several, and a step
may use fewer nodes than its job has.

Several processes per node are detected by `detect`. MPI gives numbers, but no addresses; inside a Slurm job
Slurm has the addresses. MPI's own variables come first, because mpirun passes the calling shell's to every node:
SLURM_NODEID is then the same everywhere.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from ascend_runner import programs
from ascend_runner.errors import SettingsError
from ascend_runner.platforms.node import ALONE, MOST, Node
from ascend_runner.platforms.spec import PlatformSpec
from ascend_runner.text import is_whole_number

STEP_NODES: Final = "SLURM_STEP_NODELIST"
JOB_NODES: Final = "SLURM_JOB_NODELIST"


def _refine(node: Node, environ: Mapping[str, str]) -> Node:
    """Take the hosts from the compressed node list."""
    if not environ.get(STEP_NODES):
        return node
    hosts = hosts_of(environ[STEP_NODES], STEP_NODES)

    return attrs.evolve(node, hosts=hosts, sources={**node.sources, "hosts": STEP_NODES})


def _ambiguity(environ: Mapping[str, str]) -> str:
    nodes = environ.get("SLURM_JOB_NUM_NODES", "1")
    if nodes == "1" or environ.get("SLURM_STEP_NUM_NODES"):
        return ""

    return (
        f"SLURM_JOB_NUM_NODES is {nodes}, but srun did not start this process: use srun --ntasks-per-node=1"
        f" --kill-on-bad-exit=1 {programs.command('ascend-runner')} ... ({ALONE})"
    )


def _way_in(environ: Mapping[str, str], _pod_name: str, host_name: str) -> str:
    if not environ.get("SLURM_JOB_ID"):
        return ""
    node = environ.get("SLURMD_NODENAME") or host_name
    return f"srun --jobid={environ['SLURM_JOB_ID']} --nodelist={shlex.quote(node)} --overlap --pty bash"


SLURM: Final = PlatformSpec(
    name="Slurm",
    workload_manager="Slurm",
    detected_by=("SLURM_STEP_NUM_NODES", "SLURM_NODEID"),
    nnodes=("SLURM_STEP_NUM_NODES",),
    node_rank=("SLURM_NODEID",),
    refine=_refine,
    ambiguity=_ambiguity,
    job_ids={"SLURM_JOB_ID": "slurm-{}".format},  # the number alone would not be a telling name of a log file
    way_in=_way_in,
)


def hosts_of(text: str, name: str) -> tuple[str, ...]:
    """Expand a compressed node list: node[01-03,07],gpu1 is node01, node02, node03, node07 and gpu1.

    `name` is the variable that holds it.

    Raises:
        SettingsError: It is not a node list.
    """
    try:
        return tuple(host for part in _split(text) for host in _expanded(part))
    except ValueError:
        raise SettingsError(
            f"invalid value {text!r} for {name}: expected a node list such as 'node[01-03,07],gpu1'"
        ) from None


def _split(text: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    start = depth = 0
    for position, char in enumerate(text + ","):
        depth += {"[": 1, "]": -1}.get(char, 0)
        if depth not in {0, 1}:
            raise ValueError
        if char == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    if depth:
        raise ValueError


def _expanded(part: str) -> list[str]:
    """Expand one part, which may have several pairs of brackets: rack[1-2]node[1-4]."""
    if not part or part[-1].isspace():
        raise ValueError
    prefix, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    inside, _, suffix = rest.partition("]")
    suffixes = _expanded(suffix) if suffix else [""]
    numbers = [number for piece in inside.split(",") for number in _numbers(piece)]
    if len(numbers) * len(suffixes) > MOST:
        raise ValueError

    return [prefix + number + suffix for number in numbers for suffix in suffixes]


def _numbers(piece: str) -> list[str]:
    """Return the numbers of 07 or 01-03, as wide as the first is written."""
    first, dash, last = piece.partition("-")
    last = last if dash else first
    if not is_whole_number(first) or not is_whole_number(last) or not 0 <= int(last) - int(first) < MOST:
        raise ValueError

    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def _hosts_of_slurm(node: Node, environ: Mapping[str, str]) -> Node:
    """Take the hosts from the surrounding Slurm step or job, if it has as many nodes."""
    for name in filter(environ.get, (STEP_NODES, JOB_NODES)):
        hosts = hosts_of(environ[name], name)
        if len(hosts) == node.nnodes:
            return attrs.evolve(node, hosts=hosts, sources={**node.sources, "hosts": name})

    return node


def _spec(name: str, size: str, rank: str) -> PlatformSpec:
    return PlatformSpec(
        name=name,
        workload_manager="",
        detected_by=(size, rank),
        # A job of one process says nothing about other nodes: `mpirun -np 1` may run on each of them.
        is_confirmed=lambda environ: environ[size] != "1",
        nnodes=(size,),
        node_rank=(rank,),
        refine=_hosts_of_slurm,
    )


OPEN_MPI: Final = _spec("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")
HYDRA: Final = _spec("Hydra (MPICH, Intel MPI)", "PMI_SIZE", "PMI_RANK")
