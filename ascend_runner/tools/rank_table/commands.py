"""The commands of `ascend-rank-table`. Each returns its exit status: 0, or 1 for a negative answer."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from ascend_runner import files, programs, tool
from ascend_runner.errors import OutputError, RankTableError, SettingsError, UnreadableError, reason
from ascend_runner.node import bounded, npus
from ascend_runner.node.host import Host
from ascend_runner.platforms import chips
from ascend_runner.problems import Problem, Severity, problems_of
from ascend_runner.rank_table import checks, codec, source
from ascend_runner.rank_table.compare import ABSENT, THE_ENTRY, Difference, compare
from ascend_runner.rank_table.dialects import dialect_of, size_of
from ascend_runner.rank_table.fields import shown
from ascend_runner.rank_table.model import Device, RankTable, Server
from ascend_runner.secrets import MASK, Masker
from ascend_runner.text import columns, counted, format_numbers, is_whole_number, parse_numbers, printable
from ascend_runner.tool import write_text

PROGRAM: Final = programs.RANK_TABLE
STANDARD: Final = "-"
DESCRIPTOR_DIGITS: Final = 9  # more than any descriptor has
READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC


def name_of(path: str) -> str:
    """Return the name of an input in messages: for a directory, its jobstart_hccl.json."""
    if path == STANDARD:
        return "standard input"

    return os.path.join(path, source.FILE_NAME) if os.path.isdir(path) else path


def read_bytes(path: str) -> bytes:
    """Read a file, the jobstart_hccl.json of a directory, a pipe, a device, or standard input.

    Raises:
        UnreadableError: The file cannot be read.
        RankTableFormatError: The file is too large.
    """
    name = name_of(path)
    if path == STANDARD and sys.stdin is None:
        raise UnreadableError(f"cannot read {name}: it is closed")

    try:
        return source.read_all(sys.stdin.fileno(), name) if path == STANDARD else read_file(name)
    except OSError as error:
        raise UnreadableError(f"cannot read {name}: {reason(error)}") from error


def read_file(name: str) -> bytes:
    """Read a file, pipe or device.

    Raises:
        OSError: The file cannot be read.
        RankTableFormatError: The file is too large.
    """
    fd = os.open(name, READ_FLAGS)
    try:
        return source.read_all(fd, name)
    finally:
        os.close(fd)


def read_table(path: str, *, lists_decide: bool) -> RankTable:
    """Read a table; errors as for `read_bytes` and `codec.loads`."""
    return codec.loads(read_bytes(path), source=name_of(path), lists_decide=lists_decide)


def regular_path(path: str) -> str:
    """Return the real path of a regular file, which need not exist, or "" for pipes, devices and standard streams."""
    if path == STANDARD or _descriptor_of(path) is not None:
        return ""

    try:
        is_regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError:  # it does not exist yet, or is unreachable
        is_regular = True
    return os.path.realpath(path) if is_regular else ""


def write_bytes(path: str, data: bytes) -> None:
    """Write a regular file atomically, and a pipe, a device or a standard stream directly.

    A symlink is followed. Missing directories are not created, as the name may be mistyped.

    Raises:
        BrokenPipeError: The reader of standard output has closed the pipe.
        OutputError: The output cannot be written.
    """
    if path == STANDARD:
        tool.write_output(data)
        return

    try:
        regular = regular_path(path)
        folder = os.path.dirname(regular)
        if folder and not os.path.isdir(folder):
            raise OutputError(f"cannot write {path}: no such directory: {folder}")
        if regular:
            files.write_atomically(regular, data)
            return

        descriptor = _descriptor_of(path)
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC) if descriptor is None else os.dup(descriptor)
        with open(fd, "wb") as file:
            file.write(data)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {reason(error)}") from error


def tell(sentence: str) -> None:
    """Print a message to standard error."""
    tool.tell(PROGRAM, sentence)


def _descriptor_of(path: str) -> int | None:
    """Return the open descriptor of this process that a path stands for (/dev/stdout, /dev/fd/3), by its links."""
    own = os.path.realpath("/proc/self/fd")
    for _ in range(40):  # as many links as the kernel follows
        folder, name = os.path.split(path)
        folder = os.path.realpath(folder)
        if folder == own and is_whole_number(name, DESCRIPTOR_DIGITS):
            return int(name)
        if not os.path.islink(path):
            return None
        path = os.path.join(folder, os.readlink(path))

    return None


MOST_DEVICES: Final = 1024  # far more than any machine has, so that a typo cannot exhaust memory
ADDRESS_LINE: Final = re.compile(r"\s*address_(\d{1,4})\s*=\s*(\S+)\s*", re.ASCII)
TOOL_LINE: Final = re.compile(r"\s*ipaddr\s*:\s*(\S+)\s*", re.ASCII)
HCCN_TOOLS: Final = ("hccn_tool", "/usr/local/Ascend/driver/tools/hccn_tool")
TOOL_TIMEOUT: Final = 10.0  # seconds; it asks the driver, which may hang
# An address of a documentation network (RFC 5737). Nothing is sent: connecting a datagram socket only selects a route.
ANYWHERE: Final = ("192.0.2.1", 9)


def parse_devices(text: str) -> tuple[int, ...]:
    """Parse device ids like "0-7" or "0,2,4-6"; their order is kept.

    Raises:
        ValueError: The text is not a list of different device ids.
    """
    found = parse_numbers(text)
    if len(found) > MOST_DEVICES:
        raise ValueError(f"too many devices: {len(found)}, expected at most {MOST_DEVICES}")
    twice = next((number for number, count in Counter(found).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"duplicate device id {twice}")

    return found


def parse_conf(text: str) -> dict[int, str]:
    """Parse the address of each device in hccn.conf; other lines are ignored."""
    matches = (ADDRESS_LINE.fullmatch(line) for line in text.splitlines())
    return {int(match[1]): match[2] for match in matches if match}


def parse_tool(text: str) -> str:
    """Parse the address that `hccn_tool -i N -ip -g` prints, or return "" if there is none."""
    return next((match[1] for match in map(TOOL_LINE.fullmatch, text.splitlines()) if match), "")


def read_conf(path: str, warn: Callable[[str], None]) -> dict[int, str]:
    """Read the addresses of devices in hccn.conf; a missing file is only a warning.

    Raises:
        UnreadableError: The file cannot be read.
    """
    try:
        text = read_file(path).decode("utf-8-sig", errors="replace")
    except FileNotFoundError:
        warn(f"{path}, which has the addresses of devices, does not exist; is it mounted?")
        return {}
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {reason(error)}") from error

    return parse_conf(text)


def ask_hccn_tool(
    devices: Iterable[int],
    warn: Callable[[str], None],
    *,
    tools: Sequence[str] = HCCN_TOOLS,
    timeout: float = TOOL_TIMEOUT,
) -> dict[int, str]:
    """Query hccn_tool for the addresses of devices, until it fails to run or to respond within `timeout` seconds."""
    tool = next(filter(None, map(shutil.which, tools)), None)
    found: dict[int, str] = {}
    for device_id in devices if tool else ():
        try:
            answer = bounded.run([str(tool), "-i", str(device_id), "-ip", "-g"], timeout)
        except OSError as error:
            warn(f"cannot run {tool}: {reason(error)}")
            break
        if answer is None:
            warn(f"{tool} did not respond within {timeout:g} s")
            break
        found[device_id] = parse_tool(answer.stdout)

    return found


def make_table(server_id: str, addresses: Mapping[int, str]) -> RankTable:
    """Return the table of one machine from the addresses of its devices ("": unknown), in the order of their ranks.

    Raises:
        RankTableError: There is no device.
    """
    if not addresses:
        raise RankTableError("no devices found in hccn.conf or /dev; use --devices to specify them")

    devices = tuple(
        Device(device_id=device_id, device_ip=address, rank_id=rank_id)
        for rank_id, (device_id, address) in enumerate(addresses.items())
    )
    return RankTable(servers=(Server(server_id=server_id, devices=devices),))


def own_address() -> str:
    """Return the address by which others reach this machine, or its host name where it has no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ANYWHERE)
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])


MOST_LISTED: Final = 64  # devices with a line each, unless all are asked for


def text_of(table: RankTable, name: str, masked: Callable[[str], str] = str, *, lists_all: bool = False) -> str:
    """Describe a table and list it: by device if it is small or `lists_all`, otherwise by server.

    `masked` masks the secrets in a text.
    """
    by_device = lists_all or table.rank_size <= MOST_LISTED
    found = _device_rows(table) if by_device else _server_rows(table)
    rows = [tuple(map(masked, row)) for row in found]
    heads = ("super-pod", "server", "pod", "rank" if by_device else "ranks", "device", "device_ip")
    idle = f"pods without devices: {', '.join(map(masked, table.idle_pods))}" if table.idle_pods else ""
    lines = [printable(masked(f"{name}: {dialect_of(table)}")), size_of(table), printable(idle)]
    return "\n".join((*filter(None, lines), *(("", *columns(heads, rows)) if rows else ()))) + "\n"


def facts_of(table: RankTable) -> dict[str, object]:
    """Return the members of a table as JSON that is the same for every dialect."""
    pod_of = _super_pods(table)
    return {
        "source": table.source,
        "dialect": table.dialect.value,
        "version": table.version or None,
        "rank_size": table.rank_size,
        "server_count": table.server_count,
        "servers": [_facts_of_server(server, pod_of.get(server.server_id)) for server in table.servers],
        "idle_pods": list(table.idle_pods),
        "warnings": list(table.warnings),
    }


def _facts_of_server(server: Server, super_pod_id: str | None) -> dict[str, object]:
    return {
        "server_id": server.server_id,
        "super_pod_id": super_pod_id,
        "addresses": list(server.addresses),
        "devices": [
            {
                "rank_id": device.rank_id,
                "device_id": device.device_id,
                "device_ip": device.device_ip or None,
                "pod_name": device.pod_name or None,
            }
            for device in server.devices
        ],
    }


def _device_rows(table: RankTable) -> Iterator[tuple[str, ...]]:
    """Return a row per device, without the cells that equal the row above."""
    pod_of = _super_pods(table)
    shared: tuple[str, ...] = ()
    for server in table.servers:
        for device in server.devices:
            row = (pod_of.get(server.server_id, ""), server.server_id, device.pod_name)
            places = ("", "", "") if row == shared else row
            shared = row
            yield (*places, str(device.rank_id), str(device.device_id), device.device_ip)


def _server_rows(table: RankTable) -> Iterator[tuple[str, ...]]:
    """Return a row per server, or per pod of it."""
    pod_of = _super_pods(table)
    for server in table.servers:
        for name in server.pod_names or ("",):
            devices = server.devices_of(name)
            ends = [device.device_ip for device in (*devices[:1], *devices[-1:])]
            addresses = " ... ".join(dict.fromkeys(ends))
            ranks = format_numbers(device.rank_id for device in devices)
            device_ids = format_numbers(device.device_id for device in devices)
            yield (pod_of.get(server.server_id, ""), server.server_id, name, ranks, device_ids, addresses)


def _super_pods(table: RankTable) -> dict[str, str]:
    return {server_id: pod.super_pod_id for pod in table.super_pods for server_id in pod.server_ids}


FINE: Final = 0
BAD: Final = 1
UNREADABLE: Final = 2
MOST_DIFFERENCES: Final = 100  # printed before the rest is counted


def show(options: Namespace) -> int:
    """Show a table as text or JSON, which is in ASCII, as names may not be valid UTF-8."""
    masker, table = Masker(), _read(options.file)
    if options.json:
        text = json.dumps(masker.members(facts_of(table)), indent=2) + "\n"
    else:
        text = text_of(table, name_of(options.file), masker.text, lists_all=options.all)
    if masker.count:
        tell(f"masked as {MASK}: {counted(masker.count, 'secret')}")
    write_text(text)
    return FINE


def validate(options: Namespace) -> int:
    """Print all problems of some files."""
    _refuse_second_standard_input(options.files)
    return max(_validate(path, _chip(options)) for path in options.files)


def convert(options: Namespace) -> int:
    """Write a table as HCCL reads it, or as a group list."""
    table = _read(options.file, lists_decide=options.no_checks)
    converted = codec.dumps_group_list(table) if options.to == "group-list" else codec.to_hccl_bytes(table)
    return _write(options, table, converted)


def wait(options: Namespace) -> int:
    """Wait until a table is completed."""
    table = source.wait(options.file, timeout=options.timeout, say=tell)
    tell(f"{table.source} is completed: {size_of(table)}")
    return FINE


def generate(options: Namespace) -> int:
    """Write the table of this machine."""
    conf = read_conf(options.hccn_conf, _warn)
    devices = options.devices or sorted(conf) or npus.devices(Host())
    unknown = [device_id for device_id in devices if device_id not in conf]
    addresses = {**conf, **(ask_hccn_tool(unknown, _warn) if unknown else {})}
    chosen = {device_id: addresses.get(device_id, "") for device_id in devices}
    table = make_table(options.server_id or own_address(), chosen)
    without = [device.device_id for device in table.devices if not device.device_ip]
    if without:
        some = f"device{'s' if len(without) > 1 else ''} {format_numbers(without)}"
        _warn(f"no address found for {some}; the table works on this machine only")

    return _write(options, table, codec.dumps(table))


def diff(options: Namespace) -> int:
    """Print the differences between two tables."""
    _refuse_second_standard_input((options.first, options.second))
    first, second = _read(options.first), _read(options.second)
    if first.dialect is not second.dialect:
        kinds = f"A is a {first.dialect.value}, B is a {second.dialect.value}"
        tell(f"{kinds}; comparing them as HCCL would read them")
        first, second = (codec.loads(codec.to_hccl_bytes(table), source=table.source) for table in (first, second))

    differences = list(compare(first, second))
    if not differences:
        return FINE

    write_text(f"A is {printable(name_of(options.first))}, B is {printable(name_of(options.second))}\n")
    for found in differences[:MOST_DIFFERENCES]:
        write_text(f"{printable(Masker().text(_difference(found)))}\n")
    if len(differences) > MOST_DIFFERENCES:
        write_text(f"and {len(differences) - MOST_DIFFERENCES} more\n")
    write_text("HCCL compares tables by a checksum of all these values, including the order of lists (EI0005).\n")
    return BAD


def _validate(path: str, chip: str | None) -> int:
    name = name_of(path)
    try:
        table = codec.examine(read_bytes(path), source=name)
    except UnreadableError as error:
        tell(str(error))
        return UNREADABLE
    except RankTableError as error:
        return _print_problems(problems_of(error))

    real_path = "" if path == STANDARD else regular_path(name)
    problems = checks.check_document(table, path=real_path, chip=chip, is_unconverted=True)
    if not problems:
        write_text(f"{printable(name)}: no problems, {size_of(table)}\n")
    return _print_problems(problems)


def _print_problems(problems: Sequence[Problem]) -> int:
    for problem in problems:
        write_text(f"{printable(Masker().text(_line(problem)))}\n")

    return BAD if any(problem.severity is Severity.ERROR for problem in problems) else FINE


def _line(problem: Problem) -> str:
    return f"{problem.severity.value}: {problem}"


def _warn(sentence: str) -> None:
    tell(f"warning: {sentence}")


def _chip(options: Namespace) -> str | None:
    return options.chip or chips.chip_of(os.environ)


def _refuse_second_standard_input(paths: Sequence[str]) -> None:
    if list(paths).count(STANDARD) > 1:
        raise SettingsError("standard input (-) is specified twice, but can be read only once")


def _read(path: str, *, lists_decide: bool = False) -> RankTable:
    table = read_table(path, lists_decide=lists_decide)
    for warning in table.warnings:
        _warn(warning)

    return table


def _write(options: Namespace, table: RankTable, data: bytes) -> int:
    """Write the document of a table, unless HCCL would reject it, and print its problems."""
    output = options.output
    written = codec.examine(data, source="the table to be written")
    problems = checks.check_document(written, chip=_chip(options), is_unconverted=True)
    for problem in problems:
        tell(_line(problem))
    if any(problem.severity is Severity.ERROR for problem in problems) and not options.no_checks:
        tell("nothing written: HCCL would reject the table; use --no-checks to write it anyway")
        return BAD

    write_bytes(output, data)
    path = regular_path(output)
    if path:
        tell(f"wrote {output}: {size_of(table)}")
    if path and checks.name_problem(path):
        _warn(checks.name_problem(path))
    return FINE


def _difference(found: Difference) -> str:
    if found.path == THE_ENTRY:
        where, entry = ("A", found.first) if found.second is ABSENT else ("B", found.second)
        return f"{found.subject} is only in {where}{f': {entry}' if isinstance(entry, str) else ''}"

    first, second = ("missing" if value is ABSENT else shown(value) for value in (found.first, found.second))
    return f"{found.subject}: {found.path} is {first} in A, {second} in B"
