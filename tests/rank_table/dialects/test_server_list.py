"""The server-list dialect."""

from __future__ import annotations

from ascend_runner.rank_table import codec
from ascend_runner.rank_table.model import Device, RankTable, Server
from ascend_runner.rank_table.server_list import encode
from tests.rank_table.rank_table_files import valid


def test_stated_ranks_are_kept() -> None:
    """Servers keep their order, and devices their stated ranks, by which they are ordered."""
    table = codec.loads(valid("server_list_ranks_do_not_rise"))

    assert [("10.0.0.2", [2, 3]), ("10.0.0.1", [0, 1])] == [
        (server.server_id, [device.rank_id for device in server.devices]) for server in table.servers
    ]


def test_numbers_are_rewritten() -> None:
    """HCCL rejects JSON numbers, so such a table is rewritten."""
    table = codec.loads(valid("server_list_integers"), source="a.json")

    sentence = "HCCL requires a string here (ascend-runner corrects it)"

    assert not table.is_native
    assert [(sentence, "server_count")] == [(note.sentence, note.path) for note in table.notes]


def test_encoding_has_the_key_order_of_hccl_and_strings_only() -> None:
    """The document equals what ModelArts' own launcher writes, including the order of keys."""
    devices = (Device(device_id=4, device_ip="192.1.10.254", rank_id=0),)
    servers = (Server(server_id="192.168.0.25", devices=devices),)
    document = encode(RankTable(servers=servers))

    expected = {
        "status": "completed",
        "version": "1.0",
        "server_count": "1",
        "server_list": [
            {
                "server_id": "192.168.0.25",
                "device": [{"device_id": "4", "device_ip": "192.1.10.254", "rank_id": "0"}],
            }
        ],
    }
    assert repr(expected) == repr(document)  # the order of keys too
