"""Plans for a command that is started once on this node: as it is, or handed over to another engine.

Loaded only then: the plain case, one process per device, is in `plan`.
"""

from __future__ import annotations

import os.path

from ascend_runner.annotations import TYPE_CHECKING
from ascend_runner.errors import SettingsError
from ascend_runner.frameworks import conflicts, hccl
from ascend_runner.frameworks.decide import NONE
from ascend_runner.frameworks.situation import together
from ascend_runner.launchers import engines, handover

from .plan import Draft, Request, situation
from .settings import WORKDIR_DEVICE, WORKDIR_INHERIT
from .this_node import NodeShare

if TYPE_CHECKING:
    from ascend_runner.launchers.handover import Handover
    from ascend_runner.platforms.single import Single

    from .plan import JobSpec, Surroundings
    from .settings import Settings


def plan_single(request: Request, single: Single, settings: Settings, surroundings: Surroundings) -> JobSpec:
    """Plan one process that somebody else has told everything: in the folder and in the environment as they are.

    Errors: SettingsError for a job id that cannot be a file name.
    """
    draft = Draft(settings._replace(workdir=settings.workdir or WORKDIR_INHERIT), surroundings)
    helpful = {"JOB_ID": draft.job_id, "PYTHONUNBUFFERED": "1"}
    env = {**helpful, **surroundings.environ}
    share = NodeShare((), single.rank_size, server_id=surroundings.host_name)
    if single.rank_id is None or single.local_rank is None:
        job = draft.job(share, (), (draft.process(request, env, name=surroundings.host_name),))
    else:
        job = draft.job(share, (draft.process(request, env, (single.rank_id, single.local_rank)),))

    return job._replace(is_passed_through=True)


def hand_over(argv: tuple[str, ...], share: NodeShare, settings: Settings, surroundings: Surroundings) -> Handover:
    """Rewrite a command for the engine that was asked for. Errors: SettingsError."""
    defaults = handover.HostFiles()
    draft = Draft(settings, surroundings)
    return engines.hand_over(
        settings.launcher,
        handover.Request(
            argv,
            share.node,
            len(share.rank_ids),
            surroundings.environ,
            log_dir=os.path.join(draft.log_dir, draft.job_id, settings.launcher),
            host_files=handover.HostFiles(
                settings.mpi_hostfile or defaults.open_mpi,
                settings.mpich_hostfile or defaults.mpich,
                settings.deepspeed_hostfile or defaults.deepspeed,
            ),
            resolve=surroundings.resolve,
        ),
    )


def refuse_options_of_ranks(settings: Settings) -> None:
    """Refuse what only those can do who start each rank. Errors: SettingsError."""
    per_rank = {
        "--workdir device": settings.workdir == WORKDIR_DEVICE,
        "--isolate-devices": settings.isolate_devices,
        "--bind": bool(settings.bind),
    }
    wanted = [option for option, is_wanted in per_rank.items() if is_wanted]
    if wanted:
        raise SettingsError(
            f"{' and '.join(wanted)} {'does' if len(wanted) == 1 else 'do'} not go with --launcher {settings.launcher},"
            " which starts the ranks of a node by itself"
        )


def plan_handover(
    engine: tuple[str, Handover], share: NodeShare, settings: Settings, surroundings: Surroundings
) -> JobSpec:
    """Plan the one process, a program found and what it is to do, that starts this node's ranks by itself.

    It gets no rank table: those who start their own ranks number them by themselves. Errors: SettingsError.
    """
    executable, handed = engine
    is_alone = share.node.nnodes == 1
    draft = Draft(settings._replace(workdir=settings.workdir or WORKDIR_INHERIT), surroundings)
    current = situation(settings, share, surroundings)
    changes = together([conflicts.settle(NONE, current), hccl.defaults(current)], nproc=0)
    environ = {name: value for name, value in surroundings.environ.items() if name not in changes.unset}
    process = draft.process(
        Request(executable, handed.argv),
        {**environ, **changes.job, **handed.variables, "JOB_ID": draft.job_id},
        name=settings.launcher if is_alone else f"{settings.launcher}-node-{share.node.node_rank}",
    )

    job = draft.job(share, (), (process,))
    return job._replace(
        host_files=tuple(file._replace(path=os.path.join(surroundings.cwd, file.path)) for file in handed.files),
        notes=changes.notes,
        warnings=changes.warnings,
    )
