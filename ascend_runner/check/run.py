"""The subjects of a check in their order, and the loop over them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Callable, Final

from ascend_runner.check import devices, job, limits, network
from ascend_runner.check.context import CheckContext, Findings, gather
from ascend_runner.check.output import OK, Found, format_finding, format_json, format_summary, verdict_of
from ascend_runner.errors import CheckFailedError, StopRequestedError
from ascend_runner.guardian.signal_sets import STOP_SIGNALS
from ascend_runner.output.console import Console
from ascend_runner.output.messages import Messages
from ascend_runner.problems import Severity
from ascend_runner.processes.signals import Signals
from ascend_runner.settings.model import Settings
from ascend_runner.supervision.events import signal_name

# From what decides on the job to what surrounds it. A subject to which nothing applies yields nothing.
SUBJECTS: Final[Mapping[str, Callable[[CheckContext], Findings]]] = {
    "rank table": job.rank_table,
    "this node": job.this_node,
    "settings": job.settings,
    "variables": job.variables,
    "command": job.command,
    "log folder": job.log_folder_in_use,
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


def check(
    settings: Settings,
    environ: Mapping[str, str],
    command: tuple[str, ...],
    io: tuple[Signals, Console, Messages],
) -> None:
    """Check one subject after the other, and print what is found.

    Raises:
        CheckFailedError: at least one error was found.
        StopRequestedError: a stop signal arrived.
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
        for signum in signals.wait(0.0):
            if signum in STOP_SIGNALS:
                raise StopRequestedError(signum, signal_name(signum))
    if settings.json:
        console.print(format_json(found, host_name))

    verdicts = {verdict_of(finding) for _subject, finding in found}
    if Severity.ERROR.value in verdicts:
        raise CheckFailedError(format_summary(found, host_name))
    report = messages.info if verdicts <= {OK} else messages.warning
    report(format_summary(found, host_name))
