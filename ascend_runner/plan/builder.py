"""Builds the records of a plan: how each process is started, and what the job needs besides."""

from __future__ import annotations

import os.path
from collections.abc import Mapping

import attrs

from ascend_runner.engines.registry import DIRECT
from ascend_runner.frameworks.context import LaunchContext
from ascend_runner.frameworks.registry import NONE
from ascend_runner.plan import folders
from ascend_runner.plan.context import Command, PlanContext
from ascend_runner.plan.job import NO_RANK, JobSpec, RankSpec, Rotation, TableFile
from ascend_runner.plan.this_node import NodeShare
from ascend_runner.settings.model import Settings
from ascend_runner.settings.options import FOLD


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PlanBuilder:
    """What all plans have in common. `job_id` is a plain file name (see `folders.find_job_id`)."""

    job_id: str
    settings: Settings
    context: PlanContext

    @property
    def log_dir(self) -> str:
        """The folder of all logs."""
        return folders.find_log_dir(self.settings, self.context)

    def rank(self, command: Command, env: Mapping[str, str], *, rank_id: int, local_rank: int) -> RankSpec:
        """Build a rank. `env` is its whole environment, except for CANN's log directory."""
        return self._process(
            RankSpec(
                rank_id=rank_id,
                local_rank=local_rank,
                executable=command.executable,
                argv=command.argv,
                env=self._with_process_log(env, f"rank_{rank_id}"),
                cwd=self._workdir(f"device{local_rank}"),
                log_path=self._log_path(f"rank-{rank_id}-device-{local_rank}"),
                prefix=None,
            )
        )

    def auxiliary(self, command: Command, env: Mapping[str, str], *, name: str) -> RankSpec:
        """Build a process without a rank. `env` is its whole environment, except for CANN's log directory."""
        return self._process(
            RankSpec(
                rank_id=NO_RANK,
                local_rank=0,
                executable=command.executable,
                argv=command.argv,
                env=self._with_process_log(env, name),
                cwd=self._workdir(name),
                log_path=self._log_path(name),
                prefix=None,
                name=name,
            )
        )

    def job(self, share: NodeShare, ranks: tuple[RankSpec, ...], beside: tuple[RankSpec, ...] = ()) -> JobSpec:
        """Build the job from its processes."""
        settings, context = self.settings, self.context
        has_own_process_logs = not context.environ.get("ASCEND_PROCESS_LOG_PATH")
        workdirs = [process.cwd for process in (*beside, *ranks)] if folders.has_own_workdirs(settings, context) else ()
        process_logs = [process.env["ASCEND_PROCESS_LOG_PATH"] for process in (*ranks, *beside)]
        return JobSpec(
            job_id=self.job_id,
            ranks=ranks,
            rank_size=share.rank_size,
            server_id=share.server_id,
            pod_name=share.pod_name,
            grace=settings.grace,
            hang_timeout=settings.hang_timeout,
            rotation=Rotation(max_size=settings.log_max_size, backups=settings.log_backups),
            log_dir=self.log_dir,
            has_own_process_logs=has_own_process_logs,
            folders=(self.log_dir, *workdirs, *(process_logs if has_own_process_logs else ())),
            beside=beside,
            folds_progress_bars=settings.progress_bars == FOLD,
            log_runs=settings.log_runs,
        )

    def _process(self, spec: RankSpec) -> RankSpec:
        shown = self.settings.console
        if shown is not None and spec.rank_id not in shown:
            return spec
        return attrs.evolve(spec, prefix=b"" if self.settings.no_prefix else f"[{spec.title}] ".encode())

    def _workdir(self, folder: str) -> str:
        return folders.find_workdir(self.settings, self.context, folder)

    def _log_path(self, name: str) -> str:
        return os.path.join(self.log_dir, f"{self.job_id}-proc-{name}.txt")

    def _with_process_log(self, env: Mapping[str, str], name: str) -> Mapping[str, str]:
        default = os.path.join(self.log_dir, self.job_id, "ascend", "process_log", name)
        return {**env, "ASCEND_PROCESS_LOG_PATH": env.get("ASCEND_PROCESS_LOG_PATH") or default}


def launch_context(
    share: NodeShare, settings: Settings, context: PlanContext, table: TableFile | None = None
) -> LaunchContext:
    """Describe for the frameworks what the ranks are launched in."""
    return LaunchContext(
        framework=settings.framework if settings.launcher == DIRECT else NONE,
        node=share.node,
        rank_ids=share.rank_ids,
        rank_size=share.rank_size,
        table_path=table.path if table else None,
        environ=context.environ,
        cores=context.cores,
        isolate_devices=settings.isolate_devices,
        resolve=context.resolve,
    )
