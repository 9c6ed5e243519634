"""The jobs in scripts/manifests agree with the runner, and fail fast on their platforms."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ascend_runner.check.limits import LEEWAY, POD_GRACE
from ascend_runner.platforms.table import USUAL_PLACES
from ascend_runner.settings import command_line
from ascend_runner.settings.model import Settings, decode
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import LIMIT

MANIFESTS = Path(__file__).parents[1] / "scripts" / "manifests"
NPUS = "huawei.com/Ascend910"
Document = dict[str, Any]  # Any: what a YAML file holds


def documents(name: str) -> dict[str, Document]:
    """Return a manifest's documents by their kind."""
    return {document["kind"]: document for document in yaml.safe_load_all((MANIFESTS / name).read_text())}


def pods(name: str) -> list[tuple[Document, Document, list[str]]]:
    """Return each kind of pod: its spec, its only container, and the command that runs in it."""
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
    line = command_line.parse(words[1:])
    return decode(line.values, {}), [*line.command]


YAML_FILES = ["volcano.yaml", "acjob.yaml", "trainjob.yaml"]


def test_every_manifest_is_tested_here() -> None:
    """Each manifest is tested here."""
    assert {*YAML_FILES, "slurm.sbatch"} == {path.name for path in MANIFESTS.iterdir()}


@pytest.mark.parametrize("name", YAML_FILES)
def test_pods(name: str) -> None:
    """Each pod ends with its runner, is not restarted alone, and has enough time to end."""
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
    """The settings that make a job fail fast have a comment."""
    told = (MANIFESTS / name).read_text()

    for key in ("restartPolicy: Never", "terminationGracePeriodSeconds: 120", "IPC_LOCK"):
        assert any(key in line and "#" in line for line in told.splitlines()), key
    assert "No shell around it" in told or "no shell around it" in told


def test_volcano_fails_fast() -> None:
    """A failed pod restarts the whole job, except after errors that a restart cannot fix."""
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
    """The operator's ConfigMap is mounted where the runner searches for a rank table."""
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
    """The script is valid bash."""
    checked = subprocess.run(["/bin/bash", "-n", SBATCH], capture_output=True, text=True, check=False, timeout=LIMIT)

    assert (0, "") == (checked.returncode, checked.stderr)


def test_sbatch_runs_srun(tmp_path: Path) -> None:
    """The script starts one runner per node, ends in time for KillWait, and returns srun's status."""
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
    """Comments have lines of their own, because sbatch takes the rest of a line as part of the option."""
    asked = [line.split(None, 1)[1] for line in SBATCH.read_text().splitlines() if line.startswith("#SBATCH")]

    assert {"--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=192", "--gres=npu:8", "--mem=0"} <= {*asked}
    assert not any(" " in option for option in asked)
