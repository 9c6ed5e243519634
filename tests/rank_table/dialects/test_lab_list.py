"""The lab form of the group list."""

from __future__ import annotations

from ascend_runner.rank_table import codec
from tests.rank_table.rank_table_files import valid


def test_stated_ranks_are_kept() -> None:
    """The stated ranks are kept, also as JSON numbers; devices of a server are ordered by rank."""
    table = codec.loads(valid("lab_integers_ranks_reversed"))

    assert [(0, 0), (1, 1)] == [(device.device_id, device.rank_id) for device in table.devices]
    assert not table.is_native


def test_devices_of_one_server_come_together() -> None:
    """Instances with the same server_id form one server."""
    table = codec.loads(valid("lab_2_servers"))

    assert [("10.0.0.1", [0, 1]), ("10.0.0.2", [2, 3])] == [
        (server.server_id, [device.rank_id for device in server.devices]) for server in table.servers
    ]
    assert "910" == table.extra_keys["chip_info"]
