"""The NPUs that this machine or container shows, and their NUMA nodes: /dev/davinciN and sysfs.

N is the physical id of the device, even in a container that sees only some of them. Virtual devices (/dev/vdavinciN)
count if there are no others. Nothing here asks the driver, which may hang.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from ascend_runner.node.host import Host, open_files
from ascend_runner.text import is_whole_number

NODE: Final = "davinci"  # the first letters of a device node's name
VIRTUAL_NODE: Final = "vdavinci"
CLASSES: Final = "/sys/class"
DRIVER: Final = "/sys/bus/pci/drivers/devdrv_device_driver"  # one link per NPU; its dev_id is the physical id

DEVICE_LIMIT: Final = 15.0  # seconds for the NPUs to be released, by processes that are not ours or by the driver
DEVICE_CHECKS: Final = 150  # checks of the NPUs in this time


def devices(host: Host) -> tuple[int, ...]:
    """Return the ids of the visible NPUs in ascending order; the first is CANN's device 0."""
    return tuple(nodes(host))


def nodes(host: Host) -> dict[int, str]:
    """Return the names of their device nodes in /dev, by id."""
    names = host.listdir("/dev")
    return _numbered(names, NODE) or _numbered(names, VIRTUAL_NODE)


def of_ranks(host: Host, nproc: int, visible: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of the devices of this node's ranks in local order, without missing ones.

    A rank's device index counts the devices in /dev, or only the ones that ASCEND_RT_VISIBLE_DEVICES lists (`visible`;
    empty: it is not set).
    """
    present = devices(host)
    indices = [int(index) for index in visible if is_whole_number(index)] if visible else range(nproc)
    return tuple(present[index] for index in indices[:nproc] if index < len(present))


def holders(host: Host) -> dict[int, set[int]]:
    """Return the NPUs that each other process has open, by pid, as far as this user may see that."""
    files = {host.path(f"/dev/{name}"): device_id for device_id, name in nodes(host).items()}
    held: dict[int, set[int]] = {}
    for pid, file in open_files(host) if files else ():
        if file in files:
            held.setdefault(pid, set()).add(files[file])
    return held


def await_release(host: Host, device_ids: Collection[int], pause: Callable[[float], None]) -> tuple[int, ...]:
    """Wait until no process has one of these NPUs open; return the pids of processes that still do at the limit."""
    wanted = set(device_ids)

    def holding() -> tuple[int, ...]:
        return tuple(pid for pid, held in holders(host).items() if held & wanted) if wanted else ()

    for _ in range(DEVICE_CHECKS):
        if not holding():
            return ()
        pause(DEVICE_LIMIT / DEVICE_CHECKS)
    return holding()


def numa_node(host: Host, device_id: int) -> int | None:
    """Return the NUMA node of an NPU's PCI device, or None if it is unknown (a virtual machine, no sysfs)."""
    for folder in (*_of_class(host, device_id), *_of_driver(host, device_id)):
        text = host.read_text(f"{folder}/numa_node").strip()
        if text.isdigit():  # the kernel writes -1 if the firmware gives none
            return int(text)

    return None


def _of_class(host: Host, device_id: int) -> list[str]:
    """Return the possible sysfs directories of the PCI device behind the character device, one for each class."""
    return [f"{CLASSES}/{name}/{NODE}{device_id}/device" for name in host.listdir(CLASSES)]


def _of_driver(host: Host, device_id: int) -> list[str]:
    """Return the directories of the driver's PCI devices with this physical id."""
    folders = [f"{DRIVER}/{name}" for name in host.listdir(DRIVER)]
    return [folder for folder in folders if host.read_text(f"{folder}/dev_id").strip() == str(device_id)]


def _numbered(names: list[str], prefix: str) -> dict[int, str]:
    found = ((name[len(prefix) :], name) for name in names if name.startswith(prefix))
    return dict(sorted((int(number), name) for number, name in found if is_whole_number(number)))
