"""Fakes of npu-smi and hccn_tool: shell scripts that print what the real ones would."""

from __future__ import annotations

from pathlib import Path
from typing import Final

HEAD: Final = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc1                 Version: 24.1.rc1                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
"""
CARD: Final = """\
| {number:<5} {name:<19} | {health:<13} | 93.6        38                0    / 0             |
| 0                         | 0000:0{number}:00.0  | 0           0    / 0          3349 / 65536         |
+===========================+===============+====================================================+
"""
# Two dies per card, with the physical ids of the devices below "Phy-ID".
TWO_DIES: Final = """\
+===========================+===============+====================================================+
| 2     Ascend910           | OK            | 165.6       38                0    / 0             |
| 0     4                   | 0000:9D:00.0  | 0           0    / 0          3164 / 65536         |
+------------------------------------------------------------------------------------------------+
| 2     Ascend910           | Warning       | -           71                0    / 0             |
| 1     5                   | 0000:9F:00.0  | 0           0    / 0          2895 / 65536         |
+===========================+===============+====================================================+
"""
HEALTH: Final = """\
\tHealth Status                  : {health}
\tError Code                     : {codes}
\tError Information              : {information}
"""


def table(*health: str, first: int = 0) -> str:
    """Return the table of `npu-smi info` for cards with this health."""
    cards = (CARD.format(number=number, name="910B3", health=word) for number, word in enumerate(health, first))
    return HEAD + "".join(cards)


def details(health: str, codes: str = "NA", information: str = "NA") -> str:
    """Return the output of `npu-smi info -t health`."""
    return HEALTH.format(health=health, codes=codes, information=information)


def script(info: str, health: str) -> str:
    """Return an npu-smi that prints a table, and details about an NPU that is not OK."""
    return f"if [ \"$2\" = -t ]; then cat <<'X'\n{health}X\nelse cat <<'X'\n{info}X\nfi"


NPU_SMI: Final = script(table("OK", "Alarm", first=4), details("Alarm", "80CB8002,80E24E00", "a sensor"))


def fake_npu_smi(folder: Path, text: str) -> str:
    """Write an npu-smi; return its directory, for PATH."""
    return fake_tool(folder, "npu-smi", text)


def fake_tool(folder: Path, name: str, text: str) -> str:
    """Write a tool as a shell script, which may replace one that is running; return its directory, for PATH."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(f"#!/bin/sh\n{text}\n")
    new.chmod(0o755)
    new.rename(path)
    return str(path.parent)
