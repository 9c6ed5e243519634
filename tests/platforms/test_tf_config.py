"""Decoding TF_CONFIG: this node's task, and malformed values."""

from __future__ import annotations

import json

import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.platforms import tf_config


def _text(task: object, cluster: object = None) -> str:
    return json.dumps({"cluster": {"worker": ["a:1", "b:1"]} if cluster is None else cluster, "task": task})


@pytest.mark.parametrize("index", [1, "1"])
def test_index_as_number_or_text(index: object) -> None:
    """Some platforms write the index as text."""
    cluster = tf_config.decode(_text({"type": "worker", "index": index}))

    assert ("worker", 1, ("a:1", "b:1")) == (cluster.role, cluster.task_index, cluster.trainers)


def test_chief_comes_first() -> None:
    """The chief is rank 0, the workers follow, whatever the order of the keys."""
    cluster = tf_config.decode(_text({"type": "ps", "index": 0}, {"worker": ["w:1"], "ps": ["p:1"], "chief": ["c:1"]}))

    assert ("c:1", "w:1") == cluster.trainers


def test_evaluator_is_not_in_the_cluster() -> None:
    """An evaluator has no tasks in the cluster: TensorFlow counts it apart."""
    assert "evaluator" == tf_config.decode(_text({"type": "evaluator", "index": 0})).role


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        "worker",
        _text({"type": "worker"}),
        _text({"type": "worker", "index": 2}),
        _text({"type": "worker", "index": -1}),
        _text({"type": "worker", "index": None}),
        _text({"type": ["worker"], "index": 0}),
        _text("worker"),
        _text({"type": "worker", "index": 0}, {"worker": "a:1"}),
        _text({"type": "worker", "index": 0}, {"worker": [1]}),
        _text({"type": "worker", "index": 0}, ["a:1"]),
    ],
)
def test_no_cluster(text: str) -> None:
    """Any other value is an error."""
    with pytest.raises(SettingsError) as caught:
        tf_config.decode(text)

    assert f"invalid value {text!r} for TF_CONFIG: expected {tf_config.EXPECTED}" == str(caught.value)


VOLCANO = {
    "VC_PS_HOSTS": "job-ps-0.job",
    "VC_WORKER_HOSTS": "job-worker-0.job,job-worker-1.job",
    "VC_TASK_INDEX": "0",
}
CLUSTER = {"worker": ["job-worker-0.job:2222", "job-worker-1.job:2222"], "ps": ["job-ps-0.job:2222"]}


@pytest.mark.parametrize(
    ("pod", "task"),
    [
        ("job-ps-0", {"type": "ps", "index": 0}),
        ("job-worker-1", {"type": "worker", "index": 1}),
        ("job-evaluator-0", {"type": "evaluator", "index": 0}),
    ],
)
def test_made_of_lists_of_hosts(pod: str, task: dict[str, object]) -> None:
    """Volcano's lists and the pod's name give the cluster and this node's task."""
    made = tf_config.of_hosts({**VOLCANO, "VC_EVALUATOR_HOSTS": "job-evaluator-0.job", "HOSTNAME": pod})

    assert {"cluster": CLUSTER, "task": task, "environment": "cloud"} == json.loads(made["TF_CONFIG"])
    assert tf_config.decode(made["TF_CONFIG"])


@pytest.mark.parametrize(
    ("other", "is_tensorflow", "index"),
    [
        ({"SLOTS": "4", "HOSTNAME": "b"}, False, 1),
        ({"HOSTNAME": "b"}, True, 1),
        ({"HOSTNAME": "elsewhere", "VK_TASK_INDEX": "1"}, True, 1),
        ({"HOSTNAME": "elsewhere", "VK_TASK_INDEX": "2"}, True, None),
        ({"HOSTNAME": "b"}, False, None),
        ({"SLOTS": "4", "HOSTNAME": "b", "WORLD_SIZE": "2"}, False, None),
        ({"SLOTS": "4", "HOSTNAME": "b", "HYDRA_HOST_FILE": "/etc/mpi/mpich_hostfile"}, False, None),
        ({"HOSTNAME": "a", "VC_WORKER_HOSTS": "a.job"}, True, None),
        ({"HOSTNAME": "b", "MA_VJ_NAME": "job"}, True, None),
    ],
)
def test_made_of_workers_alone(other: dict[str, str], *, is_tensorflow: bool, index: int | None) -> None:
    """Workers alone are TensorFlow's by the option or by SLOTS, without the variables of another mode."""
    made = tf_config.of_hosts({"VC_WORKER_HOSTS": "a.job,b.job", **other}, is_tensorflow=is_tensorflow)

    if index is None:
        assert {} == made
    else:
        task = {"type": "worker", "index": index}
        cluster = {"worker": ["a.job:2222", "b.job:2222"]}
        assert {"cluster": cluster, "task": task, "environment": "cloud"} == json.loads(made["TF_CONFIG"])


@pytest.mark.parametrize("mode", ["", "WORLD_SIZE", "MASTER_ADDR", "MA_NUM_HOSTS", "HYDRA_HOST_FILE"])
def test_made_in_the_directories_of_the_task_training_platform(mode: str) -> None:
    """On the task-training platform a job on several nodes without the variables of another mode is TensorFlow's."""
    environ = {"VC_WORKER_HOSTS": "a.job,b.job", "VK_TASK_INDEX": "1", **({mode: "2"} if mode else {})}

    assert bool(mode) is not bool(tf_config.of_hosts(environ, has_layout=True))


@pytest.mark.parametrize(
    "other", [{"TF_CONFIG": "{}"}, {"VC_PS_HOSTS": ""}, {"VC_WORKER_HOSTS": ""}, {"HOSTNAME": "elsewhere"}]
)
def test_not_made(other: dict[str, str]) -> None:
    """A TF_CONFIG of the platform stays, and without parameter servers or a known pod there is none."""
    assert {} == tf_config.of_hosts({**VOLCANO, "HOSTNAME": "job-ps-0", **other})
