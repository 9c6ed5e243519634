"""Seeing that one process per card runs already: no n x n."""

from __future__ import annotations

import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.platforms import single
from tests.platforms import platform_cases


@pytest.mark.parametrize("name", platform_cases.names("single"))
def test_already_started(name: str) -> None:
    """Each way is seen, says by which variables, and finds the rank where one is told."""
    case = platform_cases.load(name)

    assert single.Single(**case.expected["single"]) == single.find(case.variables)


@pytest.mark.parametrize("name", platform_cases.names("node"))
def test_once_per_node(name: str) -> None:
    """A platform that starts the runner once per node is not taken for another."""
    assert single.find(platform_cases.load(name).variables) is None


def test_every_way_has_a_fixture() -> None:
    """No row of the table is without a file."""
    seen = {platform_cases.load(name).expected["single"]["why"] for name in platform_cases.names("single")}

    assert {f"{meaning}, so the command is run once, as it is" for meaning, *_ in single.WITNESSES} == seen


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK_ID": "0", "ASCEND_DEVICE_ID": "0", "RANK_SIZE": "1"},  # an image for one card
        {"LOCAL_RANK": "0"},  # a shell that forgot it
        {"LOCAL_RANK": "0", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MINDX_TASK_ID": "a"},  # an acjob
        {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
        {"MA_RUN_METHOD": "default"},
        {"MS_ROLE": "MS_SCHED", "NPU_POD": "true"},
        {"SLURM_NTASKS_PER_NODE": "8"},  # the batch script: its steps decide for themselves
    ],
)
def test_not_yet_started(variables: dict[str, str]) -> None:
    """What only looks like it leaves the ranks to this runner."""
    assert single.find(variables) is None


def test_bad_tf_config() -> None:
    """A TF_CONFIG that cannot be read is not passed over in silence."""
    with pytest.raises(SettingsError, match=r"TF_CONFIG is '\{', expected"):
        single.find({"TF_CONFIG": "{"})
