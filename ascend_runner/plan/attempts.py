"""The plan of one attempt: the variables that give its ranks its number, and the file in which they agree on steps."""

from __future__ import annotations

import os
from signal import Signals
from typing import Final

import attrs

from ascend_runner.plan.job import JobSpec, RankSpec
from ascend_runner.settings.variables import ATTEMPT, CHECKPOINT

RESTART_COUNT: Final = "TORCHELASTIC_RESTART_COUNT"
# torch takes TORCHELASTIC_RUN_ID as a sign of an agent whose store it may use, so that is never set.
MAX_RESTARTS: Final = "TORCHELASTIC_MAX_RESTARTS"
STARTS: Final = "MA_PROC_START_CNT"  # ModelArts: how often the command was started in this container, from 1
CHECKPOINT_REQUESTS_VARIABLE: Final = "ASCEND_RUNNER_CHECKPOINT_REQUESTS"  # as in training.rank_calls


def of_attempt(job: JobSpec, attempt: int, checkpoint: str = "") -> JobSpec:
    """Return the plan of an attempt, counted from 0; `checkpoint` is the newest complete one ("": there is none)."""
    variables = {CHECKPOINT: checkpoint} if checkpoint else {}
    if job.restarts.max_restarts:
        variables |= {
            ATTEMPT: str(attempt),
            RESTART_COUNT: str(attempt),
            MAX_RESTARTS: str(job.restarts.max_restarts),
        }

    def planned(spec: RankSpec) -> RankSpec:
        starts = spec.env.get(STARTS, "")
        counted = {STARTS: str(int(starts) + attempt)} if attempt and starts.isdecimal() else {}
        # A runner without restarts inside a rank of another runner leaves the number of that one.
        return attrs.evolve(spec, env={ATTEMPT: str(attempt), **spec.env, **variables, **counted})

    return attrs.evolve(
        job, attempt=attempt, ranks=tuple(map(planned, job.ranks)), beside=tuple(map(planned, job.beside))
    )


def with_checkpoint_requests(job: JobSpec, folder: str) -> JobSpec:
    """Return the plan with the file in which the ranks agree on the step of a checkpoint."""
    signal = Signals(job.checkpoint_signum).name[3:] if job.checkpoint_signum else "none"
    own = {CHECKPOINT_REQUESTS_VARIABLE: f"{signal}:{os.path.join(folder, 'checkpoint-requests')}"} if folder else {}

    def planned(rank: RankSpec) -> RankSpec:
        inherited = {name: value for name, value in rank.env.items() if name != CHECKPOINT_REQUESTS_VARIABLE}
        return attrs.evolve(rank, env={**inherited, **own})

    return attrs.evolve(job, ranks=tuple(map(planned, job.ranks)))
