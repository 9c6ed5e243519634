"""Plans one process per device of this node, and the auxiliary process of a framework that needs one."""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.engines.registry import DIRECT
from ascend_runner.frameworks.env_patch import LaunchContext
from ascend_runner.frameworks.registry import NONE, patch_environment, without_auto
from ascend_runner.lifecycle.state import JobState, Policy
from ascend_runner.plan.context import Command, PlanContext
from ascend_runner.plan.job import NO_RANK, JobSpec, RankSpec, Rotation, TableFile
from ascend_runner.plan.this_node import NodeShare
from ascend_runner.platforms.node import Node
from ascend_runner.settings.model import Settings
from ascend_runner.settings.options import CHECKPOINT_SIGNUMS, FOLD, HTML, STOP_SIGNUMS
from ascend_runner.supervision.findings import InspectAction, WatchAction
from ascend_runner.text import PREFIX_STYLES, colored

TIME_WIDTH: Final = len("03:12:45 ")
_BAD_ENDS: Final = frozenset({JobState.FAILED, JobState.HOLDING, JobState.EXPIRED})
# A job that is stopped by a signal has little time, and no failure to explain.
_ALL_ENDS: Final = _BAD_ENDS | {JobState.SUCCEEDED, JobState.STOPPED}
HTML_STATES: Final = dict(zip(HTML, (_BAD_ENDS, _ALL_ENDS, frozenset[JobState]())))


def plan_ranks(command: Command, share: NodeShare, context: PlanContext, table: TableFile | None) -> JobSpec:
    """Plan this node's ranks; `table` is the rank table that they read, if any.

    Raises:
        SettingsError: The environment holds variables that must not be set together.
    """
    launch = launch_context(share, context, table)
    patch = patch_environment(launch)
    environ, own = context.rank_environ, context.job_variable

    ranks = tuple(
        plan_process(command, {**env, **own}, context, rank_id=rank_id, local_rank=local_rank)
        for local_rank, (rank_id, env) in enumerate(zip(share.rank_ids, patch.environments_of_ranks(environ)))
    )
    auxiliary = tuple(
        plan_process(command, {**patch.environment_of_process(name, environ), **own}, context, name=name)
        for name in patch.beside
    )
    job = plan_job(share, context, ranks, auxiliary)
    return attrs.evolve(job, table=table, notes=patch.notes, framework=without_auto(launch)[0].framework)


def plan_process(  # noqa: PLR0913  a rank has two numbers, an auxiliary process a name
    command: Command,
    env: Mapping[str, str],
    context: PlanContext,
    *,
    rank_id: int = NO_RANK,
    local_rank: int = 0,
    name: str = "",
) -> RankSpec:
    """Plan a rank, or an auxiliary process, which has a `name`. `env` lacks only CANN's log directory."""
    log_dir, job_id = context.log_dir, context.job_id
    process_log = os.path.join(log_dir, job_id, "ascend", "process_log", name or f"rank_{rank_id}")
    spec = RankSpec(
        rank_id=rank_id,
        local_rank=local_rank,
        executable=command.executable,
        argv=command.argv,
        env={**env, "ASCEND_PROCESS_LOG_PATH": env.get("ASCEND_PROCESS_LOG_PATH") or process_log},
        cwd=context.workdir(name or f"device{local_rank}"),
        log_path=os.path.join(log_dir, f"{job_id}-proc-{name or f'rank-{rank_id}-device-{local_rank}'}.txt"),
        prefix=None,
        name=name,
    )
    return _with_console(spec, context)


def _with_console(spec: RankSpec, context: PlanContext) -> RankSpec:
    """Plan how the lines of a process are shown, and set the terminal's width, which the process cannot query."""
    settings, env = context.settings, spec.env
    prefix = "" if settings.no_prefix else f"[{spec.title}] "
    width = context.columns - len(prefix) - (TIME_WIDTH if settings.timestamps else 0)
    if width > 0:
        env = {"COLUMNS": str(width), **env}
    if settings.stdin == spec.rank_id:
        return with_stdin(attrs.evolve(spec, env=env))

    if settings.stdin is not None:
        env = {"PYTHONBREAKPOINT": "0", **env}  # without a terminal, breakpoint() does nothing
    if prefix and context.has_colors:
        prefix = colored(prefix, PREFIX_STYLES[spec.rank_id % len(PREFIX_STYLES)])
    is_shown = settings.console is None or spec.rank_id in settings.console
    return attrs.evolve(spec, env=env, prefix=prefix.encode() if is_shown else None)


def with_stdin(spec: RankSpec) -> RankSpec:
    """Return the plan of a process that reads the runner's standard input. Its prompts have no prefix."""
    return attrs.evolve(spec, has_stdin=True, prefix=b"")


def plan_job(
    share: NodeShare, context: PlanContext, ranks: tuple[RankSpec, ...], beside: tuple[RankSpec, ...] = ()
) -> JobSpec:
    """Plan the job that consists of some processes."""
    settings = context.settings
    job = JobSpec(
        job_id=context.job_id,
        ranks=ranks,
        rank_size=share.rank_size,
        server_id=share.server_id,
        pod_name=share.pod_name,
        grace=settings.grace,
        hang_timeout=settings.hang_timeout,
        rotation=Rotation(max_size=settings.log_max_size, backups=settings.log_backups),
        log_dir=context.log_dir,
        has_own_process_logs=not context.environ.get("ASCEND_PROCESS_LOG_PATH"),
        folders=_folders((*ranks, *beside), context),
        beside=beside,
        folds_progress_bars=settings.progress_bars == FOLD,
        has_timestamps=settings.timestamps,
        summary_interval=settings.summary,
        log_runs=settings.log_runs,
        newest_link=context.newest_link,
        node_number=share.node.file_number,
        nodes=(share.node.nnodes, share.node.nnodes + share.node.missing),
        platform=share.node.platform if share.node.detected_by else "",
        runner_version=context.version,
        restarts=_restarts(settings, share.node),
        checkpoint_dir=os.path.join(context.cwd, settings.checkpoint_dir) if settings.checkpoint_dir else "",
    )
    return _with_supervision(job, settings)


def _with_supervision(job: JobSpec, settings: Settings) -> JobSpec:
    """Return the plan with the settings that end a job, ask it for a checkpoint or select its reports."""
    return attrs.evolve(
        job,
        framework=settings.framework,
        hooks=settings.hook,
        html_states=HTML_STATES[settings.html],
        hang_action=_hang_action(settings),
        perf_patterns=settings.perf_pattern,
        perf_threshold=settings.perf_threshold,
        perf_drop=settings.perf_drop,
        perf_action=WatchAction(settings.perf_action or WatchAction.WARN),
        stop_signum=STOP_SIGNUMS[settings.stop_signal],
        checkpoint_signum=CHECKPOINT_SIGNUMS[settings.checkpoint_signal],
        checkpoint_grace=settings.checkpoint_grace,
        inspect=None if settings.inspect is None else InspectAction(settings.inspect),
        inspect_interval=settings.inspect_interval,
    )


def _folders(processes: Sequence[RankSpec], context: PlanContext) -> tuple[str, ...]:
    """Return the directories that must exist before the first process starts."""
    workdirs = [process.cwd for process in processes] if context.has_own_workdirs else ()
    process_logs = dict.fromkeys(process.env["ASCEND_PROCESS_LOG_PATH"] for process in processes)
    return (context.log_dir, *workdirs, *process_logs)


def _hang_action(settings: Settings) -> WatchAction:
    if settings.hang_action is None:
        return WatchAction.RESTART if settings.max_restarts else WatchAction.STOP
    return WatchAction(settings.hang_action)


def _restarts(settings: Settings, node: Node) -> Policy:
    return Policy(
        max_restarts=settings.max_restarts,
        max_same_failures=settings.max_same_failures,
        always=settings.restart_on or frozenset(),
        never=settings.no_restart_on or frozenset(),
        delay=settings.restart_delay,
        gives_verdict=settings.exit_verdict,
        linger=node.linger if settings.linger is None else settings.linger,
        hold=settings.hold,
    )


def launch_context(share: NodeShare, context: PlanContext, table: TableFile | None = None) -> LaunchContext:
    """Return the launch context for `frameworks`."""
    settings = context.settings
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
