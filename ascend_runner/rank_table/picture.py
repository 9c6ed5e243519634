"""A table as a picture (SVG): super-pods, servers, devices and their ranks.

A server is a card, a device a cell with its rank. Cells are in the order of device ids and shaded by rank, so that an
irregular order of ranks is visible at a glance. The more cells there are, the less text each has; beyond some thousands
a server is one tile, as viewers are slow with a picture of 65,536 cells.

Pure: a table in, text out. Lengths are in the picture's own units (pixels at 100 %).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, sqrt
from operator import attrgetter
from typing import Final

import attrs

from ascend_runner.rank_table import svg
from ascend_runner.rank_table.dialects import dialect_of, size_of
from ascend_runner.rank_table.model import Device, RankTable, Server
from ascend_runner.text import format_numbers, printable

MARGIN: Final = 28
GAP: Final = 14  # between cards
PADDING: Final = 10  # inside a card or a super-pod
CELL_GAP: Final = 4
LINE_GAP: Final = 6
SHAPE: Final = 1.5  # width of the picture over its height, as far as cards allow
LEAST_TITLE: Final = 18  # size of type
NAME_GAP: Final = 7  # between a name and the cells below it
MOST_COLUMNS: Final = 8  # columns of cells on a card

CARD: Final = "#f3f5f7"
EDGE: Final = "#d3dae0"
POD: Final = "#fbf8ef"
POD_EDGE: Final = "#dccf9f"
DECISIVE: Final = ("cause", "failed")  # the classes of ranks that determine the class of a tile, the first one most
FIRST: Final = "#b4480a"  # the outline of rank 0
# The shades of the first and the last rank, as red, green and blue: light enough for dark figures on them.
SHADES: Final = ((0xE4, 0xF2, 0xF5), (0x79, 0xB8, 0xC6))


@attrs.frozen(kw_only=True)
class Scale:
    """The sizes of cells. The last four are font sizes; 0: not written."""

    most_devices: int
    width: int
    height: int
    name: int
    rank: int
    device: int = 0
    address: int = 0


SCALES: Final = (
    Scale(most_devices=32, width=112, height=72, name=14, rank=24, device=11, address=11),
    Scale(most_devices=256, width=48, height=44, name=13, rank=16, device=10),
    Scale(most_devices=4096, width=34, height=23, name=12, rank=12),
)
MOST_CELLS: Final = SCALES[-1].most_devices
MOST_CELLS_OF_A_PAGE: Final = 256  # whose other sections take space as well
TILE: Final = Scale(most_devices=1 << 30, width=96, height=22, name=11, rank=11)


@attrs.frozen
class Sheet:
    """The settings that all parts of one picture share."""

    table: RankTable
    scale: Scale
    cells: int  # columns of cells on a card
    cards: int  # columns of cards
    kinds: Mapping[int, str] = {}  # classes of cells, by rank; without any, cells are shaded by rank

    @property
    def card_width(self) -> int:
        """The width of every card."""
        if self.scale is TILE:
            return TILE.width

        return 2 * PADDING + self.cells * (self.scale.width + CELL_GAP) - CELL_GAP

    @property
    def gap(self) -> int:
        """The space between cards."""
        return CELL_GAP if self.scale is TILE else GAP

    @property
    def width(self) -> int:
        """The width of a row of cards."""
        return self.cards * (self.card_width + self.gap) - self.gap


def draw(table: RankTable, title: str, kinds: Mapping[int, str] = {}) -> str:
    """Return the picture of a table; equal tables give equal pictures.

    `kinds` are classes for the cells of some ranks: then the picture has no style of its own, but that of a page.
    """
    sheet = attrs.evolve(_plan(table, MOST_CELLS_OF_A_PAGE if kinds else MOST_CELLS), kinds=kinds)
    frame = 2 * PADDING if table.super_pods else 0
    width = 2 * MARGIN + sheet.width + frame
    size = max(LEAST_TITLE, width // 90)
    small = round(size * 0.75)
    head = (printable(title), f"{dialect_of(table)}: {size_of(table)}", _legend(sheet))
    widest = max(len(head[0]) * size, *(len(line) * small for line in head[1:]))
    parts: list[str] = []
    y = MARGIN
    for line, line_size, style in zip(head, (size, small, small), "bff"):
        y += line_size
        parts.append(svg.text(MARGIN, y, line, line_size, style))
        y += LINE_GAP
    y += size // 2
    for name, servers in _boxes(table):
        drawn, height = _draw_box(sheet, name, servers, y) if frame else _draw_cards(sheet, servers, MARGIN, y)
        parts += drawn
        y += height + GAP

    width = max(width, 2 * MARGIN + ceil(widest * svg.ADVANCE))
    return svg.document(width, y - GAP + MARGIN, f"{title}: {size_of(table)}", parts, has_style=not kinds)


def _plan(table: RankTable, most_cells: int) -> Sheet:
    """Choose the sizes and the number of columns, so that the picture is neither too wide nor too high."""
    scales = SCALES if table.rank_size <= most_cells else ()
    scale = next((scale for scale in scales if table.rank_size <= scale.most_devices), TILE)
    most = max((len(server.devices) for server in table.servers), default=1)
    sheet = Sheet(table, scale, cells=min(max(most, 1), MOST_COLUMNS), cards=1)
    total_height = sum(_card_height(sheet, server) + sheet.gap for server in table.servers)
    wanted = max(1, round(sqrt(SHAPE * total_height / (sheet.card_width + sheet.gap))))
    boxes = [len(servers) for _, servers in _boxes(table)]

    def fill(cards: int) -> tuple[int, int]:
        return sum(-servers % cards for servers in boxes), abs(cards - wanted)

    # One column more or less is fine for the shape if it leaves no row half empty.
    cards = min(range(max(1, wanted - 1), wanted + 3), key=fill)
    return attrs.evolve(sheet, cards=max(1, min(cards, max(boxes, default=1))))


def _boxes(table: RankTable) -> list[tuple[str, list[Server]]]:
    """Return the servers of each super-pod, and then those in none."""
    if not table.super_pods:
        return [("", list(table.servers))]

    pod_of = {server_id: pod.super_pod_id for pod in table.super_pods for server_id in pod.server_ids}
    boxes: dict[str, list[Server]] = {pod.super_pod_id: [] for pod in table.super_pods}
    alone: list[Server] = []
    for server in table.servers:
        boxes.get(pod_of.get(server.server_id, ""), alone).append(server)
    named = [(f"super-pod {pod_id}", servers) for pod_id, servers in boxes.items() if servers]

    return [*named, ("no super-pod", alone)] if alone else named


def _legend(sheet: Sheet) -> str:
    if sheet.kinds:
        return "each tile is a server with its ranks" if sheet.scale is TILE else "each cell is a device with its rank"
    if sheet.scale is TILE:
        return "each tile is a server with its ranks; higher ranks are darker, rank 0 is outlined"

    below = ", its device id" + (" and address" if sheet.scale.address else "") if sheet.scale.device else ""
    order = "" if below else ", by device id"
    return f"each cell is a device{order} with its rank{below}; higher ranks are darker, rank 0 is outlined"


def _draw_box(sheet: Sheet, name: str, servers: Sequence[Server], y: int) -> tuple[list[str], int]:
    """Draw a super-pod around its servers."""
    head = sheet.scale.name + PADDING
    cards, cards_height = _draw_cards(sheet, servers, MARGIN + PADDING, y + head + PADDING)
    width = sheet.width + 2 * PADDING
    height = head + cards_height + 2 * PADDING
    frame = svg.box(MARGIN, y, width, height, **{"class": "pod"}, fill=POD, stroke=POD_EDGE, rx=10)
    title = svg.text(MARGIN + PADDING, y + head, printable(name), sheet.scale.name, "b")

    return [frame, title, *cards], height


def _draw_cards(sheet: Sheet, servers: Sequence[Server], x: int, y: int) -> tuple[list[str], int]:
    parts: list[str] = []
    top = y
    for start in range(0, len(servers), sheet.cards):
        row = servers[start : start + sheet.cards]
        for column, server in enumerate(row):
            parts += _draw_server(sheet, server, x + column * (sheet.card_width + sheet.gap), top)
        top += max(_card_height(sheet, server) for server in row) + sheet.gap

    return parts, max(0, top - sheet.gap - y)


def _card_height(sheet: Sheet, server: Server) -> int:
    if sheet.scale is TILE:
        return TILE.height

    rows = sum(ceil(len(devices) / sheet.cells) for _, devices in _pods(server))
    labels = (len(_pods(server)) if server.pod_names else 0) * (sheet.scale.name + 3)
    return 2 * PADDING + sheet.scale.name + NAME_GAP + labels + rows * (sheet.scale.height + CELL_GAP) - CELL_GAP


def _pods(server: Server) -> list[tuple[str, tuple[Device, ...]]]:
    return [(name, server.devices_of(name)) for name in server.pod_names or ("",)]


def _draw_server(sheet: Sheet, server: Server, x: int, y: int) -> Iterator[str]:
    if sheet.scale is TILE:
        yield _draw_tile(sheet, server, x, y)
        return

    scale = sheet.scale
    yield svg.box(
        x, y, sheet.card_width, _card_height(sheet, server), **{"class": "card"}, fill=CARD, stroke=EDGE, rx=8
    )
    y += PADDING + scale.name
    yield _draw_name(sheet, x + PADDING, y, server.server_id, "bm")
    y += NAME_GAP
    for name, devices in _pods(server):
        if name:
            y += scale.name
            yield _draw_name(sheet, x + PADDING, y - 4, name, "fm")
            y += 3
        for position, device in enumerate(sorted(devices, key=attrgetter("device_id"))):
            row, column = divmod(position, sheet.cells)
            left = x + PADDING + column * (scale.width + CELL_GAP)
            yield _draw_cell(sheet, device, left, y + row * (scale.height + CELL_GAP))
        y += ceil(len(devices) / sheet.cells) * (scale.height + CELL_GAP)


def _draw_name(sheet: Sheet, x: float, y: float, name: str, style: str) -> str:
    """Write a name; if it does not fit on its card, it is shortened and the tooltip has all of it."""
    size = sheet.scale.name - (2 if "f" in style else 0)
    fitting = svg.fitted(printable(name), size, sheet.card_width - 2 * PADDING)
    written = svg.text(x, y, fitting, size, style)

    return written if fitting == name else svg.hinted(name, written)


def _draw_cell(sheet: Sheet, device: Device, x: int, y: int) -> str:
    scale = sheet.scale
    lines = [(str(device.rank_id), scale.rank, "bcm")]
    if scale.device:
        lines.append((f"{'device ' if scale.address else 'd'}{device.device_id}", scale.device, "cm"))
    if scale.address and device.device_ip:
        style = "cfm" if sheet.kinds else "cm"  # a shade may be too dark for faint text
        lines.append((printable(device.device_ip), scale.address, style))

    parts = [_draw_shade(sheet, device.rank_id, x, y)]
    # Digits have no descenders, so their base line may be a little below the middle.
    base = y + (scale.height - sum(size + 3 for _, size, _ in lines)) / 2
    for content, size, style in lines:
        fitting = svg.fitted(content, size, scale.width - 4)
        parts.append(svg.text(x + scale.width / 2, round(base + size), fitting, size, style))
        base += size + 3

    address = f", {device.device_ip}" if device.device_ip else ""
    return svg.hinted(f"rank {device.rank_id}: device {device.device_id}{address}", *parts)


def _draw_tile(sheet: Sheet, server: Server, x: int, y: int) -> str:
    rank_ids = [device.rank_id for device in server.devices]
    ranks = format_numbers(rank_ids) or "no devices"
    kinds = {sheet.kinds.get(rank_id, ""): rank_id for rank_id in reversed(rank_ids)}
    decisive = next((kinds[kind] for kind in DECISIVE if kind in kinds), min(rank_ids, default=-1))
    tile = _draw_shade(sheet, decisive, x, y)
    content = svg.fitted(ranks, TILE.rank, TILE.width - 6)
    label = svg.text(x + TILE.width / 2, y + TILE.height - 7, content, TILE.rank, "cm")

    return svg.hinted(f"{server.server_id}: {ranks}", tile, label)


def _draw_shade(sheet: Sheet, rank_id: int, x: int, y: int) -> str:
    """Draw a cell shaded by the number of its rank; rank 0, at which the others meet, is outlined."""
    if sheet.kinds:
        kind = sheet.kinds.get(rank_id, "elsewhere")
        return svg.box(x, y, sheet.scale.width, sheet.scale.height, **{"class": kind, "fill": CARD, "rx": 4})
    part = max(0, rank_id) / max(1, sheet.table.rank_size - 1)
    fill = "#" + "".join(f"{round(first + (last - first) * part):02x}" for first, last in zip(*SHADES))
    outline = {"stroke": FIRST, "stroke_width": 2} if rank_id == 0 else {}

    return svg.box(x, y, sheet.scale.width, sheet.scale.height, fill=fill, rx=4, **outline)
