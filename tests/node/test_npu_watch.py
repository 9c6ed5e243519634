"""The figures that `npu-smi info watch` prints, in the layouts of several generations of NPUs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import pytest

from ascend_runner.guardian import process_tree
from ascend_runner.node import npu_smi
from ascend_runner.node.npu_smi import PATIENCE, Figures, NpuWatch, WatchParser
from tests.helpers.npu_tools import fake_npu_smi
from tests.helpers.waiting import wait_until

CAPTURES: Final = Path(__file__).parents[2] / "fixtures" / "npu-smi"
LAYOUTS: Final = {
    "910b": {0: (43, 97, 91), **{card: (43 + card, 0, 91) for card in range(1, 8)}},
    "a3": {die: (36 + die, 10 * die, 5 + die) for die in range(8)},
    "950": {card: (51 + card, 40 + card, 3 + card) for card in range(4)},
    "310p": {chip: (62 + chip, 12 + chip, 4) for chip in range(2)},
}


def capture(layout: str, command: str) -> str:
    """Return what npu-smi prints."""
    return (CAPTURES / f"{layout}-{command}.txt").read_text(encoding="utf-8")


def parsed(text: str, table: str = "") -> dict[int, Figures]:
    """Return the figures by device."""
    parser = WatchParser(npu_smi.devices(table))
    return dict(filter(None, (parser.parse(line, 7.0) for line in text.splitlines())))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    """Temperature, AI core and memory are found by the names of the columns, and belong to the device's id in /dev."""
    found = parsed(capture(layout, "watch"), capture(layout, "info"))

    assert LAYOUTS[layout] == {
        device_id: (one.temperature, one.ai_core, one.memory) for device_id, one in found.items()
    }
    assert {7.0} == {one.at for one in found.values()}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_devices_of_layouts(layout: str) -> None:
    """The table of each layout lists the same devices."""
    assert LAYOUTS[layout].keys() == {one.device_id for one in npu_smi.devices(capture(layout, "info"))}


def test_columns_in_another_order() -> None:
    """Columns may be in any order; a figure that is not available, or absurd, is unknown."""
    text = "Temp(C)  NpuID(Idx)  Memory(%)Memory BW(%)\n-  3  NA  5\n40  4  1e99  5\n"

    assert {3: Figures(at=7.0), 4: Figures(temperature=40, at=7.0)} == parsed(text)


@pytest.mark.parametrize(
    "text", ["", "0 0 1 2\n", "NpuID(Idx) Temp(C)\n1\n", "NpuID(Idx) Temp(C)\nx 4\n", "\0\x1b[2J\n"]
)
def test_lines_without_figures(text: str) -> None:
    """A line without a header above, or with another number of cells, has no figures."""
    assert {} == parsed(text)


def watch(tmp_path: Path, script: str, now: float = 0.0) -> NpuWatch:
    """Start a tool."""
    return NpuWatch(os.path.join(fake_npu_smi(tmp_path, script), "npu-smi"), (), now)


def test_figures_are_read_while_the_tool_runs(tmp_path: Path) -> None:
    """The tool has a terminal, so that it does not buffer, and is ended at the close."""
    script = f'test -t 1 || exit 1\necho $$ > {tmp_path}/pid\necho "NpuID(Idx) Temp(C)"\necho 2 51\nexec sleep 1000'
    tool = watch(tmp_path, script)
    found: dict[int, Figures] = {}
    wait_until(lambda: found.update(tool.read(1.0)) or found)
    pid = int((tmp_path / "pid").read_text())
    tool.close()
    tool.close()

    assert {2: Figures(temperature=51, at=1.0)} == found
    assert {} == tool.read(2.0)
    wait_until(lambda: not process_tree.is_alive(pid))


def test_tool_without_a_line_is_given_up(tmp_path: Path) -> None:
    """A tool that prints nothing for ten seconds is ended."""
    tool = watch(tmp_path, f"echo $$ > {tmp_path}/pid\nexec sleep 1000", now=100.0)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())

    assert {} == tool.read(100.0 + PATIENCE)
    assert process_tree.is_alive(pid)
    assert {} == tool.read(100.1 + PATIENCE)
    wait_until(lambda: not process_tree.is_alive(pid))


def test_tool_ends_with_its_reader(tmp_path: Path) -> None:
    """If the process that reads is killed, its terminal is gone, and the kernel ends the tool."""
    tool = watch(tmp_path, f"echo $$ > {tmp_path}/pid\nexec sleep 1000")
    path = tmp_path / "pid"
    wait_until(lambda: path.exists() and path.read_text().strip())
    os.close(tool._fd)  # noqa: SLF001  what the kernel does for a process that is killed
    wait_until(lambda: not process_tree.is_alive(int(path.read_text())))
    tool._fd = os.open(os.devnull, os.O_RDONLY)  # noqa: SLF001
    tool.close()


def test_flood(tmp_path: Path) -> None:
    """A tool that prints without a pause or a line end is read in bounded pieces."""
    tool = watch(tmp_path, "while :; do printf 1234567890; done")
    began = time.monotonic()
    for _ in range(20):
        assert {} == tool.read(1.0)
    tool.close()

    assert time.monotonic() - began < 60
