"""Random rank tables, as records and as documents."""

from __future__ import annotations

from hypothesis import strategies as st

from ascend_runner.rank_table.model import Device, RankTable, Server

# Few characters and not all of Unicode, whose table alone takes Hypothesis a second; odd ones among them.
texts = st.text('aZ09-. "\\/\n\x00é码𝄞', max_size=8)
names = st.text('aZ09-. "\\/\n\x00é码𝄞', min_size=1, max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda values: st.lists(values, max_size=4) | st.dictionaries(texts, values, max_size=4),
    max_leaves=12,
)


@st.composite
def server_list_tables(draw: st.DrawFn) -> RankTable:
    """Draw any table that a server-list document can say: the ranks in any order."""
    sizes = draw(st.lists(st.integers(1, 5), max_size=4))
    ranks = iter(draw(st.permutations(range(sum(sizes)))))
    server_ids = draw(st.lists(names, min_size=len(sizes), max_size=len(sizes), unique=True))
    servers = []
    for server_id, size in zip(server_ids, sizes):
        device_ids = draw(st.lists(st.integers(0, 10**17), min_size=size, max_size=size, unique=True))
        devices = [Device(device_id=device_id, device_ip=draw(texts), rank_id=next(ranks)) for device_id in device_ids]
        servers.append(Server(server_id=server_id, devices=tuple(sorted(devices, key=lambda device: device.rank_id))))

    return RankTable(servers=tuple(servers))


@st.composite
def group_list_documents(draw: st.DrawFn) -> dict[str, object]:
    """Draw a completed group-list document that holds together."""
    pods = iter(draw(st.lists(names, min_size=9, max_size=9, unique=True)))
    groups = []
    next_id = 0
    for _ in range(draw(st.integers(0, 3))):
        instances = []
        size = 0
        for _ in range(draw(st.integers(0, 3))):
            count = draw(st.integers(0, 3))
            devices = [{"device_id": str(next_id + index), "device_ip": f"192.168.0.{index}"} for index in range(count)]
            instances.append({"pod_name": next(pods), "server_id": draw(st.sampled_from("abc")), "devices": devices})
            next_id += count
            size += count
        groups.append({"device_count": str(size), "instance_count": str(len(instances)), "instance_list": instances})

    return {"status": "completed", "group_count": str(len(groups)), "group_list": groups}
