"""Slurm: a controller and two nodes on one machine; srun starts the runner on each, directly and from sbatch."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.clients.conftest import LIMIT, PATH, RUNNER, Ended, free_port, run
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import wait_until

# Without other daemons, keys and control groups. The nodes declare the resources that scripts/manifests/slurm.sbatch
# requests; select/linear would not give a step the NPUs of its job.
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
        """Start the daemons and wait until both nodes are idle."""
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
        """Stop the daemons, those of the nodes first, and wait for their end."""
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(LIMIT)

    def srun(self, *command: str) -> Ended:
        """Run `srun` over both nodes, once on each."""
        words = ("srun", "-N2", "--ntasks-per-node=1", "--kill-on-bad-exit=1", *command)
        return run(*words, env=self._env, cwd=self._folder)

    def sbatch(self, script: Path, job: str, env: Mapping[str, str]) -> Ended:
        """Submit a script and wait for the end of its job, which has the name `job`."""
        ended = run("sbatch", "--wait", "--parsable", str(script), env={**self._env, **env}, cwd=self._folder)
        log = self._folder / f"{job}-{ended.screen.strip()}.log"
        return Ended(ended.status, log.read_text())

    def _states(self) -> list[str]:
        words = ["sinfo", "--noheader", "--Node", "--format=%t"]
        return subprocess.run(words, env=self._env, capture_output=True, text=True, check=False).stdout.split()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Return a cluster of two nodes."""
    cluster = Cluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def test_two_nodes(cluster: Cluster) -> None:
    """Each node starts its own ranks, all of them meet at the first node, and srun reports the highest exit status.

    So 143 from a stopped node can mask the original one.
    """
    options = ("--nproc-per-node", "2", "--log-dir", "log")
    ended = cluster.srun(*RUNNER, *options, "sh", "-c", TELL)

    assert 0 == ended.status, ended.screen
    assert [f"{rank} of 4, node {rank // 2}, on npu{rank // 2 + 1}, meets at npu1" for rank in range(4)] == ended.lines

    # The other node may end by itself before srun stops it.
    ended = cluster.srun(*RUNNER, *options, "sh", "-c", 'if [ "$RANK" = 3 ]; then exit 9; fi')
    statuses = [int(status) for status in re.findall(r"Exited with exit code (\d+)", ended.screen)]

    assert 9 in statuses, ended.screen
    assert max(statuses) == ended.status, ended.screen

    script = 'if [ "$RANK" = 3 ]; then exit 9; fi; exec sleep 300'
    ended = cluster.srun(*RUNNER, *options, "sh", "-c", script)

    assert 143 == ended.status, ended.screen  # of node 0, stopped before or after its ranks were started
    assert re.search(r" ERROR rank 3\b.*\b9\b", ended.screen)  # both nodes have one host name, and so one report


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
    """The manifest works unchanged: each rank has its place, and the first failure ends the job with its status."""
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
    # The cause that node 0 reports is left to chance: srun signals the ranks as well as their runner.
    assert re.search(r" ERROR rank 11\b.*\b200\b", ended.screen)
    assert "srun: error: npu1: task 0: Exited with exit code 143\n" in ended.screen
