"""What scripts/manifests says of a job agrees with the runner, and with what its platform needs to fail fast."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ascend_runner.check.machine import LEEWAY, POD_GRACE
from ascend_runner.job import command_line, settings
from ascend_runner.launcher import USUAL_PLACES
from tests.conftest import CLEAN, LIMIT

if TYPE_CHECKING:
    from ascend_runner.job.settings import Settings

MANIFESTS = Path(__file__).parents[1] / "scripts" / "manifests"
NPUS = "huawei.com/Ascend910"
Document = dict[str, Any]  # Any: what a YAML file holds


def documents(name: str) -> dict[str, Document]:
    """Give a manifest's documents by their kind."""
    return {document["kind"]: document for document in yaml.safe_load_all((MANIFESTS / name).read_text())}


def pods(name: str) -> list[tuple[Document, Document, list[str]]]:
    """Give each kind of pod: its spec, its only container, and the command that runs in it."""
    found = documents(name)
    if name == "volcano.yaml":
        specs = [task["template"]["spec"] for task in found["Job"]["spec"]["tasks"]]
    elif name == "acjob.yaml":
        replicas = found["AscendJob"]["spec"]["replicaSpecs"].values()
        specs = [{"restartPolicy": one["restartPolicy"], **one["template"]["spec"]} for one in replicas]
    else:
        (job,) = found["TrainingRuntime"]["spec"]["template"]["spec"]["replicatedJobs"]
        trainer = found["TrainJob"]["spec"]["trainer"]
        specs = [job["template"]["spec"]["template"]["spec"]]
        specs[0]["containers"][0].update(command=trainer["command"], resources=trainer["resourcesPerNode"])
    return [(spec, container, container["command"]) for spec in specs for container in spec["containers"]]


def read(words: list[str]) -> tuple[Settings, list[str]]:
    """Read a command as the runner would: its settings, and what it runs."""
    assert "ascend-runner" == words[0]
    flags, command = command_line.parse(words[1:])
    return settings.decode(flags, {}), command


YAML_FILES = ["volcano.yaml", "acjob.yaml", "trainjob.yaml"]


def test_every_manifest_is_tested_here() -> None:
    """A new one is added to the tests."""
    assert {*YAML_FILES, "slurm.sbatch"} == {path.name for path in MANIFESTS.iterdir()}


@pytest.mark.parametrize("name", YAML_FILES)
def test_pods(name: str) -> None:
    """Each pod ends with its runner, for good, and has time enough to do so."""
    for spec, container, command in pods(name):
        own, words = read(command)

        assert ["python", "/job/train.py"] == words
        assert "Never" == spec["restartPolicy"]
        assert own.grace + LEEWAY <= spec["terminationGracePeriodSeconds"]
        assert POD_GRACE < spec["terminationGracePeriodSeconds"]
        assert own.nproc_per_node in {container["resources"]["limits"][NPUS], None}
        assert {"name": "shared-memory", "mountPath": "/dev/shm"} in container["volumeMounts"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["volumes"]}


@pytest.mark.parametrize("name", YAML_FILES)
def test_each_choice_is_explained(name: str) -> None:
    """Beside what makes a job fail fast stands why."""
    told = (MANIFESTS / name).read_text()

    for key in ("restartPolicy: Never", "terminationGracePeriodSeconds: 120", "IPC_LOCK"):
        assert any(key in line and "#" in line for line in told.splitlines()), key
    assert "No shell around it" in told or "no shell around it" in told


def test_volcano_fails_fast() -> None:
    """A failed pod restarts the job as a whole, but for failures that a restart does not mend; all pods or none."""
    spec = documents("volcano.yaml")["Job"]["spec"]
    actions = {policy.get("event") or policy["exitCode"]: policy["action"] for policy in spec["policies"]}
    order = [policy.get("event") for policy in spec["policies"]]

    assert {
        125: "TerminateJob",
        126: "TerminateJob",
        127: "TerminateJob",
        "PodFailed": "RestartJob",
        "PodEvicted": "RestartJob",
        "TaskCompleted": "CompleteJob",
    } == actions
    assert [None] * 3 == order[:3]
    assert spec["minAvailable"] == sum(task["replicas"] for task in spec["tasks"])
    assert {"env", "svc"} <= {*spec["plugins"]}


def test_acjob_has_its_rank_table_where_the_runner_looks() -> None:
    """The ConfigMap has the name that the operator writes to, and is mounted where nobody needs to name it."""
    found = documents("acjob.yaml")
    spec = found["AscendJob"]["spec"]
    replicas = spec["replicaSpecs"].values()

    assert f"rings-config-{found['AscendJob']['metadata']['name']}" == found["ConfigMap"]["metadata"]["name"]
    assert spec["runPolicy"]["schedulingPolicy"]["minAvailable"] == sum(one["replicas"] for one in replicas)
    for pod, container, command in pods("acjob.yaml"):
        (place,) = (mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "rank-table")
        (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "rank-table")

        assert f"{place}/hccl.json" in USUAL_PLACES
        assert "hccl.json" in found["ConfigMap"]["data"]
        assert found["ConfigMap"]["metadata"]["name"] == volume["configMap"]["name"]
        assert read(command)[0].nproc_per_node is None
        assert "ascend" == container["name"]


def test_trainjob_fails_fast() -> None:
    """The first failed pod fails its job, and all pods restart together."""
    found = documents("trainjob.yaml")
    runtime = found["TrainingRuntime"]["spec"]
    (job,) = runtime["template"]["spec"]["replicatedJobs"]

    assert found["TrainingRuntime"]["metadata"]["name"] == found["TrainJob"]["spec"]["runtimeRef"]["name"]
    assert 0 == job["template"]["spec"]["backoffLimit"]
    assert runtime["mlPolicy"]["numNodes"] == found["TrainJob"]["spec"]["trainer"]["numNodes"]
    assert (
        runtime["mlPolicy"]["torch"]["numProcPerNode"]
        == read(found["TrainJob"]["spec"]["trainer"]["command"])[0].nproc_per_node
    )


# --- Slurm ------------------------------------------------------------------------------------------------------------

SBATCH = MANIFESTS / "slurm.sbatch"


def test_sbatch_is_bash() -> None:
    """The script has no mistake that bash would find."""
    checked = subprocess.run(["/bin/bash", "-n", SBATCH], capture_output=True, text=True, check=False, timeout=LIMIT)

    assert (0, "") == (checked.returncode, checked.stderr)


def test_sbatch_runs_srun(tmp_path: Path) -> None:
    """With a srun that tells what it is given, and fails: one runner per node, in time for KillWait, status kept."""
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 42\n')
    srun.chmod(0o755)
    env = {**CLEAN, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_CPUS_PER_TASK": "192", "HOME": "/home/a b"}
    ran = subprocess.run(["/bin/bash", SBATCH], env=env, capture_output=True, text=True, check=False, timeout=LIMIT)
    words = ran.stdout.splitlines()
    at = words.index("ascend-runner")
    own, command = read(words[at:])

    assert 42 == ran.returncode, ran.stderr
    assert ["--kill-on-bad-exit=1", "--cpus-per-task=192", "--cpu-bind=none"] == words[:at]
    assert ["python", "/home/a b/job/train.py"] == command
    assert own.grace + LEEWAY <= POD_GRACE


def test_sbatch_asks_for_whole_nodes() -> None:
    """Comments stand on lines of their own: sbatch takes what follows an option for a part of it."""
    asked = [line.split(None, 1)[1] for line in SBATCH.read_text().splitlines() if line.startswith("#SBATCH")]

    assert {"--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=192", "--gres=npu:8", "--mem=0"} <= {*asked}
    assert not any(" " in option for option in asked)
