"""The visible NPUs and their NUMA nodes, in trees of device nodes and sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend_runner.node import npus
from ascend_runner.node.host import Host
from tests.helpers.trees import host


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
    """Only device nodes with a number count, in the order of their numbers."""
    assert expected == npus.devices(host(tmp_path, {f"dev/{name}": "" for name in names}))


def test_no_dev(tmp_path: Path) -> None:
    """Without /dev there is no device."""
    assert () == npus.devices(Host(str(tmp_path)))


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
    """A device index counts the visible devices, not physical ids, also in ASCEND_RT_VISIBLE_DEVICES."""
    machine = host(tmp_path, {f"dev/davinci{number}": "" for number in (3, 4, 6, 7)})

    assert expected == npus.of_ranks(machine, nproc, visible)


def test_node_by_the_class_of_the_device_node(tmp_path: Path) -> None:
    """The character device's class links to the PCI device."""
    machine = host(tmp_path, {"sys/class/net/lo/mtu": "1", "sys/class/npu/davinci5/device/numa_node": "6\n"})

    assert (6, None) == (npus.numa_node(machine, 5), npus.numa_node(machine, 4))


def test_node_by_the_driver(tmp_path: Path) -> None:
    """The driver's PCI devices have their physical ids in dev_id."""
    driver = "sys/bus/pci/drivers/devdrv_device_driver"
    machine = host(
        tmp_path,
        {
            f"{driver}/0000:c1:00.0/dev_id": "1\n",
            f"{driver}/0000:c1:00.0/numa_node": "3\n",
            f"{driver}/0000:01:00.0/dev_id": "11\n",
            f"{driver}/0000:01:00.0/numa_node": "-1\n",
            f"{driver}/bind": "",
        },
    )

    assert [3, None, None] == [npus.numa_node(machine, device) for device in (1, 11, 2)]
