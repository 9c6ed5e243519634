"""Which NPUs this machine or container shows, and where they sit: /dev/davinciN, and what sysfs knows of each.

N is the device's physical id, also in a container that sees only some of them. Virtual devices (/dev/vdavinciN) count
likewise where there are no others. Nothing here asks the driver, which may hang; `root` is put before every path, for
tests.
"""

from __future__ import annotations

import os

from ascend_runner.annotations import TYPE_CHECKING, Final

from . import cgroup

if TYPE_CHECKING:
    from collections.abc import Sequence

NODE: Final = "davinci"  # how the device nodes' names begin
VIRTUAL_NODE: Final = "vdavinci"
DRIVER: Final = "/sys/bus/pci/drivers/devdrv_device_driver"  # one link per NPU; its dev_id is the physical id


def devices(root: str = "") -> tuple[int, ...]:
    """Give the ids of the NPUs that are to be seen, rising: CANN's device 0 is the first of them."""
    return tuple(nodes(root))


def nodes(root: str = "") -> dict[int, str]:
    """Give the names of their device nodes in /dev, by id."""
    names = _names(f"{root}/dev")
    return _numbered(names, NODE) or _numbered(names, VIRTUAL_NODE)


def of_ranks(nproc: int, visible: Sequence[str], root: str = "") -> tuple[int, ...]:
    """Give the ids of the devices that the ranks of this node take, in local order, but for those that are not there.

    A rank's device index counts the devices that are to be seen, or those of them that ASCEND_RT_VISIBLE_DEVICES
    lists (`visible`; empty: it is not set).
    """
    present = devices(root)
    indices = [int(index) for index in visible if index.isascii() and index.isdigit()] if visible else range(nproc)

    return tuple(present[index] for index in indices[:nproc] if index < len(present))


def numa_node(device_id: int, root: str = "") -> int | None:
    """Give the NUMA node that an NPU's PCI device is next to; None where nobody says (a virtual machine, no sysfs)."""
    for folder in (*_of_class(device_id, root), *_of_driver(device_id, root)):
        text = cgroup.read(f"{folder}/numa_node").strip()
        if text.isdigit():  # the kernel says -1 where the firmware does not tell
            return int(text)

    return None


def _of_class(device_id: int, root: str) -> list[str]:
    """Give the PCI device above the character device, where the driver links the two."""
    classes = f"{root}/sys/class"
    return [f"{classes}/{name}/{NODE}{device_id}/device" for name in _names(classes)]


def _of_driver(device_id: int, root: str) -> list[str]:
    """Give those PCI devices of the driver that say they are this one."""
    folders = [f"{root}{DRIVER}/{name}" for name in _names(root + DRIVER)]
    return [folder for folder in folders if cgroup.read(f"{folder}/dev_id").strip() == str(device_id).encode()]


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _numbered(names: list[str], prefix: str) -> dict[int, str]:
    found = ((name[len(prefix) :], name) for name in names if name.startswith(prefix))
    return dict(sorted((int(number), name) for number, name in found if number.isascii() and number.isdigit()))
