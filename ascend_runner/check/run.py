"""The list of subjects in the order in which they are told, and how they are told: as lines, or as JSON."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Callable, Final

from ascend_runner.errors import CheckFailedError, StopRequestedError
from ascend_runner.supervision.events import signal_name
from ascend_runner.supervision.machine import STOP_SIGNALS
from ascend_runner.text import printable

from . import devices, job, machine
from .line import Line, Verdict
from .scene import Scene, look

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascend_runner.job.settings import Settings
    from ascend_runner.linux.console import Console
    from ascend_runner.linux.signals import Signals
    from ascend_runner.reporter import Reporter

Told = tuple[str, Line]  # a subject and what is said of it

# From what decides the job to what surrounds it. A subject of which nothing can be said yields no line.
SUBJECTS: Final[Mapping[str, Callable[[Scene], Iterator[Line]]]] = {
    "rank table": job.rank_table,
    "this node": job.this_node,
    "settings": job.plan,
    "variables": job.variables,
    "command": job.command,
    "devices": devices.devices,
    "leftovers": devices.leftovers,
    "software": devices.software,
    "health": devices.health,
    "ports": machine.ports,
    "other nodes": machine.names,
    "room": machine.room,
    "limits": machine.limits,
    "grace": machine.grace,
}
_VERDICT: Final = max(len(verdict.value) for verdict in Verdict)
_SUBJECT: Final = max(map(len, SUBJECTS))


def check(
    settings: Settings,
    environ: Mapping[str, str],
    command: tuple[str, ...],
    io: tuple[Signals, Console, Reporter],
) -> None:
    """Judge one subject after the other, and tell. Errors: CheckFailedError, StopRequestedError."""
    signals, console, out = io
    host_name = os.uname().nodename
    scene = look(settings, environ, signals, command)
    told: list[Told] = []
    for subject, say in SUBJECTS.items():
        for line in say(scene):
            told.append((subject, line))
            if not settings.json and not (settings.quiet and line.verdict is Verdict.OK):
                console.print(text_of(subject, line))
        for signum in signals.wait(0.0):
            if signum in STOP_SIGNALS:
                raise StopRequestedError(signum, signal_name(signum))
    if settings.json:
        console.print(document_of(told, host_name))

    if any(line.verdict is Verdict.ERROR for _subject, line in told):
        raise CheckFailedError(summary(told, host_name))
    is_fine = all(line.verdict is Verdict.OK for _subject, line in told)
    out.say("INFO" if is_fine else "WARNING", summary(told, host_name))


def text_of(subject: str, line: Line) -> str:
    """Give a verdict as it is shown: in columns, with what is to be done below."""
    word = line.verdict.value
    verdict = word if line.verdict is Verdict.OK else word.upper()  # what the eye is to find
    head = f"{verdict:{_VERDICT}}  {subject:{_SUBJECT}}  {_shown(line.found)}\n"
    return head + (f"{'':{_VERDICT + _SUBJECT + 4}}to do: {_shown(line.to_do)}\n" if line.to_do else "")


def summary(told: Sequence[Told], host_name: str) -> str:
    """Give the last line: how many of what, and where."""
    parts = [part for verdict in (Verdict.ERROR, Verdict.WARNING) if (part := _count(told, verdict))]
    return f"{_shown(host_name)}: {'; '.join(parts) or 'nothing would hinder a job'}"


def document_of(told: Sequence[Told], host_name: str) -> str:
    """Give all as JSON: the host, the worst verdict, and a list of `subject`, `verdict`, `found` and `to_do`."""
    import json  # only who wants JSON pays for it

    verdicts = [line.verdict for _subject, line in told]
    document = {
        "host": host_name,
        "verdict": next(
            bad.value for bad in (Verdict.ERROR, Verdict.WARNING, Verdict.OK) if bad in (*verdicts, Verdict.OK)
        ),
        "checks": [
            {"subject": subject, "verdict": line.verdict.value, "found": line.found, "to_do": line.to_do}
            for subject, line in told
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def _count(told: Sequence[Told], verdict: Verdict) -> str:
    subjects = [subject for subject, line in told if line.verdict is verdict]
    if not subjects:
        return ""
    return f"{len(subjects)} {verdict.value}{'s' if len(subjects) > 1 else ''} ({', '.join(dict.fromkeys(subjects))})"


def _shown(text: str) -> str:
    return printable(" ".join(text.split("\n")))
