"""Finds the devices and the address of this machine: hccn.conf, hccn_tool and the routes."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Sequence
from typing import Final

from ascend_runner.errors import UnreadableError
from ascend_runner.host import bounded
from ascend_runner.rank_table_tool import files, generate

HCCN_TOOLS: Final = ("hccn_tool", "/usr/local/Ascend/driver/tools/hccn_tool")
TOOL_TIMEOUT: Final = 10.0  # seconds; it asks the driver, which may hang
# An address of a documentation network (RFC 5737). Nothing is sent: connecting a datagram socket only asks the routes.
ANYWHERE: Final = ("192.0.2.1", 9)


def read_conf(path: str, warn: Callable[[str], None]) -> dict[int, str]:
    """Read the addresses of devices in hccn.conf; a missing file is only a warning.

    Raises:
        UnreadableError: The file cannot be read.
    """
    try:
        text = files.read_file(path).decode("utf-8-sig", errors="replace")
    except FileNotFoundError:
        warn(f"{path}, which contains the addresses of devices, does not exist; is it mounted?")
        return {}
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error.strerror}") from error

    return generate.parse_conf(text)


def ask_hccn_tool(
    devices: Sequence[int],
    warn: Callable[[str], None],
    *,
    tools: Sequence[str] = HCCN_TOOLS,
    timeout: float = TOOL_TIMEOUT,
) -> dict[int, str]:
    """Ask hccn_tool for the addresses of devices, until it once fails to run or to answer within `timeout` seconds."""
    tool = next(filter(None, map(shutil.which, tools)), None)
    found: dict[int, str] = {}
    for device_id in devices if tool else ():
        try:
            answer = bounded.run([str(tool), "-i", str(device_id), "-ip", "-g"], timeout)
        except OSError as error:
            warn(f"cannot run {tool}: {error.strerror}")
            break
        if answer is None:
            warn(f"{tool} did not answer within {timeout:g} s")
            break
        found[device_id] = generate.parse_tool(answer.stdout)

    return found


def own_address() -> str:
    """Return the address by which others reach this machine, or its host name where it has no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ANYWHERE)
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])
