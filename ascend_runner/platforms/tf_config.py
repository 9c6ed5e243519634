"""TF_CONFIG: TensorFlow's description of a cluster, and of this node's task in it.

Written by the task-training platform, Volcano's tensorflow plugin and PAI. Some write the index as text, where
TensorFlow wants a number; both are read. Without it Volcano's lists of hosts say the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import attrs

from ascend_runner.errors import SettingsError
from ascend_runner.platforms.kubernetes import INDICES, OTHERS
from ascend_runner.platforms.node import Node, Variables
from ascend_runner.platforms.spec import PlatformSpec
from ascend_runner.text import is_whole_number

NAME: Final = "TF_CONFIG"
TRAINING: Final = ("chief", "master", "worker")  # the roles that train, in the order of their ranks
PORT: Final = 2222  # the port of all tasks, as Volcano's tensorflow plugin writes it
OTHER_MODES: Final = ("WORLD_SIZE", "MASTER_ADDR", "MA_NUM_HOSTS")  # PyTorch's and DeepSpeed's, and Octopus
LISTS: Final = {role: f"VC_{role.upper()}_HOSTS" for role in (*TRAINING, "ps", "evaluator")}
EXPECTED: Final = 'JSON such as {"cluster": {"worker": ["host:port"]}, "task": {"type": "worker", "index": 0}}'


@attrs.frozen(eq=False, repr=False)
class Cluster:
    """The content of TF_CONFIG: the `host:port` of every task by role, this node's task, and all other members."""

    tasks: Mapping[str, tuple[str, ...]]
    role: str
    task_index: int
    rest: Mapping[str, object]

    @property
    def trainers(self) -> tuple[str, ...]:
        """The tasks that train, in the order of their ranks."""
        return tuple(task for role in TRAINING for task in self.tasks.get(role, ()))


def decode(text: str) -> Cluster:
    """Read TF_CONFIG.

    Raises:
        SettingsError: It is malformed.
    """
    try:
        document = json.loads(text)
        tasks = {role: _addresses(addresses) for role, addresses in document["cluster"].items()}
        role, index = document["task"]["type"], str(document["task"]["index"])
        is_one_of_them = is_whole_number(index) and (role not in tasks or int(index) < len(tasks[role]))
    except (ValueError, KeyError, TypeError, AttributeError):
        is_one_of_them = False
    if not is_one_of_them:
        raise SettingsError(f"invalid value {text!r} for {NAME}: expected {EXPECTED}")

    return Cluster(
        tasks, role, int(index), {name: document[name] for name in document if name not in {"cluster", "task"}}
    )


def of_hosts(environ: Mapping[str, str], *, is_tensorflow: bool = False, has_layout: bool = False) -> Mapping[str, str]:
    """Build TF_CONFIG from the host lists that Volcano gives the tasks of a job; empty if it is not TensorFlow's.

    It is with parameter servers, and without the variables of other platforms and modes, if the user says so
    (`is_tensorflow`) or on the task-training platform, by its SLOTS or its directories (`has_layout`): each of its
    other modes for several nodes sets variables of its own. The pod's own name says which task this node has, as a host
    is <pod>.<job>, or else its index if all hosts are workers.
    """
    is_documented = (environ.get("SLOTS") or has_layout) and not any(map(environ.get, OTHER_MODES))
    is_alone = (is_tensorflow or is_documented) and not any(map(environ.get, OTHERS))
    is_tensorflow = is_alone or bool(environ.get(LISTS["ps"]))
    if environ.get(NAME) or not environ.get(LISTS["worker"]) or not is_tensorflow:
        return {}
    hosts = {role: Variables(environ).hosts((name,)) for role, name in LISTS.items() if environ.get(name)}
    listed = [(role, index, name) for role, names in hosts.items() for index, name in enumerate(names)]
    if len(listed) == 1:  # an Estimator that finds TF_CONFIG expects other tasks
        return {}
    tasks = [
        {"type": role, "index": index}
        for role, index, name in listed
        if name.partition(".")[0] == environ.get("HOSTNAME")
    ]
    index = next(filter(None, map(environ.get, INDICES)), "")
    if not tasks and len(hosts) == 1 and is_whole_number(index) and int(index) < len(listed):
        tasks = [{"type": "worker", "index": int(index)}]
    if len(tasks) != 1:
        return {}
    # For TensorFlow the evaluator is not a part of the cluster.
    cluster = {role: [f"{name}:{PORT}" for name in names] for role, names in hosts.items() if role != "evaluator"}
    return {NAME: json.dumps({"cluster": cluster, "task": tasks[0], "environment": "cloud"})}


def _addresses(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(address, str) for address in value):
        raise TypeError
    return tuple(value)


def is_trainer(environ: Mapping[str, str]) -> bool:
    """Whether this node trains: parameter servers and evaluators have no rank."""
    return decode(environ[NAME]).role in TRAINING


def _refine(node: Node, environ: Mapping[str, str]) -> Node:
    """Take the hosts, and count the nodes by them. The ports belong to TensorFlow's own servers."""
    cluster = decode(environ[NAME])
    hosts = tuple(task.rpartition(":")[0] or task for task in cluster.trainers)
    before = TRAINING[: TRAINING.index(cluster.role)]
    return attrs.evolve(
        node,
        nnodes=len(hosts),
        node_rank=cluster.task_index + sum(len(cluster.tasks.get(role, ())) for role in before),
        hosts=hosts,
        sources={**node.sources, **dict.fromkeys(("nnodes", "node_rank", "hosts"), NAME)},
    )


TF_CONFIG: Final = PlatformSpec(
    name=NAME,
    detected_by=(NAME,),
    is_confirmed=is_trainer,
    devices_per_node=("SLOTS",),
    refine=_refine,
)
