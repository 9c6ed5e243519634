"""Variables that resemble those of options are reported."""

from __future__ import annotations

import pytest

from ascend_runner.settings.model import unknown_variables


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        (
            "ASCEND_RUNNER_NPROC_PER_NOD",
            ["ignoring unknown variable ASCEND_RUNNER_NPROC_PER_NOD (did you mean ASCEND_RUNNER_NPROC_PER_NODE?)"],
        ),
        ("ASCEND_RUNNER_X", ["ignoring unknown variable ASCEND_RUNNER_X"]),
        ("ASCEND_RUNNER_GRACE", []),
        ("ASCEND_RUNNER_SERVICE_HOST", []),
        ("ASCEND_RUNNER_SERVICE_PORT_HTTP", []),
        ("ASCEND_RUNNER_PORT_80_TCP_ADDR", []),
        ("ASCEND_HOME", []),
    ],
)
def test_unknown_variable(name: str, sentences: list[str]) -> None:
    """A variable that resembles an option is reported, unless Kubernetes made it for a service."""
    assert sentences == list(unknown_variables({name: "1"}))


def test_variable_of_a_short_name() -> None:
    """ASCEND_RUNNER_NPROC is recognized as a misspelling."""
    (sentence,) = unknown_variables({"ASCEND_RUNNER_NPROC": "2"})

    assert "ASCEND_RUNNER_NPROC_PER_NODE" in sentence
