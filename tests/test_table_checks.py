"""Defects that HCCL would reject are reported before the launch, all at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.program import Program, run_to_end

VALID = Path(__file__).parents[1] / "fixtures" / "valid"
FIRST = {"MA_CURRENT_HOST_IP": "10.0.0.1", "MA_CURRENT_INSTANCE_NAME": "job-worker-0"}  # a node


def table(folder: Path, *addresses: str) -> str:
    """Write a table of one server whose devices have these addresses; return its path."""
    devices = [
        {"device_id": str(index), "device_ip": address, "rank_id": str(index)}
        for index, address in enumerate(addresses)
    ]
    path = folder / "table.json"
    servers = [{"server_id": "10.0.0.1", "device": devices}]
    path.write_text(json.dumps({"status": "completed", "version": "1.0", "server_count": "1", "server_list": servers}))
    return str(path)


def test_refused_table_starts_nothing(program: Program) -> None:
    """Each problem is reported with its place and HCCL's code; the exit status is 125, and no log is created."""
    path = table(program.folder, "192.168.1.1", "192.168.1.1", "192.168.1.3", "192.168.1.3")
    ended = program.here("--rank-table", path, "true")

    assert 125 == ended.returncode
    assert ended.stderr.count("192.168.1.1") >= 1
    assert ended.stderr.count("192.168.1.3") >= 1
    assert "'server_list[0].device[3].device_ip'" in ended.stderr
    assert 2 == ended.stderr.count(" (EI0014)")
    assert 1 == ended.stderr.count("; use --no-table-checks to start the job anyway\n")
    assert not program.log_dir.exists()


def test_addresses_that_only_a_variable_wants(program: Program) -> None:
    """On one server devices need no addresses, unless HCCL is set to use them there, too."""
    path = table(program.folder, "", "")
    env = {"HCCL_INTRA_ROCE_ENABLE": "1"}
    run = program.start("--rank-table", path, "true", env=env)

    assert 0 == program.start("--rank-table", path, "true").finish()
    assert 125 == run.finish()
    assert 2 == run.screen.count("but every device needs one with HCCL_INTRA_ROCE_ENABLE=1")


@pytest.mark.deep(quick=3)
@pytest.mark.parametrize(
    ("name", "server_id", "rank_ids"),
    [
        ("lab_2_servers", "10.0.0.2", [2, 3]),
        ("lab_integers_ranks_reversed", "", [0, 1]),
        ("group_list_integers", "", [0, 1]),
        ("server_list_packed", "", [0, 1]),
        ("server_list_integers", "", [0, 1]),
        ("server_list_version_1_1", "", [0, 1]),
        ("server_list_mindcluster", "0a4b7c2d-93e4-4a51-8f10-5b7d2e9c3a22", [0, 1]),
        ("server_list_1_super_pod_without_device_ip", "node-1", [2, 3]),
        ("server_list_2_super_pods", "node-3", [6, 7]),
        ("rank_list_2_servers", "az0-rack0-pod1", [2, 3]),
        ("rank_list_strings", "az0-rack0-pod1", [2, 3]),
    ],
)
def test_every_dialect_is_launched(tmp_path: Path, name: str, server_id: str, rank_ids: list[int]) -> None:
    """The dialect is detected from the content, and this node's ranks are found in each."""
    options = ("--dry-run", "--log-dir", "log", "--rank-table", str(VALID / f"{name}.json"))
    ended = run_to_end(*options, "true", env={"MA_CURRENT_HOST_IP": server_id}, cwd=tmp_path)

    assert 0 == ended.returncode, ended.stderr
    assert rank_ids == [rank["rank_id"] for rank in json.loads(ended.stdout)["ranks"]]


def test_checks_can_be_switched_off(program: Program) -> None:
    """With --no-table-checks the same table is used."""
    path = table(program.folder, "192.168.1.1", "192.168.1.1")
    run = program.start("--rank-table", path, "--no-table-checks", "true")

    assert 0 == run.finish()


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("name", ["group_list_device_count_wrong", "server_list_server_count_wrong"])
def test_count_that_contradicts_its_list(program: Program, name: str) -> None:
    """A wrong count is an error; with --no-table-checks it is corrected with a warning."""
    path = str(VALID.with_name("invalid") / f"{name}.json")
    refused = program.start("--rank-table", path, "true", env=FIRST)
    show = ("sh", "-c", 'grep _count "$RANK_TABLE_FILE"')
    run = program.start("--rank-table", path, "--no-table-checks", *show, env=FIRST)

    assert 125 == refused.finish()
    assert 0 == run.finish()
    assert "WARNING" in run.screen
    assert '"server_count": "2"' in run.screen


def test_device_that_is_listed_twice(program: Program) -> None:
    """A contradiction that cannot be corrected is an error even with --no-table-checks."""
    path = str(VALID.with_name("invalid") / "server_list_device_twice.json")
    ended = program.here("--rank-table", path, "--no-table-checks", "true", env=FIRST)

    assert 125 == ended.returncode
    assert "in 'server_list[1].device[1].device_id'" in ended.stderr


def test_document_that_is_no_table_is_told_with_hccls_code(program: Program) -> None:
    """HCCL's code is in the error, so that a search for it finds the error."""
    path = table(program.folder, "192.168.1.1")
    text = (program.folder / "table.json").read_text()
    (program.folder / "table.json").write_text(text.replace('"rank_id": "0"', '"rank_id": "1"'))
    ended = program.here("--rank-table", path, "true")

    assert 125 == ended.returncode
    assert f"in 'server_list[0].device[0].rank_id' of {path} (EI0014)\n" in ended.stderr


def test_node_of_a_table_with_uids(program: Program) -> None:
    """A table of MindCluster with several servers starts on each of them, and its ranks meet at an address."""
    servers = [
        {
            "server_id": f"uid-{index}",
            "host_ip": "10.0.0.1",
            "container_ip": f"172.16.0.{index}",
            "device": [{"device_id": "0", "device_ip": f"192.168.1.{index}", "rank_id": str(rank_id)}],
        }
        for index, rank_id in ((1, 1), (2, 0))
    ]
    path = program.folder / "hccl.json"
    path.write_text(json.dumps({"status": "completed", "version": "1.0", "server_count": "2", "server_list": servers}))
    run = program.start(
        "--rank-table", str(path), "sh", "-c", "echo rank $RANK at $MASTER_ADDR", env={"POD_IP": "172.16.0.1"}
    )

    assert 0 == run.finish()
    assert "rank 1 at 172.16.0.2" in run.screen


def test_folder_whose_real_name_hccl_would_not_read(program: Program) -> None:
    """HCCL checks the path without symlinks, and so does the runner."""
    real = program.folder / "node.json" / "mount"
    real.mkdir(parents=True)
    (program.folder / "mount").symlink_to(real)
    path = table(program.folder, "192.168.1.1")
    ended = program.here("--rank-table", path, "true", env={"MA_MOUNT_PATH": str(program.folder / "mount")})

    assert 125 == ended.returncode
    assert f"{real}/rank_table/jobstart_hccl.json: " in ended.stderr


def test_chip_decides_what_is_checked(program: Program) -> None:
    """On a 910, four devices must form a set; if the chip is unknown, they may be correct."""
    path = table(program.folder, "192.168.1.1", "192.168.1.2", "192.168.1.3", "192.168.1.4")
    text = (program.folder / "table.json").read_text()
    (program.folder / "table.json").write_text(text.replace('"device_id": "3"', '"device_id": "6"'))

    assert 0 == program.start("--rank-table", path, "true").finish()
    assert 125 == program.start("--rank-table", path, "--chip", "910", "true").finish()
