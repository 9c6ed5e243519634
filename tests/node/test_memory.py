"""The kernel's memory counters, in trees of files as on different systems, and on this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ascend_runner.node import memory
from ascend_runner.node.host import Host
from ascend_runner.node.memory import MemorySample
from tests.helpers.cgroups import memory_cgroup
from tests.helpers.trees import host

GIB = 1 << 30
V2_MOUNT = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n"
V1_OTHERS = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"


def proc(cgroup: str, mountinfo: str, oom_kill: int = 0) -> dict[str, str]:
    """Return the three files of /proc that are read."""
    return {
        "proc/self/cgroup": cgroup,
        "proc/self/mountinfo": mountinfo,
        "proc/vmstat": f"nr_free_pages 5\noom_kill {oom_kill}\noom_kill_x 9\n",
    }


def v2(folder: str, oom_kill: int = 0, limit: str = "max", peak: str = "100") -> dict[str, str]:
    """Return the files of a cgroup of version 2."""
    base = f"sys/fs/cgroup{folder}"
    events = f"low 0\nhigh 0\nmax 7\noom 3\noom_kill {oom_kill}\noom_group_kill 0\n"
    return {f"{base}/memory.events": events, f"{base}/memory.max": limit, f"{base}/memory.peak": peak}


def v1(folder: str, oom_kill: int = 0, limit: int = 9223372036854771712, peak: int = 100) -> dict[str, str]:
    """Return the files of a memory cgroup of version 1."""
    base = f"sys/fs/cgroup/memory{folder}"
    control = f"oom_kill_disable 0\nunder_oom 0\noom_kill {oom_kill}\n"
    return {
        f"{base}/memory.oom_control": control,
        f"{base}/memory.limit_in_bytes": f"{limit}\n",
        f"{base}/memory.max_usage_in_bytes": f"{peak}\n",
    }


def expected(own: int | None, machine: int | None, limit: int | None, peak: int | None) -> MemorySample:
    """Return a sample of a machine without /dev/shm."""
    return MemorySample(own_oom_kills=own, machine_oom_kills=machine, limit=limit, peak=peak)


def test_v2_in_a_container(tmp_path: Path) -> None:
    """In a container with a cgroup namespace the mount point is the own cgroup."""
    machine = host(
        tmp_path, {**proc("0::/\n", V2_MOUNT.format(root="/"), 4), **v2("", 2, f"{64 * GIB}\n", f"{63 * GIB}\n")}
    )

    assert expected(2, 4, 64 * GIB, 63 * GIB) == memory.sample(machine)


def test_v2_on_a_host(tmp_path: Path) -> None:
    """On a host the path below the mount point counts; lowest limit and peak are those of a directory above."""
    machine = host(
        tmp_path,
        {
            **proc("0::/kubepods/pod7/abc\n", V2_MOUNT.format(root="/")),
            **v2("/kubepods/pod7/abc", 1, "max", "5"),
            **v2("/kubepods/pod7", 9, str(8 * GIB), "6"),
            **v2("/kubepods", 9, str(16 * GIB), "7"),
        },
    )

    assert expected(1, 0, 8 * GIB, 6) == memory.sample(machine)


def test_v2_of_an_old_kernel(tmp_path: Path) -> None:
    """Before 5.19 there is no memory.peak: the peak is not known, the rest is."""
    files = {**proc("0::/a\n", V2_MOUNT.format(root="/")), **v2("/a", 1, "4096")}
    del files["sys/fs/cgroup/a/memory.peak"]

    assert expected(1, 0, 4096, None) == memory.sample(host(tmp_path, files))


def test_v1_in_a_container(tmp_path: Path) -> None:
    """In a v1 container the path is the host's, and starts with the mounted root."""
    machine = host(
        tmp_path,
        {
            **proc("4:memory:/docker/abc\n3:cpu:/docker/abc\n", V1_OTHERS + V1_MOUNT.format(root="/docker/abc")),
            **v1("", 3, 32 * GIB, 31 * GIB),
        },
    )

    assert expected(3, 0, 32 * GIB, 31 * GIB) == memory.sample(machine)


@pytest.mark.parametrize(
    ("path", "mounted"), [("/docker/abc/x", "/docker/abcd"), ("/../../other", "/"), ("/gone", "/")]
)
def test_path_that_does_not_fit_the_mount(tmp_path: Path, path: str, mounted: str) -> None:
    """If path and mount do not match, the mount point is the container's own cgroup."""
    machine = host(tmp_path, {**proc(f"4:memory:{path}\n", V1_MOUNT.format(root=mounted)), **v1("", 3)})

    assert 3 == memory.sample(machine).own_oom_kills


def test_v1_without_a_limit(tmp_path: Path) -> None:
    """v1's huge number means that there is no limit."""
    machine = host(tmp_path, {**proc("4:cpu,memory:/\n", V1_MOUNT.format(root="/")), **v1("", 0)})

    assert expected(0, 0, None, 100) == memory.sample(machine)


def test_both_versions(tmp_path: Path) -> None:
    """With v1 and v2 side by side, the version with the controller counts."""
    mounts = V2_MOUNT.format(root="/").replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified ") + V1_MOUNT.format(root="/")
    machine = host(
        tmp_path, {**proc("4:memory:/a\n0::/b\n", mounts), **v1("/a", 5), "sys/fs/cgroup/unified/b/cgroup.procs": ""}
    )

    assert 5 == memory.sample(machine).own_oom_kills


def test_root_cgroup_of_v2(tmp_path: Path) -> None:
    """The root cgroup of a host has no counters: only the machine's are known."""
    machine = host(tmp_path, {**proc("0::/\n", V2_MOUNT.format(root="/"), 4), "sys/fs/cgroup/cgroup.procs": ""})

    assert expected(None, 4, None, None) == memory.sample(machine)


def test_blanks_in_a_mount_point(tmp_path: Path) -> None:
    """Blanks in a path are escaped in mountinfo."""
    mount = V2_MOUNT.format(root="/").replace("/sys/fs/cgroup", "/sys/fs/c\\040group")
    files = {name.replace("fs/cgroup", "fs/c group"): text for name, text in v2("", 6).items()}

    assert 6 == memory.sample(host(tmp_path, {**proc("0::/\n", mount), **files})).own_oom_kills


def test_nothing_readable(tmp_path: Path) -> None:
    """Unreadable files leave everything unknown."""
    assert MemorySample() == memory.sample(Host(str(tmp_path)))


@pytest.mark.parametrize(
    "text", ["", "\n", "::::\n", "0::\n", "x", "- cgroup2", "a - cgroup2 b c\n" * 3, "4:memory:\n"]
)
def test_garbage(tmp_path: Path, text: str) -> None:
    """Malformed files leave everything unknown."""
    machine = host(tmp_path, {"proc/self/cgroup": text, "proc/self/mountinfo": text, "proc/vmstat": text})

    assert MemorySample() == memory.sample(machine)


def test_shared_memory() -> None:
    """The size of this machine's /dev/shm is known, and no more of it is in use."""
    seen = memory.sample(Host())

    assert seen.shm_size is not None
    assert seen.shm_used is not None
    assert 0 <= seen.shm_used <= seen.shm_size


# Samples before and after a process in a small cgroup has taken more memory than there is.
SAMPLES = """
import subprocess, sys
open(sys.argv[1], "w").write("0")
from ascend_runner.node import memory
from ascend_runner.node.host import Host
before = memory.sample(Host())
status = subprocess.call([sys.executable, "-S", "-c", "x = bytearray(256 << 20)"])
after = memory.sample(Host())
print(status, after.own_oom_kills - before.own_oom_kills, after.limit, after.peak > 40 << 20)
"""


def test_real_lack_of_memory() -> None:
    """A process that the OOM killer ends is counted, with the limit that it met."""
    with memory_cgroup(48 << 20) as members:
        printed = subprocess.run(
            [sys.executable, "-c", SAMPLES, str(members)], capture_output=True, text=True, check=True
        ).stdout

    assert ["-9", "1", str(48 << 20), "True"] == printed.split()
