"""Detecting that one process per device runs already."""

from __future__ import annotations

import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.platforms import detect
from ascend_runner.platforms.detect import SingleProcess
from tests.platforms import platform_cases


@pytest.mark.parametrize("name", platform_cases.names("single"))
def test_already_started(name: str) -> None:
    """Each sign is detected, names its variables, and gives the rank if it has one."""
    case = platform_cases.load(name)

    assert SingleProcess(**case.expected["single"]) == detect.find(case.variables)


@pytest.mark.parametrize("name", platform_cases.names("node"))
def test_once_per_node(name: str) -> None:
    """A platform that starts the runner once per node shows none of the signs."""
    assert detect.find(platform_cases.load(name).variables) is None


def test_every_way_has_a_fixture() -> None:
    """Each row of the table has a fixture."""
    seen = {platform_cases.load(name).expected["single"]["why"] for name in platform_cases.names("single")}

    assert {f"{sign.meaning}: running the command once, unchanged" for sign in detect.SIGNS} == seen


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
    """Variables that only look similar leave the ranks to this runner."""
    assert detect.find(variables) is None


def test_bad_tf_config() -> None:
    """A malformed TF_CONFIG is an error."""
    with pytest.raises(SettingsError, match=r"invalid value '\{' for TF_CONFIG: expected"):
        detect.find({"TF_CONFIG": "{"})


@pytest.mark.parametrize("name", ["open_mpi_per_card", "hydra_per_card", "slurm_per_card"])
def test_several_processes_of_one_node_that_are_each_to_start_all_ranks(name: str) -> None:
    """Several processes per node that would each start all ranks are refused."""
    with pytest.raises(SettingsError) as caught:
        detect.find(platform_cases.load(name).variables, names_the_ranks=True)

    assert "start one process per node (srun --ntasks-per-node=1, mpirun -N 1), or set --nnodes 1" in str(caught.value)


@pytest.mark.parametrize("name", ["mindcluster_scheduler", "tensorflow_parameter_server"])
def test_pod_without_a_card_when_ranks_are_named(name: str) -> None:
    """All pods of a job run one command, so the ranks that it names are not those of a pod without a card."""
    case = platform_cases.load(name)

    assert SingleProcess(**case.expected["single"]) == detect.find(case.variables, names_the_ranks=True)


@pytest.mark.parametrize("name", ["modelarts_preset_engine", "torchrun"])
def test_what_an_earlier_launcher_may_have_left_when_ranks_are_named(name: str) -> None:
    """The user's ranks override variables that may be stale."""
    assert detect.find(platform_cases.load(name).variables, names_the_ranks=True) is None
