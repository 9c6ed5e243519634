"""Reports before the launch whatever HCCL would reject up to half an hour after it.

Pure: a table in, all its problems out. The rules are HCCL's own (hcomm: config.cc, topoinfo_ranktable*.cc,
rank_table_info.cc) and those of CANN's documentation; what only the documentation forbids is a warning.
`soundness.find_errors` finds what prevents a document from being a table at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from ascend_runner.problems import Problem, Severity
from ascend_runner.rank_table.checks import chips, rank_list, server_list
from ascend_runner.rank_table.codes import BAD_TABLE
from ascend_runner.rank_table.fields import Document, shown
from ascend_runner.rank_table.model import RankTable
from ascend_runner.rank_table.parts import Dialect, Server
from ascend_runner.text import counted

LONGEST_SERVER_ID: Final = 64  # bytes
LONGEST_PATH: Final = 4095  # bytes; PATH_MAX less the NUL
LARGEST_FILE: Final = 40 << 20  # bytes
LARGEST_RANK_LIST: Final = 1 << 30  # bytes
# Limits of HCCL for a group list that it reads itself.
LAST_UNCONVERTED: Final = 7  # device_id, on every chip
AVERAGES: Final = frozenset({1, 2, 4, 8, 16})  # devices per server, lab form
NIC_LOCATION: Final = "para_plane_nic_location"


def check(  # noqa: PLR0913  keywords, of which most callers need few
    table: RankTable,
    *,
    path: str = "",
    size: int = 0,
    chip: str | None = None,
    is_unconverted: bool = False,
    is_roce_wanted: bool = False,
) -> tuple[Problem, ...]:
    """Return errors, which HCCL would reject, then warnings about what is unusual but works; each in document order.

    `path` is the file that HCCL is to read, as its ranks will be given it ("": not checked), `size` its bytes, and
    `chip` one of CHIPS (None: only what holds for all). With `is_unconverted`, HCCL reads the document as it is, not
    converted; with `is_roce_wanted`, devices of one server use their network ports, too.
    """
    found = Document(table.source)
    chip = chip or chips.implied_chip(table)
    _check_file(table, found, path, size)
    chips.check_version(table, found, chip)
    _check_empty(table, found)
    _check_servers(table, found, chip)
    if chip == "910":
        chips.check_910(table, found)
    if table.dialect is Dialect.RANK_LIST:
        rank_list.check(table, found)
    else:
        server_list.check(table, found, chip, is_roce_wanted=is_roce_wanted)
    if is_unconverted:
        _check_unconverted(table, found)

    return _sorted(found.problems)


def check_document(
    table: RankTable, *, path: str = "", chip: str | None = None, is_unconverted: bool = False
) -> tuple[Problem, ...]:
    """Return all problems of a result of `codec.examine`, whether it is a table or not; keywords as for `check`.

    Where it is not a table, warnings are left out: they may be consequences of the errors.
    """
    size = len(table.data)
    found = [*table.notes, *check(table, path=path, size=size, chip=chip, is_unconverted=is_unconverted)]
    if table.errors:
        known = {problem.path for problem in table.errors}
        known |= {path.rpartition("[")[0] for path in known if path.endswith("]")}  # an array with an unreadable item
        found = [problem for problem in found if problem.severity is Severity.ERROR and problem.path not in known]
        found += table.errors

    return _sorted(found)


def name_problem(path: str) -> str:
    """Return why HCCL would not read a file of this name, or "": the first ".json" must be the end of the path."""
    if path.find(".json") == len(path) - len(".json"):
        return ""

    return f"HCCL cannot read {path}: '.json' must occur once in the path, at its end"


def wants_roce(environ: Mapping[str, str]) -> bool:
    """Whether HCCL is to use the devices' network ports inside a server, so that every device needs an address."""
    return environ.get("HCCL_INTRA_ROCE_ENABLE") == "1"


def _check_file(table: RankTable, found: Document, path: str, size: int) -> None:
    if path and name_problem(path):
        found.problems.append(Problem(severity=Severity.ERROR, sentence=name_problem(path), code=BAD_TABLE))
    if len(path.encode(errors="surrogateescape")) > LONGEST_PATH:
        found.error(f"the path of the table is longer than {LONGEST_PATH} bytes", "", BAD_TABLE)

    largest = LARGEST_RANK_LIST if table.dialect is Dialect.RANK_LIST else LARGEST_FILE
    if size > largest:
        found.error(f"the table has {size} bytes, but HCCL reads at most {largest}", "", BAD_TABLE)


def _check_empty(table: RankTable, found: Document) -> None:
    """Check that there are devices. A job without any has a group list; the other dialects exist for HCCL alone."""
    if table.devices:
        return

    if table.dialect is Dialect.RANK_LIST:
        found.error("rank_list is empty, expected at least one rank", "rank_list")
    elif table.dialect is not Dialect.SERVER_LIST:
        found.warn("the table has no devices")
    elif not table.servers:
        found.error("server_list is empty, expected at least one server", "server_list")


def _check_servers(table: RankTable, found: Document, chip: str | None) -> None:
    for index, server in enumerate(table.servers):
        if server.devices:
            _check_server_id(table, found, server)
            _check_device_ids(table, found, server, chip)
            _check_ranks(table, found, server)
        else:
            # Only a server list can have a server without devices, and its servers are in document order.
            sentence = f"server '{server.server_id}' has no devices"
            found.error(sentence, f"server_list[{index}].device", BAD_TABLE)


def _check_server_id(table: RankTable, found: Document, server: Server) -> None:
    if table.dialect is Dialect.RANK_LIST:  # its ids are made of instance ids, which may be longer
        return

    if len(server.server_id.encode(errors="surrogatepass")) > LONGEST_SERVER_ID:
        sentence = f"server_id {shown(server.server_id)} is longer than {LONGEST_SERVER_ID} bytes"
        found.error(sentence, table.layout.holder(server.devices[0], "server_id"), BAD_TABLE)


def _check_device_ids(table: RankTable, found: Document, server: Server, chip: str | None) -> None:
    last_device = chips.LAST_DEVICE[chip] if chip else max(chips.LAST_DEVICE.values())
    for device in server.devices:
        if device.device_id > last_device:
            owner = f"the {chip}" if chip else "any chip"
            sentence = f"device_id is {device.device_id}, but the highest on {owner} is {last_device}"
            found.error(sentence, table.layout.path(device, "device_id"))


def _check_ranks(table: RankTable, found: Document, server: Server) -> None:
    first, last = server.devices[0].rank_id, server.devices[-1].rank_id
    if last - first != len(server.devices) - 1:
        sentence = (
            f"ranks {first} to {last} of server '{server.server_id}' are interleaved with those of other servers,"
            " which CANN does not support"
        )
        found.warn(sentence, table.layout.holder(server.devices[0], "server_id"))


def _check_unconverted(table: RankTable, found: Document) -> None:
    """Check what would happen if HCCL read the document itself.

    Only warn, as the runner and `convert` give HCCL a server list.
    """
    if table.is_packed:
        found.warn("the table is packed (base64 of gzip), which HCCL cannot read without conversion", "", BAD_TABLE)
    if not table.devices or table.dialect not in {Dialect.GROUP_LIST, Dialect.LAB_LIST}:
        return

    if "version" in table.extra_keys:
        stated = shown(table.extra_keys["version"])
        sentence = f"version is {stated}, for which HCCL selects another parser unless the table is converted"
        found.warn(sentence, "version", BAD_TABLE)
    if table.dialect is Dialect.LAB_LIST:
        _check_lab(table, found)
    else:
        _check_cloud(table, found)


def _check_cloud(table: RankTable, found: Document) -> None:
    beyond = next((device for device in table.devices if device.device_id > LAST_UNCONVERTED), None)
    if beyond:
        sentence = f"device_id is {beyond.device_id}, but HCCL accepts at most {LAST_UNCONVERTED} without conversion"
        found.warn(sentence, table.layout.path(beyond, "device_id"), BAD_TABLE)

    by_hccl = sorted(
        ((server.server_id.encode(errors="surrogatepass"), device.device_id), device.rank_id)
        for server in table.servers
        for device in server.devices
    )
    if any(rank_id != expected for expected, (_, rank_id) in enumerate(by_hccl)):
        sentence = (
            "HCCL numbers the ranks differently without conversion (by server_id as text, then device_id); convert the"
            " table on every node or on none"
        )
        found.warn(sentence, "group_list")


def _check_lab(table: RankTable, found: Document) -> None:
    location = table.extra_keys.get(NIC_LOCATION)
    if location != "device":
        sentence = f"{NIC_LOCATION} is {shown(location)}, but HCCL requires 'device' without conversion"
        found.warn(sentence, NIC_LOCATION, BAD_TABLE)

    size = len(table.devices)
    average, rest = divmod(size, len(table.servers))
    if rest or average not in AVERAGES:
        stated = f"{counted(size, 'device')} on {counted(len(table.servers), 'server')}"
        sentence = f"{stated}, but HCCL requires 1, 2, 4, 8 or 16 per server without conversion"
        found.warn(sentence, "group_list", BAD_TABLE)


def _sorted(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=_sort_key))


def _sort_key(problem: Problem) -> tuple[bool, list[tuple[int, str]]]:
    """Order problems: errors first, then by path, the numbers in a path as numbers."""
    parts = re.split(r"(\d+)", problem.path)
    return problem.severity is not Severity.ERROR, [(int(part), "") if part.isdigit() else (0, part) for part in parts]
