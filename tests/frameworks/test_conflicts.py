"""The table of conflicts: what is refused, what is removed, what is warned about; each row by an example."""

from __future__ import annotations

import attrs
import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.frameworks.conflicts import CONFLICTS, Remedy, find, resolve
from ascend_runner.frameworks.env_patch import LaunchContext
from tests.frameworks.launch_contexts import NODE, TABLE, context

MS = {"MS_ROLE": "MS_WORKER", "MS_SCHED_HOST": "a", "MS_NODE_RANK": "0"}
CM = {"CM_CHIEF_IP": "10.0.0.1", "CM_RANK": "0"}


def _port(framework: str, port: int) -> LaunchContext:
    return context(framework, node=attrs.evolve(NODE, master_port=port))


REFUSED = [
    (
        context("mindspore"),
        (
            "--framework mindspore requires a rank table for 4 ranks, but there is none: use --framework"
            " mindspore-cluster"
        ),
    ),
    *(
        (
            context("auto", {"ASCEND_RT_VISIBLE_DEVICES": text}),
            (
                f"invalid value {text!r} for ASCEND_RT_VISIBLE_DEVICES: expected ascending numbers separated by commas,"
                " such as 0,1,2 (CANN ignores everything after the first invalid entry)"
            ),
        )
        for text in ("0, 1", "1,0", "0,0", "0,x", "0-1", ",", "0,1,")
    ),
    (
        context("auto", {"ASCEND_RT_VISIBLE_DEVICES": "0"}),
        "ASCEND_RT_VISIBLE_DEVICES (0) lists fewer devices than this node has ranks (2)",
    ),
    (
        context("mindspore-cluster", isolate_devices=True),
        (
            "--isolate-devices cannot be used with --framework mindspore-cluster: each rank opens the device"
            " whose index is its local rank, but would see only device 0"
        ),
    ),
    (
        _port("mindspore-cluster", 1023),
        "port 1023 of node 0 is below 1024, the lowest one that MindSpore accepts",
    ),
    (
        _port("tensorflow", 65521),
        "port 65521 of node 0 is above 65520, the highest one that CM_CHIEF_PORT accepts",
    ),
    (
        context("none", {"HCCL_INTRA_PCIE_ENABLE": "1", "HCCL_INTRA_ROCE_ENABLE": "1"}),
        "HCCL_INTRA_PCIE_ENABLE and HCCL_INTRA_ROCE_ENABLE cannot both be 1",
    ),
    (
        context("mindspore-cluster", {"MS_WORKER_NUM": "8"}),
        "MS_WORKER_NUM is '8', but the number of ranks is 4",
    ),
    (
        context("tensorflow", {"CM_WORKER_SIZE": "8"}),
        "CM_WORKER_SIZE is '8', but the number of ranks is 4",
    ),
]


@pytest.mark.parametrize(("found", "sentence"), REFUSED)
def test_refused(found: LaunchContext, sentence: str) -> None:
    """A forbidden combination ends the runner before anything starts, with one sentence."""
    with pytest.raises(SettingsError) as caught:
        resolve(found)

    assert sentence == str(caught.value)


REMOVED = [
    *(
        (context(framework, {"TF_CONFIG": "{}"}), {"TF_CONFIG"})
        for framework in ("torch", "mindspore-cluster", "none")
    ),
    (context("auto", {"RANK_TABLE_FILE": "/user/config"}), {"RANK_TABLE_FILE"}),
    (context("none", {"RANK_TABLE_FILE_V_1_0": "/a", "MINDSPORE_HCCL_CONFIG_PATH": "/b"}),
     {"RANK_TABLE_FILE_V_1_0", "MINDSPORE_HCCL_CONFIG_PATH"}),
    (context("torch", {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0,1"}), {"RANK", "WORLD_SIZE"}),
    (context("mindspore", {"RANK": "0", "WORLD_SIZE": "2"}, table_path=TABLE), set()),
    (context("none", {"TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_USE_AGENT_STORE": "True"}),
     {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"}),
    (context("torch", CM), {"CM_CHIEF_IP"}),
    (context("tensorflow", CM, table_path=TABLE), {"CM_CHIEF_IP"}),
    (context("tensorflow", {**CM, "RANK_ID": "0", "RANK_SIZE": "1", "RANK_TABLE_FILE": "/a"}),
     {"RANK_ID", "RANK_SIZE", "RANK_TABLE_FILE"}),
    (context("auto", MS, table_path=TABLE), {"MS_ROLE", "MS_SCHED_HOST"}),
    (context("torch", MS), set()),
    (context("mindspore-cluster", MS, table_path=TABLE), set()),
]  # fmt: skip


@pytest.mark.parametrize(("found", "unset"), REMOVED)
def test_removed(found: LaunchContext, unset: set[str]) -> None:
    """Stale variables are unset, and a note says why; a variable that is not set has no note."""
    patch = resolve(found)

    assert unset == patch.unset
    assert bool(unset) == bool(patch.notes)


WARNED = [
    (
        context("torch", {"HCCL_EXEC_TIMEOUT": "3600"}),
        (
            "HCCL_EVENT_TIMEOUT (1868, the default) does not exceed HCCL_EXEC_TIMEOUT (3600): torch_npu gives up before"
            " HCCL reports the cause"
        ),
    ),
    (
        context("torch", {"HCCL_EVENT_TIMEOUT": "1800"}),
        (
            "HCCL_EVENT_TIMEOUT (1800) does not exceed HCCL_EXEC_TIMEOUT (1836, the default): torch_npu gives up before"
            " HCCL reports the cause"
        ),
    ),
    (
        context("torch", {"HCCL_EXEC_TIMEOUT": "0"}),
        (
            "HCCL_EVENT_TIMEOUT (1868, the default) does not exceed HCCL_EXEC_TIMEOUT (0, no limit): torch_npu gives up"
            " before HCCL reports the cause"
        ),
    ),
    (
        context("torch", {"HCCL_EXEC_TIMEOUT": "abc"}),
        "invalid value 'abc' for HCCL_EXEC_TIMEOUT: expected 0 to 2147483647 seconds",
    ),
    *(
        (
            context("mindspore", {"HCCL_EXEC_TIMEOUT": text, **more}, table_path=TABLE, chip=chip),
            f"invalid value {text!r} for HCCL_EXEC_TIMEOUT: expected {allowed} seconds on the {chip}",
        )
        for text, chip, allowed, more in (
            ("0", "910", "1 to 17340", {}),
            ("17341", "910", "1 to 17340", {}),
            ("2147483648", "910B", "0 to 2147483647", {}),
            ("65536", "950", "0 to 65535", {}),
            ("1092", "950", "0 to 1091", {"HCCL_OP_EXPANSION_MODE": "AIV"}),
        )
    ),
    (
        context("torch", isolate_devices=True),
        "with --isolate-devices each rank sees only device 0: a script that uses LOCAL_RANK as its device index fails",
    ),
    (
        context("auto", {"HCCL_WHITELIST_DISABLE": "0"}),
        "HCCL_WHITELIST_DISABLE is 0, but HCCL_WHITELIST_FILE is not set: HCCL has no whitelist to check against",
    ),
    *(
        (
            context("auto", {"HCCL_CONNECT_TIMEOUT": text}),
            (
                f"invalid value {text!r} for HCCL_CONNECT_TIMEOUT: expected a whole number of seconds from 120 to 7200"
                " (EI0001)"
            ),
        )
        for text in ("119", "7201", "2m")
    ),
]


@pytest.mark.parametrize(("found", "sentence"), WARNED)
def test_warned(found: LaunchContext, sentence: str) -> None:
    """A combination that is odd but may work is a warning."""
    assert ((Remedy.WARN, sentence),) == find(found)


@pytest.mark.parametrize(
    "environ",
    [
        {"HCCL_INTRA_PCIE_ENABLE": "1", "HCCL_INTRA_ROCE_ENABLE": "0"},
        {"HCCL_EXEC_TIMEOUT": "1800"},
        {"HCCL_EVENT_TIMEOUT": "1837"},
        {"HCCL_EXEC_TIMEOUT": "3600", "HCCL_EVENT_TIMEOUT": "3700"},
        {"HCCL_EXEC_TIMEOUT": "3600", "HCCL_EVENT_TIMEOUT": "0"},
        {"HCCL_EXEC_TIMEOUT": "0", "HCCL_EVENT_TIMEOUT": "0"},
        {"HCCL_WHITELIST_DISABLE": "0", "HCCL_WHITELIST_FILE": "/a"},
        {"HCCL_CONNECT_TIMEOUT": "120"},
        {"ASCEND_RT_VISIBLE_DEVICES": "0,1,2"},
        {"ASCEND_RT_VISIBLE_DEVICES": ""},
    ],
)
def test_no_conflict(environ: dict[str, str]) -> None:
    """Variables that fit together change nothing."""
    assert () == find(context("torch", environ))


def test_no_limit_of_exec_timeout() -> None:
    """0 means no limit on an A2, but is refused by a 910; without a known chip nothing is said about ranges."""
    environ = {"HCCL_EXEC_TIMEOUT": "0"}

    assert [0, 1, 0] == [len(find(context("none", environ, chip=chip))) for chip in ("910B", "910", None)]


@pytest.mark.parametrize(
    ("examples", "remedy"), [(REFUSED, Remedy.REFUSE), (REMOVED, Remedy.REMOVE), (WARNED, Remedy.WARN)]
)
def test_every_row_has_an_example(examples: list[tuple[LaunchContext, object]], remedy: Remedy) -> None:
    """No row of the table is without a test here."""
    rows = [conflict for conflict in CONFLICTS if conflict.remedy is remedy]
    held = {conflict.sentence for found, _ in examples for conflict in rows if conflict.holds(found)}

    assert {conflict.sentence for conflict in rows} == held
