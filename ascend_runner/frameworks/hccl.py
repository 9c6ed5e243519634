"""What HCCL and CANN read: the rank, its device, the rank table. MindSpore and TensorFlow on NPU ask for no more.

DEVICE_ID and ASCEND_DEVICE_ID are indices into what the container, or ASCEND_RT_VISIBLE_DEVICES, lets a process see;
never the physical ids of a rank table (CANN's environment variable reference; the platforms' own scripts).
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final

from .situation import Changes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .situation import Situation

CONNECT_TIMEOUT: Final = "1800"  # seconds, HCCL's default of 120 is too short for large jobs to load
VISIBLE_DEVICES: Final = "ASCEND_RT_VISIBLE_DEVICES"


def ranks(situation: Situation) -> Changes:
    """Say who each rank is, and which device is its own."""
    own = tuple(
        {"RANK_ID": str(rank_id), **device} for rank_id, device in zip(situation.rank_ids, devices(situation).ranks)
    )
    return Changes(job={"RANK_SIZE": str(situation.rank_size)}, ranks=own)


def devices(situation: Situation) -> Changes:
    """Give each rank the device of its local number: one of all, or, isolated, the only one that it sees."""
    return Changes(ranks=tuple(_device(situation, local_rank) for local_rank in range(len(situation.rank_ids))))


def _device(situation: Situation, local_rank: int) -> Mapping[str, str]:
    index = str(local_rank)
    if not situation.isolate_devices:
        return {"DEVICE_ID": index, "ASCEND_DEVICE_ID": index}

    visible = visible_devices(situation.environ)
    return {
        VISIBLE_DEVICES: visible[local_rank] if visible else index,
        "DEVICE_ID": "0",
        "ASCEND_DEVICE_ID": "0",
    }


def table(situation: Situation) -> Changes:
    """Say where the rank table is, where there is one."""
    return Changes(job={"RANK_TABLE_FILE": situation.table_path} if situation.table_path else {})


def defaults(situation: Situation) -> Changes:
    """Set what every framework is better off with, where the user has not: HCCL's patience, threads, whole logs."""
    wanted = {"HCCL_CONNECT_TIMEOUT": CONNECT_TIMEOUT, "PYTHONUNBUFFERED": "1"}
    if situation.cores:
        wanted["OMP_NUM_THREADS"] = str(max(1, situation.cores // max(1, len(situation.rank_ids))))

    return Changes(job={name: value for name, value in wanted.items() if not situation.environ.get(name)})


def visible_devices(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Give the devices that the user lets the ranks see; none where all are. What is malformed is refused elsewhere."""
    text = environ.get(VISIBLE_DEVICES, "")
    return tuple(text.split(",")) if text else ()
