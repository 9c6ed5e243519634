"""Problems if HCCL read a group list without conversion."""

from __future__ import annotations

from typing import Any

import pytest

from ascend_runner.rank_table.fields import BAD_TABLE
from tests.rank_table.rank_table_edits import WARNING, Found, edited, problems


def _found(name: str, **changes: Any) -> list[Found]:
    return problems(edited(name, **changes), is_unconverted=True)


def test_converted_table() -> None:
    """These checks run only for tables that are not converted."""
    data = edited("group_list_1_device", **{"group_list[0].instance_list[0].devices[0].device_id": "8"})

    assert [] == problems(data)
    assert 1 == len(problems(data, is_unconverted=True))


def test_device_id() -> None:
    """In a group list, HCCL accepts device ids up to 7 on every chip."""
    path = "group_list[0].instance_list[0].devices[0].device_id"
    sentence = "device_id is 8, but HCCL accepts at most 7 without conversion"

    assert [(WARNING, path, sentence, BAD_TABLE)] == _found("group_list_1_device", **{path: "8"})


def test_order_of_ranks() -> None:
    """HCCL numbers ranks by server_id as text, which may differ from the ranks of the converted table."""
    sentence = (
        "HCCL numbers the ranks differently without conversion (by server_id as text, then device_id);"
        " convert the table on every node or on none"
    )

    assert [] == _found("group_list_3_pods_listed_2_10_1")
    assert [(WARNING, "group_list", sentence, "")] == _found(
        "group_list_3_pods_listed_2_10_1", **{"group_list[0].instance_list[2].server_id": "9.0.0.3x"}
    )


@pytest.mark.parametrize("name", ["group_list_version", "lab_2_servers"])
def test_version(name: str) -> None:
    """HCCL selects its parser by the version, so a group list must not have one."""
    sentence = "version is '1.0', for which HCCL selects another parser unless the table is converted"

    assert [(WARNING, "version", sentence, BAD_TABLE)] == _found(name, version="1.0")


def test_lab_form() -> None:
    """The lab form requires network cards on the device, and 1, 2, 4, 8 or 16 devices per server."""
    path = "para_plane_nic_location"
    sentence = "para_plane_nic_location is 'host', but HCCL requires 'device' without conversion"

    assert [] == _found("lab_2_servers")
    assert [(WARNING, path, sentence, BAD_TABLE)] == _found("lab_2_servers", **{path: "host"})


def test_lab_form_with_odd_servers() -> None:
    """The lab form requires the same number of devices on every server."""
    changes = {
        "group_list[0].instance_list[1].server_id": "10.0.0.2",
        "group_list[0].instance_list[1].devices[0].device_id": "5",
        "group_list[0].instance_list[0].server_id": "10.0.0.3",
        "group_list[0].server_num": "2",
    }
    sentence = "4 devices on 3 servers, but HCCL requires 1, 2, 4, 8 or 16 per server without conversion"
    changes["group_list[0].server_num"] = "3"
    changes["group_list[0].instance_list[2].server_id"] = "10.0.0.4"
    changes["group_list[0].instance_list[3].server_id"] = "10.0.0.2"

    assert [(WARNING, "group_list", sentence, BAD_TABLE)] == [
        found for found in _found("lab_2_servers", **changes) if found[1] == "group_list"
    ]


def test_server_list() -> None:
    """A server list needs no conversion."""
    assert [] == _found("server_list_8_devices")
