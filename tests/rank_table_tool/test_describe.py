"""How tables are said."""

from __future__ import annotations

import pytest

from ascend_runner.rank_table import codec
from ascend_runner.rank_table_tool.describe import dialect_of, size_of
from tests.rank_table.rank_table_files import valid


@pytest.mark.parametrize(
    ("name", "dialect", "size"),
    [
        ("group_list_8_devices", "group list (template 2)", "1 server, 8 devices"),
        ("lab_2_servers", "group list, lab form (template 2)", "2 servers, 4 devices"),
        ("server_list_device_ip_null", "server list (template 1), version 1.0", "1 server, 1 device"),
        (
            "server_list_2_super_pods",
            "server list (template 1), version 1.2",
            "2 super-pods, 4 servers, 8 devices",
        ),
        ("rank_list_2_servers", "rank list (Ascend 950), version 2.0", "2 servers, 4 devices"),
    ],
)
def test_table(name: str, dialect: str, size: str) -> None:
    """A table is described by its dialect and its size."""
    table = codec.loads(valid(name))

    assert dialect == dialect_of(table)
    assert size == size_of(table)
