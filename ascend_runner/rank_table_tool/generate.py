"""This machine's own table, from what the machine says of its devices.

Addresses come from hccn.conf, and from hccn_tool for what that file does not know. Takes functions for what touches the
machine, so that everything else is pure.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from ascend_runner.errors import RankTableError
from ascend_runner.rank_table.model import Device, RankTable, Server
from ascend_runner.rank_table_tool.words import ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MOST_DEVICES: Final = 1024  # of one machine; far beyond any, it keeps a slip of the finger from filling the memory
ADDRESS_LINE: Final = re.compile(r"\s*address_(\d{1,4})\s*=\s*(\S+)\s*", re.ASCII)
TOOL_LINE: Final = re.compile(r"\s*ipaddr\s*:\s*(\S+)\s*", re.ASCII)
RANGE: Final = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?", re.ASCII)


def parse_devices(text: str) -> tuple[int, ...]:
    """Read device ids like "0-7" or "0,2,4-6"; ValueError with a sentence where that is not what it is."""
    found: list[int] = []
    for part in text.split(","):
        match = RANGE.fullmatch(part.strip())
        if not match:
            raise ValueError(f"{part.strip()!r} is no device and no range of devices like 0-7")

        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"the range {part.strip()} ends before it begins")
        found += range(first, last + 1)
        if len(found) > MOST_DEVICES:
            raise ValueError(f"{len(found)} devices are more than any machine has")
    twice = next((number for number, count in Counter(found).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"device {twice} is there twice")

    return tuple(found)


def parse_conf(text: str) -> dict[int, str]:
    """Read the address of each device from hccn.conf; other lines are passed over."""
    matches = (ADDRESS_LINE.fullmatch(line) for line in text.splitlines())

    return {int(match[1]): match[2] for match in matches if match}


def parse_tool(text: str) -> str:
    """Read the address that `hccn_tool -i N -ip -g` prints; "" where there is none."""
    return next((match[1] for match in map(TOOL_LINE.fullmatch, text.splitlines()) if match), "")


def make_table(
    server_id: str,
    devices: Sequence[int] | None,
    conf: Mapping[int, str],
    ask_tool: Callable[[Sequence[int]], Mapping[int, str]],
) -> tuple[RankTable, tuple[str, ...]]:
    """Make the table of one machine, ranks in the order of the devices, and say what is missing.

    `devices` None means those of `conf`. `ask_tool` gives the addresses of some devices as far as hccn_tool knows them.
    """
    chosen = tuple(sorted(conf)) if devices is None else tuple(devices)
    if not chosen:
        raise RankTableError("there is no device: neither hccn.conf nor /dev names one, and none is given by --devices")

    unknown = [device_id for device_id in chosen if device_id not in conf]
    addresses = {**conf, **(ask_tool(unknown) if unknown else {})}
    missing = [device_id for device_id in unknown if not addresses.get(device_id)]
    warnings = (
        (f"no address is known of device {ranges(missing)}: the table serves on this machine only",) if missing else ()
    )
    table = RankTable(
        servers=(
            Server(
                server_id=server_id,
                devices=tuple(
                    Device(device_id=device_id, device_ip=addresses.get(device_id, ""), rank_id=rank_id)
                    for rank_id, device_id in enumerate(chosen)
                ),
            ),
        )
    )

    return table, warnings
