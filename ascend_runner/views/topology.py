"""The rank table as a picture on the page: super-pods, servers and devices with the states of their ranks. Pure.

A server is a card, a device a cell with its rank, in the order of device ids. The more cells there are, the less text
each has; beyond a few hundred, a server is one tile, since the other sections of a page take space as well. Colors are
from the page's style, lengths are in the picture's own units (pixels at 100 %).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil, sqrt
from operator import attrgetter
from typing import Final

import attrs

from ascend_runner.rank_table.dialects import dialect_of, size_of
from ascend_runner.rank_table.model import Device, RankTable, Server
from ascend_runner.record.rank_record import RankRecord
from ascend_runner.text import format_numbers, printable
from ascend_runner.views.page_ranks import CAUSE, kind_of

MOST_TILES: Final = 1024  # servers
FAILED: Final = "failed"
OTHER: Final = "other"
ELSEWHERE: Final = "elsewhere"
SHAPES: Final = {CAUSE: "Filled", FAILED: "Thick outline", OTHER: "Thin outline", ELSEWHERE: "Plain"}
DECISIVE: Final = (CAUSE, FAILED)  # the classes of ranks that determine the class of a tile, the first one most

TITLE: Final = "Rank table"
MARGIN: Final = 28
GAP: Final = 14  # between cards
PADDING: Final = 10  # inside a card or a super-pod
CELL_GAP: Final = 4
LINE_GAP: Final = 6
SHAPE: Final = 1.5  # width of the picture over its height, as far as cards allow
LEAST_TITLE: Final = 18  # size of type
NAME_GAP: Final = 7  # between a name and the cells below it
MOST_COLUMNS: Final = 8  # columns of cells on a card
RADII: Final = {"pod": 10, "card": 8}  # of the corners of boxes; cells have smaller ones
ADVANCE: Final = 0.62  # width of a monospaced or bold character over its size, an overestimate


@attrs.frozen
class Topology:
    """The picture, in SVG with its texts escaped, and the sentences of its legend, none if all ranks look the same."""

    picture: str
    legend: tuple[str, ...]


def draw(
    table: RankTable | None, ranks: Sequence[RankRecord], marks: Mapping[int, str], masked: Callable[[str], str] = str
) -> Topology | None:
    """Return the topology of a job, or None without a table or with too many servers.

    `marks` may be of ranks that are not among `ranks`; all others of the table are on other nodes. `masked` masks
    secrets in names.
    """
    kinds = {rank.rank_id: kind_of(rank, marks) for rank in ranks if rank.rank_id >= 0}
    if table is None or table.server_count > MOST_TILES or not kinds:
        return None
    kinds |= dict.fromkeys(marks, CAUSE)
    everywhere = {device.rank_id for device in table.devices}
    meanings = {
        CAUSE: ", ".join(dict.fromkeys(mark for rank_id, mark in marks.items() if rank_id in everywhere)),
        FAILED: "failed",
        OTHER: "other ranks",
        ELSEWHERE: "ranks of other nodes",
    }
    shown = {kinds.get(rank_id, ELSEWHERE) for rank_id in everywhere}
    shapes = {kind if kind in meanings else OTHER for kind in shown}
    legend = (f"{SHAPES[kind]}: {meaning}." for kind, meaning in meanings.items() if kind in shapes)
    return Topology(picture(table, kinds, masked), tuple(legend) if len(shapes) > 1 else ())


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
)
TILE: Final = Scale(most_devices=1 << 30, width=96, height=22, name=11, rank=11)


@attrs.frozen(kw_only=True)
class Sheet:
    """The settings that all parts of one picture share."""

    table: RankTable
    kinds: Mapping[int, str]  # classes of cells, by rank
    masked: Callable[[str], str]
    scale: Scale
    cells: int  # columns of cells on a card
    cards: int = 1  # columns of cards

    @property
    def card_width(self) -> int:
        """The width of every card."""
        return TILE.width if self.scale is TILE else 2 * PADDING + self.cells * (self.scale.width + CELL_GAP) - CELL_GAP

    @property
    def gap(self) -> int:
        """The space between cards."""
        return CELL_GAP if self.scale is TILE else GAP

    @property
    def width(self) -> int:
        """The width of a row of cards."""
        return self.cards * (self.card_width + self.gap) - self.gap

    def shown(self, name: str) -> str:
        """Return a name without secrets and unprintable characters."""
        return printable(self.masked(name))


def picture(table: RankTable, kinds: Mapping[int, str], masked: Callable[[str], str] = str) -> str:
    """Return the picture of a table, with `kinds` as the classes of some ranks; equal tables give equal pictures."""
    sheet = _plan(table, kinds, masked)
    frame = 2 * PADDING if table.super_pods else 0
    width = 2 * MARGIN + sheet.width + frame
    size = max(LEAST_TITLE, width // 90)
    small = round(size * 0.75)
    each = "tile is a server with its ranks" if sheet.scale is TILE else "cell is a device with its rank"
    about = f"{sheet.shown(dialect_of(table))}: {size_of(table)}"
    head = (TITLE, about, f"each {each}")
    widest = max(len(TITLE) * size, *(len(line) * small for line in head[1:]))
    parts: list[str] = []
    y = MARGIN
    for line, line_size, style in zip(head, (size, small, small), "bff"):
        y += line_size
        parts.append(_text(MARGIN, y, line, line_size, style))
        y += LINE_GAP
    y += size // 2
    for name, servers in _boxes(table):
        drawn, height = _draw_box(sheet, name, servers, y) if frame else _draw_cards(sheet, servers, MARGIN, y)
        parts += drawn
        y += height + GAP

    width, height = max(width, 2 * MARGIN + ceil(widest * ADVANCE)), y - GAP + MARGIN
    box = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img">'
    return "\n".join((opening, f"<title>{TITLE}: {size_of(table)}</title>", *parts, "</svg>\n"))


def _plan(table: RankTable, kinds: Mapping[int, str], masked: Callable[[str], str]) -> Sheet:
    """Choose the sizes and the number of columns, so that the picture is neither too wide nor too high."""
    scale = next((scale for scale in SCALES if table.rank_size <= scale.most_devices), TILE)
    most = max((len(server.devices) for server in table.servers), default=1)
    sheet = Sheet(table=table, kinds=kinds, masked=masked, scale=scale, cells=min(max(most, 1), MOST_COLUMNS))
    total_height = sum(_card_height(sheet, server) + sheet.gap for server in table.servers)
    wanted = max(1, round(sqrt(SHAPE * total_height / (sheet.card_width + sheet.gap))))
    boxes = [len(servers) for _, servers in _boxes(table)]

    def fill(cards: int) -> tuple[int, int]:
        return sum(-servers % cards for servers in boxes), abs(cards - wanted)

    # One column more or less is fine for the shape if it leaves no row half empty.
    cards = min(range(max(1, wanted - 1), wanted + 3), key=fill)
    return attrs.evolve(sheet, cards=max(1, min(cards, max(boxes, default=1))))


def _boxes(table: RankTable) -> list[tuple[str, list[Server]]]:
    """Return the servers of each super-pod, and then the others."""
    if not table.super_pods:
        return [("", list(table.servers))]
    pod_of = {server_id: pod.super_pod_id for pod in table.super_pods for server_id in pod.server_ids}
    boxes: dict[str, list[Server]] = {pod.super_pod_id: [] for pod in table.super_pods}
    alone: list[Server] = []
    for server in table.servers:
        boxes.get(pod_of.get(server.server_id, ""), alone).append(server)
    named = [(f"super-pod {pod_id}", servers) for pod_id, servers in boxes.items() if servers]
    return [*named, ("no super-pod", alone)] if alone else named


def _draw_box(sheet: Sheet, name: str, servers: Sequence[Server], y: int) -> tuple[list[str], int]:
    """Draw a super-pod around its servers."""
    head = sheet.scale.name + PADDING
    cards, cards_height = _draw_cards(sheet, servers, MARGIN + PADDING, y + head + PADDING)
    height = head + cards_height + 2 * PADDING
    frame = _box(MARGIN, y, sheet.width + 2 * PADDING, height, "pod")
    title = _text(MARGIN + PADDING, y + head, sheet.shown(name), sheet.scale.name, "b")
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
    yield _box(x, y, sheet.card_width, _card_height(sheet, server), "card")
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
    name, size = sheet.shown(name), sheet.scale.name - (2 if "f" in style else 0)
    fitting = _fitted(name, size, sheet.card_width - 2 * PADDING)
    written = _text(x, y, fitting, size, style)
    return written if fitting == name else _hinted(name, written)


def _draw_cell(sheet: Sheet, device: Device, x: int, y: int) -> str:
    scale, address = sheet.scale, sheet.shown(device.device_ip)
    lines = [(str(device.rank_id), scale.rank, "bcm")]
    if scale.device:
        lines.append((f"{'device ' if scale.address else 'd'}{device.device_id}", scale.device, "cm"))
    if scale.address and address:
        lines.append((address, scale.address, "cfm"))

    parts = [_draw_rank(sheet, device.rank_id, x, y)]
    # Digits have no descenders, so their base line may be a little below the middle.
    base = y + (scale.height - sum(size + 3 for _, size, _ in lines)) / 2
    for content, size, style in lines:
        fitting = _fitted(content, size, scale.width - 4)
        parts.append(_text(x + scale.width / 2, round(base + size), fitting, size, style))
        base += size + 3
    return _hinted(f"rank {device.rank_id}: device {device.device_id}{f', {address}' if address else ''}", *parts)


def _draw_tile(sheet: Sheet, server: Server, x: int, y: int) -> str:
    rank_ids = [device.rank_id for device in server.devices]
    ranks = format_numbers(rank_ids) or "no devices"
    kinds = {sheet.kinds.get(rank_id, ""): rank_id for rank_id in reversed(rank_ids)}
    decisive = next((kinds[kind] for kind in DECISIVE if kind in kinds), min(rank_ids, default=-1))
    tile = _draw_rank(sheet, decisive, x, y)
    content = _fitted(ranks, TILE.rank, TILE.width - 6)
    label = _text(x + TILE.width / 2, y + TILE.height - 7, content, TILE.rank, "cm")
    return _hinted(f"{sheet.shown(server.server_id)}: {ranks}", tile, label)


def _draw_rank(sheet: Sheet, rank_id: int, x: int, y: int) -> str:
    return _box(x, y, sheet.scale.width, sheet.scale.height, sheet.kinds.get(rank_id, ELSEWHERE))


def _text(x: float, y: float, content: str, size: int, style: str) -> str:
    """Return a text with its base line at `y`. Each letter of `style` is a class in the style of the page."""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" class="{" ".join(style)}">{_escaped(content)}</text>'


def _box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" class="{kind}" rx="{RADII.get(kind, 4)}"/>'


def _hinted(hint: str, *parts: str) -> str:
    """Return some parts with a tooltip."""
    return f"<g><title>{_escaped(hint)}</title>{''.join(parts)}</g>"


def _fitted(content: str, size: int, width: float) -> str:
    """Return a monospaced text, shortened to a width."""
    most = max(1, int(width / (size * ADVANCE)))
    return content if len(content) <= most else f"{content[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def _escaped(content: str) -> str:
    """Escape a text for XML, which allows neither most control characters nor halves of surrogate pairs."""
    allowed = "".join(character if _is_allowed(character) else "\N{REPLACEMENT CHARACTER}" for character in content)
    return allowed.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _is_allowed(character: str) -> bool:
    return character in "\t\n" or (
        character >= " " and not "\ud800" <= character <= "\udfff" and character not in "\ufffe\uffff"
    )
