"""The functions for programs inside a job: prepare a rank table, identify the current rank, find directories."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import attrs

from ascend_runner import errors, rank_table
from ascend_runner.frameworks import conflicts
from ascend_runner.job import setup
from ascend_runner.job import table as tables
from ascend_runner.plan.ranks import PlanContext
from ascend_runner.platforms import detect, places
from ascend_runner.rank_table import RankTable, source
from ascend_runner.settings.model import Settings
from ascend_runner.settings.options import HCCL_RANK_TABLE_LIMIT
from ascend_runner.text import is_whole_number


def prepare(
    table: str | os.PathLike[str] | None = None,
    *,
    timeout: float = HCCL_RANK_TABLE_LIMIT,
    environ: MutableMapping[str, str] | None = None,
) -> RankTable:
    """Wait for the rank table, convert it, and set RANK_TABLE_FILE and RANK_SIZE for this process.

    For a script that is started by another program and needs a rank table that its framework can read. `table` is a
    file or a directory, by default the one that `ascend-runner` uses. `timeout` is in seconds. `environ` is by default
    `os.environ`.

        import ascend_runner

        table = ascend_runner.prepare()
        print(f"{table.rank_size} ranks on {table.server_count} servers")

    With a table that lists no devices, RANK_TABLE_FILE is unset.

    Raises:
        RankTableError: The rank table is missing, incomplete or invalid.
        SettingsError: The platform's name of the job is not a plain file name.
        OutputError: The converted rank table cannot be written.
    """
    environ = os.environ if environ is None else environ
    cwd = os.getcwd()
    place = os.fspath(table) if table else places.announced_table(environ, os.path.isdir)
    if not place:
        raise errors.RankTableError(f"no rank table found: {places.NOT_ANNOUNCED}; pass the path of one to prepare()")
    found = source.wait(os.path.join(cwd, place), timeout=timeout)
    rank_size = str(max(1, found.rank_size))
    if not found.devices:
        for variable in conflicts.TABLE:
            environ.pop(variable, None)
        environ["RANK_SIZE"] = rank_size
        return found

    logs = Settings(log_dir=None if detect.log_dirs(environ) else setup.own_temporary())
    host = os.uname().nodename
    context = PlanContext(settings=logs, environ=environ, cwd=cwd, host_name=host, is_folder=os.path.isdir)
    written, lock = tables.write(tables.placed(found, context), _warn, is_checked=False)
    os.set_inheritable(lock, True)  # until this process ends, and also the program that it may become by exec
    environ["RANK_TABLE_FILE"] = written.path
    environ["RANK_SIZE"] = rank_size
    return found


@attrs.frozen(kw_only=True)
class CurrentRank:
    """The rank that this process is. `device_index` is the local index of its NPU; `table` is None without one."""

    rank_id: int
    local_rank: int
    rank_size: int
    device_index: int
    table: RankTable | None


def current_rank(environ: Mapping[str, str] | None = None) -> CurrentRank:
    """Return the rank that this process is, from its environment variables or those in `environ`.

        import ascend_runner

        rank = ascend_runner.current_rank()
        print(f"rank {rank.rank_id} of {rank.rank_size} on device {rank.device_index}")

    Raises:
        NotARankError: This process is not a rank.
        RankTableError: The rank table cannot be read.
    """
    environ = os.environ if environ is None else environ
    path = environ.get("RANK_TABLE_FILE")
    return CurrentRank(
        rank_id=_number(environ, "RANK_ID"),
        local_rank=_number(environ, "LOCAL_RANK" if environ.get("LOCAL_RANK") else "DEVICE_ID"),
        rank_size=_number(environ, "RANK_SIZE"),
        device_index=_number(environ, "DEVICE_ID"),
        table=rank_table.read(path) if path else None,
    )


@attrs.frozen(kw_only=True)
class Platform:
    """The directories where the platform keeps the data of a job, or None for one that it does not have.

    `datasets` are those in DATASET_MAP by name, else the directories in `dataset`. The task-training platform sorts
    them and the `models` in `model`: names are then such as "private/cifar" and "favorite/cifar/v2". It also has
    `annotations` by dataset, and `volumes`. The platform collects what is in `result` when the job ends. A directory
    that a variable names may not exist yet.
    """

    dataset: Path | None
    datasets: Mapping[str, Path]
    cached_dataset: Path | None
    model: Path | None
    result: Path | None
    code: Path | None
    models: Mapping[str, Path]
    annotations: Mapping[str, Path]
    volumes: Mapping[str, Path]


def platform(environ: Mapping[str, str] | None = None) -> Platform:
    """Find the platform's directories: by its variables, else in their usual places. Works inside and outside a rank.

        import ascend_runner

        directories = ascend_runner.platform()
        for name, path in directories.datasets.items():
            print(name, sorted(path.iterdir())[:3])

    If DATASET_MAP is not a JSON object of names and paths, that is a warning, and it counts as not set.
    """
    environ = os.environ if environ is None else environ
    found = places.find(environ, os.path.isdir)
    named = places.named(found["dataset"], found["model"], _subfolders)
    try:
        named["datasets"] = places.mapped_datasets(environ) or named["datasets"]
    except errors.SettingsError as error:  # the other directories are of use without it
        warnings.warn(f"{error}; the directories below DATASET are listed instead", stacklevel=2)

    lists = {name: {key: Path(path) for key, path in paths.items()} for name, paths in named.items()}
    return Platform(
        datasets=lists["datasets"],
        models=lists["models"],
        annotations=lists["annotations"],
        volumes=lists["volumes"],
        **{name: Path(path) if path else None for name, path in found.items()},
    )


def _subfolders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return []


def _number(environ: Mapping[str, str], name: str) -> int:
    value = environ.get(name, "")
    if not is_whole_number(value):
        found = repr(value) if name in environ else "not set"
        raise errors.NotARankError(f"this process is not a rank: {name} is {found}, expected a whole number")
    return int(value)


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=4)
