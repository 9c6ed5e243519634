"""The commands of `ascend-rank-table`. Each returns its exit status: 0, or 1 for a negative answer."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from typing import Final

from ascend_runner.errors import RankTableError, SettingsError, UnreadableError
from ascend_runner.host import npu
from ascend_runner.host.host import Host
from ascend_runner.problems import Problem, Severity, problems_of
from ascend_runner.rank_table import codec, edit, picture, source
from ascend_runner.rank_table.checks import chips
from ascend_runner.rank_table.checks import entry as checks
from ascend_runner.rank_table.compare import ABSENT, THE_ENTRY, Difference, compare
from ascend_runner.rank_table.fields import shown
from ascend_runner.rank_table.masked import masked
from ascend_runner.rank_table.model import RankTable
from ascend_runner.rank_table.summary import size_of
from ascend_runner.rank_table_tool import files
from ascend_runner.rank_table_tool import generate as generation
from ascend_runner.rank_table_tool import show as showing
from ascend_runner.rank_table_tool.files import STANDARD, name_of, tell
from ascend_runner.secrets import MASK, Masker
from ascend_runner.text import counted, format_numbers, printable, rank_list
from ascend_runner.tool import write_text

FINE: Final = 0
BAD: Final = 1
UNREADABLE: Final = 2
MOST_CHARACTERS: Final = 200  # to list renumbered ranks with; more are only counted
MOST_DIFFERENCES: Final = 100  # printed before the rest is counted


def show(options: Namespace) -> int:
    """Show a table as text, JSON or a picture."""
    name = name_of(options.file)
    if options.svg == STANDARD and options.json:
        raise SettingsError("--json and --svg - both write to standard output; use --svg FILE")
    if options.svg and files.identity_of(name) and files.identity_of(name) == files.identity_of(options.svg):
        raise SettingsError(f"--svg {options.svg} would overwrite the table")

    masker = Masker()
    table, name = masked(_read(options.file), masker), masker.text(name)
    if options.svg:
        files.write_bytes(options.svg, picture.draw(table, name).encode())
    if masker.count:
        tell(f"masked as {MASK}: {counted(masker.count, 'secret')}")
    if options.json:
        write_text(showing.facts_of(table))
    elif not options.svg:
        write_text(showing.text_of(table, name, lists_all=options.all))

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
    conf = generation.read_conf(options.hccn_conf, _warn)
    devices = options.devices or sorted(conf) or npu.devices(Host())
    unknown = [device_id for device_id in devices if device_id not in conf]
    addresses = {**conf, **(generation.ask_hccn_tool(unknown, _warn) if unknown else {})}
    chosen = {device_id: addresses.get(device_id, "") for device_id in devices}
    table = generation.make_table(options.server_id or generation.own_address(), chosen)
    without = [device.device_id for device in table.devices if not device.device_ip]
    if without:
        some = f"device{'s' if len(without) > 1 else ''} {format_numbers(without)}"
        _warn(f"no address found for {some}; the table works on this machine only")

    return _write(options, table, codec.dumps(table))


def merge(options: Namespace) -> int:
    """Write several tables as one."""
    _refuse_second_standard_input(options.files)
    seen: set[tuple[int, int] | None] = set()
    for name in map(name_of, options.files):
        identity = files.identity_of(name)
        if identity in seen:
            raise SettingsError(f"{name} is specified twice")
        seen |= {identity} - {None}

    parts = [_read(path, lists_decide=options.no_checks) for path in options.files]
    return _write_part(options, parts, edit.merge(parts))


def subset(options: Namespace) -> int:
    """Write a part of a table."""
    whole = _read(options.file, lists_decide=options.no_checks)
    return _write_part(options, [whole], edit.subset(whole, server_ids=options.servers, device_ids=options.devices))


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
        table = codec.examine(files.read_bytes(path), source=name)
    except UnreadableError as error:
        tell(str(error))
        return UNREADABLE
    except RankTableError as error:
        return _print_problems(problems_of(error))

    real_path = "" if path == STANDARD else files.regular_path(name)
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
    table = files.read_table(path, lists_decide=lists_decide)
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

    files.write_bytes(output, data)
    path = files.regular_path(output)
    if path:
        tell(f"wrote {output}: {size_of(table)}")
    if path and checks.name_problem(path):
        _warn(checks.name_problem(path))
    return FINE


def _write_part(options: Namespace, sources: Sequence[RankTable], table: RankTable) -> int:
    """Write a table made from others, and say which ranks have a different number in it."""
    for source_table in sources:
        before = _ranks(source_table)
        after = {device: rank_id for device, rank_id in _ranks(table).items() if device in before}
        changed = [(before[device], rank_id) for device, rank_id in after.items() if before[device] != rank_id]
        if changed:
            old, new = (rank_list(numbers) for numbers in zip(*changed))
            if len(old) + len(new) > MOST_CHARACTERS:
                tell(f"{len(changed)} ranks of {source_table.source} have new numbers")
            else:
                tell(f"{old} of {source_table.source} {'is' if len(changed) == 1 else 'are'} now {new}")
    return _write(options, table, codec.dumps(table))


def _ranks(table: RankTable) -> dict[tuple[str, int], int]:
    """Return the rank of each device, which its server and its physical id identify."""
    return {
        (server.server_id, device.device_id): device.rank_id for server in table.servers for device in server.devices
    }


def _difference(found: Difference) -> str:
    if found.path == THE_ENTRY:
        where, entry = ("A", found.first) if found.second is ABSENT else ("B", found.second)
        return f"{found.subject} is only in {where}{f': {entry}' if isinstance(entry, str) else ''}"

    first, second = ("missing" if value is ABSENT else shown(value) for value in (found.first, found.second))
    return f"{found.subject}: {found.path} is {first} in A, {second} in B"
