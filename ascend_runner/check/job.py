"""Subjects about the job: its rank table, this node's part of it, settings, variables and command."""

from __future__ import annotations

import os
from typing import Final

import attrs

from ascend_runner.check.context import CheckContext, Findings
from ascend_runner.engines.command import is_python, python_command
from ascend_runner.engines.registry import MODULES
from ascend_runner.errors import CommandError, OutputError
from ascend_runner.host import bounded, file_system
from ascend_runner.host.executables import find_executable
from ascend_runner.host.host import Host
from ascend_runner.output import log_folder
from ascend_runner.preparation import table as tables
from ascend_runner.problems import Severity, Subject, error, problems_of, warning, without_repeated_remedies
from ascend_runner.report import screen
from ascend_runner.secrets import Masker
from ascend_runner.text import counted

ARGUMENTS_SHOWN: Final = 4  # words of the command


def rank_table(context: CheckContext) -> Findings:
    """Report the state of the rank table, and everything that HCCL would report about it."""
    prepared, table = context.prepared, context.prepared.table
    problems = list(prepared.about(Subject.RANK_TABLE))
    if table and context.settings.no_table_checks and prepared.plan and prepared.plan.table:
        found = tables.check(table, prepared.plan.table, prepared.context)
        problems += [attrs.evolve(one, severity=Severity.WARNING, remedy="") for one in found]
    yield from without_repeated_remedies(problems)
    if table and not problems:
        size = f"{counted(table.server_count, 'server')}, {counted(table.rank_size, 'device')}"
        yield f"{table.source}: {table.dialect.value}, {size}"
    elif not table and not problems:
        yield f"not needed for {counted(context.nproc, 'rank')} on this node" if context.nproc else "not needed"


def this_node(context: CheckContext) -> Findings:
    """Report which part of the job runs on this node; nothing if that depends on a missing rank table."""
    problems = context.prepared.about(Subject.NODE)
    yield from problems
    if context.prepared.plan and not problems:
        yield screen.placed(context.prepared.plan)


def settings(context: CheckContext) -> Findings:
    """Report settings that the launcher rejects."""
    yield from context.prepared.about(Subject.SETTINGS)


def variables(context: CheckContext) -> Findings:
    """Report variables that contradict each other or the platform's."""
    problems = context.prepared.about(Subject.VARIABLES)
    yield from problems
    if not problems:
        yield f"no conflicts; {context.prepared.why}"


def command(context: CheckContext) -> Findings:
    """Report whether the command, its interpreter and its script exist."""
    problems = context.prepared.about(Subject.COMMAND)
    for problem in problems if context.command else ():
        is_missing = context.command[0] and problem.exit_status in {126, 127}
        yield attrs.evolve(problem, remedy="use its full path, or add its directory to PATH" if is_missing else "")
    if context.command and not problems:
        yield from _check_program(context)


def _check_program(context: CheckContext) -> Findings:
    prepared = context.prepared
    if prepared.plan:
        first = prepared.plan.processes[0]
        cwd, executable, argv = first.cwd, first.executable, first.argv
    else:
        cwd, argv = prepared.context.workdir("device0"), context.command
        try:
            executable = find_executable(argv[0], cwd=cwd, search_path=context.environ.get("PATH", os.defpath))
        except CommandError as failure:
            yield from problems_of(failure)
            return

    program = os.path.join(cwd, executable)
    if not os.path.exists(program):  # an engine that is missing: a problem of --launcher
        return
    interpreter = _missing_interpreter(program)
    python = python_command(argv)
    target = "" if python is None or python.is_module else python.target
    script = target and os.path.join(cwd, target)
    if interpreter:
        yield error(f"{interpreter}, the interpreter of {program}, does not exist", "correct its first line (#!)")
    elif script and not os.path.exists(script):
        if not os.path.exists(os.path.join(prepared.context.cwd, target)):  # otherwise it is a problem of the settings
            yield error(f"{script} does not exist", "use its full path, or one relative to the working directory")
    else:
        real = os.path.realpath(program)
        words = [*Masker().arguments(argv)[:ARGUMENTS_SHOWN], *(["..."] if len(argv) > ARGUMENTS_SHOWN else [])]
        yield f"{' '.join(words)}: {program}{'' if real == program else f' ({real})'}"


def _missing_interpreter(program: str) -> str:
    """Return the interpreter in a script's first line if it does not exist: execve(2) then reports ENOENT."""
    words = _interpreter(program)
    return words[0] if words and not os.path.exists(words[0]) else ""


def _interpreter(program: str) -> list[str]:
    """Return the words of a script's first line that name its interpreter."""
    first = Host().read_bytes(program)[:256].partition(b"\n")[0]
    return os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []


def engine(context: CheckContext) -> Findings:
    """Report whether the Python of a job can import the engine that --launcher names, if that is a Python module."""
    plan, module = context.prepared.plan, MODULES.get(context.settings.launcher)
    if not plan or not module:
        return
    process = plan.processes[0]
    program = os.path.join(process.cwd, process.executable)
    python = [program] if is_python(program) else _interpreter(program)
    if not any(map(is_python, python)) or not os.path.exists(python[0]):  # a shell script may run any Python
        return

    answer = bounded.run([*python, "-c", f"import {module}"], context.patience, process.env)
    if answer is None:
        yield warning(f"{' '.join(python)} did not import {module} within {context.patience:g} s")
    elif answer.returncode:
        lines = filter(None, map(str.strip, reversed(answer.stderr.splitlines())))
        last = next(lines, f"exit status {answer.returncode}")
        yield error(
            f"{' '.join(python)} cannot import {module}: {last}",
            "install it, or select its environment with --conda-env",
        )
    else:
        yield f"{module} can be imported by {' '.join(python)}"


def folders(context: CheckContext) -> Findings:
    """Report directories that cannot be created, and a log directory that a running job of the same name writes to."""
    plan = context.prepared.plan
    try:
        file_system.check_folders(plan.folders if plan else ())
    except OutputError as failure:
        yield error(str(failure))
        return
    if plan and log_folder.is_in_use(plan):
        yield error(log_folder.busy_sentence(plan))
