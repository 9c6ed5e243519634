"""npu-smi, the tool of the NPUs' driver: where it is, and what it prints.

Sources: the reference of npu-smi, and MindCluster's documentation of its output.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

import attrs

from ascend_runner.host import executables
from ascend_runner.host.host import Host

FOLDERS: Final = ("/usr/local/sbin", "/usr/local/bin")  # the driver's, and where containers mount it
HEALTHY: Final = "OK"

# Of `npu-smi info`: "| 0     910B3    | OK     | 93.6    38 ..." and below it "| 0     4   | 0000:C1:00.0 | ...": card,
# health, power and temperature, then chip and, if the cards have several, the physical id of the device.
_DEVICE: Final = re.compile(
    r"^\|\s*(?P<card>\d+)\s+(?P<name>\S+)\s*\|\s*(?P<health>[A-Za-z]+)\s*\|(?: *\S+ +(?P<temperature>\d+) )?.*"
    r"(?:\n\|\s*(?P<chip>\d+)(?:\s+(?P<id>\d+))?\s*\|)?",
    re.MULTILINE,
)
_PROCESS: Final = re.compile(r"^\|\s*(\d+)\s+\d+\s*\|\s*(\d+)\s*\|\s*(\S+)", re.MULTILINE)  # "| 0   0  | 4711 | python"


@attrs.frozen(kw_only=True)
class Device:
    """An NPU in npu-smi's table. `device_id` is its id in /dev, `temperature` in degrees Celsius (None: unknown)."""

    card: int
    chip: int
    device_id: int
    name: str
    health: str
    temperature: int | None


def find(host: Host, environ: Mapping[str, str]) -> str:
    """Return the path of npu-smi, or "" if it is not installed."""
    search_path = environ.get("PATH", os.defpath).split(os.pathsep)
    return executables.find_tool("npu-smi", (*search_path, *map(host.path, FOLDERS)))


def devices(table: str) -> list[Device]:
    """Parse the table of `npu-smi info`. The list is empty if the table has an unknown form."""
    return [
        Device(
            card=int(row["card"]),
            chip=int(row["chip"] or 0),
            device_id=int(row["id"] or row["card"]),
            name=row["name"],
            health=row["health"],
            temperature=int(row["temperature"]) if row["temperature"] else None,
        )
        for row in _DEVICE.finditer(table)
    ]


def processes(table: str) -> list[tuple[str, str, str]]:
    """Parse the table of `npu-smi info`: the card, the pid and the name of each process."""
    return _PROCESS.findall(table)
