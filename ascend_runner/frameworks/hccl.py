"""The variables that HCCL and CANN read: the rank, its device, the rank table. MindSpore and TensorFlow need no more.

DEVICE_ID and ASCEND_DEVICE_ID are indices into the devices that the container or ASCEND_RT_VISIBLE_DEVICES makes
visible, never the physical ids of a rank table (CANN's environment variable reference; the platforms' own scripts).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ascend_runner.frameworks.env_patch import EnvPatch, LaunchContext

CONNECT_TIMEOUT: Final = "1800"  # seconds; HCCL's default of 120 is too short for large jobs to load
VISIBLE_DEVICES: Final = "ASCEND_RT_VISIBLE_DEVICES"


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
