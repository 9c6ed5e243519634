"""The records, their invariants and lookups."""

from __future__ import annotations

import pytest

from ascend_runner.problems import RankTableFormatError
from ascend_runner.rank_table.model import Device, Layout, RankTable, Server


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


def test_pods_of_a_server() -> None:
    """The devices of two pods on one server can be told apart."""
    devices = [Device(device_id=rank, rank_id=rank, pod_name=f"job-{rank // 2}") for rank in range(4)]
    server = Server(server_id="10.0.0.1", devices=tuple(devices))

    assert ("job-0", "job-1") == server.pod_names
    assert tuple(devices[2:]) == server.devices_of("job-1")


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
    with pytest.raises(RankTableFormatError) as caught:
        _table(ranks)

    assert [sentence] == [problem.sentence for problem in caught.value.problems]


def test_ids_must_be_unique() -> None:
    """A duplicate server_id, or device_id on one server, is an error, and all errors are reported."""
    devices = (Device(device_id=3, rank_id=0), Device(device_id=3, rank_id=1))
    with pytest.raises(RankTableFormatError) as caught:
        RankTable(servers=(Server(server_id="a", devices=devices), Server(server_id="a", devices=())))

    assert ["duplicate server_id 'a'", "duplicate device_id 3 on server 'a'"] == [
        problem.sentence for problem in caught.value.problems
    ]


def test_layout_names_the_entry_of_a_device() -> None:
    """The path of a device follows from the paths of the lists and their first indices."""
    layout = Layout(("server_list[0].device", "server_list[2].device"), (0, 8))
    eighth, ninth = (Device(device_id=0, rank_id=0, index=index) for index in (7, 8))

    assert "server_list[0].device[7]" == layout.path(eighth)
    assert "server_list[2].device[0]" == layout.path(ninth)
    assert "server_list[2].device[0].device_ip" == layout.path(ninth, "device_ip")
    assert "server_list[2].server_id" == layout.holder(ninth, "server_id")
    assert not Layout().path(eighth)
