"""A rank table: what follows from its servers, and lookups."""

from __future__ import annotations

import pytest

from ascend_runner.rank_table.model import Device, RankTable, Server


def _table(*ranks_of_servers: tuple[int, ...]) -> RankTable:
    return RankTable(
        servers=tuple(
            Server(
                server_id=f"10.0.0.{index}",
                devices=tuple(Device(device_id=device_id, rank_id=rank) for device_id, rank in enumerate(ranks)),
            )
            for index, ranks in enumerate(ranks_of_servers)
        )
    )


def test_counts_follow_from_the_lists() -> None:
    """A table counts its ranks and servers."""
    table = _table((0, 1), (2,))

    assert 3 == table.rank_size
    assert 2 == table.server_count


def test_devices_are_in_the_order_of_ranks() -> None:
    """`devices` is ordered by rank, independently of the order of servers."""
    table = _table((2, 3), (0, 1))

    assert [0, 1, 2, 3] == [device.rank_id for device in table.devices]
    assert table.servers[0].devices[1] is table.rank(3)


@pytest.mark.parametrize("rank_id", [-1, 2])
def test_unknown_rank(rank_id: int) -> None:
    """Looking up a rank outside of 0 to n-1 is a LookupError, a negative one too."""
    with pytest.raises(LookupError, match=rf"^rank {rank_id} is out of range, expected 0 to 1$"):
        _table((0, 1)).rank(rank_id)
