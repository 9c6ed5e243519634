"""What HCCL will refuse, said before the launch instead of up to half an hour after it.

Pure: takes a table, gives findings, all of them. The rules are HCCL's own (hcomm: config.cc, topoinfo_ranktable*.cc,
rank_table_info.cc) and those of CANN's documents; where a document forbids what the code takes, it is a warning.
What keeps a document from being a table at all is told by `invariants`; this is about the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ascend_runner.rank_table import check_addresses, check_levels, check_native, check_super_pods, rank_list
from ascend_runner.rank_table.fields import counted, shown
from ascend_runner.rank_table.findings import BAD_TABLE, BAD_VALUE, ERROR, WARNING, Finding
from ascend_runner.rank_table.model import RANK_LIST, SERVER_LIST
from ascend_runner.rank_table.report import Report
from ascend_runner.rank_table.server_list import MISTAKEN, PLAIN, SUPER_PODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascend_runner.errors import RankTableFormatError
    from ascend_runner.rank_table.codec import Reading
    from ascend_runner.rank_table.model import Draft, RankTable, Server

# The highest device_id of each chip (config.cc), by the names that users give them: 910B is the Atlas A2's, A3 the
# 910_93, 950 the A5.
LAST_DEVICE: Final[Mapping[str, int]] = {"910": 7, "910B": 15, "A3": 15, "310P": 31, "950": 64}
CHIPS: Final = tuple(LAST_DEVICE)
# On a 910 the devices 0-3 and 4-7 are two rings: four devices are one ring, or two pairs that face each other.
SETS_OF_4: Final = frozenset(
    map(
        frozenset,
        (
            (0, 1, 2, 3),
            (4, 5, 6, 7),
            (0, 1, 4, 5),
            (0, 2, 4, 6),
            (0, 3, 4, 7),
            (1, 2, 5, 6),
            (1, 3, 5, 7),
            (2, 3, 6, 7),
        ),
    )
)
COUNTS_OF_910: Final = frozenset({1, 2, 4, 8})
LONGEST_SERVER_ID: Final = 64  # bytes
LONGEST_PATH: Final = 4095  # bytes; PATH_MAX less the NUL
LARGEST_FILE: Final = 40 << 20  # bytes
LARGEST_RANK_LIST: Final = 1 << 30  # bytes


def check(  # noqa: PLR0913  most are keywords, each a fact that HCCL looks at
    table: Draft | RankTable,
    path: str = "",
    chip: str | None = None,
    *,
    size: int = 0,
    as_it_stands: bool = False,
    is_roce_wanted: bool = False,
) -> tuple[Finding, ...]:
    """Tell all that HCCL would refuse, and what is odd but works: errors first, each part in document order.

    `path` is the file that HCCL is to read, as it will be told ("": the file is not looked at), `size` its bytes,
    `chip` one of CHIPS (None: only what holds for all). `as_it_stands` tells what would come of a table that is handed
    to HCCL without being converted; `is_roce_wanted`: devices of one server are to meet by their addresses, too.
    """
    report = Report(table)
    chip = chip or implied_chip(table)
    _check_file(report, path, size)
    _check_version(report, chip)
    _check_servers(report, chip)
    if table.dialect == RANK_LIST:
        check_levels.check(report)
    else:
        check_addresses.check(report, chip, is_roce_wanted=is_roce_wanted)
    if table.version == SUPER_PODS:
        check_super_pods.check(report)
    if as_it_stands:
        check_native.check(report)

    return tuple(sorted(report.findings, key=_rank_of))


def check_reading(
    reading: Reading,
    path: str = "",
    chip: str | None = None,
    *,
    as_it_stands: bool = False,
) -> tuple[Finding, ...]:
    """Tell all that is to be said about a document, be it a table or not; the parameters are those of `check`.

    Where the document is no table, warnings are left out: they could be the consequence of what is wrong.
    """
    draft = reading.draft
    found = [*draft.notes, *check(draft, path, chip, size=reading.size, as_it_stands=as_it_stands)]
    if reading.is_packed and as_it_stands:
        sentence = "the table is packed (base64 of gzip): unconverted, HCCL cannot read it"
        found.append(Finding(severity=WARNING, sentence=sentence, source=draft.source, code=BAD_TABLE))
    if reading.problems:
        told = {problem.path for problem in reading.problems}
        told |= {path.rpartition("[")[0] for path in told if path.endswith("]")}  # an array that lost an item
        found = [finding for finding in found if finding.severity == ERROR and finding.path not in told]
        found += [_as_finding(problem) for problem in reading.problems]

    return tuple(sorted(found, key=_rank_of))


def name_problem(path: str) -> str:
    """Say why HCCL would not read a file of this name; "" where it would. It wants the first ".json" to be the end."""
    if path.find(".json") == len(path) - len(".json"):
        return ""

    return f"HCCL would not read {path}: '.json' must stand once in its path, at the end"


def implied_chip(table: Draft | RankTable) -> str | None:
    """Tell the chip that a table is for, where its version or its chip_info says so."""
    if table.dialect == RANK_LIST:
        return "950"
    if table.version == SUPER_PODS:
        return "A3"

    return "910" if table.more.get("chip_info") == "910" else None


def chip_of(environ: Mapping[str, str]) -> str | None:
    """Tell the chip that CANN's SOC_VERSION names ("Ascend910B3"); None where it is not set, or could be two."""
    name = environ.get("SOC_VERSION", "").lower().removeprefix("ascend").replace("-", "_")
    for prefix, chip in (("910_93", "A3"), ("310p", "310P"), ("950", "950")):
        if name.startswith(prefix):
            return chip
    if re.match(r"910b\d", name):  # "910b" alone was a 910 once
        return "910B"

    return "910" if name in {"910", "910a", "910proa", "910prob", "910premiuma"} else None


def wants_roce(environ: Mapping[str, str]) -> bool:
    """Tell whether HCCL is told to use the devices' network cards inside of a server, which then need addresses."""
    return environ.get("HCCL_INTRA_ROCE_ENABLE") == "1"


def _check_file(report: Report, path: str, size: int) -> None:
    if path and name_problem(path):
        report.add(ERROR, name_problem(path), "", BAD_TABLE)
    if len(path.encode(errors="surrogateescape")) > LONGEST_PATH:
        report.add(ERROR, f"the path of the table has more than {LONGEST_PATH} bytes", "", BAD_TABLE)

    largest = LARGEST_RANK_LIST if report.table.dialect == RANK_LIST else LARGEST_FILE
    if size > largest:
        sentence = f"the table has {size} bytes, HCCL reads no more than {largest}"
        report.add(ERROR, sentence, "", BAD_TABLE)


def _check_version(report: Report, chip: str | None) -> None:
    """HCCL chooses its parser by the version, and each chip has its own."""
    version = report.table.version
    if chip == "950" and version != rank_list.VERSION:
        becomes = f"version is '{version}'" if version else f"version is '{PLAIN}' once the table is converted"
        report.add(ERROR, f"{becomes}, the 950 needs '{rank_list.VERSION}'", "version", BAD_VALUE)
    elif version == rank_list.VERSION and chip != "950":
        sentence = f"version is '{version}', which only the 950 reads: the {chip} needs '{PLAIN}' or '{SUPER_PODS}'"
        report.add(ERROR, sentence, "version", BAD_VALUE)
    elif version == SUPER_PODS and chip != "A3":
        sentence = f"version is '{version}', which is for super-pods of the A3: the {chip} needs '{PLAIN}'"
        report.add(WARNING, sentence, "version")
    elif version in {PLAIN, MISTAKEN} and chip == "A3" and len(report.table.servers) > 1:
        sentence = f"version is '{version}': the A3 uses its super-pods only with version '{SUPER_PODS}'"
        report.add(WARNING, sentence, "version")


def _check_servers(report: Report, chip: str | None) -> None:
    servers = report.table.servers
    if not report.table.devices:
        _check_empty(report)

    last_device = LAST_DEVICE[chip] if chip else max(LAST_DEVICE.values())
    what = f"the {chip}" if chip else "any chip"
    for index, server in enumerate(servers):
        # Only a server list can have a server without devices, and its servers are in the order of the document.
        if not server.devices:
            report.add(ERROR, f"server '{server.server_id}' has no device", f"server_list[{index}].device", BAD_TABLE)
            continue

        # A rank list names no servers: its ids are made of instance ids, which may be longer.
        is_named = report.table.dialect != RANK_LIST
        if is_named and len(server.server_id.encode(errors="surrogatepass")) > LONGEST_SERVER_ID:
            sentence = f"server_id {shown(server.server_id)} has more than {LONGEST_SERVER_ID} bytes"
            report.add_of_server(ERROR, sentence, server, BAD_TABLE)
        for device in server.devices:
            if device.device_id > last_device:
                sentence = f"device_id is {device.device_id}, the highest of {what} is {last_device}"
                report.add_of_device(ERROR, sentence, device, "device_id", BAD_VALUE)
        _check_ranks(report, server)

    if chip == "910":
        _check_even(report)
        _check_rings(report)


def _check_empty(report: Report) -> None:
    """Tell of a table without devices. A job without any has a group list; the other dialects exist for HCCL alone."""
    if report.table.dialect == SERVER_LIST and not report.table.servers:
        report.add(ERROR, "server_list is empty, expected at least one server", "server_list", BAD_VALUE)
    elif report.table.dialect == RANK_LIST:
        report.add(ERROR, "rank_list is empty, expected at least one rank", "rank_list", BAD_VALUE)
    elif report.table.dialect != SERVER_LIST:
        report.add(WARNING, "the table has no device", "")


def _check_ranks(report: Report, server: Server) -> None:
    first, last = server.devices[0].rank_id, server.devices[-1].rank_id
    if last - first != len(server.devices) - 1:
        sentence = f"the ranks {first} to {last} of server '{server.server_id}' have other servers' between them"
        report.add_of_server(WARNING, f"{sentence}, which CANN does not support", server)


def _check_even(report: Report) -> None:
    servers = [server for server in report.table.servers if server.devices]
    expected = len(servers[0].devices) if servers else 0
    for server in servers:
        if len(server.devices) != expected:
            sentence = (
                f"server '{server.server_id}' has {counted(len(server.devices), 'device')}, the first server has"
                f" {expected}: on the 910 every server needs as many"
            )
            report.add_of_server(ERROR, sentence, server, BAD_VALUE)


def _check_rings(report: Report) -> None:
    for server in report.table.servers:
        device_ids = sorted(device.device_id for device in server.devices)
        listed = ", ".join(map(str, device_ids))
        if len(device_ids) == 4 and frozenset(device_ids) not in SETS_OF_4:  # noqa: PLR2004 - see SETS_OF_4
            sentence = f"server '{server.server_id}' has the devices {listed}, which no ring of the 910 joins"
            report.add_of_server(ERROR, sentence, server, BAD_VALUE)
        elif len(device_ids) not in COUNTS_OF_910 and device_ids:
            sentence = f"server '{server.server_id}' has {len(device_ids)} devices, on the 910 one has 1, 2, 4 or 8"
            report.add_of_server(WARNING, sentence, server)


def _as_finding(problem: RankTableFormatError) -> Finding:
    return Finding(
        severity=ERROR,
        sentence=problem.sentence,
        path=problem.path,
        source=problem.source,
        code=problem.code,
    )


def _rank_of(finding: Finding) -> tuple[bool, list[tuple[int, str]]]:
    """Order findings: errors first, then by place, the numbers in a path as numbers."""
    parts = re.split(r"(\d+)", finding.path)

    return finding.severity != ERROR, [(int(part), "") if part.isdigit() else (0, part) for part in parts]
