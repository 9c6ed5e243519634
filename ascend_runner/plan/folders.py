"""Where a job writes: the log directory, the working directories and the rank table."""

from __future__ import annotations

import os.path
from typing import Final

from ascend_runner.errors import SettingsError
from ascend_runner.plan.context import PlanContext
from ascend_runner.plan.job import TableFile
from ascend_runner.platforms import detect
from ascend_runner.settings.model import Settings
from ascend_runner.settings.options import WORKDIR_DEVICE, WORKDIR_INHERIT

TABLE_NAME: Final = "jobstart_hccl.json"
CACHE: Final = "/cache"  # the local disk of a ModelArts node
FALLBACK_LOG_DIR: Final = "/tmp/log"  # noqa: S108  the platforms' own choice; made private, a stranger's is refused


def find_job_id(context: PlanContext) -> str:
    """Return the job's name, which log files and folders carry: the platform's, else the host name.

    Raises:
        SettingsError: the name is not a plain file name.
    """
    job_id = detect.job_id(context.environ) or context.host_name
    if "/" in job_id or job_id in {".", ".."} or not job_id.isprintable():
        raise SettingsError(
            f"the job id is {job_id!r} (from {', '.join(detect.JOB_IDS)} or the host name), expected a plain file name"
        )
    return job_id


def find_log_dir(settings: Settings, context: PlanContext) -> str:
    """Return the log directory: --log-dir, else the platform's log directory if it exists, else /tmp/log."""
    if settings.log_dir:
        return os.path.join(context.cwd, settings.log_dir)

    found = next(filter(context.is_folder, detect.log_dirs(context.environ)), "")
    return os.path.join(context.cwd, found) if found else FALLBACK_LOG_DIR


def has_own_workdirs(settings: Settings, context: PlanContext) -> bool:
    """Whether each process gets a working directory of its own, which the runner makes."""
    mount = context.environ.get("MA_MOUNT_PATH")
    return (settings.workdir or (WORKDIR_DEVICE if mount else WORKDIR_INHERIT)) == WORKDIR_DEVICE


def find_workdir(settings: Settings, context: PlanContext, folder: str) -> str:
    """Return the working directory of a process; `folder` is its name if each process has its own."""
    if has_own_workdirs(settings, context):
        mount = context.environ.get("MA_MOUNT_PATH")
        if mount:
            return os.path.join(context.cwd, mount, "workspace", folder)
        return os.path.join(CACHE if context.is_folder(CACHE) else find_log_dir(settings, context), folder)

    if settings.workdir and settings.workdir != WORKDIR_INHERIT:
        return os.path.join(context.cwd, settings.workdir)
    return context.cwd


def place_table(data: bytes, settings: Settings, context: PlanContext) -> TableFile:
    """Choose where to write the rank table for the ranks: below MA_MOUNT_PATH, else MA_HOME, else the log directory."""
    environ, log_dir = context.environ, find_log_dir(settings, context)
    root = os.path.join(context.cwd, environ.get("MA_MOUNT_PATH") or environ.get("MA_HOME") or log_dir)
    return TableFile(
        path=os.path.join(root, "rank_table", TABLE_NAME),
        fallback_path=os.path.join(log_dir, "rank_table", TABLE_NAME),
        data=data,
    )
