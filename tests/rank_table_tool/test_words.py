"""How tables are said."""

from __future__ import annotations

import pytest

from ascend_runner.rank_table import codec
from ascend_runner.rank_table_tool.words import dialect_of, plain, ranges, size_of
from tests.rank_table.rank_table_files import valid


@pytest.mark.parametrize(
    ("numbers", "said"), [((), ""), ((3,), "3"), ((0, 1, 2), "0-2"), ((0, 2, 3, 5), "0,2-3,5"), ((2, 1, 0), "2,1,0")]
)
def test_ranges(numbers: tuple[int, ...], said: str) -> None:
    """Numbers that follow each other are a range; their order stays."""
    assert said == ranges(numbers)


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
    """A table is said by its dialect and its size."""
    table = codec.loads(valid(name))

    assert dialect == dialect_of(table)
    assert size == size_of(table)


def test_plain() -> None:
    """What a terminal would obey is written out; other scripts are left."""
    assert "a\\x1b[2J" == plain("a\x1b[2J")
    assert "节点 1" == plain("节点 1")
