"""The table of one machine, from its devices and their addresses.

Addresses come from hccn.conf, and from hccn_tool for devices that are missing there. Pure: `machine` does the reading.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ascend_runner.errors import RankTableError
from ascend_runner.rank_table.model import Device, Server
from ascend_runner.rank_table.table import RankTable
from ascend_runner.text import parse_numbers

MOST_DEVICES: Final = 1024  # far more than any machine has, so that a typing error cannot exhaust the memory
ADDRESS_LINE: Final = re.compile(r"\s*address_(\d{1,4})\s*=\s*(\S+)\s*", re.ASCII)
TOOL_LINE: Final = re.compile(r"\s*ipaddr\s*:\s*(\S+)\s*", re.ASCII)


def parse_devices(text: str) -> tuple[int, ...]:
    """Parse device ids like "0-7" or "0,2,4-6"; their order is kept.

    Raises:
        ValueError: The text is not a list of different device ids.
    """
    found = parse_numbers(text)
    if len(found) > MOST_DEVICES:
        raise ValueError(f"too many devices: {len(found)}, expected at most {MOST_DEVICES}")
    twice = next((number for number, count in Counter(found).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"duplicate device id {twice}")

    return found


def parse_conf(text: str) -> dict[int, str]:
    """Parse the address of each device in hccn.conf; other lines are ignored."""
    matches = (ADDRESS_LINE.fullmatch(line) for line in text.splitlines())

    return {int(match[1]): match[2] for match in matches if match}


def parse_tool(text: str) -> str:
    """Parse the address that `hccn_tool -i N -ip -g` prints; "" where there is none."""
    return next((match[1] for match in map(TOOL_LINE.fullmatch, text.splitlines()) if match), "")


def make_table(
    server_id: str,
    devices: Sequence[int] | None,
    conf: Mapping[int, str],
    ask_tool: Callable[[Sequence[int]], Mapping[int, str]],
) -> tuple[RankTable, tuple[int, ...]]:
    """Return the table of one machine, ranks in the order of the devices, and the devices without an address.

    `devices` None means those of `conf`. `ask_tool` returns the addresses of devices as far as hccn_tool has them.

    Raises:
        RankTableError: There is no device.
    """
    chosen = tuple(sorted(conf)) if devices is None else tuple(devices)
    if not chosen:
        raise RankTableError("no devices found in hccn.conf or /dev; use --devices to name them")

    unknown = [device_id for device_id in chosen if device_id not in conf]
    addresses = {**conf, **(ask_tool(unknown) if unknown else {})}
    ranks = tuple(
        Device(device_id=device_id, device_ip=addresses.get(device_id, ""), rank_id=rank_id)
        for rank_id, device_id in enumerate(chosen)
    )
    table = RankTable(servers=(Server(server_id=server_id, devices=ranks),))

    return table, tuple(device.device_id for device in ranks if not device.device_ip)
