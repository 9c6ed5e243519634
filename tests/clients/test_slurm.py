"""Slurm: a controller and two nodes on one machine; srun starts the runner on each, directly and from sbatch."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.clients.conftest import DYING, LIMIT, PATH, RESTARTING, RUNNER, Ended, check_resumed, free_port, run
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import wait_until

# Without other daemons, keys and control groups. The nodes declare the resources that scripts/manifests/slurm.sbatch
# requests; select/linear would not give a step the NPUs of its job. A requeued job waits for cred_expire.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
AuthInfo=cred_expire=5
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
MANIFESTS = Path(__file__).parents[2] / "scripts" / "manifests"
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

    def sbatch(self, *words: str, env: Mapping[str, str]) -> Ended:
        """Submit a script and wait for the end of its job."""
        ended = run("sbatch", "--wait", "--parsable", *words, env={**self._env, **env}, cwd=self._folder)
        log = self._folder / f"train-{ended.screen.strip()}.log"
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


def test_linked_nodes(cluster: Cluster, alone: list[float]) -> None:
    """Where node 0 can be reached, srun reports the status of the cause; all nodes restart and resume together."""
    options = ("--nproc-per-node", "2", "--log-dir", "log", "--master-addr", "127.0.0.1")
    script = 'if [ "$RANK" = 3 ]; then exit 9; fi; exec sleep 300'
    ended = cluster.srun(*RUNNER, *options, "sh", "-c", script)

    assert 9 == ended.status, ended.screen
    assert {"9"} == {*re.findall(r"Exited with exit code (\d+)", ended.screen)}

    check_resumed(cluster.srun(*RUNNER, *options, *RESTARTING, *DYING), alone)


# What the manifest starts: it tells who it is. With FAILING set, that rank fails at the first start once rank 0 has
# opened the named pipe, and the others wait forever.
TRAIN = """
import os, signal, sys
place = "{RANK} of {WORLD_SIZE}, node {NODE_RANK}, on {SLURMD_NODENAME}, meets at {MASTER_ADDR}"
sys.stdout.write(place.format(**os.environ) + "\\n")
failing, rank = os.environ.get("FAILING"), os.environ["RANK"]
if os.environ.get("SLURM_RESTART_COUNT"):
    failing = None
if failing and rank == "0":
    open("started", "wb")
if failing == rank:
    open("started", "rb").read()
    if os.environ.get("HOPELESS"):
        import a_module_that_nobody_has
    sys.exit(200)
if failing:
    signal.pause()
"""


def write_job(home: Path, script: str) -> dict[str, str]:
    """Write the script that the manifests start, and return the variables of the job."""
    (home / "job").mkdir()
    (home / "job" / "train.py").write_text(script)
    return {"HOME": str(home), "ASCEND_RUNNER_LOG_DIR": str(home / "log")}


PLACES = sorted(f"{rank} of 16, node {rank // 8}, on npu{rank // 8 + 1}, meets at npu1" for rank in range(16))


def test_batch_script(cluster: Cluster, tmp_path: Path) -> None:
    """The manifest works unchanged: each rank has its place."""
    ended = cluster.sbatch(str(MANIFESTS / "slurm.sbatch"), env=write_job(tmp_path, TRAIN))

    assert 0 == ended.status, ended.screen
    assert PLACES == ended.lines


def test_batch_script_is_requeued_by_its_verdict(cluster: Cluster, tmp_path: Path) -> None:
    """After a failure that may pass, the job starts again, and after one that would come again it ends."""
    script, env = str(MANIFESTS / "slurm.sbatch"), write_job(tmp_path, TRAIN)
    os.mkfifo(tmp_path / "started")
    passing = cluster.sbatch(script, env={**env, "FAILING": "11"})
    hopeless = cluster.sbatch(script, env={**env, "FAILING": "11", "HOPELESS": "1"})

    assert 0 == passing.status, passing.screen
    # The cause that node 0 reports is left to chance: srun signals the ranks as well as their runner.
    assert re.search(r" ERROR rank 11\b.*\b200\b", passing.screen), passing.screen
    assert "srun: error: npu2: task 1: Exited with exit code 75\n" in passing.screen
    assert {*PLACES} <= {*passing.lines}
    assert [2, 2] == [sum(line.startswith(f"{rank} of 16") for line in passing.lines) for rank in (0, 11)]
    assert 143 == hopeless.status, hopeless.screen  # of node 0, which srun has stopped
    assert "srun: error: npu2: task 1: Exited with exit code 93\n" in hopeless.screen
    assert [1, 1] == [sum(line.startswith(f"{rank} of 16") for line in hopeless.lines) for rank in (0, 11)]


# It saves when asked, and trains on until the limit; when it has resumed, that is all it is to show.
TRAIN_BEYOND_THE_LIMIT = """
import os, sys, time, zipfile
import ascend_runner
asked, latest = ascend_runner.on_checkpoint(), ascend_runner.latest_checkpoint(sys.argv[1])
step = int(latest.stem.rpartition("-")[2]) + 1 if latest else 0
sys.stdout.write(f"first step {step}\\n")
while not latest:
    time.sleep(0.05)
    if asked.at(step):
        path = os.path.join(sys.argv[1], f"checkpoint-{step}.pt")
        if os.environ["RANK"] == "0":
            with zipfile.ZipFile(path, "w") as file:
                file.writestr("data", "weights")
        asked.saved(path)
        print(f"saved after step {step}", flush=True)
    step += 1
"""


def test_batch_script_is_requeued_at_its_limit(cluster: Cluster, tmp_path: Path) -> None:
    """Before the limit the ranks save after one step, the limit ends the job, and it resumes with the next step."""
    env = write_job(tmp_path, TRAIN_BEYOND_THE_LIMIT)
    (tmp_path / "job" / "checkpoints").mkdir()
    limits = ("--time=1", "--signal=B:USR1@30")  # minutes, and seconds before it: Slurm knows no shorter ones
    ended = cluster.sbatch(*limits, str(MANIFESTS / "slurm-requeue.sbatch"), env=env)
    saved = {int(step) for step in re.findall(r"saved after step (\d+)", ended.screen)}

    assert 0 == ended.status, ended.screen
    assert "DUE TO TIME LIMIT" in ended.screen
    assert 1 == len(saved), ended.screen
    assert (8, 8) == tuple(ended.screen.count(f"first step {step}\n") for step in (0, max(saved) + 1)), ended.screen
