"""What each command of `ascend-rank-table` does. Each gives its exit status: 0, or 1 where the answer is a bad one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING, Final

from ascend_runner.errors import RankTableError, RankTableFormatError, SettingsError, UnreadableError
from ascend_runner.linux import npu
from ascend_runner.rank_table import checks, codec, source
from ascend_runner.rank_table.compare import THE_ENTRY, Difference, compare
from ascend_runner.rank_table.edit import merge as merge_tables
from ascend_runner.rank_table.edit import subset as subset_of
from ascend_runner.rank_table.fields import shown
from ascend_runner.rank_table.findings import ERROR
from ascend_runner.rank_table_tool import files, picture
from ascend_runner.rank_table_tool import generate as generation
from ascend_runner.rank_table_tool import show as showing
from ascend_runner.rank_table_tool.files import STANDARD, name_of
from ascend_runner.rank_table_tool.words import plain, size_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from ascend_runner.rank_table.findings import Finding
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
    name = name_of(options.file)
    if options.svg == STANDARD and options.json:
        raise SettingsError("--json and --svg - would both go to standard output: give --svg a file")
    if options.svg and files.identity_of(name) and files.identity_of(name) == files.identity_of(options.svg):
        raise SettingsError(f"--svg {options.svg} is the table itself: the picture needs a file of its own")

    table, _ = _read(options.file)
    if options.svg:
        files.write_bytes(options.svg, picture.draw(table, name).encode())
    if options.json:
        files.say(showing.facts_of(table))
    elif not options.svg:
        files.say(showing.text_of(table, name, lists_all=options.all))

    return FINE


def validate(options: Namespace) -> int:
    """Tell all findings of some files."""
    _refuse_one_input_twice(options.files)

    return max(_validate(path, _chip(options)) for path in options.files)


def convert(options: Namespace) -> int:
    """Write a table as HCCL reads it, or as a group list."""
    table, data = _read(options.file, lists_decide=options.no_checks)
    converted = codec.dumps_group_list(table) if options.to == "group-list" else codec.hand_on(table, data)

    return _write(options, table, converted)


def wait(options: Namespace) -> int:
    """Wait until a table is completed."""
    snapshot = source.await_snapshot(options.file, timeout=options.timeout, say=files.tell)
    files.tell(f"{snapshot.path} is completed: {size_of(snapshot.table)}")

    return FINE


def generate(options: Namespace) -> int:
    """Write this machine's own table."""
    conf = _read_conf(options.hccn_conf)
    devices = options.devices if options.devices is not None or conf else npu.devices()
    server_id = options.server_id or _own_address()
    table, warnings = generation.make_table(server_id, devices, conf, _ask_hccn_tool)
    for warning in warnings:
        files.tell(f"warning: {warning}")

    return _write(options, table, codec.dumps(table))


def merge(options: Namespace) -> int:
    """Write several tables as one."""
    _refuse_one_input_twice(options.files)
    seen: set[tuple[int, int] | None] = set()
    for name in map(name_of, options.files):
        identity = files.identity_of(name)
        if identity in seen:
            raise SettingsError(f"{name} is given twice, and a server cannot be in a table twice")
        seen |= {identity} - {None}

    table = merge_tables([_read(path, lists_decide=options.no_checks)[0] for path in options.files])
    return _write(options, table, codec.dumps(table))


def subset(options: Namespace) -> int:
    """Write a part of a table."""
    whole, _ = _read(options.file, lists_decide=options.no_checks)
    table = subset_of(whole, server_ids=options.servers, device_ids=options.devices)

    return _write(options, table, codec.dumps(table))


def diff(options: Namespace) -> int:
    """Tell what differs between two tables."""
    _refuse_one_input_twice((options.first, options.second))
    (first, ours), (second, theirs) = _read(options.first), _read(options.second)
    if first.dialect != second.dialect:
        files.tell(f"A is a {first.dialect}, B a {second.dialect}: what HCCL is given for each is compared")
        ours, theirs = codec.hand_on(first, ours), codec.hand_on(second, theirs)
        first, second = codec.loads(ours, source=first.source), codec.loads(theirs, source=second.source)

    differences = list(compare(first, codec.parse(ours), second, codec.parse(theirs)))
    if not differences:
        return FINE

    files.say(f"A is {plain(name_of(options.first))}, B is {plain(name_of(options.second))}\n")
    for found in differences[:MOST_DIFFERENCES]:
        files.say(f"{plain(_difference(found))}\n")
    if len(differences) > MOST_DIFFERENCES:
        files.say(f"and {len(differences) - MOST_DIFFERENCES} more\n")
    files.say("All of this counts in the checksum by which HCCL compares tables (EI0005), the order of lists too.\n")
    return BAD


def _validate(path: str, chip: str | None) -> int:
    name = name_of(path)
    try:
        reading = codec.examine(files.read_bytes(path), source=name)
    except UnreadableError as error:
        files.tell(str(error))
        return UNREADABLE
    except RankTableError as error:
        code = f" ({error.code})" if isinstance(error, RankTableFormatError) and error.code else ""
        files.say(f"{ERROR}: {plain(str(error))}{code}\n")
        return BAD

    real = "" if path == STANDARD else files.regular_path(name)
    findings = checks.check_reading(reading, real, chip, as_it_stands=True)
    for finding in findings:
        files.say(f"{plain(_line(finding))}\n")
    if not findings:
        files.say(f"{plain(name)}: nothing found, {size_of(reading.draft.table())}\n")

    return BAD if any(finding.severity == ERROR for finding in findings) else FINE


def _line(finding: Finding) -> str:
    return f"{finding.severity}: {finding}{f' ({finding.code})' if finding.code else ''}"


def _chip(options: Namespace) -> str | None:
    return options.chip or checks.chip_of(os.environ)


def _refuse_one_input_twice(paths: Sequence[str]) -> None:
    if list(paths).count(STANDARD) > 1:
        raise SettingsError("- is given twice, and standard input can be read only once")


def _read(path: str, *, lists_decide: bool = False) -> tuple[RankTable, bytes]:
    table, data = files.read_table(path, lists_decide=lists_decide)
    for warning in table.warnings:
        files.tell(f"warning: {warning}")

    return table, data


def _write(options: Namespace, table: RankTable, data: bytes) -> int:
    """Write the document of a table, unless HCCL would refuse it; tell what is to be said about it."""
    output = options.output
    name = "the table to be written"
    findings = checks.check_reading(codec.examine(data, source=name), "", _chip(options), as_it_stands=True)
    for finding in findings:
        files.tell(_line(finding))
    if any(finding.severity == ERROR for finding in findings) and not options.no_checks:
        files.tell("nothing is written, as HCCL would refuse it; --no-checks writes it all the same")
        return BAD

    files.write_bytes(output, data)
    path = files.regular_path(output)
    if path:
        files.tell(f"wrote {output}: {size_of(table)}")
    if path and checks.name_problem(path):
        files.tell(f"warning: {checks.name_problem(path)}")
    return FINE


def _difference(found: Difference) -> str:
    if found.what == THE_ENTRY:
        where, entry = ("A", found.first) if found.second is None else ("B", found.second)
        return f"{found.about} is in {where} only{f': {entry}' if isinstance(entry, str) else ''}"

    first, second = ("missing" if value is None else shown(value) for value in (found.first, found.second))
    return f"{found.about}: {found.what} is {first} in A, {second} in B"


def _read_conf(path: str) -> dict[int, str]:
    try:
        text = files.read_file(path).decode("utf-8-sig", errors="replace")
    except FileNotFoundError:
        files.tell(f"warning: there is no {path}, where the driver keeps the addresses of devices: is it mounted?")
        return {}
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}") from error

    return generation.parse_conf(text)


def _ask_hccn_tool(devices: Sequence[int]) -> dict[int, str]:
    """Ask for the addresses of devices; once the tool has failed to run or to answer, it is not asked again."""
    tool = next(filter(None, map(shutil.which, HCCN_TOOLS)), None)
    found: dict[int, str] = {}
    for device_id in devices if tool else ():
        try:
            ran = subprocess.run(
                [str(tool), "-i", str(device_id), "-ip", "-g"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TOOL_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            files.tell(f"warning: {tool} did not answer within {TOOL_TIMEOUT:g} s")
            break
        except OSError as error:
            files.tell(f"warning: {tool} cannot be run: {error.strerror}")
            break
        found[device_id] = generation.parse_tool(ran.stdout.decode(errors="replace"))

    return found


def _own_address() -> str:
    """Give the address that this machine is known by to others, or its name where it has no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ANYWHERE)
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])
