"""Contexts of a check: a job as it would be planned, with a rank table or without, on a machine that is a file tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from ascend_runner.job.check import CheckContext, subjects, verdict_of
from ascend_runner.job.preparation import Preparation
from ascend_runner.node.host import Host
from ascend_runner.plan.ranks import PlanContext
from ascend_runner.plan.spec import JobSpec
from ascend_runner.platforms import detect
from ascend_runner.problems import Problem
from ascend_runner.rank_table import source
from ascend_runner.settings.model import Settings
from tests.helpers.plans import job_spec, rank_spec

VALID = Path(__file__).parents[2] / "fixtures" / "valid"


def job_of(rank_ids: Sequence[int], *, folder: str = "/", argv: Sequence[str] = ("true",)) -> JobSpec:
    """Make a plan for some ranks, with one directory for everything."""
    ranks = [
        rank_spec(rank_id, local_rank=local_rank, executable=argv[0], argv=tuple(argv), cwd=folder)
        for local_rank, rank_id in enumerate(rank_ids)
    ]
    return job_spec(ranks, log_dir=folder)


def context(
    root: str = "", environ: Mapping[str, str] | None = None, *, nproc: int = 0, table: str = ""
) -> CheckContext:
    """Make the context of a job of `nproc` ranks; `table` names a fixture whose first ranks they are."""
    environ = {"PATH": "/nowhere", **(environ or {})}
    node = detect.find_node(environ)
    return CheckContext(
        prepared=Preparation(
            context=PlanContext(
                settings=Settings(nproc_per_node=None if table else nproc or None),
                environ=environ,
                cwd="/",
                host_name="some-host",
                is_folder=lambda _: False,
            ),
            plan=job_of(range(nproc)) if nproc else None,
            node=node,
            why=node.why,
            table=source.read(VALID / table) if table else None,
        ),
        host=Host(root),
    )


def prepared(given: CheckContext, **changes: object) -> CheckContext:
    """Change what the launcher found."""
    return attrs.evolve(given, prepared=attrs.evolve(given.prepared, **changes))  # type: ignore[arg-type]  # the names and types of fields


def in_context(given: CheckContext, **changes: object) -> CheckContext:
    """Change the settings, the environment or a fact that the job was planned with."""
    return prepared(given, context=attrs.evolve(given.prepared.context, **changes))  # type: ignore[arg-type]  # as above


def look_at(subject: str, given: CheckContext) -> list[tuple[str, str]]:
    """Return the findings of a subject: verdicts and sentences."""
    return list(map(pair_of, subjects(given)[subject]()))


def pair_of(finding: str | Problem) -> tuple[str, str]:
    """Return the verdict and the sentence of a finding."""
    return verdict_of(finding), finding if isinstance(finding, str) else str(attrs.evolve(finding, remedy=""))


def remedies(subject: str, given: CheckContext) -> list[str]:
    """Return what is to be done."""
    return [finding.remedy for finding in subjects(given)[subject]() if isinstance(finding, Problem) and finding.remedy]
