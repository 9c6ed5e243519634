"""The victims of the OOM killer, in the kernel's log of different versions and of this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ascend_runner.diagnosis import oom
from ascend_runner.diagnosis.endings import Circumstances
from tests.helpers.cgroups import memory_cgroup
from tests.helpers.program import Program
from tests.helpers.trees import host

ONE = Circumstances(own_oom_kills=1, machine_oom_kills=1)


def killed(pid: int, name: str, group: str = "/pods/mine") -> str:
    """Return the records of one kill, as since Linux 5.0."""
    return (
        f"4,{pid},77,-;oom-kill:constraint=CONSTRAINT_MEMCG,cpuset=/,oom_memcg=/pods,task_memcg={group},task=x,uid=0\n"
        f"3,{pid},78,-;Memory cgroup out of memory: Killed process {pid} ({name}) total-vm:999kB, anon-rss:1024kB,"
        " file-rss:512kB, shmem-rss:512kB, UID:0\n"
    )


def victims(folder: Path, log: str, counted: Circumstances = ONE, group: str = "/pods/mine") -> tuple[str, ...]:
    """Return the victims on a machine with this log, for a job in this cgroup."""
    return oom.victims(host(folder, {"dev/kmsg": log, "proc/self/cgroup": f"0::{group}\n"}), counted)


def test_victim_is_named(tmp_path: Path) -> None:
    """The last process that was killed in the own cgroup or below it is the victim; those of others are not."""
    log = killed(7, "old") + killed(8, "pt_data_worker", "/pods/mine/rank") + killed(9, "sshd", "/pods/mine2")

    assert ("pt_data_worker (2.0 MiB)",) == victims(tmp_path, log)


def test_log_before_linux_5(tmp_path: Path) -> None:
    """Older kernels report the cgroup in a sentence."""
    log = (
        "6,1,77,-;Task in /pods/mine killed as a result of limit of /pods\n"
        "3,2,78,-;Killed process 7 (a (b)) total-vm:9kB, anon-rss:1024kB, file-rss:0kB\n"
    )

    assert ("a (b) (1.0 MiB)",) == victims(tmp_path, log)


def test_cgroup_that_does_not_know_its_path(tmp_path: Path) -> None:
    """In a cgroup namespace the path is "/": the machine's kills are the job's only if there are no others."""
    log = killed(7, "a") + killed(8, "b")

    assert ("b (2.0 MiB)",) == victims(tmp_path, log, group="/")
    assert () == victims(tmp_path, log, Circumstances(own_oom_kills=1, machine_oom_kills=2), group="/")


def test_victims_on_the_machine(tmp_path: Path) -> None:
    """Without a counter of the own cgroup, the machine's victims are named."""
    found = victims(tmp_path, killed(7, "a") + killed(8, "b"), Circumstances(machine_oom_kills=2))

    assert ("a (2.0 MiB)", "b (2.0 MiB)") == found


def test_nothing_counted(tmp_path: Path) -> None:
    """Without an OOM kill since the start of the job, old ones do not count."""
    assert () == victims(tmp_path, killed(7, "a"), Circumstances(own_oom_kills=0, machine_oom_kills=0))


def test_terminal_instead_of_a_log(tmp_path: Path) -> None:
    """Where /dev/kmsg is another device, it is not read."""
    machine = host(tmp_path, {"proc/self/cgroup": "0::/a\n"})
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").symlink_to("/dev/zero")

    assert () == oom.victims(machine, ONE)


def test_rank_without_memory(program: Program) -> None:
    """A rank that the OOM killer ends: the screen shows limit, peak, and the processes that the kernel killed."""
    take = "import os, signal; x = bytearray((1 << 30) * int(os.environ['RANK_ID'])); signal.pause()"
    with memory_cgroup(256 << 20) as members:
        inside = ("sh", "-c", 'echo 0 > "$0"; exec "$@"', str(members))
        run = program.start("--nproc-per-node", "2", sys.executable, "-S", "-c", take, under=inside)
        assert 137 == run.finish()

    assert "out of memory, killed by the OOM killer (limit 256.0 MiB, peak 256.0 MiB)" in run.screen
    if not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("the kernel's log is not readable here")
    assert "); the kernel killed python" in run.screen
