"""What a plan depends on: the settings, the environment and facts of the machine; and where a job writes."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.errors import SettingsError
from ascend_runner.plan.job import TableFile
from ascend_runner.platforms import detect
from ascend_runner.settings.model import Settings
from ascend_runner.settings.options import WORKDIR_DEVICE, WORKDIR_INHERIT

TABLE_NAME: Final = "jobstart_hccl.json"
CACHE: Final = "/cache"  # the local disk of a ModelArts node
FALLBACK_LOG_DIR: Final = "/tmp/log"  # noqa: S108  the platforms' own choice; made private, a stranger's is refused


def _no_file(_path: str) -> str:
    return ""


@attrs.frozen
class Command:
    """The command to run: the program that was found for it, and its words."""

    executable: str
    argv: tuple[str, ...]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PlanContext:
    """The settings, the environment, the caller's working directory and facts of the machine.

    `cores` is the number of cores that this node may use (None: unknown). Facts that take long to find, or are rarely
    needed, are functions: `is_folder` looks at a path, `read_text` reads a file ("": there is none), `own_addresses`
    lists the addresses of this machine, and `resolve` turns a host name into an address.
    """

    settings: Settings = attrs.field(factory=Settings)
    environ: Mapping[str, str]
    cwd: str
    host_name: str
    is_folder: Callable[[str], bool]
    read_text: Callable[[str], str] = _no_file
    own_addresses: Callable[[], Sequence[str]] = tuple
    resolve: Callable[[str], str] = str
    cores: int | None = None

    @property
    def job_id(self) -> str:
        """The job's name, which log files and folders carry: the platform's, else the host name.

        Raises:
            SettingsError: the name is not a plain file name.
        """
        job_id = detect.job_id(self.environ) or self.host_name
        if "/" in job_id or job_id in {".", ".."} or not job_id.isprintable():
            raise SettingsError(
                f"the job id is {job_id!r} (from {', '.join(detect.JOB_IDS)} or the host name), expected a plain file"
                " name"
            )
        return job_id

    @property
    def log_dir(self) -> str:
        """The log directory: --log-dir, else the platform's log directory if it exists, else /tmp/log."""
        if self.settings.log_dir:
            return os.path.join(self.cwd, self.settings.log_dir)

        found = next(filter(self.is_folder, detect.log_dirs(self.environ)), "")
        return os.path.join(self.cwd, found) if found else FALLBACK_LOG_DIR

    @property
    def has_own_workdirs(self) -> bool:
        """Whether each process gets a working directory of its own, which the runner makes."""
        default = WORKDIR_DEVICE if self.environ.get("MA_MOUNT_PATH") else WORKDIR_INHERIT
        return (self.settings.workdir or default) == WORKDIR_DEVICE

    def workdir(self, folder: str) -> str:
        """Return the working directory of a process; `folder` is its name if each process has its own."""
        if self.has_own_workdirs:
            mount = self.environ.get("MA_MOUNT_PATH")
            if mount:
                return os.path.join(self.cwd, mount, "workspace", folder)
            return os.path.join(CACHE if self.is_folder(CACHE) else self.log_dir, folder)

        named = self.settings.workdir
        return os.path.join(self.cwd, named) if named and named != WORKDIR_INHERIT else self.cwd

    def place_table(self, data: bytes) -> TableFile:
        """Choose where to write the rank table: below MA_MOUNT_PATH, else MA_HOME, else the log directory."""
        log_dir = self.log_dir
        root = os.path.join(self.cwd, self.environ.get("MA_MOUNT_PATH") or self.environ.get("MA_HOME") or log_dir)
        return TableFile(
            path=os.path.join(root, "rank_table", TABLE_NAME),
            fallback_path=os.path.join(log_dir, "rank_table", TABLE_NAME),
            data=data,
        )
