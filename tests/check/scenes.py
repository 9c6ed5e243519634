"""Scenes to judge: a job as it would be planned, with a table or without, on a machine that is a tree of files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ascend_runner.check.line import Verdict
from ascend_runner.check.scene import Scene
from ascend_runner.job.plan import JobSpec, RankSpec
from ascend_runner.job.settings import Settings
from ascend_runner.platforms import find
from ascend_runner.rank_table import source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ascend_runner.check.line import Line

VALID = Path(__file__).parents[2] / "fixtures" / "valid"


def job_of(rank_ids: Sequence[int], *, folder: str = "/", argv: Sequence[str] = ("true",)) -> JobSpec:
    """Give a plan for some ranks, with all its folders being one."""
    ranks = tuple(
        RankSpec(
            rank_id=rank_id,
            local_rank=local_rank,
            executable=argv[0],
            argv=tuple(argv),
            env={},
            cwd=folder,
            log_path="",
            prefix=None,
        )
        for local_rank, rank_id in enumerate(rank_ids)
    )
    return JobSpec(
        job_id="job",
        ranks=ranks,
        rank_size=len(ranks),
        server_id="10.0.0.1",
        pod_name="",
        grace=15.0,
        hang_timeout=None,
        rotation=(0, 0),
        log_dir=folder,
        has_own_process_logs=False,
        folders=(),
        table=None,
    )


def scene(root: str = "", environ: Mapping[str, str] | None = None, *, nproc: int = 0, table: str = "") -> Scene:
    """Give a scene with so many ranks; `table` names a fixture whose first ranks they are."""
    environ = {"PATH": "/nowhere", **(environ or {})}
    return Scene(
        settings=Settings(nproc_per_node=None if table else nproc or None),
        environ=environ,
        table=source.read(VALID / table) if table else None,
        node=find.find(environ),
        job=job_of(range(nproc)) if nproc else None,
        root=root,
    )


def said(subject: Callable[[Scene], Iterator[Line]], of: Scene) -> list[tuple[str, str]]:
    """Give what is said of a subject: verdicts and sentences."""
    return [(line.verdict.value, line.found) for line in subject(of)]


def advice(subject: Callable[[Scene], Iterator[Line]], of: Scene) -> list[str]:
    """Give what is to be done."""
    lines = list(subject(of))
    assert all(line.to_do == "" for line in lines if line.verdict is Verdict.OK)
    return [line.to_do for line in lines if line.to_do]
