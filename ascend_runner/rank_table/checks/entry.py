"""What HCCL would reject, reported before the launch instead of up to half an hour after it.

Pure: a table in, all its problems out. The rules are HCCL's own (hcomm: config.cc, topoinfo_ranktable*.cc,
rank_table_info.cc) and those of CANN's documentation; what only the documentation forbids is a warning. What keeps a
document from being a table at all is found by `invariants`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from ascend_runner.problems import Problem, Severity
from ascend_runner.rank_table.checks import addresses, chips, levels, native, super_pods
from ascend_runner.rank_table.checks.collector import Collector, Table
from ascend_runner.rank_table.dialects.server_list import SUPER_PODS
from ascend_runner.rank_table.fields import shown
from ascend_runner.rank_table.model import Dialect, Server
from ascend_runner.rank_table.problems import BAD_TABLE, BAD_VALUE, error, warning
from ascend_runner.rank_table.table import ParsedTable

LONGEST_SERVER_ID: Final = 64  # bytes
LONGEST_PATH: Final = 4095  # bytes; PATH_MAX less the NUL
LARGEST_FILE: Final = 40 << 20  # bytes
LARGEST_RANK_LIST: Final = 1 << 30  # bytes


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Use:
    """How HCCL is to use a table: what its checks depend on besides the table itself.

    `path` is the file that HCCL is to read, as its ranks will be given it ("": not checked), `size` its bytes, and
    `chip` one of CHIPS (None: only what holds for all). With `is_unconverted`, HCCL reads the document as it is, not
    converted; with `is_roce_wanted`, devices of one server use their network ports, too.
    """

    path: str = ""
    size: int = 0
    chip: str | None = None
    is_unconverted: bool = False
    is_roce_wanted: bool = False


ANY_USE: Final = Use()


def check(table: Table, use: Use = ANY_USE) -> tuple[Problem, ...]:
    """Return what HCCL would reject, and what is odd but works: errors first, each part in document order."""
    collector = Collector(table)
    chip = use.chip or chips.implied_chip(table)
    _check_file(collector, use)
    chips.check_version(collector, chip)
    _check_empty(collector)
    _check_servers(collector, chip)
    if chip == "910":
        chips.check_910(collector)
    if table.dialect is Dialect.RANK_LIST:
        levels.check(collector)
    else:
        addresses.check(collector, chip, is_roce_wanted=use.is_roce_wanted)
    if table.version == SUPER_PODS:
        super_pods.check(collector)
    if use.is_unconverted:
        native.check(collector)

    return _sorted(collector.problems)


def check_parsed(parsed: ParsedTable, use: Use = ANY_USE) -> tuple[Problem, ...]:
    """Return all problems of a document, be it a table or not.

    Where it is not a table, warnings are left out: they may be consequences of the errors.
    """
    found = [*parsed.notes, *check(parsed, attrs.evolve(use, size=parsed.size))]
    if parsed.is_packed and use.is_unconverted:
        sentence = "the table is packed (base64 of gzip), which HCCL cannot read without conversion"
        found.append(warning(sentence, source=parsed.source, code=BAD_TABLE))
    if parsed.problems:
        known = {problem.path for problem in parsed.problems}
        known |= {path.rpartition("[")[0] for path in known if path.endswith("]")}  # an array with an unreadable item
        found = [problem for problem in found if problem.severity is Severity.ERROR and problem.path not in known]
        found += parsed.problems

    return _sorted(found)


def name_problem(path: str) -> str:
    """Return why HCCL would not read a file of this name, "" where it would: the first ".json" must be the end."""
    if path.find(".json") == len(path) - len(".json"):
        return ""

    return f"HCCL cannot read {path}: '.json' must occur once in the path, at its end"


def wants_roce(environ: Mapping[str, str]) -> bool:
    """Whether HCCL is to use the devices' network ports inside a server, so that every device needs an address."""
    return environ.get("HCCL_INTRA_ROCE_ENABLE") == "1"


def _check_file(collector: Collector, use: Use) -> None:
    if use.path and name_problem(use.path):
        collector.problems.append(error(name_problem(use.path), source="", code=BAD_TABLE))
    if len(use.path.encode(errors="surrogateescape")) > LONGEST_PATH:
        collector.error(f"the path of the table is longer than {LONGEST_PATH} bytes", "", BAD_TABLE)

    largest = LARGEST_RANK_LIST if collector.table.dialect is Dialect.RANK_LIST else LARGEST_FILE
    if use.size > largest:
        collector.error(f"the table has {use.size} bytes, but HCCL reads at most {largest}", "", BAD_TABLE)


def _check_empty(collector: Collector) -> None:
    """Check that there are devices. A job without any has a group list; the other dialects exist for HCCL alone."""
    table = collector.table
    if table.devices:
        return

    if table.dialect is Dialect.SERVER_LIST and not table.servers:
        collector.error("server_list is empty, expected at least one server", "server_list", BAD_VALUE)
    elif table.dialect is Dialect.RANK_LIST:
        collector.error("rank_list is empty, expected at least one rank", "rank_list", BAD_VALUE)
    elif table.dialect is not Dialect.SERVER_LIST:
        collector.warning("the table has no devices", "")


def _check_servers(collector: Collector, chip: str | None) -> None:
    for index, server in enumerate(collector.table.servers):
        if server.devices:
            _check_server_id(collector, server)
            _check_device_ids(collector, server, chip)
            _check_ranks(collector, server)
        else:
            # Only a server list can have a server without devices, and its servers are in document order.
            sentence = f"server '{server.server_id}' has no devices"
            collector.error(sentence, f"server_list[{index}].device", BAD_TABLE)


def _check_server_id(collector: Collector, server: Server) -> None:
    if collector.table.dialect is Dialect.RANK_LIST:  # its ids are made of instance ids, which may be longer
        return

    if len(server.server_id.encode(errors="surrogatepass")) > LONGEST_SERVER_ID:
        sentence = f"server_id {shown(server.server_id)} is longer than {LONGEST_SERVER_ID} bytes"
        collector.error(sentence, collector.server_path(server), BAD_TABLE)


def _check_device_ids(collector: Collector, server: Server, chip: str | None) -> None:
    last_device = chips.LAST_DEVICE[chip] if chip else max(chips.LAST_DEVICE.values())
    for device in server.devices:
        if device.device_id > last_device:
            owner = f"the {chip}" if chip else "any chip"
            sentence = f"device_id is {device.device_id}, but the highest on {owner} is {last_device}"
            collector.error(sentence, collector.device_path(device, "device_id"), BAD_VALUE)


def _check_ranks(collector: Collector, server: Server) -> None:
    first, last = server.devices[0].rank_id, server.devices[-1].rank_id
    if last - first != len(server.devices) - 1:
        sentence = (
            f"the ranks {first} to {last} of server '{server.server_id}' are interleaved with those of other servers,"
            " which CANN does not support"
        )
        collector.warning(sentence, collector.server_path(server))


def _sorted(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=_sort_key))


def _sort_key(problem: Problem) -> tuple[bool, list[tuple[int, str]]]:
    """Order problems: errors first, then by path, the numbers in a path as numbers."""
    parts = re.split(r"(\d+)", problem.path)

    return problem.severity is not Severity.ERROR, [(int(part), "") if part.isdigit() else (0, part) for part in parts]
