"""The environment of a rank: the context of a launch, the changes to it, and the variables of HCCL and CANN. Pure.

DEVICE_ID and ASCEND_DEVICE_ID are indices into the devices that the container or ASCEND_RT_VISIBLE_DEVICES makes
visible, never the physical ids of a rank table (CANN's environment variable reference; the platforms' own scripts).
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.platforms.node import Node, number_of


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LaunchContext:
    """The circumstances in which this node's ranks are launched.

    `rank_ids` are this node's in local order, `rank_size` counts the ranks of the job. `table_path` is the
    rank table for the ranks; None: there is none, and the ranks meet at node 0. `cores` is the number of cores of this
    node (None: unknown). `resolve` turns a host name into an address, for frameworks that do not accept names.
    """

    framework: str
    node: Node
    rank_ids: tuple[int, ...]
    rank_size: int
    environ: Mapping[str, str]
    table_path: str | None = None
    cores: int | None = None
    isolate_devices: bool = False
    chip: str | None = None  # one of CHIPS (None: unknown)
    dumps: str = ""  # how the paths of the dumps of flight recorders begin ("": the recorders stay as they are)
    hang_timeout: float | None = None  # seconds, if the user has set a number
    resolve: Callable[[str], str] = str

    @property
    def nproc(self) -> int:
        """The number of ranks on this node."""
        return len(self.rank_ids)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class EnvPatch:
    """Changes of an environment: `unset` first, then `job` for every process, then each rank's own in `ranks`.

    `beside` has the changes for auxiliary processes by their names: each runs the same command, without a rank.
    `notes` say what was removed and why.
    """

    job: Mapping[str, str] = {}
    ranks: tuple[Mapping[str, str], ...] = ()
    unset: frozenset[str] = frozenset()
    beside: Mapping[str, EnvPatch] = {}
    notes: tuple[str, ...] = ()

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment that all processes share."""
        return {**{name: value for name, value in environ.items() if name not in self.unset}, **self.job}

    def environments_of_ranks(self, environ: Mapping[str, str]) -> list[dict[str, str]]:
        """Return the complete environment of each rank, in local order."""
        shared = self.environment(environ)
        return [{**shared, **own} for own in self.ranks]

    def environment_of_process(self, name: str, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the complete environment of a process without a rank."""
        return self.beside[name].environment(self.environment(environ))


def merge(patches: Sequence[EnvPatch], nproc: int) -> EnvPatch:
    """Merge patches for `nproc` ranks; if two of them set the same variable, the later one wins."""
    return EnvPatch(
        job={name: value for patch in patches for name, value in patch.job.items()},
        ranks=tuple(
            {name: value for patch in patches if patch.ranks for name, value in patch.ranks[local_rank].items()}
            for local_rank in range(nproc)
        ),
        unset=frozenset().union(*(patch.unset for patch in patches)),
        beside={name: process for patch in patches for name, process in patch.beside.items()},
        notes=tuple(note for patch in patches for note in patch.notes),
    )


CONNECT_TIMEOUT: Final = "1800"  # seconds; HCCL's default of 120 is too short for large jobs to load
VISIBLE_DEVICES: Final = "ASCEND_RT_VISIBLE_DEVICES"
AFFINITY: Final = "CPU_AFFINITY_CONF"
TTP_OT, MINDX_WAIT = 720, 30  # seconds, defaults of MindIO TFT


def ranks(context: LaunchContext) -> EnvPatch:
    """Return the variables for each rank's number and device."""
    own = tuple(
        {"RANK_ID": str(rank_id), **device} for rank_id, device in zip(context.rank_ids, devices(context).ranks)
    )
    return EnvPatch(job={"RANK_SIZE": str(context.rank_size)}, ranks=own)


def devices(context: LaunchContext) -> EnvPatch:
    """Return the device variables of each rank: its local rank as an index, or 0 if each rank sees one device."""
    return EnvPatch(ranks=tuple(_device(context, local_rank) for local_rank in range(context.nproc)))


def table(context: LaunchContext) -> EnvPatch:
    """Return the variable with the path of the rank table, if there is one."""
    return EnvPatch(job={"RANK_TABLE_FILE": context.table_path} if context.table_path else {})


def defaults(context: LaunchContext) -> EnvPatch:
    """Return defaults for every framework, unless the user has set them: HCCL timeout, threads, unbuffered output."""
    wanted = {"HCCL_CONNECT_TIMEOUT": CONNECT_TIMEOUT, "PYTHONUNBUFFERED": "1"}
    if context.cores:
        wanted["OMP_NUM_THREADS"] = str(max(1, context.cores // max(1, context.nproc)))

    return EnvPatch(job={name: value for name, value in wanted.items() if not context.environ.get(name)})


@attrs.frozen(kw_only=True)
class FlightRecorder:
    """The variables of the recorder that a library has of its collectives; of several names, the first one counts."""

    library: str
    entries: tuple[str, ...]  # how many of the newest collectives it holds (0: it is off)
    dumps: tuple[str, ...]  # how the path of a dump begins: the rank follows
    pipe: tuple[str, ...]  # how the path of a pipe begins: the rank and ".pipe" follow; a write to it asks for a dump


# The number that torch has chosen for itself.
RECORDED: Final = "2000"
FLIGHT_RECORDERS: Final = (
    # torch: FlightRecorder.hpp, FlightRecorder.cpp and ProcessGroupNCCL.hpp in torch/csrc/distributed/c10d. A version
    # that knows the first name warns about the second one in each log, and records by default. gloo records as well,
    # but reads no pipe. Its monitor looks at the pipe every second only if it dumps on a time-out, the default since
    # 2.7 (ProcessGroupNCCL::HeartbeatMonitor).
    FlightRecorder(
        library="torch",
        entries=("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        dumps=("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
        pipe=("TORCH_NCCL_DEBUG_INFO_PIPE_FILE",),
    ),
    # torch_npu, since 2025-06: FlightRecorder.hpp, FlightRecorder.cpp and ProcessGroupHCCL.hpp in
    # torch_npu/csrc/distributed. Off by default.
    FlightRecorder(
        library="torch_npu",
        entries=("TORCH_HCCL_TRACE_BUFFER_SIZE",),
        dumps=("TORCH_HCCL_DEBUG_INFO_TEMP_FILE",),
        pipe=("TORCH_HCCL_DEBUG_INFO_PIPE_FILE",),
    ),
)
# The pipe of torch_npu is read by its monitor, which is off by default, and in time only if it also dumps on a time-out
# (ProcessGroupHCCL::heartbeatMonitor). That has a price, so that it is left to the user: a rank whose collective has
# failed ends as much later as the monitor waits for a sign of life (workCleanupLoop), and where no collective runs for
# so long, each rank writes lines to its log, which are no silence.
MONITOR: Final = "TORCH_HCCL_ENABLE_MONITORING"
DUMPS_ON_TIMEOUT: Final = ("TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_HCCL_DUMP_ON_TIMEOUT")
MONITOR_WAITS: Final = "TORCH_HCCL_HEARTBEAT_TIMEOUT_SEC"  # 600 s by default


def flight_recorders(context: LaunchContext) -> EnvPatch:
    """Switch on the flight recorders that a hang is explained with, where the user has not set their variables."""
    if not context.dumps:
        return EnvPatch()
    environ, wanted = context.environ, {}
    for recorder in FLIGHT_RECORDERS:
        if not _first(environ, recorder.entries):
            wanted[recorder.entries[0]] = RECORDED
        if not _first(environ, recorder.dumps):
            wanted[recorder.dumps[0]] = f"{context.dumps}{recorder.library}-rank-"
    is_monitored = environ.get(MONITOR) not in {None, "", "0"}
    defaults = dict.fromkeys(DUMPS_ON_TIMEOUT if is_monitored else DUMPS_ON_TIMEOUT[:1], "1")
    if is_monitored and context.hang_timeout:
        defaults[MONITOR_WAITS] = str(max(600, round(2 * context.hang_timeout)))
    wanted |= {name: value for name, value in defaults.items() if not environ.get(name)}
    return EnvPatch(job=wanted)


def recorder_pipes(env: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return the variables that make the flight recorders of a rank open pipes in `folder`, if they dump anywhere."""
    recorders = (one for one in FLIGHT_RECORDERS if _first(env, one.dumps) and not _first(env, one.pipe))
    return {one.pipe[0]: os.path.join(folder, f"flight-recorder-{one.library}-rank-") for one in recorders}


def recorder_paths(env: Mapping[str, str], cwd: str, rank_id: int) -> tuple[tuple[str, str], ...]:
    """Return the paths of the pipe and the dump of each flight recorder of a rank that has a pipe."""
    stems = [(_first(env, one.pipe), _first(env, one.dumps)) for one in FLIGHT_RECORDERS]
    return tuple(
        (os.path.join(cwd, f"{pipe}{rank_id}.pipe"), os.path.join(cwd, f"{dump}{rank_id}"))
        for pipe, dump in stems
        if pipe and dump
    )


def _first(environ: Mapping[str, str], names: Sequence[str]) -> str:
    return next(filter(None, map(environ.get, names)), "")


def binds_itself(environ: Mapping[str, str]) -> bool:
    """Whether torch_npu binds the ranks to cores: CPU_AFFINITY_CONF is its mode ("1", "mode:2,...", 0 for none)."""
    mode = environ.get(AFFINITY, "").partition(",")[0].rpartition(":")[2].strip()
    return mode not in {"", "0"}


def recovery(environ: Mapping[str, str]) -> tuple[str, float]:
    """Return the variable with which the framework recovers by itself, and the seconds that it may take; ("", 0.0).

    After the failure of a rank, MindIO TFT lets the others repair it or save a checkpoint, for which they must live:
    MS_ENABLE_TFT has "TTP:1", "UCE:1" or "ARF:1" for MindSpore, TTP_* configure it for all. It waits for MindCluster
    first, and forces its processes to exit after TTP_OT (environment variables of MindCluster's MindIO TFT).
    """
    if re.search(r"\b(TTP|UCE|ARF)\s*:\s*1\b", environ.get("MS_ENABLE_TFT", "")):
        name = "MS_ENABLE_TFT"
    else:
        own = (name for name in sorted(environ) if name.startswith("TTP_") and not name.startswith("TTP_LOG"))
        name = next(own, "")
    seconds = number_of(environ, "TTP_OT", TTP_OT) + number_of(environ, "MINDIO_WAIT_MINDX_TIME", MINDX_WAIT)
    return name, float(seconds) if name else 0.0


def visible_devices(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Split ASCEND_RT_VISIBLE_DEVICES; empty if it is not set. Malformed entries are refused by `conflicts`."""
    text = environ.get(VISIBLE_DEVICES, "")
    return tuple(text.split(",")) if text else ()


def _device(context: LaunchContext, local_rank: int) -> Mapping[str, str]:
    index = str(local_rank)
    if not context.isolate_devices:
        return {"DEVICE_ID": index, "ASCEND_DEVICE_ID": index}

    visible = visible_devices(context.environ)
    return {VISIBLE_DEVICES: visible[local_rank] if visible else index, "DEVICE_ID": "0", "ASCEND_DEVICE_ID": "0"}
