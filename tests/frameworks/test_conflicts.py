"""The conflict matrix: what is refused, what is cleaned, what is only said; each row by an example."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.frameworks.conflicts import CONFLICTS, Remedy, settle
from tests.frameworks.framework_situations import TABLE, situation

if TYPE_CHECKING:
    from ascend_runner.frameworks.situation import Situation

MS = {"MS_ROLE": "MS_WORKER", "MS_SCHED_HOST": "a", "MS_NODE_RANK": "0"}
CM = {"CM_CHIEF_IP": "10.0.0.1", "CM_RANK": "0"}


def _port(port: int) -> Situation:
    return situation()._replace(node=situation().node._replace(master_port=port))


# --- refused


REFUSED = [
    (
        "mindspore",
        situation(),
        (
            "--framework mindspore needs a rank table for 4 ranks, and there is none: expected --framework"
            " mindspore-cluster"
        ),
    ),
    *(
        (
            "auto",
            situation({"ASCEND_RT_VISIBLE_DEVICES": text}),
            (
                f"ASCEND_RT_VISIBLE_DEVICES is {text!r}, expected rising numbers with commas and nothing else, such as"
                " 0,1,2: CANN ignores what follows the first that is wrong"
            ),
        )
        for text in ("0, 1", "1,0", "0,0", "0,x", "0-1", ",", "0,1,")
    ),
    (
        "auto",
        situation({"ASCEND_RT_VISIBLE_DEVICES": "0"}),
        "ASCEND_RT_VISIBLE_DEVICES is '0', expected as many devices as this node has ranks, 2",
    ),
    (
        "mindspore-cluster",
        situation()._replace(isolate_devices=True),
        (
            "--isolate-devices does not go with --framework mindspore-cluster: its ranks take the device of their local"
            " number, and each would see one device only, number 0"
        ),
    ),
    (
        "mindspore-cluster",
        _port(1023),
        "the port of node 0 is 1023, expected 1024 or more: MS_SCHED_PORT takes no less",
    ),
    (
        "tensorflow",
        _port(65521),
        "the port of node 0 is 65521, expected 65520 or less: CM_CHIEF_PORT takes no more",
    ),
    (
        "none",
        situation({"HCCL_INTRA_PCIE_ENABLE": "1", "HCCL_INTRA_ROCE_ENABLE": "1"}),
        "HCCL_INTRA_PCIE_ENABLE and HCCL_INTRA_ROCE_ENABLE are both 1, expected at most one of them",
    ),
    (
        "mindspore-cluster",
        situation({"MS_WORKER_NUM": "8"}),
        (
            "MS_WORKER_NUM is '8', expected the number of ranks, 4: with fewer the cluster is not built, and with more"
            " the last fail"
        ),
    ),
    (
        "tensorflow",
        situation({"CM_WORKER_SIZE": "8"}),
        "CM_WORKER_SIZE is '8', expected the number of ranks, 4",
    ),
]


@pytest.mark.parametrize(("framework", "found", "sentence"), REFUSED)
def test_refused(framework: str, found: Situation, sentence: str) -> None:
    """What is forbidden ends the runner before anything starts, with one sentence."""
    with pytest.raises(SettingsError) as caught:
        settle(framework, found)

    assert sentence == str(caught.value)


# --- cleaned


CLEANED = [
    ("auto", situation({"RANK_TABLE_FILE": "/user/config"}), {"RANK_TABLE_FILE"}),
    ("none", situation({"RANK_TABLE_FILE_V_1_0": "/a", "MINDSPORE_HCCL_CONFIG_PATH": "/b"}),
     {"RANK_TABLE_FILE_V_1_0", "MINDSPORE_HCCL_CONFIG_PATH"}),
    ("torch", situation({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0,1"}), {"RANK", "WORLD_SIZE"}),
    ("mindspore", situation({"RANK": "0", "WORLD_SIZE": "2"})._replace(table_path=TABLE), set()),
    ("none", situation({"TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_USE_AGENT_STORE": "True"}),
     {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"}),
    ("torch", situation(CM), {"CM_CHIEF_IP"}),
    ("tensorflow", situation(CM)._replace(table_path=TABLE), {"CM_CHIEF_IP"}),
    ("tensorflow", situation({**CM, "RANK_ID": "0", "RANK_SIZE": "1", "RANK_TABLE_FILE": "/a"}),
     {"RANK_ID", "RANK_SIZE", "RANK_TABLE_FILE"}),
    ("auto", situation(MS)._replace(table_path=TABLE), {"MS_ROLE", "MS_SCHED_HOST"}),
    ("torch", situation(MS), set()),
    ("mindspore-cluster", situation(MS)._replace(table_path=TABLE), set()),
]  # fmt: skip


@pytest.mark.parametrize(("framework", "found", "unset"), CLEANED)
def test_cleaned(framework: str, found: Situation, unset: set[str]) -> None:
    """What is stale is unset, and each such row says why; what nobody set is not spoken of."""
    settled = settle(framework, found)

    assert unset == settled.unset
    assert bool(unset) == bool(settled.notes)
    assert () == settled.warnings


# --- said


SAID = [
    (
        "torch",
        situation({"HCCL_EXEC_TIMEOUT": "3600"}),
        (
            "HCCL_EVENT_TIMEOUT (1868 by default) is not above HCCL_EXEC_TIMEOUT, 3600: torch_npu gives up before HCCL"
            " says why"
        ),
    ),
    (
        "torch",
        situation()._replace(isolate_devices=True),
        (
            "with --isolate-devices each rank sees one device, number 0: a script that takes the device of its"
            " LOCAL_RANK finds none"
        ),
    ),
    (
        "auto",
        situation({"HCCL_WHITELIST_DISABLE": "0"}),
        "HCCL_WHITELIST_DISABLE is 0, expected HCCL_WHITELIST_FILE as well: HCCL checks against a list that it lacks",
    ),
    *(
        (
            "auto",
            situation({"HCCL_CONNECT_TIMEOUT": text}),
            f"HCCL_CONNECT_TIMEOUT is {text!r}, expected a whole number of seconds, 120 to 7200 (EI0001)",
        )
        for text in ("119", "7201", "2m")
    ),
]


@pytest.mark.parametrize(("framework", "found", "sentence"), SAID)
def test_said(framework: str, found: Situation, sentence: str) -> None:
    """What is odd but may work is a warning."""
    assert (sentence,) == settle(framework, found).warnings


@pytest.mark.parametrize(
    "environ",
    [
        {"HCCL_INTRA_PCIE_ENABLE": "1", "HCCL_INTRA_ROCE_ENABLE": "0"},
        {"HCCL_EXEC_TIMEOUT": "1800"},
        {"HCCL_EXEC_TIMEOUT": "3600", "HCCL_EVENT_TIMEOUT": "3700"},
        {"HCCL_EXEC_TIMEOUT": "3600", "HCCL_EVENT_TIMEOUT": "0"},
        {"HCCL_WHITELIST_DISABLE": "0", "HCCL_WHITELIST_FILE": "/a"},
        {"HCCL_CONNECT_TIMEOUT": "120"},
        {"ASCEND_RT_VISIBLE_DEVICES": "0,1,2"},
        {"ASCEND_RT_VISIBLE_DEVICES": ""},
    ],
)
def test_nothing_to_say(environ: dict[str, str]) -> None:
    """What fits together passes in silence."""
    settled = settle("torch", situation(environ))

    assert ((), (), frozenset()) == (settled.notes, settled.warnings, settled.unset)


def test_every_row_has_an_example() -> None:
    """No row of the table is without a test here."""
    for examples, remedy in ((REFUSED, Remedy.REFUSE), (CLEANED, Remedy.CLEAN), (SAID, Remedy.WARN)):
        held = {
            conflict.sentence
            for framework, found, _ in examples
            for conflict in CONFLICTS
            if conflict.remedy is remedy and conflict.holds(framework, found)
        }

        assert {conflict.sentence for conflict in CONFLICTS if conflict.remedy is remedy} == held
