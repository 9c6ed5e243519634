"""`--check`: what would prevent a job from running on this node, as lines in columns or as JSON.

Reads the problems that the launcher would report about the job, and the findings of the probes of this node. Source:
Kubernetes' and Slurm's default grace periods.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Union

import attrs

from ascend_runner.engines.command import engine_in_script, is_python, python_command, script_of
from ascend_runner.engines.registry import DIRECT, MODULES, RAY
from ascend_runner.errors import CheckFailedError, CommandError, OutputError, reason
from ascend_runner.frameworks import env_patch
from ascend_runner.job import table as tables
from ascend_runner.job.preparation import Preparation, recovery_notes
from ascend_runner.job.setup import JobSetup
from ascend_runner.node import bounded, disks, npus
from ascend_runner.node.executables import find_executable
from ascend_runner.node.findings import PROBE_LEEWAY, Defect, Node, Probe, UnusableError, places
from ascend_runner.node.host import Host
from ascend_runner.node.probes import HCCL, all_probes
from ascend_runner.plan.ranks import Stage
from ascend_runner.platforms.detect import KUBERNETES
from ascend_runner.platforms.node import hccl_ports
from ascend_runner.problems import Problem, Severity, Subject, error, problems_of, warning, without_repeated_remedies
from ascend_runner.ranks import log_folder
from ascend_runner.ranks.console import Console
from ascend_runner.ranks.messages import Messages
from ascend_runner.ranks.signals import Signals
from ascend_runner.record.facts import role, run_once
from ascend_runner.secrets import Masker
from ascend_runner.services.staging import Survey, check_room, surveying
from ascend_runner.settings.model import LINK_SECRETS, Settings
from ascend_runner.supervision import machine
from ascend_runner.text import counted, format_numbers, printable, size
from ascend_runner.views import screen

STAND_IN: Final = (sys.executable,)  # the command to plan with if there is none

Findings = Iterator[Union[str, Problem]]  # each good result of a subject is a sentence, each defect a problem


@attrs.frozen(kw_only=True)
class CheckContext:
    """The facts that are known before the first subject is checked.

    `prepared` holds the findings of the launcher; `command` is empty if none was given. `patience` is the number of
    seconds that a tool, a name server or a disk has to respond; a healthy npu-smi takes 1 s for 8 NPUs.
    """

    prepared: Preparation
    command: tuple[str, ...] = ()
    host: Host = attrs.field(factory=Host)
    patience: float = 10.0

    @property
    def settings(self) -> Settings:
        """The settings of the job."""
        return self.prepared.context.settings

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment of the job, with the variables of its conda environment."""
        return self.prepared.context.environ

    @property
    def rank_ids(self) -> tuple[int, ...]:
        """The ranks of this node, as far as they are known."""
        plan, share = self.prepared.plan, self.prepared.share
        if plan and plan.ranks:
            return tuple(rank.rank_id for rank in plan.ranks)
        return share.rank_ids if share else ()

    @property
    def nproc(self) -> int:
        """The number of ranks on this node, as far as it is known; else 0."""
        return len(self.rank_ids) or self.settings.nproc_per_node or 0

    @property
    def npus(self) -> int:
        """The number of NPUs that this node's ranks need; a table without devices is one for CPUs."""
        table = self.prepared.table
        return 0 if table and not table.devices else self.nproc


def gather(settings: Settings, environ: Mapping[str, str], signals: Signals, command: tuple[str, ...]) -> CheckContext:
    """Plan the job as a start would, without waiting for anything.

    Raises:
        SettingsError: The current directory cannot be used.
        StopRequestedError: A stop signal arrived.
    """
    setup = JobSetup(settings, environ, signals, Messages(lambda _message: None))
    prepared = setup.prepare(command or STAND_IN)
    return CheckContext(prepared=prepared, command=command)


ARGUMENTS_SHOWN: Final = 4  # words of the command


def rank_table(context: CheckContext) -> Findings:
    """Report the state of the rank table, and everything that HCCL would report about it."""
    prepared, table = context.prepared, context.prepared.table
    problems = list(prepared.about(Subject.RANK_TABLE))
    if table and context.settings.no_table_checks and prepared.plan and prepared.plan.files.table:
        found = tables.check(table, prepared.plan.files.table, prepared.context)
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
    if context.prepared.plan:
        yield from recovery_notes(context.prepared.plan, context.environ)


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
        yield from _check_start_script(context, argv, program, cwd)


def _check_start_script(context: CheckContext, argv: Sequence[str], program: str, cwd: str) -> Findings:
    """Warn of an engine in the script of a command that runs once per device, and of `ray` beside --launcher ray."""
    launcher = context.settings.launcher
    argv = context.command if launcher == RAY else argv
    script = script_of(argv) or (os.path.normpath(program) if _interpreter(program) else "")
    engine = engine_in_script(Host().read_text(os.path.join(cwd, script))) if script else ""
    if launcher == RAY == engine:
        yield warning(f"{script} runs ray itself", "remove `ray start` and `ray stop`: --launcher ray replaces them")
    elif launcher == DIRECT and engine and context.nproc > 1:
        ranks = counted(context.nproc, "rank")
        yield warning(f"{script} runs {engine}, which {role(engine)}, in each of {ranks}", run_once(engine))


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
        disks.check_folders(plan.files.folders if plan else ())
    except OutputError as failure:
        yield error(str(failure))
        return
    if plan and log_folder.is_in_use(plan):
        yield error(log_folder.busy_sentence(plan))


# The settings of workload managers for the time between SIGTERM and SIGKILL. Both are 30 seconds by default.
KILL_AFTER: Final = {"Kubernetes": "terminationGracePeriodSeconds", "Slurm": "KillWait"}
GRACE: Final = 30.0
DERIVED_KEY: Final = f"the key is derived from the job, so others may know it (set {LINK_SECRETS[0]} to keep them out)"
LEEWAY: Final = 5.0  # seconds after the grace: SIGKILL, the sweep, the last lines of the logs


def link(context: CheckContext) -> Findings:
    """Say how this node will be linked to the others, and by which key. Nothing is dialed: node 0 may not run yet."""
    plan = context.prepared.plan
    if plan is None or plan.nodes[0] == 1:
        return
    if plan.link is None:
        from ascend_runner.job import link_plan  # noqa: PLC0415  most jobs have one node

        why = link_plan.why_not(plan, context.prepared.context, context.prepared.node)
        yield f"none ({why}): a failure on another node does not stop this one"
        return
    places, ports = ", ".join(plan.link.hubs) or "an unknown address", format_numbers(plan.link.ports)
    port = f"port {ports}" if len(plan.link.ports) == 1 else f"one of the ports {ports}"
    where = f"will listen on {port}" if plan.link.node == 0 else f"will look for node 0 at {places}, {port}"
    key = "the key is a secret" if any(map(context.environ.get, LINK_SECRETS)) else DERIVED_KEY
    yield f"node {plan.link.node} of {plan.link.nodes} {where}; {key}"


def grace(context: CheckContext) -> Findings:
    """Compare --grace with the time between the platform's SIGTERM and its SIGKILL, and with HCCL's for a report."""
    seconds, node = context.settings.grace, context.prepared.node
    manager = (node.workload_manager if node else "") or ("Kubernetes" if context.environ.get(KUBERNETES) else "")
    if not manager:
        yield f"{seconds:g} s{_time_to_report(context)}"
        return

    if seconds + LEEWAY > GRACE:
        yield warning(
            f"--grace is {seconds:g} s, but by default {manager} kills all processes after {GRACE:g} s",
            f"set {KILL_AFTER[manager]} to {seconds + LEEWAY:g} or more, or --grace to {GRACE - LEEWAY:g} or less",
        )
    else:
        yield f"{seconds:g} s, less than the {GRACE:g} s that {manager} allows by default{_time_to_report(context)}"


def _time_to_report(context: CheckContext) -> str:
    """Return a note if a node of several stops its ranks before HCCL can report where a connection was broken."""
    plan = context.prepared.plan
    is_part = plan is not None and plan.ranks and not plan.has_all_ranks and context.npus
    if not is_part or context.settings.grace >= machine.GRACE_WITH_REPORT:
        return ""
    return (
        f" (to learn from HCCL where a connection between nodes was lost, which takes up to {machine.REPORT:g} s, use"
        f" --grace {machine.GRACE_WITH_REPORT:g})"
    )


@attrs.define
class Answer:
    """What was found out about a dataset within the time limit."""

    survey: Survey = attrs.field(factory=Survey)
    is_whole: bool = False
    problems: tuple[Problem, ...] = ()


def datasets(context: CheckContext) -> Findings:
    """Report what would be copied, as far as it can be counted in time."""
    for stage in context.prepared.context.stages:
        answer = Answer()
        limit = context.patience / 2  # seconds for the listing
        is_in_time = bounded.call(context.patience, functools.partial(_look, stage, answer, limit))
        yield from answer.problems
        if not answer.problems:
            yield _survey_sentence(stage, answer, limit if is_in_time else context.patience)


def _look(stage: Stage, answer: Answer, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    try:
        for _line in surveying(stage, answer.survey):
            if time.monotonic() > deadline:
                return
        answer.is_whole = True
        check_room(stage, answer.survey.missing)
    except OSError as error:
        answer.problems = (warning(f"cannot stage {error.filename or stage.source!r}: {reason(error)}"),)
    except OutputError as error:
        answer.problems = problems_of(error)


def _survey_sentence(stage: Stage, answer: Answer, seconds: float) -> str:
    """Describe how much of a dataset is to be copied; it was listed for `seconds` unless the answer is complete."""
    missing = answer.survey.missing
    title = f"{stage.source} to {stage.place}"
    text = f"{counted(missing.files, 'file')} ({size(missing.size)}) to copy" if missing.entries else "nothing to copy"
    if answer.is_whole:
        return f"{title}: {text}"
    text = f"at least {text}" if missing.entries else f"{text} so far"
    return f"{title}: {text}; listing was cut off after {seconds:g} s"


Look = Callable[[], Findings]

# A subject to which nothing applies yields nothing.
OF_THE_JOB: Final[Mapping[str, Callable[[CheckContext], Findings]]] = {
    "rank table": rank_table,
    "this node": this_node,
    "link": link,
    "settings": settings,
    "variables": variables,
    "command": command,
    "engine": engine,
    "datasets": datasets,
    "directories": folders,
}


def subjects(context: CheckContext) -> dict[str, Look]:
    """Return what a check looks at, from the job itself to its surroundings."""
    of_the_job = {name: functools.partial(look, context) for name, look in OF_THE_JOB.items()}
    return {**of_the_job, **{name: look for name, look, _is_steady in _subjects_of_node(context)}}


def _subjects_of_node(context: CheckContext) -> Iterator[tuple[str, Look, bool]]:
    """Yield the subjects about this node, and whether ranks do not change them by starting."""
    probes = [probe for probe in all_probes(node_of(context)) if probe.subject]
    for subject, of_subject in itertools.groupby(probes, lambda probe: probe.subject):
        found = tuple(of_subject)
        yield subject, functools.partial(_ask, found, context.patience), all(probe.is_steady for probe in found)
    yield "grace", functools.partial(grace, context), True


def _ask(probes: Sequence[Probe], seconds: float) -> Findings:
    """Look once by the probes of one subject, and join their good results."""
    fine: list[str] = []
    for probe in probes:
        try:
            found = probe.ask(seconds + PROBE_LEEWAY)
        except TimeoutError:
            yield error(f"{probe.source} did not respond within {seconds:g} s", probe.remedy)
        except UnusableError as failure:
            if str(failure):
                yield error(str(failure), probe.remedy) if failure.is_error else warning(str(failure))
        else:
            defects = (one for one in found if isinstance(one, Defect))
            yield from (
                error(one.sentence, one.remedy) if one.is_error else warning(one.sentence, one.remedy)
                for one in defects
            )
            fine += (one for one in found if isinstance(one, str))
    if fine:
        yield probes[0].heading + ", ".join(fine)


def node_of(context: CheckContext) -> Node:
    """Return this node for its probes, with what the job needs of it."""
    prepared, plan = context.prepared, context.prepared.plan
    node, table = prepared.node, prepared.table
    workdir = plan.processes[0].cwd if plan else prepared.context.workdir("device0")
    is_alone = node is None or node.nnodes == 1
    return Node(
        host=context.host,
        environ=context.environ,
        seconds=context.patience,
        ranks=context.nproc,
        npus=context.npus,
        assigned=tuple(table.rank(one).device_id for one in context.rank_ids) if table and context.npus else (),
        device_ids=npus.of_ranks(context.host, context.npus, env_patch.visible_devices(context.environ)),
        has_peers=not is_alone,
        peers=() if node is None or is_alone else tuple(dict.fromkeys(filter(None, (node.master_addr, *node.hosts)))),
        places=places(prepared.context.log_dir, plan.files.checkpoint_dir if plan else "", workdir),
        ports=_needed_ports(context),
    )


def _needed_ports(context: CheckContext) -> dict[int, str]:
    """Return the ports that the ranks of this node will listen on, MASTER_PORT and HCCL's, with their users."""
    node, plan = context.prepared.node, context.prepared.plan
    needed: dict[int, str] = {}
    if context.npus and not context.environ.get("HCCL_HOST_SOCKET_PORT_RANGE"):
        needed.update(dict.fromkeys(hccl_ports(context.environ), HCCL))
    is_used_by_launcher = plan is not None and bool(plan.ranks) and plan.is_passed_through
    if node and node.node_rank == 0 and not is_used_by_launcher:
        needed[node.master_port] = "MASTER_PORT"
    return needed


Found = tuple[str, Union[str, Problem]]  # a subject and a finding

OK: Final = "ok"
VERDICT_WIDTH: Final = len(Severity.WARNING.value)
SUBJECT_WIDTH: Final = len("other nodes")


def check(
    settings: Settings, environ: Mapping[str, str], command: tuple[str, ...], io: tuple[Signals, Console, Messages]
) -> None:
    """Check one subject after the other, and print the findings.

    Raises:
        CheckFailedError: At least one error was found.
        StopRequestedError: A stop signal arrived.
    """
    signals, console, messages = io
    host_name = os.uname().nodename
    context = gather(settings, environ, signals, command)
    found: list[Found] = []
    for subject, look in subjects(context).items():
        for finding in look():
            found.append((subject, finding))
            if not settings.json and not (settings.quiet and verdict_of(finding) == OK):
                console.print(format_finding(subject, finding))
        signals.wait_unless_stopped(0.0)
    if settings.json:
        console.print(format_json(found, host_name))

    verdicts = {verdict_of(finding) for _subject, finding in found}
    if Severity.ERROR.value in verdicts:
        raise CheckFailedError(format_summary(found, host_name))
    report = messages.info if verdicts <= {OK} else messages.warning
    report(format_summary(found, host_name))


def problems_of_this_node(
    settings: Settings, environ: Mapping[str, str], command: tuple[str, ...]
) -> Iterator[tuple[str, bool, Iterator[Problem]]]:
    """Yield each subject about this node before a start, the ones that ranks change first, and its problems.

    The flag says whether ranks do not change it; the start reports the problems of the job itself. A subject is checked
    while its problems are taken. May be called in any thread: it neither waits for anything nor receives signals.
    """
    planned = attrs.evolve(settings, check=True, dry_run=True, stage=())
    context = gather(planned, environ, Signals(), command)
    for subject, look, is_steady in sorted(_subjects_of_node(context), key=lambda one: one[2]):
        yield subject, is_steady, (finding for finding in look() if isinstance(finding, Problem))


def verdict_of(finding: str | Problem) -> str:
    """Return "ok", "warning" or "error"."""
    return OK if isinstance(finding, str) else finding.severity.value


def format_finding(subject: str, finding: str | Problem) -> str:
    """Format a finding in columns, with the remedy on a line below."""
    verdict = verdict_of(finding)
    shown = verdict if verdict == OK else verdict.upper()
    head = f"{shown:{VERDICT_WIDTH}}  {subject:{SUBJECT_WIDTH}}  {_one_line(_sentence(finding))}\n"
    remedy = _remedy(finding)
    return head + (f"{'':{VERDICT_WIDTH + SUBJECT_WIDTH + 4}}fix: {_one_line(remedy)}\n" if remedy else "")


def format_summary(found: Sequence[Found], host_name: str) -> str:
    """Format the last line: the number of errors and warnings, with their subjects."""
    parts = [part for severity in (Severity.ERROR, Severity.WARNING) if (part := _count(found, severity))]
    return f"{_one_line(host_name)}: {'; '.join(parts) or 'no problems found'}"


def format_json(found: Sequence[Found], host_name: str) -> str:
    """Format all findings as JSON: the host, the worst verdict, and a list of findings."""
    verdicts = [verdict_of(finding) for _subject, finding in found]
    worst = next((one.value for one in (Severity.ERROR, Severity.WARNING) if one.value in verdicts), OK)
    checks: list[Mapping[str, str]] = [
        {"subject": subject, "verdict": verdict_of(finding), "found": _sentence(finding), "fix": _remedy(finding)}
        for subject, finding in found
    ]
    return json.dumps({"host": host_name, "verdict": worst, "checks": checks}, indent=1) + "\n"


def _sentence(finding: str | Problem) -> str:
    return Masker().text(finding if isinstance(finding, str) else str(attrs.evolve(finding, remedy="")))


def _remedy(finding: str | Problem) -> str:
    return "" if isinstance(finding, str) else Masker().text(finding.remedy)


def _count(found: Sequence[Found], severity: Severity) -> str:
    subjects = [subject for subject, finding in found if verdict_of(finding) == severity.value]
    if not subjects:
        return ""
    return f"{counted(len(subjects), severity.value)} ({', '.join(dict.fromkeys(subjects))})"


def _one_line(text: str) -> str:
    return printable(" ".join(text.split("\n")))
