"""The number of cores and those of each rank, in trees of different machines and with real processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ascend_runner.node import cores
from ascend_runner.node.cores import Placement
from ascend_runner.node.host import Host
from tests.helpers.program import Program
from tests.helpers.trees import host

V1 = "33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
V2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


def v1(**groups: tuple[str, str]) -> dict[str, str]:
    """Return the files of v1's cpu cgroups /top and /top/own: each quota and period, in microseconds."""
    folders = {"top": "sys/fs/cgroup/cpu/top", "own": "sys/fs/cgroup/cpu/top/own"}
    files = {"proc/self/cgroup": "4:cpuacct,cpu:/top/own\n", "proc/self/mountinfo": V1}
    for name, (quota, period) in groups.items():
        files[f"{folders[name]}/cpu.cfs_quota_us"] = quota + "\n"
        files[f"{folders[name]}/cpu.cfs_period_us"] = period + "\n"
    return files


def v2(**groups: str) -> dict[str, str]:
    """Return the files of v2's cgroups /top and /top/own: each one's cpu.max."""
    folders = {"top": "sys/fs/cgroup/top", "own": "sys/fs/cgroup/top/own"}
    files = {f"{folders[name]}/cpu.max": text + "\n" for name, text in groups.items()}
    return {"proc/self/cgroup": "0::/top/own\n", "proc/self/mountinfo": V2, **files}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 192),
        (v1(own=("-1", "100000")), 192),
        (v1(own=("2400000", "100000")), 24),
        (v1(own=("2400000", "100000"), top=("1600000", "50000")), 24),
        (v1(own=("-1", "100000"), top=("800000", "100000")), 8),
        (v1(own=("750000", "100000")), 7),
        (v1(own=("50000", "100000")), 1),
        (v1(own=("50000", "0")), 192),
        (v2(own="max 100000"), 192),
        (v2(own="max 100000", top="6400000 100000"), 64),
        (v2(own="299999 100000"), 2),
        (v2(own="99900000 100000"), 192),
        (v2(own=""), 192),
    ],
)
def test_available(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    """The lowest quota of the own cgroup and those above counts, rounded down, and never more than the mask has."""
    assert expected == cores.available(host(tmp_path, files), range(192))


def test_available_here() -> None:
    """This machine has cores, at most those of the affinity mask."""
    assert 1 <= cores.available(Host()) <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("\n", set()), ("x,1-y,2", set())],
)
def test_numbers(text: str, expected: set[int]) -> None:
    """Lists are read as the kernel writes them; a malformed one has no numbers."""
    assert expected == cores.numbers(text)


def machine(folder: Path, nodes: dict[int, str], npus: dict[int, int], *, online: str) -> Host:
    """Lay out a machine: the cores of each NUMA node, and the node of each NPU."""
    files = {"sys/devices/system/cpu/online": online}
    files.update({f"sys/devices/system/node/node{node}/cpulist": text + "\n" for node, text in nodes.items()})
    files.update({f"sys/class/npu/davinci{device}/device/numa_node": f"{node}\n" for device, node in npus.items()})
    return host(folder, files)


def ranges(*texts: str) -> tuple[frozenset[int], ...]:
    """Return sets of cores by their lists."""
    return tuple(map(cores.numbers, texts))


# A server with 8 NPUs and 4 NUMA nodes: pairs of NPUs beside a node, in no order of their own.
NODES = {0: "0-23", 1: "24-47", 2: "48-71", 3: "72-95"}
NPUS = {0: 3, 1: 3, 2: 1, 3: 1, 4: 0, 5: 0, 6: 2, 7: 2}


def test_cores_next_to_the_npus(tmp_path: Path) -> None:
    """With `cores`, the ranks of one NUMA node share its cores without overlap."""
    placed = cores.place(machine(tmp_path, NODES, NPUS, online="0-95"), "cores", 8, range(8))

    assert placed == Placement((ranges("72-83", "84-95", "24-35", "36-47", "0-11", "12-23", "48-59", "60-71")), True)


def test_numa_next_to_the_npus(tmp_path: Path) -> None:
    """With `numa`, a rank has all cores of its NPU's node."""
    placed = cores.place(machine(tmp_path, NODES, NPUS, online="0-95"), "numa", 3, (7, 0, 1))

    assert placed == Placement((ranges("48-71", "72-95", "72-95")), True)


def test_only_allowed_cores_are_given(tmp_path: Path) -> None:
    """Cores outside the affinity mask are not used."""
    placed = cores.place(machine(tmp_path, NODES, NPUS, online="20-27,90-95"), "cores", 2, (0, 4))

    assert placed == Placement((ranges("90-95", "20-23")), True)


@pytest.mark.parametrize(
    ("npus", "online"),
    [
        ({}, "0-95"),
        ({0: 3, 1: -1}, "0-95"),
        ({0: 3}, "0-95"),
        ({0: 9, 1: 9}, "0-95"),
        ({0: 3, 1: 0}, "0-71"),  # none of the cores next to NPU 0 is allowed
    ],
)
def test_even_split_where_a_neighbour_is_not_known(tmp_path: Path, npus: dict[int, int], online: str) -> None:
    """If the NUMA node of one NPU is unknown or has no allowed core, all ranks are spread evenly."""
    its_host = machine(tmp_path, NODES, npus, online=online)
    half = len(cores.numbers(online)) // 2
    split = cores.place(its_host, "cores", 2, (0, 1))
    nodes = cores.place(its_host, "numa", 2, (0, 1))

    assert Placement(ranges(f"0-{half - 1}", f"{half}-{2 * half - 1}"), False) == split
    assert Placement(ranges("0-23", "48-71" if online == "0-95" else "24-47"), False) == nodes


def test_without_devices(tmp_path: Path) -> None:
    """Ranks without NPUs are spread evenly; without NUMA nodes all cores are one node."""
    its_host = host(tmp_path, {"sys/devices/system/cpu/online": "0-6"})

    assert Placement(ranges("0-1", "2-3", "4-6"), False) == cores.place(its_host, "cores", 3, ())
    assert Placement(ranges("0-6", "0-6"), False) == cores.place(its_host, "numa", 2, ())


def test_more_ranks_than_cores(tmp_path: Path) -> None:
    """With more ranks than cores each rank has a core."""
    its_host = host(tmp_path, {"sys/devices/system/cpu/online": "0-2"})

    assert Placement(ranges("0", "0", "1", "2"), False) == cores.place(its_host, "cores", 4, ())


def test_threads_of_a_core_stay_together(tmp_path: Path) -> None:
    """The threads of a core are not split among ranks if there is a core for each."""
    siblings = {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
    files = {f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": text for cpu, text in siblings.items()}
    its_host = host(tmp_path, {**files, "sys/devices/system/cpu/online": "0-7"})

    assert ranges("0,4", "1,5", "2,3,6,7") == cores.place(its_host, "cores", 3, ()).cores
    assert ranges("0", "1", "2", "3", "4", "5", "6", "7") == cores.place(its_host, "cores", 8, ()).cores


# --- Real processes ---------------------------------------------------------------------------------------------------

TELL = ("sh", "-c", "grep Cpus_allowed_list /proc/self/status")


def cores_of_ranks(program: Program, *options: str, ranks: int = 2) -> list[frozenset[int]]:
    """Return the cores on which the ranks, and what they start, may run, as the kernel says it."""
    run = program.start("--nproc-per-node", str(ranks), *options, *TELL)
    assert 0 == run.finish(), run.screen
    return [cores.numbers(program.log(rank_id).decode().partition(":")[2]) for rank_id in range(ranks)]


def test_ranks_are_started_on_their_cores(program: Program) -> None:
    """--bind cores splits this machine's cores among real ranks; their own children have the same."""
    assert list(cores.place(Host(), "cores", 2, ()).cores) == cores_of_ranks(program, "--bind", "cores")


def test_ranks_are_started_on_their_nodes(program: Program) -> None:
    """--bind numa gives real ranks all cores of a node."""
    assert list(cores.place(Host(), "numa", 2, ()).cores) == cores_of_ranks(program, "--bind", "numa")


def test_ranks_are_not_bound_without_being_asked(program: Program) -> None:
    """By default, and with --bind none, every rank has the cores of the runner."""
    everywhere = [frozenset(os.sched_getaffinity(0))] * 2

    assert everywhere == cores_of_ranks(program)
    assert everywhere == cores_of_ranks(program, "--bind", "none")
