"""What all subjects of a check are judged by: the settings, and what the launcher would plan with them."""

from __future__ import annotations

import sys

from ascend_runner import errors
from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple
from ascend_runner.frameworks import decide
from ascend_runner.job import plan_once
from ascend_runner.job.settings import DIRECT, WORKDIR_INHERIT
from ascend_runner.launcher import Launcher, current_folder, table_place
from ascend_runner.platforms import find
from ascend_runner.platforms.node import MASTER_PORT
from ascend_runner.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascend_runner.job.plan import JobSpec
    from ascend_runner.job.settings import Settings
    from ascend_runner.linux.signals import Signals
    from ascend_runner.platforms.node import Node
    from ascend_runner.rank_table import RankTable

STAND_IN: Final = (sys.executable,)  # what is planned with where the command is missing, or cannot be found


class Scene(NamedTuple):
    """What is known before the first subject is judged. `root` is put before the machine's own paths, for tests.

    Where something is not there, the error says why: of the `table` (if one is wanted), of this `node`'s place by its
    variables, of the `job` that would be planned here. With a `command_error` the job is planned with another command.
    Where something is refused, `trial` is the command in a job of one rank, which needs no table, platform or
    framework, and `trial_errors` are what is refused even so. `warnings` are the launcher's.
    """

    settings: Settings
    environ: Mapping[str, str]
    command: tuple[str, ...] = ()
    cwd: str = "/"
    table: RankTable | None = None
    table_error: errors.AscendRunnerError | None = None
    node: Node | None = None
    node_error: errors.AscendRunnerError | None = None
    job: JobSpec | None = None
    job_error: errors.AscendRunnerError | None = None
    trial: JobSpec | None = None
    trial_errors: tuple[errors.AscendRunnerError, ...] = ()
    command_error: errors.CommandError | None = None
    warnings: tuple[str, ...] = ()
    root: str = ""
    patience: float = 10.0  # seconds for a tool, a name server or a disk; a healthy npu-smi takes 1 for 8 cards

    @property
    def wants_table(self) -> bool:
        """Whether the job goes by a rank table."""
        return self.settings.nproc_per_node is None or self.settings.rank_table is not None

    @property
    def nproc(self) -> int:
        """The number of ranks on this node, as far as it is known; else 0."""
        return (len(self.job.ranks) if self.job else 0) or self.settings.nproc_per_node or 0

    @property
    def npus(self) -> int:
        """The number of NPUs that the table gives to this node; without a table, as many as there are ranks."""
        return 0 if self.table and not self.table.devices else self.nproc


def look(settings: Settings, environ: Mapping[str, str], signals: Signals, command: tuple[str, ...]) -> Scene:
    """Find out what would be planned here for a command, without waiting. Errors: StopRequestedError."""
    scene = _with_node(_with_table(Scene(settings, environ, command, current_folder())))

    # Nothing is waited for, and what HCCL would refuse of a table is told line by line under its name.
    trusts = settings.no_table_checks or scene.table is not None
    trusting = settings._replace(rank_table_timeout=0.0, no_table_checks=trusts, dry_run=True)
    told = Reporter(_unheard)
    job, error = _plan(Launcher(trusting, environ, signals, told), command or STAND_IN)
    if error:
        scene = _with_trial(scene, trusting, signals)
    if scene.command_error:
        job, error = _plan(Launcher(trusting, environ, signals, told), STAND_IN)

    return scene._replace(job=job, job_error=error, warnings=tuple(dict.fromkeys(told.warnings)))


def _with_trial(scene: Scene, trusting: Settings, signals: Signals) -> Scene:
    """Try the command by itself, then without what the variables can be refused for: one refusal hides the next."""
    alone = trusting._replace(
        nnodes=1,
        node_rank=None,
        master_port=MASTER_PORT,
        nproc_per_node=1,
        rank_table=None,
        framework=decide.NONE,
        isolate_devices=False,
        launcher=DIRECT,
        workdir=trusting.workdir or (None if trusting.launcher == DIRECT else WORKDIR_INHERIT),
        bind=None,
    )
    bare = {
        name: value
        for name, value in scene.environ.items()
        if name not in find.JOB_IDS and not name.startswith(decide.SUBJECTS)
    }
    refused: list[errors.AscendRunnerError] = []
    try:
        if trusting.launcher != DIRECT:
            plan_once.refuse_options_of_ranks(trusting)
    except errors.SettingsError as refusal:
        refused.append(refusal)
    for environ in (scene.environ, bare):
        launcher = Launcher(alone, environ, signals, Reporter(_unheard))
        trial, error = _plan(launcher, scene.command or STAND_IN)
        if isinstance(error, errors.CommandError):
            scene = scene._replace(command_error=error)
            trial, error = _plan(launcher, STAND_IN)
        scene = scene._replace(trial=trial)
        refused += [error] if error else []

    return scene._replace(trial_errors=tuple(refused))


def _plan(launcher: Launcher, command: tuple[str, ...]) -> tuple[JobSpec | None, errors.AscendRunnerError | None]:
    try:
        return launcher.prepare(command), None
    except errors.StopRequestedError:
        raise
    except errors.AscendRunnerError as error:
        return None, error


def _unheard(_line: bytes) -> None:
    pass


def _with_table(scene: Scene) -> Scene:
    if not scene.wants_table:
        return scene
    from ascend_runner.rank_table import source  # attrs and orjson; a check without a table does without them

    try:
        place = table_place(scene.settings.rank_table, scene.environ, scene.cwd)
        snapshot = source.read_snapshot(place, lists_decide=scene.settings.no_table_checks)
        return scene._replace(table=snapshot.table)
    except errors.AscendRunnerError as error:
        return scene._replace(table_error=error)


def _with_node(scene: Scene) -> Scene:
    try:
        return scene._replace(node=find.find(scene.environ, scene.settings.said))
    except errors.AscendRunnerError as error:
        return scene._replace(node_error=error)
