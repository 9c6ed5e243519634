"""Slurm: a controller and two nodes on one machine, where srun starts the runner on each, by hand and from sbatch."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clients.conftest import LIMIT, PATH, RUNNER, Ended, free_port, run
from tests.conftest import CLEAN, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Nothing that needs a daemon besides, a key or a control group of its own. The nodes say of themselves that they have
# what scripts/manifests/slurm.sbatch asks for; select/linear would not give a step its job's NPUs.
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
SelectType=select/cons_tres
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdParameters=config_overrides
GresTypes=npu
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
NodeName=npu1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={port1} CPUs=192 Gres=npu:8 State=UNKNOWN
NodeName=npu2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={port2} CPUs=192 Gres=npu:8 State=UNKNOWN
PartitionName=all Nodes=npu[1-2] Default=YES State=UP
"""
SBATCH = Path(__file__).parents[2] / "scripts" / "manifests" / "slurm.sbatch"
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
        (self._folder / "gres.conf").write_text("Name=npu Count=8\n")
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

    def sbatch(self, script: Path, job: str, env: Mapping[str, str]) -> Ended:
        """Submit a script, and wait for the end of its job, which is called `job`: its status, and all it wrote."""
        ended = run("sbatch", "--wait", "--parsable", str(script), env={**self._env, **env}, cwd=self._folder)
        log = self._folder / f"{job}-{ended.screen.strip()}.log"
        return Ended(ended.status, log.read_text())

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

    assert 143 == ended.status, ended.screen  # of node 0, stopped before or after its ranks were started
    assert " ERROR rank 3 failed first: exit status 9, " in ended.screen


# What the manifest starts: it tells who it is. With FAILING set, that rank fails once rank 0 has opened the named pipe,
# and the others wait for ever.
TRAIN = """
import os, signal, sys
place = "{RANK} of {WORLD_SIZE}, node {NODE_RANK}, on {SLURMD_NODENAME}, meets at {MASTER_ADDR}"
sys.stdout.write(place.format(**os.environ) + "\\n")
failing, rank = os.environ.get("FAILING"), os.environ["RANK"]
if failing and rank == "0":
    open("started", "wb")
if failing == rank:
    open("started", "rb").read()
    sys.exit(200)  # more than 143, that of the node which is stopped: srun gives the highest
if failing:
    signal.pause()
"""


def test_batch_script(cluster: Cluster, tmp_path: Path) -> None:
    """The manifest as it is: its ranks know their places, and the first failure ends the job, with its status."""
    script = tmp_path / "job" / "train.py"
    script.parent.mkdir()
    script.write_text(TRAIN)
    env = {"HOME": str(tmp_path), "ASCEND_RUNNER_LOG_DIR": str(tmp_path / "log")}
    ended = cluster.sbatch(SBATCH, "train", env)

    assert 0 == ended.status, ended.screen
    places = [f"{rank} of 16, node {rank // 8}, on npu{rank // 8 + 1}, meets at npu1" for rank in range(16)]
    assert sorted(places) == ended.lines

    os.mkfifo(tmp_path / "started")
    ended = cluster.sbatch(SBATCH, "train", {**env, "FAILING": "11"})

    assert 200 == ended.status, ended.screen
    assert " ERROR rank 11 failed first: exit status 200, " in ended.screen
    # What node 0 names as the cause is chance: srun signals the ranks as well as their runner.
    assert "srun: error: npu1: task 0: Exited with exit code 143\n" in ended.screen
