"""What a node tells the others of its software and settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ascend_runner.job.versions import LONGEST_VALUE, MOST_VARIABLES, of_node
from ascend_runner.node.host import Host
from tests.helpers import trees
from tests.helpers.plans import job_spec, rank_spec

FILES = {
    "usr/local/Ascend/ascend-toolkit/latest/ascend_toolkit_install.info": "version=8.0.RC3\n",
    "usr/local/Ascend/driver/version.info": "Version=24.1.rc2\n",
    "opt/conda/lib/python3.10/site-packages/torch-2.1.0.dist-info/METADATA": "",
    "job/train.py": "print()\n",
}
PYTHON = "/opt/conda/bin/python3.10"


def told(machine: Host, *environs: Mapping[str, str], argv: str = "python train.py") -> dict[str, str]:
    """Return what a node tells whose ranks have these environments."""
    ranks = [
        rank_spec(rank, executable=PYTHON, argv=tuple(argv.split()), cwd="/job", env=env)
        for rank, env in enumerate(environs or [{}])
    ]
    return dict(of_node(job_spec(ranks, runner_version="1.0", rank_size=0), machine))


def test_software(tmp_path: Path) -> None:
    """The software of the ranks and a hash of their script are told; what is unknown is left out."""
    assert {
        "ascend-runner": "1.0",
        "CANN": "8.0.RC3",
        "driver": "24.1.rc2",
        "Python": "3.10",
        "torch": "2.1.0",
        "torch_npu": "",
        "mindspore": "",
        "script": "train.py (SHA-256 d8594fa1)",
    } == told(trees.host(tmp_path, FILES))


@pytest.mark.parametrize(
    ("argv", "is_told"),
    [("python /job/train.py", True), ("bash -x train.py", True), ("python missing.py", False), ("python -m x", False)],
)
def test_script(tmp_path: Path, argv: str, is_told: bool) -> None:  # noqa: FBT001  # the case
    """A script is told where it is a file."""
    assert is_told == ("script" in told(trees.host(tmp_path, FILES), argv=argv))


def test_process_without_a_rank(tmp_path: Path) -> None:
    """Where one process starts the ranks, such as a launcher, its software and variables are told."""
    process = rank_spec(executable=PYTHON, argv=("python", "train.py"), cwd="/job", env={"HCCL_EXEC_TIMEOUT": "1800"})
    told = dict(of_node(job_spec([], beside=(process,)), trees.host(tmp_path, FILES)))

    assert ("2.1.0", "1800") == (told["torch"], told["HCCL_EXEC_TIMEOUT"])


@pytest.mark.parametrize(("size", "told"), [(16, "16"), (0, None)])
def test_number_of_ranks(tmp_path: Path, size: int, told: str | None) -> None:
    """Without a rank table, each node counts the ranks of all nodes by its own: they may differ."""
    spec = job_spec([rank_spec(executable=PYTHON, cwd="/job")], rank_size=size)

    assert told == dict(of_node(spec, trees.host(tmp_path, FILES))).get("WORLD_SIZE")


def test_interpreter_of_a_shell_script(tmp_path: Path) -> None:
    """Of a shell script, the interpreter is the one that it would find."""
    folder = Path(sys.executable).parent
    rank = rank_spec(executable="/bin/sh", argv=("sh", "run.sh"), env={"PATH": f"{tmp_path}:{folder}"})

    assert f"{sys.version_info[0]}.{sys.version_info[1]}" == dict(of_node(job_spec([rank]), Host()))["Python"]


def test_variables(tmp_path: Path) -> None:
    """Variables that all ranks share are told, masked and with a limit, without those that differ by nature."""
    shared = {"HCCL_CONNECT_TIMEOUT": "600", "ASCEND_API_KEY": "abc", "ASCEND_OPP_PATH": "/x" * 100, "OTHER": "1"}
    natural = {"HCCL_IF_IP": "10.0.0.1", "ASCEND_DEVICE_ID": "0", "ASCEND_PROCESS_LOG_PATH": "/l"}
    own = {"ASCEND_RUNNER_LINK_SECRET": "s", "ASCEND_RT_VISIBLE_DEVICES": "0"}
    environ = {**shared, **natural, **own}
    found = told(Host(str(tmp_path)), {**environ, "HCCL_OWN": "0"}, {**environ, "HCCL_OWN": "1"})

    assert {"HCCL_CONNECT_TIMEOUT": "600", "ASCEND_API_KEY": "***"} == {
        name: value for name, value in found.items() if name.isupper() and "PATH" not in name
    }
    assert found["ASCEND_OPP_PATH"].startswith("/x" * (LONGEST_VALUE // 2) + "... (SHA-256 ")


def test_many_variables(tmp_path: Path) -> None:
    """Only so many variables are told as fit into a message."""
    found = told(Host(str(tmp_path)), {f"HCCL_{number}": "x" * 9999 for number in range(999)})

    assert MOST_VARIABLES == sum(name.startswith("HCCL_") for name in found)
    assert 5000 > sum(len(name) + len(value) for name, value in found.items())
