"""The subjects of a check in their order, and how their findings are shown: as lines in columns, or as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Union

import attrs

from ascend_runner.check import devices, job, limits, network, staging
from ascend_runner.check.context import CheckContext, Findings, gather
from ascend_runner.errors import CheckFailedError
from ascend_runner.output.console import Console
from ascend_runner.output.messages import Messages
from ascend_runner.problems import Problem, Severity
from ascend_runner.processes.signals import Signals
from ascend_runner.secrets import Masker
from ascend_runner.settings.model import Settings
from ascend_runner.text import counted, printable

# From the job itself to its surroundings. A subject to which nothing applies yields nothing.
SUBJECTS: Final[Mapping[str, Callable[[CheckContext], Findings]]] = {
    "rank table": job.rank_table,
    "this node": job.this_node,
    "settings": job.settings,
    "variables": job.variables,
    "command": job.command,
    "engine": job.engine,
    "datasets": staging.datasets,
    "directories": job.folders,
    "devices": devices.devices,
    "leftovers": devices.leftovers,
    "software": devices.software,
    "health": devices.health,
    "ports": network.ports,
    "other nodes": network.names,
    "space": limits.room,
    "limits": limits.limits,
    "grace": limits.grace,
}

OF_THIS_NODE: Final = ("leftovers", "ports", "devices", "space", "limits", "grace", "software", "health", "other nodes")

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
    for subject, look in SUBJECTS.items():
        for finding in look(context):
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
) -> Iterator[tuple[str, Iterator[Problem]]]:
    """Yield each subject about this node before a start, with its problems; the start reports those of the job itself.

    A subject is checked while its problems are taken. May be called in any thread: it neither waits for anything nor
    receives signals.
    """
    planned = attrs.evolve(settings, check=True, dry_run=True, stage=())
    context = gather(planned, environ, Signals(), command)
    for subject in OF_THIS_NODE:
        yield subject, (finding for finding in SUBJECTS[subject](context) if isinstance(finding, Problem))


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
        {
            "subject": subject,
            "verdict": verdict_of(finding),
            "found": _sentence(finding),
            "fix": _remedy(finding),
        }
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
