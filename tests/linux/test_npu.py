"""Which NPUs are to be seen and where they sit, from trees of device nodes and of sysfs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ascend_runner.linux import npu
from tests.linux.trees import tree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["davinci10", "davinci2", "davinci_manager", "devmm_svm", "hisi_hdc", "davinci"], (2, 10)),
        (["vdavinci101", "vdavinci100", "davinci_manager"], (100, 101)),
        (["davinci0", "vdavinci100"], (0,)),
        (["null"], ()),
    ],
)
def test_devices(tmp_path: Path, names: list[str], expected: tuple[int, ...]) -> None:
    """Device nodes are counted by their number, and only those with one."""
    assert expected == npu.devices(tree(tmp_path, {f"dev/{name}": "" for name in names}))


def test_no_dev(tmp_path: Path) -> None:
    """Where there is no /dev, there is no device."""
    assert () == npu.devices(str(tmp_path))


@pytest.mark.parametrize(
    ("nproc", "visible", "expected"),
    [
        (4, (), (3, 4, 6, 7)),
        (2, (), (3, 4)),
        (2, ("1", "3"), (4, 7)),
        (8, (), (3, 4, 6, 7)),
        (2, ("3", "9"), (7,)),
    ],
)
def test_ranks_take_devices_in_order(
    tmp_path: Path, nproc: int, visible: tuple[str, ...], expected: tuple[int, ...]
) -> None:
    """A device index counts what is to be seen, not physical ids; ASCEND_RT_VISIBLE_DEVICES counts the same."""
    root = tree(tmp_path, {f"dev/davinci{number}": "" for number in (3, 4, 6, 7)})

    assert expected == npu.of_ranks(nproc, visible, root)


def test_node_by_the_class_of_the_device_node(tmp_path: Path) -> None:
    """The character device's class links to the PCI device."""
    root = tree(tmp_path, {"sys/class/net/lo/mtu": "1", "sys/class/npu/davinci5/device/numa_node": "6\n"})

    assert (6, None) == (npu.numa_node(5, root), npu.numa_node(4, root))


def test_node_by_the_driver(tmp_path: Path) -> None:
    """The driver's PCI devices say which physical id they have."""
    driver = "sys/bus/pci/drivers/devdrv_device_driver"
    root = tree(
        tmp_path,
        {
            f"{driver}/0000:c1:00.0/dev_id": "1\n",
            f"{driver}/0000:c1:00.0/numa_node": "3\n",
            f"{driver}/0000:01:00.0/dev_id": "11\n",
            f"{driver}/0000:01:00.0/numa_node": "-1\n",
            f"{driver}/bind": "",
        },
    )

    assert [3, None, None] == [npu.numa_node(device, root) for device in (1, 11, 2)]
