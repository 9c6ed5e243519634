"""Random rank tables, as records and as documents."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ascend_runner.rank_table.model import Device, Dialect, RankTable, Server, SuperPod

# For laws about these: on a busy machine a case may take long, and that is no failure.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Few characters and not all of Unicode, whose table alone takes Hypothesis a second; odd ones among them.
texts = st.text('aZ09-. "\\/\n\x00é码𝄞', max_size=8)
names = st.text('aZ09-. "\\/\n\x00é码𝄞', min_size=1, max_size=8)
numbers = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda values: st.lists(values, max_size=4) | st.dictionaries(texts, values, max_size=4),
    max_leaves=12,
)

# Keys that no dialect defines.
other_keys = st.dictionaries(st.sampled_from(["x_1", "x_2"]), json_values, max_size=2)


@st.composite
def server_list_tables(draw: st.DrawFn) -> RankTable:
    """Draw any table that a server list can express: ranks in any order, super-pods or none, other keys."""
    sizes = draw(st.lists(st.integers(1, 5), max_size=4))
    ranks = iter(draw(st.permutations(range(sum(sizes)))))
    server_ids = draw(st.lists(names, min_size=len(sizes), max_size=len(sizes), unique=True))
    servers = []
    for server_id, size in zip(server_ids, sizes):
        device_ids = draw(st.lists(st.integers(0, 10**17), min_size=size, max_size=size, unique=True))
        devices = [
            Device(device_id=device_id, device_ip=draw(texts), rank_id=next(ranks), extra_keys=draw(other_keys))
            for device_id in device_ids
        ]
        devices.sort(key=lambda device: device.rank_id)
        servers.append(Server(server_id=server_id, devices=tuple(devices), extra_keys=draw(other_keys)))

    pod_ids = draw(st.lists(names, max_size=3))
    pods = tuple(SuperPod(pod_id, tuple(draw(st.lists(texts, max_size=3)))) for pod_id in pod_ids)
    version = draw(st.sampled_from(["1.0", "1.2"]))

    return RankTable(servers=tuple(servers), version=version, super_pods=pods, extra_keys=draw(other_keys))


@st.composite
def rank_list_tables(draw: st.DrawFn) -> RankTable:
    """Draw any table that a rank list can express."""
    sizes = draw(st.lists(st.integers(1, 5), max_size=4))
    instances = draw(st.lists(st.text("abc", min_size=1), min_size=len(sizes), max_size=len(sizes), unique=True))
    servers = []
    first_rank = 0
    for instance, size in zip(instances, sizes):
        device_ids = draw(st.lists(st.integers(0, 64), min_size=size, max_size=size, unique=True))
        level = {"net_layer": 0, "net_instance_id": instance, "rank_addr_list": draw(json_values)}
        devices = [
            Device(
                device_id=device_id,
                rank_id=first_rank + index,
                extra_keys={**draw(other_keys), "level_list": [level], "local_id": index},
            )
            for index, device_id in enumerate(device_ids)
        ]
        servers.append(Server(server_id=instance, devices=tuple(devices)))
        first_rank += size

    return RankTable(servers=tuple(servers), dialect=Dialect.RANK_LIST, version="2.0", extra_keys=draw(other_keys))


@st.composite
def group_list_documents(draw: st.DrawFn) -> dict[str, object]:
    """Draw a completed, consistent group list."""
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


@st.composite
def lab_list_documents(draw: st.DrawFn) -> dict[str, object]:
    """Draw a completed document of the lab form: an instance per device, the ranks in any order, numbers or strings."""
    size = draw(st.integers(0, 8))
    ranks = iter(draw(st.permutations(range(size))))
    write = draw(st.sampled_from([str, int]))
    groups: list[dict[str, object]] = []
    first = 0
    for end in sorted({*draw(st.lists(st.integers(0, size), max_size=2)), size}):
        instances = [
            {
                "devices": [{"device_id": write(device_id), "device_ip": ""}],
                "rank_id": write(next(ranks)),
                "server_id": draw(st.sampled_from("abc")),
            }
            for device_id in range(first, end)
        ]
        servers = {instance["server_id"] for instance in instances}
        counts = {"device_num": len(instances), "server_num": len(servers), "instance_count": len(instances)}
        groups.append({**{key: write(count) for key, count in counts.items()}, "instance_list": instances})
        first = end

    return {"status": "completed", "deploy_mode": "lab", "group_count": write(len(groups)), "group_list": groups}
