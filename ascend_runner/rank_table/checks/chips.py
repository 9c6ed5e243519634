"""The chips that rank tables are for: their names, their limits, and the versions that HCCL reads on each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ascend_runner.rank_table.dialects import rank_list
from ascend_runner.rank_table.dialects.server_list import MISTAKEN, PLAIN, SUPER_PODS
from ascend_runner.rank_table.fields import Document
from ascend_runner.rank_table.model import RankTable
from ascend_runner.rank_table.parts import Dialect
from ascend_runner.text import counted

# The highest device_id of each chip (config.cc), by the names that users know: 910B is the Atlas A2's, A3 the 910_93,
# 950 the A5.
LAST_DEVICE: Final[Mapping[str, int]] = {"910": 7, "910B": 15, "A3": 15, "310P": 31, "950": 64}
CHIPS: Final = tuple(LAST_DEVICE)
# On a 910 the devices 0-3 and 4-7 are two rings: four devices are one ring, or two pairs that face each other.
SETS_OF_4: Final = frozenset(
    frozenset(map(int, digits)) for digits in ("0123", "4567", "0145", "0246", "0347", "1256", "1357", "2367")
)
COUNTS_OF_910: Final = frozenset({1, 2, 4, 8})


def implied_chip(table: RankTable) -> str | None:
    """Return the chip that a table is for, where its version or its chip_info determines it."""
    if table.dialect is Dialect.RANK_LIST:
        return "950"
    if table.version == SUPER_PODS:
        return "A3"

    return "910" if table.extra_keys.get("chip_info") == "910" else None


def chip_of(environ: Mapping[str, str]) -> str | None:
    """Return the chip of CANN's SOC_VERSION ("Ascend910B3"), or None if it is not set or ambiguous."""
    name = environ.get("SOC_VERSION", "").lower().removeprefix("ascend").replace("-", "_")
    for prefix, chip in (("910_93", "A3"), ("310p", "310P"), ("950", "950")):
        if name.startswith(prefix):
            return chip
    if re.match(r"910b\d", name):  # "910b" alone was once the name of a 910
        return "910B"

    return "910" if name in {"910", "910a", "910proa", "910prob", "910premiuma"} else None


def check_version(table: RankTable, found: Document, chip: str | None) -> None:
    """Check that HCCL reads this version on the chip: it selects its parser by the version."""
    version = table.version
    if chip == "950" and version != rank_list.VERSION:
        stated = f"version is '{version}'" if version else f"version is '{PLAIN}' after conversion"
        found.error(f"{stated}, but the 950 requires '{rank_list.VERSION}'", "version")
    elif version == rank_list.VERSION and chip != "950":
        sentence = f"version is '{version}' (950 only), but the {chip} requires '{PLAIN}' or '{SUPER_PODS}'"
        found.error(sentence, "version")
    elif version == SUPER_PODS and chip != "A3":
        sentence = f"version is '{version}' (super-pods of the A3), but the {chip} requires '{PLAIN}'"
        found.warn(sentence, "version")
    elif version in {PLAIN, MISTAKEN} and chip == "A3" and len(table.servers) > 1:
        sentence = f"version is '{version}', but the A3 uses super-pods only with version '{SUPER_PODS}'"
        found.warn(sentence, "version")


def check_910(table: RankTable, found: Document) -> None:
    """Check that all servers have the same number of devices, and sets of devices that the rings of a 910 connect."""
    servers = [server for server in table.servers if server.devices]
    expected = len(servers[0].devices) if servers else 0
    for server in servers:
        path = table.layout.holder(server.devices[0], "server_id")
        device_ids = sorted(device.device_id for device in server.devices)
        count = len(device_ids)
        if count != expected:
            sentence = (
                f"server '{server.server_id}' has {counted(count, 'device')}, but the first server has {expected};"
                " the 910 requires the same number on every server"
            )
            found.error(sentence, path)
        if count == 4 and frozenset(device_ids) not in SETS_OF_4:  # noqa: PLR2004 - see SETS_OF_4
            listed = ", ".join(map(str, device_ids))
            sentence = f"server '{server.server_id}' has devices {listed}, which do not form a ring on the 910"
            found.error(sentence, path)
        elif count not in COUNTS_OF_910:
            sentence = f"server '{server.server_id}' has {count} devices, expected 1, 2, 4 or 8 on the 910"
            found.warn(sentence, path)
