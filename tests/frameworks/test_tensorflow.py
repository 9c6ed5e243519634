"""TensorFlow: the table or the chief, never both, and TF_CONFIG made right for each rank."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.frameworks.decide import decide
from ascend_runner.frameworks.situation import Situation
from ascend_runner.platforms.node import Node
from tests.frameworks.framework_situations import NODE, TABLE, situation

EXCLUDED = {"RANK_TABLE_FILE", "RANK_ID", "RANK_SIZE"}


def _configs(task: dict[str, Any], cluster: dict[str, Any], nproc: int) -> list[dict[str, Any]]:
    environ = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
    found = situation(environ, nproc=nproc)._replace(table_path=TABLE)
    return [json.loads(own["TF_CONFIG"]) for own in decide("tensorflow", found).ranks]


def _own(found: Situation) -> dict[str, str]:
    return decide("tensorflow", found).environment_of(1, found.environ)


def test_chief_and_table_exclude_each_other() -> None:
    """With the chief's variables none of the table's is set, and the other way round."""
    stale = dict.fromkeys(EXCLUDED, "0")
    chief = _own(situation({**stale, "CM_WORKER_IP": "10.0.0.2"}))
    table = _own(situation({"CM_CHIEF_IP": "a", "CM_WORKER_IP": "b"})._replace(table_path=TABLE))

    assert set() == EXCLUDED & {*chief}
    assert {"CM_CHIEF_IP": "10.0.0.1", "CM_WORKER_SIZE": "4", "CM_WORKER_IP": "10.0.0.2"}.items() <= chief.items()
    assert EXCLUDED <= {*table}
    assert [] == [name for name in table if name.startswith("CM_")]


def test_one_rank_needs_no_chief() -> None:
    """A job of one card has nobody to meet."""
    alone = Situation(Node(), (0,), 1, None, {})

    assert [] == [name for name in decide("tensorflow", alone).job if name.startswith("CM_")]


@pytest.mark.parametrize(
    ("node", "environ", "address"),
    [
        (NODE._replace(hosts=("a", "b")), {}, "b"),
        (NODE._replace(hosts=("a", "b")), {"CM_WORKER_IP": "c"}, "c"),
        (NODE, {"POD_IP": "10.0.0.7"}, "10.0.0.7"),
        (NODE._replace(node_rank=0), {}, "10.0.0.1"),
    ],
)
def test_own_address(node: Node, environ: dict[str, str], address: str) -> None:
    """The platform's word, the list of hosts, or the chief's own."""
    assert address == _own(situation(environ, node=node))["CM_WORKER_IP"]


def test_own_address_that_nobody_tells() -> None:
    """It is not guessed."""
    with pytest.raises(SettingsError) as caught:
        decide("tensorflow", situation())

    assert (
        "TensorFlow without a rank table needs this node's own address, and nothing tells it: expected CM_WORKER_IP"
    ) == str(caught.value)


def test_index_is_a_number() -> None:
    """TensorFlow wants a number where some platforms write text."""
    configs = _configs({"type": "worker", "index": "1"}, {"worker": ["a:2222", "b:2222"]}, 1)

    assert [{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 1}}] == configs


def test_several_ranks_are_several_workers() -> None:
    """Each rank is a task of its own: the ports follow the platform's, parameter servers stay."""
    configs = _configs({"type": "worker", "index": 1}, {"ps": ["p:2222"], "worker": ["a:2222", "b:2222"]}, 2)

    assert {"ps": ["p:2222"], "worker": ["a:2222", "a:2223", "b:2222", "b:2223"]} == configs[0]["cluster"]
    assert [2, 3] == [config["task"]["index"] for config in configs]


def test_several_ranks_of_a_chief() -> None:
    """There can be only one chief."""
    with pytest.raises(SettingsError) as caught:
        _configs({"type": "chief", "index": 0}, {"chief": ["c:1"], "worker": ["a:1"]}, 2)

    assert (
        "TF_CONFIG says that this node is the chief, expected a worker: there can be only one chief, and this node has"
        " 2 ranks"
    ) == str(caught.value)


def test_ports_that_others_have() -> None:
    """Two tasks on one host whose ports would run into each other are refused."""
    with pytest.raises(SettingsError) as caught:
        _configs({"type": "worker", "index": 0}, {"worker": ["a:2222", "a:2223"]}, 2)

    assert (
        "TF_CONFIG leaves no room for 2 ranks on each node: expected 2 ports from each worker's on, which no other task"
        " has"
    ) == str(caught.value)


def test_config_is_never_invented() -> None:
    """An Estimator that finds one expects servers behind it."""
    assert "TF_CONFIG" not in _own(situation({"CM_WORKER_IP": "10.0.0.2"}))
