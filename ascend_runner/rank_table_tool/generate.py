"""The table of this machine: its devices, their addresses from hccn.conf or else hccn_tool, and its own address."""

from __future__ import annotations

import re
import shutil
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ascend_runner.errors import RankTableError, UnreadableError, reason
from ascend_runner.host import bounded
from ascend_runner.rank_table.model import RankTable
from ascend_runner.rank_table.parts import Device, Server
from ascend_runner.rank_table_tool import files
from ascend_runner.text import parse_numbers

MOST_DEVICES: Final = 1024  # far more than any machine has, so that a typo cannot exhaust memory
ADDRESS_LINE: Final = re.compile(r"\s*address_(\d{1,4})\s*=\s*(\S+)\s*", re.ASCII)
TOOL_LINE: Final = re.compile(r"\s*ipaddr\s*:\s*(\S+)\s*", re.ASCII)
HCCN_TOOLS: Final = ("hccn_tool", "/usr/local/Ascend/driver/tools/hccn_tool")
TOOL_TIMEOUT: Final = 10.0  # seconds; it asks the driver, which may hang
# An address of a documentation network (RFC 5737). Nothing is sent: connecting a datagram socket only selects a route.
ANYWHERE: Final = ("192.0.2.1", 9)


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
    """Parse the address that `hccn_tool -i N -ip -g` prints, or return "" if there is none."""
    return next((match[1] for match in map(TOOL_LINE.fullmatch, text.splitlines()) if match), "")


def read_conf(path: str, warn: Callable[[str], None]) -> dict[int, str]:
    """Read the addresses of devices in hccn.conf; a missing file is only a warning.

    Raises:
        UnreadableError: The file cannot be read.
    """
    try:
        text = files.read_file(path).decode("utf-8-sig", errors="replace")
    except FileNotFoundError:
        warn(f"{path}, which has the addresses of devices, does not exist; is it mounted?")
        return {}
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {reason(error)}") from error

    return parse_conf(text)


def ask_hccn_tool(
    devices: Iterable[int],
    warn: Callable[[str], None],
    *,
    tools: Sequence[str] = HCCN_TOOLS,
    timeout: float = TOOL_TIMEOUT,
) -> dict[int, str]:
    """Query hccn_tool for the addresses of devices, until it fails to run or to respond within `timeout` seconds."""
    tool = next(filter(None, map(shutil.which, tools)), None)
    found: dict[int, str] = {}
    for device_id in devices if tool else ():
        try:
            answer = bounded.run([str(tool), "-i", str(device_id), "-ip", "-g"], timeout)
        except OSError as error:
            warn(f"cannot run {tool}: {reason(error)}")
            break
        if answer is None:
            warn(f"{tool} did not respond within {timeout:g} s")
            break
        found[device_id] = parse_tool(answer.stdout)

    return found


def make_table(server_id: str, addresses: Mapping[int, str]) -> RankTable:
    """Return the table of one machine from the addresses of its devices ("": unknown), in the order of their ranks.

    Raises:
        RankTableError: There is no device.
    """
    if not addresses:
        raise RankTableError("no devices found in hccn.conf or /dev; use --devices to specify them")

    devices = tuple(
        Device(device_id=device_id, device_ip=address, rank_id=rank_id)
        for rank_id, (device_id, address) in enumerate(addresses.items())
    )
    return RankTable(servers=(Server(server_id=server_id, devices=devices),))


def own_address() -> str:
    """Return the address by which others reach this machine, or its host name where it has no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ANYWHERE)
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])
