"""Decides whether this node is inspected while a job runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ascend_runner.host import npu
from ascend_runner.host.host import Host
from ascend_runner.observations.facts import Fact
from ascend_runner.plan.job import JobSpec
from ascend_runner.preparation import this_machine
from ascend_runner.supervision.findings import InspectAction, NodeFinding

if TYPE_CHECKING:
    from ascend_runner.inspection.inspector import Inspector


class NoInspector:
    """The inspector of a job that is not inspected. It does nothing."""

    pids: frozenset[int] = frozenset()

    def observe(self, fact: Fact, at: float) -> None:
        """Ignore a fact."""

    def close(self) -> None:
        """Do nothing."""


def is_inspected(inspect: str | InspectAction | None) -> bool:
    """Return whether this node is inspected while the job runs: as --inspect says, or by default if it has NPUs."""
    return bool(npu.devices(Host())) if inspect is None else InspectAction(inspect) is not InspectAction.OFF


def inspector(
    spec: JobSpec, environ: Mapping[str, str], pass_on: Callable[[NodeFinding], None]
) -> Inspector | NoInspector:
    """Return the inspector of a job."""
    if not is_inspected(spec.inspect):
        return NoInspector()
    from ascend_runner.inspection.inspector import Inspector  # noqa: PLC0415  15 ms for jobs that are not inspected

    return Inspector(spec, this_machine.device_ids(spec, environ), environ, pass_on)
