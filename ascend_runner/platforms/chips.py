"""The chips: the names that users know, the devices that each has, and the chip of an environment. Pure.

Apart from the checks of rank tables, because the table of options lists the names and is read at every start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# The highest device_id of each chip (config.cc), by the names that users know: 910B is the Atlas A2's, A3 the 910_93,
# 950 the A5.
LAST_DEVICE: Final[Mapping[str, int]] = {"910": 7, "910B": 15, "A3": 15, "310P": 31, "950": 64}
CHIPS: Final = tuple(LAST_DEVICE)


def chip_of(environ: Mapping[str, str]) -> str | None:
    """Return the chip of CANN's SOC_VERSION ("Ascend910B3"), or None if it is not set or ambiguous."""
    name = environ.get("SOC_VERSION", "").lower().removeprefix("ascend").replace("-", "_")
    for prefix, chip in (("910_93", "A3"), ("310p", "310P"), ("950", "950")):
        if name.startswith(prefix):
            return chip
    if re.match(r"910b\d", name):  # "910b" alone was once the name of a 910
        return "910B"

    return "910" if name in {"910", "910a", "910proa", "910prob", "910premiuma"} else None
