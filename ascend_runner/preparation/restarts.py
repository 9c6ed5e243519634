"""The options that depend on whether this node runs all of a job: restarts of its ranks, and a delay of its end."""

from __future__ import annotations

from typing import Final

from ascend_runner.errors import SettingsError
from ascend_runner.settings.model import Settings

OF_A_PART: Final = (
    "--max-restarts requires a job of a single node, because restarted ranks would wait forever for the other nodes;"
    " let the platform restart the whole job (Slurm: sbatch --requeue, Volcano: the policy RestartJob,"
    " MindCluster: fault-retry-times)"
)


def refuse(settings: Settings, *, of_a_part: bool) -> None:
    """Refuse restarts if this node runs a part of the job.

    Raises:
        SettingsError: --max-restarts is set.
    """
    if of_a_part and settings.max_restarts:
        raise SettingsError(OF_A_PART)


def without_effect(settings: Settings, *, of_a_part: bool) -> str:
    """Return a warning if --linger is set for a job of one node, which no other node waits for, or else ""."""
    return "--linger has no effect on a single-node job" if settings.linger and not of_a_part else ""
