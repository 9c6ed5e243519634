"""Documents that are no job's rank table; fixtures and sentences are those of test_codec."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ascend_runner.rank_table.dialects.foreign import name_of
from tests.rank_table.rank_table_files import FIXTURES, invalid, valid


@pytest.mark.parametrize("path", sorted((FIXTURES / "invalid").glob("foreign_*.json")), ids=lambda path: path.stem)
def test_stranger_has_a_name(path: Path) -> None:
    """Each kind is known by its keys."""
    assert name_of(json.loads(invalid(path.stem)))


@pytest.mark.parametrize("name", ["group_list_8_devices", "lab_2_servers", "server_list_2_super_pods"])
def test_rank_table_is_no_stranger(name: str) -> None:
    """A job's rank table is none of them."""
    assert not name_of(json.loads(valid(name)))
