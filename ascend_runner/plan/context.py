"""The input of a plan: the settings, the environment and facts about the machine; and where a job writes."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.engines.command import program_of
from ascend_runner.errors import SettingsError
from ascend_runner.plan.job import TableFile
from ascend_runner.platforms import detect
from ascend_runner.settings.model import Settings
from ascend_runner.settings.options import WORKDIR_DEVICE, WORKDIR_INHERIT
from ascend_runner.settings.variables import STAGED, VARIABLES

if TYPE_CHECKING:
    from ascend_runner.plan.staging import Stage

TABLE_NAME: Final = "jobstart_hccl.json"
CACHE: Final = "/cache"  # the local disk of a ModelArts node
LONGEST_NAME: Final = 64  # characters of a command in the name of a job; its files add to it
LATEST: Final = "latest"  # beside the log directories of all jobs, a link to the newest


@attrs.frozen
class Command:
    """The command to run: the program that was found for it, and its words."""

    executable: str
    argv: tuple[str, ...]


@attrs.frozen(kw_only=True, eq=False, repr=False, slots=False)  # cached properties need a __dict__
class PlanContext:
    """The settings, the command, the environment, the caller's working directory and facts of the machine.

    `stages` are the datasets that are copied to this node before its ranks start.

    `logs` is where each run gets a log directory unless the user or the platform has one, and `started_at` is the time
    as a part of its name. `version` is the runner's. `cores` is the number of cores that this node may use (None:
    unknown). Facts that take long to find, or are rarely needed, are functions: `is_folder` checks a path,
    `read_text` reads a file ("": there is none), `own_addresses` lists the addresses of this machine, `resolve` turns a
    host name into an address, and `hold_port` returns a port that no other job on this machine uses, the given one if
    it is free. `columns` is the width of the terminal that shows lines of ranks (0: there is none), `has_colors` is
    whether their prefixes are colored.
    """

    settings: Settings = attrs.field(factory=Settings)
    command: tuple[str, ...] = ()
    environ: Mapping[str, str]
    cwd: str
    logs: str = "/"
    started_at: str = ""
    version: str = ""
    host_name: str
    is_folder: Callable[[str], bool]
    read_text: Callable[[str], str] = lambda _path: ""
    own_addresses: Callable[[], Sequence[str]] = tuple
    resolve: Callable[[str], str] = str
    hold_port: Callable[[int], int] = int
    cores: int | None = None
    columns: int = 0
    has_colors: bool = False
    stages: tuple[Stage, ...] = ()

    @cached_property
    def job_id(self) -> str:
        """The job's name, which log files and directories carry: the user's, the platform's or the command's.

        Raises:
            SettingsError: The platform's is not a plain file name.
        """
        named = self.settings.job_name or detect.job_id(self.environ)
        if "/" in named or named in {".", ".."} or not named.isprintable():
            raise SettingsError(
                f"invalid value {named!r} for {detect.job_id_variable(self.environ)}: expected a plain file name; use"
                " another --job-name"
            )
        return named or self.command_name

    @property
    def command_name(self) -> str:
        """The name of what the command runs, as a part of a file name."""
        name = program_of(self.command) if self.command else ""
        name = name[:-3] if name.endswith((".py", ".sh")) else name
        return re.sub(r"[^\w.-]", "_", name)[:LONGEST_NAME].lstrip(".-") or "job"

    @property
    def job_variable(self) -> Mapping[str, str]:
        """The variable with the name of the job, which is the same on all nodes; a name that the user has set stays."""
        own = "" if self.settings.job_name or detect.job_id(self.environ) else self.environ.get("JOB_ID", "")
        return {"JOB_ID": own or self.job_id}

    @property
    def rank_environ(self) -> Mapping[str, str]:
        """The environment of the ranks: with the places of staged datasets, and without this runner's options.

        A runner inside a rank must not obey them.
        """
        own = {name: value for name, value in self.environ.items() if name not in VARIABLES}
        return {**own, **{f"{STAGED}{number}": stage.place for number, stage in enumerate(self.stages)}}

    @cached_property
    def log_dir(self) -> str:
        """The log directory: --log-dir, else the platform's, else a new one for each run."""
        folders = detect.log_dirs(self.environ)
        own = self.settings.log_dir or next(filter(self.is_folder, folders), "") or (folders[-1] if folders else "")
        return os.path.join(self.cwd, own or os.path.join(self.logs, f"{self.job_id}-{self.started_at}"))

    @property
    def newest_link(self) -> str:
        """The link to the newest log directory, if each run has a new one, else ""."""
        has_new_one = not self.settings.log_dir and not detect.log_dirs(self.environ)
        return os.path.join(self.logs, LATEST) if has_new_one else ""

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
