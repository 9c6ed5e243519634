"""Where a rank table is looked for."""

from __future__ import annotations

import os

import pytest

from ascend_runner.errors import RankTableError
from ascend_runner.platforms.announced import USUAL_PLACES, announced_table, find_table

BOTH = {"RANK_TABLE_FILE_V_1_0": "/v1", "RANK_TABLE_FILE": "/v0"}


def test_order_of_the_places() -> None:
    """The user's choice wins, then RANK_TABLE_FILE_V_1_0, RANK_TABLE_FILE, and the folders of known platforms."""
    folders = {os.path.dirname(place) for place in USUAL_PLACES}

    assert "here" == find_table("here", BOTH, folders.__contains__)
    assert "/v1" == find_table(None, BOTH, folders.__contains__)
    assert "/v0" == announced_table({"RANK_TABLE_FILE_V_1_0": "", "RANK_TABLE_FILE": "/v0"}, folders.__contains__)
    assert USUAL_PLACES[0] == announced_table({}, folders.__contains__)
    assert USUAL_PLACES[1] == announced_table({}, os.path.dirname(USUAL_PLACES[1]).__eq__)


def test_no_table_is_announced() -> None:
    """Without a variable and a platform's folder there is no rank table."""
    assert "" == announced_table({}, lambda _: False)
    with pytest.raises(RankTableError):
        find_table(None, {}, lambda _: False)
