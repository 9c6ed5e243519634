"""A table to show to people, without secrets. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from ascend_runner.rank_table.model import RankTable, SuperPod
from ascend_runner.secrets import Masker


def masked(table: RankTable, masker: Masker) -> RankTable:
    """Return a table with every secret masked in the texts that are shown. It is not meant for a job.

    Servers and super-pods keep different names. The notes have been masked already.
    """
    servers = _names((server.server_id for server in table.servers), masker)
    pods = _names((pod.super_pod_id for pod in table.super_pods), masker)
    return attrs.evolve(
        table,
        servers=tuple(
            attrs.evolve(
                server,
                server_id=servers[server.server_id],
                addresses=tuple(map(masker.text, server.addresses)),
                devices=tuple(
                    attrs.evolve(device, device_ip=masker.text(device.device_ip), pod_name=masker.text(device.pod_name))
                    for device in server.devices
                ),
            )
            for server in table.servers
        ),
        super_pods=tuple(
            SuperPod(pods[pod.super_pod_id], tuple(servers.get(name, name) for name in pod.server_ids))
            for pod in table.super_pods
        ),
        version=masker.text(table.version),
        idle_pods=tuple(map(masker.text, table.idle_pods)),
        source=masker.text(table.source),
        errors=(),  # masked addresses are not unique, which would be an error
    )


def _names(names: Iterable[str], masker: Masker) -> dict[str, str]:
    """Mask names that are unique, so that they remain so: "***", "*** (2)"."""
    found: dict[str, str] = {}
    used: set[str] = set()
    for name in names:
        text = masker.text(name)
        found[name] = f"{text} ({len(found) + 1})" if text in used else text
        used.add(found[name])
    return found
