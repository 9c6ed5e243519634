"""TensorFlow: the rank table or the chief, never both, and TF_CONFIG for each rank."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.frameworks.env_patch import LaunchContext
from ascend_runner.frameworks.registry import patch_environment
from ascend_runner.platforms.node import Node
from tests.frameworks.launch_contexts import NODE, TABLE, context

EXCLUDED = {"RANK_TABLE_FILE", "RANK_ID", "RANK_SIZE"}


def _configs(task: dict[str, Any], cluster: dict[str, Any], nproc: int) -> list[dict[str, Any]]:
    environ = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
    found = context("tensorflow", environ, nproc=nproc, table_path=TABLE)
    return [json.loads(own["TF_CONFIG"]) for own in patch_environment(found).ranks]


def _own(found: LaunchContext) -> dict[str, str]:
    return patch_environment(found).environments_of_ranks(found.environ)[1]


def test_chief_and_table_exclude_each_other() -> None:
    """The chief's and the table's variables are never set together."""
    stale = dict.fromkeys(EXCLUDED, "0")
    chief = _own(context("tensorflow", {**stale, "CM_WORKER_IP": "10.0.0.2"}))
    table = _own(context("tensorflow", {"CM_CHIEF_IP": "a", "CM_WORKER_IP": "b"}, table_path=TABLE))

    assert set() == EXCLUDED & {*chief}
    assert {"CM_CHIEF_IP": "10.0.0.1", "CM_WORKER_SIZE": "4", "CM_WORKER_IP": "10.0.0.2"}.items() <= chief.items()
    assert EXCLUDED <= {*table}
    assert [] == [name for name in table if name.startswith("CM_")]


def test_one_rank_needs_no_chief() -> None:
    """A job of one rank has no meeting point."""
    alone = context("tensorflow", node=Node(), nproc=1)

    assert [] == [name for name in patch_environment(alone).job if name.startswith("CM_")]


@pytest.mark.parametrize(
    ("node", "environ", "address"),
    [
        (attrs.evolve(NODE, hosts=("a", "b")), {}, "b"),
        (attrs.evolve(NODE, hosts=("a", "b")), {"CM_WORKER_IP": "c"}, "c"),
        (NODE, {"POD_IP": "10.0.0.7"}, "10.0.0.7"),
        (attrs.evolve(NODE, node_rank=0), {}, "10.0.0.1"),
    ],
)
def test_own_address(node: Node, environ: dict[str, str], address: str) -> None:
    """It is the platform's, from the list of hosts, or the chief's."""
    assert address == _own(context("tensorflow", environ, node=node))["CM_WORKER_IP"]


def test_unknown_own_address() -> None:
    """An address is not guessed."""
    with pytest.raises(SettingsError) as caught:
        patch_environment(context("tensorflow"))

    assert ("cannot find this node's address, which TensorFlow requires without a rank table: set CM_WORKER_IP") == str(
        caught.value
    )


def test_index_is_a_number() -> None:
    """TensorFlow expects a number; some platforms write text."""
    configs = _configs({"type": "worker", "index": "1"}, {"worker": ["a:2222", "b:2222"]}, 1)

    assert [{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 1}}] == configs


def test_several_ranks_are_several_workers() -> None:
    """Each rank is a task of its own: their ports follow the platform's, and parameter servers stay."""
    configs = _configs({"type": "worker", "index": 1}, {"ps": ["p:2222"], "worker": ["a:2222", "b:2222"]}, 2)

    assert {"ps": ["p:2222"], "worker": ["a:2222", "a:2223", "b:2222", "b:2223"]} == configs[0]["cluster"]
    assert [2, 3] == [config["task"]["index"] for config in configs]


def test_several_ranks_of_a_chief() -> None:
    """Several ranks on a chief's node are refused."""
    with pytest.raises(SettingsError) as caught:
        _configs({"type": "chief", "index": 0}, {"chief": ["c:1"], "worker": ["a:1"]}, 2)

    assert (
        "TF_CONFIG makes this node the chief, but it has 2 ranks, and a job has one chief: start one rank on this node"
    ) == str(caught.value)


def test_ports_of_other_tasks() -> None:
    """Two tasks on one host whose ports would overlap are refused."""
    with pytest.raises(SettingsError) as caught:
        _configs({"type": "worker", "index": 0}, {"worker": ["a:2222", "a:2223"]}, 2)

    assert (
        "TF_CONFIG has too few ports for 2 ranks per node: each worker needs 2 consecutive ports that no other task"
        " uses"
    ) == str(caught.value)


def test_config_is_never_invented() -> None:
    """TF_CONFIG is never added: an Estimator would expect servers."""
    assert "TF_CONFIG" not in _own(context("tensorflow", {"CM_WORKER_IP": "10.0.0.2"}))
