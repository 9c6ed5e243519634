"""Finding the own control groups, in trees of files as on different systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend_runner.node import cores
from ascend_runner.node.cores import Cgroup
from ascend_runner.node.host import Host

FILES = ("cpu.cfs_quota_us", "cpu.max")
V1_MOUNT = "33 31 0:30 {root} /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
V2_MOUNT = "30 23 0:26 {root} /sys/fs/cgroup{hybrid} rw - cgroup2 cgroup2 rw\n"


def tree(folder: Path, cgroups: str, mounts: str, *files: str) -> Host:
    """Lay out the /proc files of this process, and the controllers' files."""
    for name, text in {"proc/self/cgroup": cgroups, "proc/self/mountinfo": mounts, **dict.fromkeys(files, "")}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Host(str(folder))


V1_FREEZER = "34 31 0:31 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"


@pytest.mark.parametrize(
    ("mounts", "states", "expected"),
    [
        (V1_FREEZER, {"freezer/own/freezer.state": "FROZEN\n"}, True),
        (V1_FREEZER, {"freezer/own/freezer.state": "THAWED\n"}, False),
        (V2_MOUNT.format(root="/", hybrid=""), {"own/cgroup.events": "populated 1\nfrozen 1\n"}, True),
        (V2_MOUNT.format(root="/", hybrid=""), {"own/cgroup.events": "populated 1\nfrozen 0\n"}, False),
        (
            V1_FREEZER + V2_MOUNT.format(root="/", hybrid="/unified"),
            {"freezer/own/freezer.state": "THAWED\n", "unified/own/cgroup.events": "populated 1\nfrozen 1\n"},
            True,
        ),
        (
            V1_FREEZER + V2_MOUNT.format(root="/", hybrid="/unified"),
            {"freezer/own/freezer.state": "FROZEN\n", "unified/own/cgroup.events": "populated 1\nfrozen 0\n"},
            True,
        ),
        ("", {}, False),
    ],
)
def test_frozen(tmp_path: Path, mounts: str, states: dict[str, str], *, expected: bool) -> None:
    """The control groups of other processes are checked, in both versions if both are mounted."""
    files = {f"sys/fs/cgroup/{name}": text for name, text in states.items()}
    host = tree(tmp_path, "", mounts, *files, "proc/6/cgroup", "proc/7/cgroup")
    (tmp_path / "proc/6/cgroup").write_text("5:freezer:/\n0::/\n")
    (tmp_path / "proc/7/cgroup").write_text("5:freezer:/own\n0::/own\n")
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    assert expected == cores.is_any_frozen(host, (6, 7, 8))


@pytest.mark.parametrize(
    ("cgroups", "mounts", "files", "expected"),
    [
        ("0::/\n", V2_MOUNT.format(root="/", hybrid=""), ["sys/fs/cgroup/cpu.max"], (False, ["/sys/fs/cgroup"])),
        (
            "0::/pod/own\n",
            V2_MOUNT.format(root="/", hybrid=""),
            ["sys/fs/cgroup/pod/cpu.max"],  # the controller is not handed down to the own group
            (False, ["/sys/fs/cgroup/pod"]),
        ),
        (
            "4:cpu,cpuacct:/pod/own\n0::/else\n",
            V1_MOUNT.format(root="/") + V2_MOUNT.format(root="/", hybrid="/unified"),
            ["sys/fs/cgroup/cpu/pod/own/cpu.cfs_quota_us", "sys/fs/cgroup/cpu/cpu.cfs_quota_us"],
            (True, ["/sys/fs/cgroup/cpu/pod/own", "/sys/fs/cgroup/cpu"]),
        ),
        (
            "4:cpu,cpuacct:/docker/own\n",  # the host's path, in a container that has its own part mounted
            V1_MOUNT.format(root="/docker/own"),
            ["sys/fs/cgroup/cpu/cpu.cfs_quota_us"],
            (True, ["/sys/fs/cgroup/cpu"]),
        ),
        ("4:cpuset:/\n", V1_MOUNT.format(root="/"), ["sys/fs/cgroup/cpu/cpu.cfs_quota_us"], None),
        ("0::/\n", "", ["sys/fs/cgroup/cpu.max"], None),
        ("", "", [], None),
    ],
)
def test_find(
    tmp_path: Path, cgroups: str, mounts: str, files: list[str], expected: tuple[bool, list[str]] | None
) -> None:
    """The directories with the controller's file are found, the own one first."""
    host = tree(tmp_path, cgroups, mounts, *files)
    wanted = None if expected is None else Cgroup(expected[0], tuple(expected[1]))

    assert wanted == cores.find_cgroup(host, "cpu", *FILES)
