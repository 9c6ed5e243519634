"""The jobs in scripts/manifests agree with the runner, and fail fast on their platforms."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from ascend_runner.job.check import GRACE, LEEWAY
from ascend_runner.link import meeting
from ascend_runner.platforms.places import USUAL_PLACES
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
    elif name == "job.yaml":
        specs = [found["Job"]["spec"]["template"]["spec"]]
    elif name == "jobset.yaml":
        specs = [one["template"]["spec"]["template"]["spec"] for one in found["JobSet"]["spec"]["replicatedJobs"]]
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


YAML_FILES = ["volcano.yaml", "acjob.yaml", "trainjob.yaml", "jobset.yaml", "job.yaml"]
BATCH_SCRIPTS = ["slurm.sbatch", "slurm-requeue.sbatch"]
HOPELESS = [93, 125, 126, 127]  # exit statuses after which a retry would fail as well


def test_every_manifest_is_tested_here() -> None:
    """Each manifest is tested here."""
    assert {*YAML_FILES, *BATCH_SCRIPTS, "README.md"} == {path.name for path in MANIFESTS.iterdir()}


@pytest.mark.parametrize("name", YAML_FILES)
def test_pods(name: str) -> None:
    """Each pod ends with its runner, is not restarted alone, and has enough time to end."""
    for spec, container, command in pods(name):
        own, words = read(command)

        assert ["python", "/job/train.py"] == words
        assert "Never" == spec["restartPolicy"]
        assert own.grace + LEEWAY <= spec["terminationGracePeriodSeconds"]
        assert GRACE < spec["terminationGracePeriodSeconds"]
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
        93: "TerminateJob",
        125: "TerminateJob",
        126: "TerminateJob",
        127: "TerminateJob",
        "PodFailed": "RestartJob",
        "PodEvicted": "RestartJob",
        "TaskCompleted": "CompleteJob",
    } == actions
    assert [None] * 4 == order[:4]
    assert spec["minAvailable"] == sum(task["replicas"] for task in spec["tasks"])
    assert {"env", "svc"} <= {*spec["plugins"]}


def test_several_nodes_wait_for_the_verdict() -> None:
    """Where a platform decides by the first failed pod, the one with the cause fails first, and says what it means."""
    for name in ("volcano.yaml", "trainjob.yaml", "jobset.yaml", "acjob.yaml"):
        for _spec, _container, command in pods(name):
            own, _words = read(command)

            assert (name != "acjob.yaml") is own.exit_verdict  # its operator looks at no exit status
            assert own.linger is not None
            assert own.linger > own.grace


@pytest.mark.parametrize("name", ["volcano.yaml", "acjob.yaml", "trainjob.yaml", "jobset.yaml"])
def test_several_nodes_are_linked(name: str) -> None:
    """Node 0 listens on a declared port that nothing else uses, and a Secret is the key."""
    for spec, container, command in pods(name):
        port = read(command)[0].link_port
        (secret,) = (volume for volume in spec["volumes"] if "secret" in volume)
        (place,) = (mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == secret["name"])
        made = f"kubectl create secret generic {secret['secret']['secretName']} --from-literal=secret="

        assert port is not None
        assert meeting.FIRST_PORT <= port <= meeting.LAST_PORT
        assert {"name": "link", "containerPort": port} in container["ports"]
        assert {"name": meeting.SECRET_FILE, "value": f"{place}/secret"} in container["env"]
        assert made in (MANIFESTS / name).read_text()


def failure_policy(job: Document) -> list[tuple[str, list[int]]]:
    """Return what a Kubernetes Job does after which exit statuses; the containers that it names exist."""
    names = {container["name"] for container in job["template"]["spec"]["containers"]}
    rules = job["podFailurePolicy"]["rules"]
    assert names >= {rule["onExitCodes"]["containerName"] for rule in rules if "onExitCodes" in rule}
    return [(rule["action"], rule.get("onExitCodes", {}).get("values", [])) for rule in rules]


def test_job_is_retried_after_75_only() -> None:
    """A Kubernetes Job replaces its pod after 75 or a hang, and ends after 93 and errors of the runner."""
    spec = documents("job.yaml")["Job"]["spec"]
    (command,) = [command for _spec, _container, command in pods("job.yaml")]

    assert [("FailJob", HOPELESS), ("Ignore", []), ("Count", [75, 124])] == failure_policy(spec)
    assert spec["backoffLimit"] > 0
    assert read(command)[0].exit_verdict


@pytest.mark.parametrize("name", ["trainjob.yaml", "jobset.yaml"])
def test_job_set_restarts_as_a_whole(name: str) -> None:
    """The first failed pod fails its job, which restarts all of them, except after errors that would come again."""
    kind, path = ("JobSet", ()) if name == "jobset.yaml" else ("TrainingRuntime", ("template", "spec"))
    spec = documents(name)[kind]["spec"]
    for key in path:
        spec = spec[key]
    (job,) = spec["replicatedJobs"]

    assert [("FailJob", HOPELESS)] == failure_policy(job["template"]["spec"])
    assert 0 == job["template"]["spec"]["backoffLimit"]
    assert spec["failurePolicy"]["maxRestarts"] > 0
    (rule,) = spec["failurePolicy"]["rules"]
    assert ("FailJobSet", ["PodFailurePolicy"]) == (rule["action"], rule["onJobFailureReasons"])


def test_job_set_tells_each_node_its_place() -> None:
    """The number of nodes, their ranks and the address of node 0 follow from the JobSet."""
    found = documents("jobset.yaml")["JobSet"]
    (replicated,) = found["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    own, _words = read(container["command"])

    assert own.nnodes == job["parallelism"] == job["completions"]
    assert "Indexed" == job["completionMode"]
    name = found["metadata"]["name"]
    assert f"{name}-{replicated['name']}-0-0.{name}" == own.master_addr
    (variable,) = (one for one in container["env"] if one["name"] == "ASCEND_RUNNER_NODE_RANK")
    assert (
        "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        == (variable["valueFrom"]["fieldRef"]["fieldPath"])
    )


def test_acjob_has_its_rank_table_where_the_runner_looks() -> None:
    """The operator's directory, not a stale ConfigMap, is mounted where the runner searches for a rank table."""
    found = documents("acjob.yaml")
    spec, job = found["AscendJob"]["spec"], found["AscendJob"]["metadata"]["name"]
    replicas = spec["replicaSpecs"].values()

    assert ["AscendJob"] == [*found]
    assert spec["runPolicy"]["schedulingPolicy"]["minAvailable"] == sum(one["replicas"] for one in replicas)
    for pod, container, command in pods("acjob.yaml"):
        (place,) = (mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "ranktable")
        (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "ranktable")

        assert f"{place}/hccl.json" in USUAL_PLACES
        assert f"/user/mindx-dl/ranktable/default.{job}" == volume["hostPath"]["path"]
        assert read(command)[0].nproc_per_node is None
        assert "ascend" == container["name"]


def test_acjob_explains_newer_chips_and_rescheduling() -> None:
    """Newer chips have another name for the resource, and why a failed pod is not replaced alone is said."""
    lines = (MANIFESTS / "acjob.yaml").read_text().splitlines()
    said = [line.partition("#")[2] for line in lines]

    assert [True] * 2 == ["huawei.com/npu" in note for line, note in zip(lines, said) if NPUS in line]
    assert any('No `pod-rescheduling: "on"`: ' in note for note in said)
    assert "pod-rescheduling" not in documents("acjob.yaml")["AscendJob"]["metadata"]["labels"]


def test_trainjob_fails_fast() -> None:
    """The first failed pod fails its job, and all pods restart together."""
    found = documents("trainjob.yaml")
    runtime = found["TrainingRuntime"]["spec"]
    (job,) = runtime["template"]["spec"]["replicatedJobs"]

    assert found["TrainingRuntime"]["metadata"]["name"] == found["TrainJob"]["spec"]["runtimeRef"]["name"]
    assert 0 == job["template"]["spec"]["backoffLimit"]
    assert runtime["mlPolicy"]["numNodes"] == found["TrainJob"]["spec"]["trainer"]["numNodes"]
    assert (
        found["TrainJob"]["spec"]["trainer"]["numProcPerNode"]
        == read(found["TrainJob"]["spec"]["trainer"]["command"])[0].nproc_per_node
    )


# --- Slurm ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BATCH_SCRIPTS)
def test_sbatch_is_bash(name: str) -> None:
    """The script is valid bash."""
    command = ["/bin/bash", "-n", str(MANIFESTS / name)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)

    assert (0, "") == (checked.returncode, checked.stderr)


class Slurm:
    """The commands of Slurm that a batch script runs, as shell scripts, and the script itself."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, script: str) -> None:
        """Write a command."""
        (self._folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (self._folder / name).chmod(0o755)

    def start(self, name: str, variables: Mapping[str, str] = MappingProxyType({})) -> subprocess.Popen[str]:
        """Start a batch script."""
        path = f"{self._folder}:{os.environ['PATH']}"
        env = {
            **CLEAN,
            "PATH": path,
            "SLURM_CPUS_PER_TASK": "192",
            "SLURM_JOB_ID": "7",
            "HOME": "/home/a b",
            **variables,
        }
        command = ["/bin/bash", str(MANIFESTS / name)]
        return subprocess.Popen(command, env=env, cwd=self._folder, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    """Return the commands of Slurm."""
    return Slurm(tmp_path)


@pytest.mark.parametrize("name", BATCH_SCRIPTS)
def test_sbatch_runs_srun(slurm: Slurm, name: str) -> None:
    """The script starts one runner per node, ends in time for KillWait, and returns srun's status."""
    slurm.write("srun", 'printf "%s\\n" "$@"; exit 42')
    slurm.write("scontrol", "exit 1")
    script = slurm.start(name)
    shown, _ = script.communicate(timeout=LIMIT)
    words = shown.splitlines()
    at = words.index("ascend-runner")
    own, command = read(words[at:])

    assert 42 == script.returncode
    assert ["--kill-on-bad-exit=1", "--cpus-per-task=192", "--cpu-bind=none"] == words[:at]
    assert ["python", "/home/a b/job/train.py"] == command[:2]
    assert own.grace + LEEWAY <= GRACE


def test_sbatch_makes_a_secret_for_each_start(slurm: Slurm) -> None:
    """Each start has a secret of its own, by which the runners of all nodes know each other."""
    slurm.write("srun", f'echo "${meeting.SECRET}"')
    slurm.write("scontrol", "exit 1")
    secrets = [slurm.start("slurm.sbatch").communicate(timeout=LIMIT)[0].strip() for _start in range(2)]

    assert [32, 32] == [len(secret) for secret in secrets]
    assert secrets[0] != secrets[1]


@pytest.mark.parametrize(
    ("verdicts", "start", "state", "is_requeued"),
    [
        (["75", "null"], 0, "RUNNING", True),
        (["75", "75"], 2, "RUNNING", True),
        (["75", "75"], 3, "RUNNING", False),
        (["75", "93"], 0, "RUNNING", False),  # only the first node has lost the other one
        (["null", "null"], 0, "RUNNING", False),  # a hang, or an error of the runner
        (["75", "75"], 0, "CANCELLED", False),
        ([], 0, "RUNNING", False),
    ],
)
def test_sbatch_is_requeued_by_the_verdict(
    slurm: Slurm, verdicts: list[str], start: int, state: str, *, is_requeued: bool
) -> None:
    """A job is requeued if a retry may help on all nodes, three times at most; srun's exit status does not matter."""
    reports = f"logs/7-{start}"
    files = [
        f"echo ' \"exit_verdict\": {verdict},' >{reports}/train-report-node-{number}.json"
        for number, verdict in enumerate(verdicts)
    ]
    slurm.write("srun", "\n".join([f"mkdir -p {reports}", *files, "exit 143"]))
    slurm.write("scontrol", f'case $1 in show) echo "JobState={state} Reason=None" ;; *) echo "$@" ;; esac')
    script = slurm.start("slurm.sbatch", {"SLURM_RESTART_COUNT": str(start)} if start else {})
    shown, _ = script.communicate(timeout=LIMIT)

    assert (143, "requeue 7\n" if is_requeued else "") == (script.returncode, shown)


@pytest.mark.parametrize(("name", "nodes"), [("slurm.sbatch", "--nodes=2"), ("slurm-requeue.sbatch", "--nodes=1")])
def test_sbatch_asks_for_whole_nodes(name: str, nodes: str) -> None:
    """Comments have lines of their own, because sbatch takes the rest of a line as part of the option."""
    lines = (MANIFESTS / name).read_text().splitlines()
    asked = [line.split(None, 1)[1] for line in lines if line.startswith("#SBATCH")]

    assert {nodes, "--ntasks-per-node=1", "--cpus-per-task=192", "--gres=npu:8", "--mem=0", "--exclusive"} <= {*asked}
    assert not any(" " in option for option in asked)


# It shows its process id and each signal that it gets, and exits with a status after the last one.
SRUN = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM])
print(os.getpid(), flush=True)
for name in sys.argv[2:]:
    print(signal.Signals(signal.sigwait([signal.Signals[name]])).name, flush=True)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("signals", "status", "reason", "is_requeued"),
    [
        ("SIGUSR1", 0, "None", True),  # saved and ended
        ("SIGUSR1 SIGTERM", 143, "TimeLimit", True),  # saved, and trained on until the limit
        ("SIGTERM", 143, "TimeLimit", True),
        ("SIGUSR1 SIGTERM", 143, "None", False),  # cancelled
        ("SIGUSR1", 1, "None", False),  # failed after it was asked
        ("", 0, "None", False),  # has reached its end
    ],
)
def test_sbatch_is_requeued(slurm: Slurm, signals: str, status: int, reason: str, *, is_requeued: bool) -> None:
    """A job that has saved, or that the limit has ended, is requeued; one that failed or was cancelled is not."""
    slurm.write("srun", f"exec {sys.executable} -c '{SRUN}' {status} {signals}")
    slurm.write(
        "scontrol", f'case $1 in show) echo "JobState=RUNNING Reason={reason} Dependency=" ;; *) echo "$@" ;; esac'
    )
    with slurm.start("slurm-requeue.sbatch") as script:
        assert script.stdout
        srun = int(script.stdout.readline())
        seen = []
        for name in signals.split():
            script.send_signal(signal.Signals[name])
            if name == "SIGTERM":  # Slurm signals the steps of a job as well
                os.kill(srun, signal.SIGTERM)
            seen.append(script.stdout.readline().strip())
        rest, _ = script.communicate(timeout=LIMIT)

    assert signals.split() == seen
    assert (status, "requeue 7\n" if is_requeued else "") == (script.returncode, rest)
