"""Job specifications built directly, so that a test states only what it is about."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ascend_runner.plan.spec import JobSpec, RankSpec, Rotation


def rank_spec(rank_id: int = 0, **changes: object) -> RankSpec:
    """Make a rank that runs `true`; `changes` are other values of its fields."""
    spec = RankSpec(
        rank_id=rank_id,
        local_rank=rank_id,
        executable="/bin/true",
        argv=("true",),
        env={},
        cwd="/",
        log_path=f"/log/{rank_id}.txt",
        prefix=b"",
    )
    return attrs.evolve(spec, **changes)  # type: ignore[arg-type]  # the names and types of fields


def job_spec(ranks: Sequence[RankSpec], **changes: object) -> JobSpec:
    """Make a job of some ranks; `changes` are other values of its fields."""
    spec = JobSpec(
        job_id="job",
        ranks=tuple(ranks),
        rank_size=len(ranks),
        server_id="10.0.0.1",
        pod_name="",
        grace=15.0,
        hang_timeout=None,
        rotation=Rotation(),
        log_dir="/log",
        has_own_process_logs=False,
        folders=(),
    )
    return attrs.evolve(spec, **changes)  # type: ignore[arg-type]  # the names and types of fields
