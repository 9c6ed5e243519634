"""What each command of `ascend-rank-table` does. Each gives its exit status: 0, or 1 where the answer is a bad one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from ascend_runner.errors import RankTableError, RankTableFormatError
from ascend_runner.linux import npu
from ascend_runner.rank_table import checks, codec, source
from ascend_runner.rank_table.compare import compare_documents, compare_tables
from ascend_runner.rank_table.edit import merge as merge_tables
from ascend_runner.rank_table.edit import subset as subset_of
from ascend_runner.rank_table.fields import shown
from ascend_runner.rank_table.findings import ERROR
from ascend_runner.rank_table_tool import generate as generation
from ascend_runner.rank_table_tool import picture
from ascend_runner.rank_table_tool import show as showing
from ascend_runner.rank_table_tool.files import STANDARD, UnreadableError, name_of, read_bytes, read_table, write_bytes
from ascend_runner.rank_table_tool.words import plain, size_of

if TYPE_CHECKING:
    from argparse import Namespace

    from ascend_runner.rank_table.model import RankTable

FINE: Final = 0
BAD: Final = 1
UNREADABLE: Final = 2
MOST_DIFFERENCES: Final = 100  # said before the rest is counted
HCCN_TOOLS: Final = ("hccn_tool", "/usr/local/Ascend/driver/tools/hccn_tool")
TOOL_TIMEOUT: Final = 10.0  # seconds; it asks the driver, which may hang
# An address of a documentation network (RFC 5737). Nothing is sent: connecting a datagram socket only asks the routes.
ANYWHERE: Final = ("192.0.2.1", 9)


def show(options: Namespace) -> int:
    """Show a table as text, JSON or a picture."""
    table, _ = _read(options.file)
    name = name_of(options.file)
    if options.svg:
        write_bytes(options.svg, picture.draw(table, name).encode())
    if options.json:
        _print(showing.facts_of(table))
    elif not options.svg:
        _print(showing.text_of(table, name, lists_all=options.all))

    return FINE


def validate(options: Namespace) -> int:
    """Tell all findings of some files."""
    chip = options.chip or checks.chip_of(os.environ)

    return max(_validate(path, chip) for path in options.files)


def convert(options: Namespace) -> int:
    """Write a table as HCCL reads it, or as a group list."""
    table, data = _read(options.file)
    converted = codec.dumps_group_list(table) if options.to == "group-list" else codec.hand_on(table, data)
    write_bytes(options.output, converted)
    _tell_written(options.output, table)

    return FINE


def wait(options: Namespace) -> int:
    """Wait until a table is completed."""
    snapshot = source.await_snapshot(options.file, timeout=options.timeout, say=_tell)
    _tell(f"{snapshot.path} is completed: {size_of(snapshot.table)}")

    return FINE


def generate(options: Namespace) -> int:
    """Write this machine's own table."""
    conf = _read_conf(options.hccn_conf)
    devices = options.devices if options.devices is not None or conf else npu.devices()
    server_id = options.server_id or _own_address()
    table, warnings = generation.make_table(server_id, devices, conf, _ask_hccn_tool)
    for warning in warnings:
        _tell(f"warning: {warning}")

    return _write(options.output, table)


def merge(options: Namespace) -> int:
    """Write several tables as one."""
    return _write(options.output, merge_tables([_read(path)[0] for path in options.files]))


def subset(options: Namespace) -> int:
    """Write a part of a table."""
    table, _ = _read(options.file)
    server_ids = options.servers.split(",") if options.servers else None

    return _write(options.output, subset_of(table, server_ids=server_ids, device_ids=options.devices))


def diff(options: Namespace) -> int:
    """Tell what differs between two tables."""
    (first, ours), (second, theirs) = _read(options.first), _read(options.second)
    differences = list(compare_tables(first, second))
    if not differences:
        differences = list(compare_documents(codec.parse(ours), codec.parse(theirs)))
        if not differences:
            return FINE
        _print("both say the same of every rank, but HCCL compares the documents, and these differ\n")

    _print(f"A is {plain(name_of(options.first))}, B is {plain(name_of(options.second))}\n")
    for found in differences[:MOST_DIFFERENCES]:
        what = f"{plain(found.about)}: {plain(found.what)}"
        _print(f"{what} is {_said(found.first)} in A, {_said(found.second)} in B\n")
    if len(differences) > MOST_DIFFERENCES:
        _print(f"and {len(differences) - MOST_DIFFERENCES} more\n")
    return BAD


def _validate(path: str, chip: str | None) -> int:
    name = name_of(path)
    try:
        data = read_bytes(path)
        reading = codec.examine(data, source=name)
    except UnreadableError as error:
        _tell(str(error))
        return UNREADABLE
    except RankTableError as error:
        code = f" ({error.code})" if isinstance(error, RankTableFormatError) and error.code else ""
        _print(f"{ERROR}: {plain(str(error))}{code}\n")
        return BAD

    real = "" if path == STANDARD else os.path.realpath(name)

    findings = checks.check_reading(reading, real, chip, size=len(data), as_it_stands=True)
    for finding in findings:
        code = f" ({finding.code})" if finding.code else ""
        _print(f"{finding.severity}: {plain(str(finding))}{code}\n")
    if not findings:
        _print(f"{name}: nothing found, {size_of(reading.draft.table())}\n")

    return BAD if any(finding.severity == ERROR for finding in findings) else FINE


def _read(path: str) -> tuple[RankTable, bytes]:
    table, data = read_table(path)
    for warning in table.warnings:
        _tell(f"warning: {warning}")

    return table, data


def _write(output: str, table: RankTable) -> int:
    """Write a table that was made here, and tell what HCCL would say of it."""
    path = "" if output == STANDARD else os.path.realpath(output)
    write_bytes(output, codec.dumps(table))
    findings = checks.check(table, path)
    for finding in findings:
        _tell(f"{finding.severity}: {finding}")
    _tell_written(output, table)

    return BAD if any(finding.severity == ERROR for finding in findings) else FINE


def _tell_written(output: str, table: RankTable) -> None:
    if output != STANDARD:
        _tell(f"wrote {output}: {size_of(table)}")


def _said(value: object) -> str:
    if value is None:
        return "missing"

    return f"an array of {len(value)}" if isinstance(value, list) else shown(value)


def _read_conf(path: str) -> dict[int, str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return generation.parse_conf(file.read())
    except FileNotFoundError:
        _tell(f"warning: there is no {path}, where the driver keeps the addresses of devices: is it mounted?")
        return {}
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}") from error


def _ask_hccn_tool(device_id: int) -> str:
    for tool in HCCN_TOOLS:
        try:
            ran = subprocess.run(
                [tool, "-i", str(device_id), "-ip", "-g"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TOOL_TIMEOUT,
                check=False,
            )
        except (FileNotFoundError, PermissionError, subprocess.TimeoutExpired):
            continue
        return generation.parse_tool(ran.stdout.decode(errors="replace"))

    return ""


def _own_address() -> str:
    """Give the address that this machine is known by to others, or its name where it has no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ANYWHERE)
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])


def _print(text: str) -> None:
    sys.stdout.write(text)


def _tell(sentence: str) -> None:
    """Say something besides the answer."""
    sys.stderr.write(f"ascend-rank-table: {plain(sentence)}\n")
    sys.stderr.flush()
