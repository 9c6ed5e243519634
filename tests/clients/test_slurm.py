"""Slurm: a controller and two nodes on one machine, where srun starts the runner once on each."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.clients.conftest import LIMIT, PATH, RUNNER, Ended, free_port, run
from tests.conftest import CLEAN, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Nothing that needs a daemon besides, a key or a control group of its own.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
NodeName=npu1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={port1} CPUs=1 State=UNKNOWN
NodeName=npu2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={port2} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=npu[1-2] Default=YES State=UP
"""
TELL = 'echo "$RANK of $WORLD_SIZE, node $NODE_RANK, on $SLURMD_NODENAME, meets at $MASTER_ADDR"'


class Cluster:
    """A controller and two nodes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._env = {**CLEAN, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the daemons, and wait until both nodes are idle."""
        (self._folder / "state").mkdir()
        text = CONFIGURATION.format(
            host=os.uname().nodename,
            user=pwd.getpwuid(os.geteuid()).pw_name,
            folder=self._folder,
            port=free_port(),
            port1=free_port(),
            port2=free_port(),
        )
        (self._folder / "slurm.conf").write_text(text)
        for words in (["slurmctld", "-D"], ["slurmd", "-D", "-N", "npu1"], ["slurmd", "-D", "-N", "npu2"]):
            output = (self._folder / f"{'-'.join(words)}.out").open("wb")
            with output:
                self._daemons.append(
                    subprocess.Popen(words, env=self._env, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
                )
        wait_until(lambda: self._states() == ["idle", "idle"], limit=60)

    def stop(self) -> None:
        """End the daemons, the nodes first, and wait until all that they had started is gone."""
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(LIMIT)

    def srun(self, *command: str) -> Ended:
        """Run `srun` over both nodes, once on each."""
        words = ("srun", "-N2", "--ntasks-per-node=1", "--kill-on-bad-exit=1", *command)
        return run(*words, env=self._env, cwd=self._folder)

    def _states(self) -> list[str]:
        words = ["sinfo", "--noheader", "--Node", "--format=%t"]
        return subprocess.run(words, env=self._env, capture_output=True, text=True, check=False).stdout.split()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Give a cluster of two nodes."""
    cluster = Cluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def test_two_nodes(cluster: Cluster) -> None:
    """Each node has its ranks, and all meet at the first node of the step; a failing rank's status is srun's.

    Of several statuses srun gives the highest, so that of a node that it has stopped (143) may hide the first cause's.
    """
    options = ("--nproc-per-node", "2", "--log-dir", "log")
    ended = cluster.srun(*RUNNER, *options, "sh", "-c", TELL)

    assert 0 == ended.status, ended.screen
    assert [f"{rank} of 4, node {rank // 2}, on npu{rank // 2 + 1}, meets at npu1" for rank in range(4)] == ended.lines

    # Whether the other node has ended by itself before srun stops it, is chance.
    ended = cluster.srun(*RUNNER, *options, "sh", "-c", 'if [ "$RANK" = 3 ]; then exit 9; fi')
    statuses = [int(status) for status in re.findall(r"Exited with exit code (\d+)", ended.screen)]

    assert 9 in statuses, ended.screen
    assert max(statuses) == ended.status, ended.screen

    script = 'if [ "$RANK" = 3 ]; then exit 9; fi; exec sleep 300'
    ended = cluster.srun(*RUNNER, *options, "sh", "-c", script)

    assert 143 == ended.status, ended.screen
    assert " ERROR rank 3 failed first: exit status 9, " in ended.screen
    assert " ERROR stopped by SIGTERM" in ended.screen  # before or after its ranks were started
