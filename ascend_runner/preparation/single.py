"""Decides whether the command is to run once on this node, although it may have several devices."""

from __future__ import annotations

from typing import Final

from ascend_runner.engines import called
from ascend_runner.engines.registry import DIRECT
from ascend_runner.errors import SettingsError
from ascend_runner.plan.context import PlanContext
from ascend_runner.platforms import already_started, announced, tf_config
from ascend_runner.platforms.already_started import SingleProcess
from ascend_runner.settings.model import Settings

COUNTS: Final = ("MA_NUM_GPUS", "SLOTS")  # variables with the number of devices


def find(argv: tuple[str, ...], settings: Settings, context: PlanContext) -> SingleProcess | None:
    """Return why the command is to run once; None: this runner starts one process per device.

    Raises:
        SettingsError: the user has asked for n x n processes, or a variable is malformed.
    """
    started = None
    if not settings.overrides.is_complete:
        started = already_started.find(context.environ, names_the_ranks=settings.names_the_ranks)
    if started or settings.launcher != DIRECT:
        return started
    return _engine(argv, settings) or _without_devices(settings, context)


def _engine(argv: tuple[str, ...], settings: Settings) -> SingleProcess | None:
    engine = called.engine_in(argv)
    if not engine:
        return None
    if settings.rank_table is not None or (settings.nproc_per_node or 1) > 1:
        option = "--rank-table" if settings.rank_table is not None else f"--nproc-per-node {settings.nproc_per_node}"
        raise SettingsError(
            f"the command is {engine}, which starts one process per device itself, and {option} would start it once per"
            f" device: remove {option} to run {engine} once, or remove {engine} and its options from the command"
        )

    why = f"the command is {engine}, which starts one process per device itself: running it once, as it is"
    return SingleProcess(why=why, name=engine.replace(" ", "-"), hint="")


def _without_devices(settings: Settings, context: PlanContext) -> SingleProcess | None:
    """Detect that the platform gives this node no device, or a task of TensorFlow's and no number of devices."""
    environ = context.environ
    if settings.names_the_ranks or announced.announced_table(environ, context.is_folder):
        return None
    none = next((name for name in COUNTS if environ.get(name) == "0"), "")
    if none:
        why = f"{none} is 0, so this node has no device"
    elif environ.get(tf_config.NAME) and not any(map(environ.get, (*COUNTS, "MA_NUM_HOSTS"))):
        why = f"{tf_config.NAME} gives this node a task, and no variable gives the number of its devices"
    else:
        return None
    return SingleProcess(
        why=f"{why}: running the command once, as it is", hint="use --nproc-per-node N to start N ranks on this node"
    )
