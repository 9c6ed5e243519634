"""The parts of a rank table, and their places in the document."""

from __future__ import annotations

from ascend_runner.rank_table.model import Device, Layout, Server


def test_pods_of_a_server() -> None:
    """The devices of two pods on one server can be distinguished."""
    devices = [Device(device_id=rank, rank_id=rank, pod_name=f"job-{rank // 2}") for rank in range(4)]
    server = Server(server_id="10.0.0.1", devices=tuple(devices))

    assert ("job-0", "job-1") == server.pod_names
    assert tuple(devices[2:]) == server.devices_of("job-1")


def test_layout_names_the_entry_of_a_device() -> None:
    """The path of a device follows from the paths of the lists and their first indices."""
    layout = Layout(("server_list[0].device", "server_list[2].device"), (0, 8))
    eighth, ninth = (Device(device_id=0, rank_id=0, index=index) for index in (7, 8))

    assert "server_list[0].device[7]" == layout.path(eighth)
    assert "server_list[2].device[0]" == layout.path(ninth)
    assert "server_list[2].device[0].device_ip" == layout.path(ninth, "device_ip")
    assert "server_list[2].server_id" == layout.holder(ninth, "server_id")
    assert not Layout().path(eighth)
