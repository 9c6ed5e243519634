"""The parts of a rank table in any dialect: servers, their devices, and their places in the document.

Numbers are numbers here and strings in most documents. Independent of JSON.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs

NO_EXTRA_KEYS: Final[Mapping[str, object]] = MappingProxyType({})


class Dialect(enum.Enum):
    """The dialects of a job's rank table, by their usual names."""

    GROUP_LIST = "group list"
    LAB_LIST = "group list, lab form"
    SERVER_LIST = "server list"
    RANK_LIST = "rank list"


@attrs.frozen(kw_only=True)
class Device:
    """One NPU and the rank that runs on it.

    `device_id` is the physical number (as in /dev/davinciN), `device_ip` the address of its network port: "" where the
    table gives none, several joined by commas where it gives several. `pod_name` is "" in the dialects without pods.
    `extra_keys` are the other keys of the device's entry as in the document (ports, backup addresses, levels).
    `index` is the number of the device's entry in document order, from 0; see Layout.
    """

    device_id: int
    device_ip: str = ""
    rank_id: int
    pod_name: str = ""
    extra_keys: Mapping[str, object] = attrs.field(default=NO_EXTRA_KEYS, hash=False)
    index: int = attrs.field(default=0, eq=False, repr=False)


@attrs.frozen(kw_only=True)
class Server:
    """One server of the table. `devices` are in the order of their ranks.

    Two pods may share a server; `Device.pod_name` tells their devices apart. `addresses` are addresses of the machine
    besides the server_id, which need not be one. `extra_keys` are the other keys of the server's entry.
    """

    server_id: str
    devices: tuple[Device, ...]
    addresses: tuple[str, ...] = attrs.field(default=(), eq=False)
    extra_keys: Mapping[str, object] = attrs.field(default=NO_EXTRA_KEYS, hash=False)

    @property
    def pod_names(self) -> tuple[str, ...]:
        """The pods with devices on this server, in the order of their first rank; () in dialects without pods."""
        return tuple(dict.fromkeys(device.pod_name for device in self.devices if device.pod_name))

    def devices_of(self, pod_name: str) -> tuple[Device, ...]:
        """Return a pod's devices in the order of their ranks; the position of a device is its local index."""
        return tuple(device for device in self.devices if device.pod_name == pod_name)


@attrs.frozen
class SuperPod:
    """A super-pod: servers whose devices are connected by the pod's own fabric."""

    super_pod_id: str
    server_ids: tuple[str, ...]


@attrs.frozen
class Layout:
    """The places of the devices in the document, so that a problem can name its path.

    `lists` are the paths of the lists that hold devices, `firsts` the `Device.index` of the first entry of each.
    A path per device would take more memory than the devices themselves.
    """

    lists: tuple[str, ...] = ()
    firsts: tuple[int, ...] = ()

    def path(self, device: Device, key: str = "") -> str:
        """Return the path of a device's entry, or of a key in it, or "" if the table was not read from a document."""
        position = bisect_right(self.firsts, device.index) - 1
        if position < 0:
            return ""

        entry = f"{self.lists[position]}[{device.index - self.firsts[position]}]"
        return f"{entry}.{key}" if key else entry

    def holder(self, device: Device, key: str = "") -> str:
        """Return the path of the object whose list holds a device, or of a key in it: "server_list[1].server_id"."""
        holder = self.path(device).rpartition("[")[0].rpartition(".")[0]
        return f"{holder}.{key}" if holder and key else holder


NO_LAYOUT: Final = Layout()
