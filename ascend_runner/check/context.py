"""The input of all subjects of a check: the settings, the machine, and the plan that the launcher would make."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Final, Union

import attrs

from ascend_runner.host.host import Host
from ascend_runner.launcher.job_setup import JobSetup
from ascend_runner.output.messages import Messages
from ascend_runner.preparation.record import Preparation
from ascend_runner.problems import Problem
from ascend_runner.processes.signals import Signals
from ascend_runner.settings.model import Settings

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
        """The environment of the job, with that of its conda environment."""
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
