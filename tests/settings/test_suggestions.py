"""What the user probably meant."""

from __future__ import annotations

import pytest

from ascend_runner.settings import suggestions

IGNORED = "is not a variable of ascend-runner and is ignored"


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        (
            "ASCEND_RUNNER_NPROC_PER_NOD",
            [f"ASCEND_RUNNER_NPROC_PER_NOD {IGNORED} (did you mean ASCEND_RUNNER_NPROC_PER_NODE?)"],
        ),
        ("ASCEND_RUNNER_X", [f"ASCEND_RUNNER_X {IGNORED}"]),
        ("ASCEND_RUNNER_GRACE", []),
        ("ASCEND_RUNNER_SERVICE_HOST", []),
        ("ASCEND_RUNNER_SERVICE_PORT_HTTP", []),
        ("ASCEND_RUNNER_PORT_80_TCP_ADDR", []),
        ("ASCEND_HOME", []),
    ],
)
def test_unknown_variable(name: str, sentences: list[str]) -> None:
    """A variable that looks like an option is told, unless Kubernetes made it for a service."""
    assert sentences == list(suggestions.unknown_variables({name: "1"}))


def test_variable_of_a_short_name() -> None:
    """ASCEND_RUNNER_NPROC is recognised as a misspelling."""
    (sentence,) = suggestions.unknown_variables({"ASCEND_RUNNER_NPROC": "2"})

    assert "ASCEND_RUNNER_NPROC_PER_NODE" in sentence


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (["python", "train.py", "--nproc_per_node", "2", "--grace=3"], "--nproc-per-node, --grace"),
        (["python", "train.py", "--lr", "2"], ""),
        (["torchrun", "--nproc_per_node", "2"], ""),
        (["python", "-m", "torch.distributed.run", "--nproc_per_node", "2"], ""),
    ],
)
def test_option_behind_the_command(command: list[str], flags: str) -> None:
    """Options of the runner behind a Python script are named; an engine's own are not."""
    sentence = suggestions.misplaced_options(command)

    assert flags == sentence.partition(" is passed")[0].partition(" are passed")[0]


def test_script_without_python() -> None:
    """A script that cannot be executed needs a Python; another program does not."""
    assert " (did you mean: ascend-runner python train.py?)" == suggestions.of_script("train.py")
    assert "" == suggestions.of_script("train")
