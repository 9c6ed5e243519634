"""What every rank table must satisfy; otherwise it cannot be built."""

from __future__ import annotations

import pytest

from ascend_runner.problems import RankTableFormatError
from ascend_runner.rank_table.model import Device, RankTable, Server


@pytest.mark.parametrize(
    ("ranks", "sentence"),
    [
        ((0, 0), "duplicate rank_id 0"),
        ((0, 2), "rank_id is 2, expected 0 to 1 (one per device)"),
        ((-1, 0), "rank_id is -1, expected 0 to 1 (one per device)"),
    ],
)
def test_ranks_must_be_0_to_n_minus_1(ranks: tuple[int, ...], sentence: str) -> None:
    """A table whose ranks are not 0 to n-1, each once, cannot be built."""
    devices = tuple(Device(device_id=device_id, rank_id=rank) for device_id, rank in enumerate(ranks))
    with pytest.raises(RankTableFormatError) as caught:
        RankTable(servers=(Server(server_id="a", devices=devices),))

    assert [sentence] == [problem.sentence for problem in caught.value.problems]


def test_ids_must_be_unique() -> None:
    """A duplicate server_id, or device_id on one server, is an error, and all errors are reported."""
    devices = (Device(device_id=3, rank_id=0), Device(device_id=3, rank_id=1))
    with pytest.raises(RankTableFormatError) as caught:
        RankTable(servers=(Server(server_id="a", devices=devices), Server(server_id="a", devices=())))

    assert ["duplicate server_id 'a'", "duplicate device_id 3 on server 'a'"] == [
        problem.sentence for problem in caught.value.problems
    ]
