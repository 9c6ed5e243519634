"""Job specifications built directly, so that a test states only what it is about."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ascend_runner.plan.spec import Files, JobSpec, RankSpec


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
    """Make a job of some ranks; `changes` are other values of its fields, and of those of its records."""
    spec = JobSpec(
        job_id="job",
        ranks=tuple(ranks),
        rank_size=len(ranks),
        server_id="10.0.0.1",
        pod_name="",
        files=Files(log_dir="/log"),
    )
    return changed(spec, **changes)


def changed(spec: JobSpec, **changes: object) -> JobSpec:
    """Return a plan with other values of its fields, and of those of its records."""
    parts: dict[str, object] = {}
    for name, record in (("files", spec.files), ("stopping", spec.stopping), ("watching", spec.watching)):
        own = {key: changes.pop(key) for key in attrs.fields_dict(type(record)) if key in changes}
        parts[name] = attrs.evolve(record, **own)  # type: ignore[arg-type]  # the names and types of fields
    return attrs.evolve(spec, **parts, **changes)  # type: ignore[arg-type]  # as above
