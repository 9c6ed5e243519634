"""The runner as a library: launch a command, prepare a table, ask inside a rank who one is.

`launch` runs the same command line in a child process. So there is one code path, and a notebook, a thread or an
asyncio program keeps its own signals.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import attrs

from ascend_runner import errors, rank_table, result
from ascend_runner.frameworks import conflicts
from ascend_runner.job import plan, settings
from ascend_runner.launcher import table_place, write_table
from ascend_runner.platforms import folders
from ascend_runner.rank_table import codec, source

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

    from typing_extensions import Unpack

    from ascend_runner.rank_table import RankTable
    from ascend_runner.supervision.outcome import Outcome


class Options(TypedDict, total=False):
    """The options of the command line, by name; None is as good as left out. Times are in seconds."""

    rank_table: str | os.PathLike[str] | None
    rank_table_timeout: float | None
    no_table_checks: bool
    chip: str | None
    nproc_per_node: int | None
    nnodes: int | None
    node_rank: int | None
    master_addr: str | None
    master_port: int | None
    framework: str | None
    isolate_devices: bool
    conda_env: str | None
    launcher: str | None
    mpi_hostfile: str | os.PathLike[str] | None
    mpich_hostfile: str | os.PathLike[str] | None
    deepspeed_hostfile: str | os.PathLike[str] | None
    log_dir: str | os.PathLike[str] | None
    workdir: str | os.PathLike[str] | None
    bind: str | None
    grace: float | None
    hang_timeout: float | None
    log_max_size: int | str | None
    log_backups: int | None
    console: str | Iterable[int] | None
    no_prefix: bool
    dry_run: bool
    check: bool
    json: bool
    quiet: bool
    verbose: bool


def launch(
    command: Sequence[str | os.PathLike[str]],
    *,
    environ: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> Outcome:
    """Run `command` as `ascend-runner [OPTIONS] COMMAND` would, wait for its end, and give what it came to.

    `options` are those of the command line by name, such as `nproc_per_node=4`, `grace=60.0` (seconds), `console=[0]`
    or `no_prefix=True`. What the ranks print is shown as ever. A failing rank is no exception: see `Outcome.status`,
    `Outcome.cause` and `Outcome.check()`.

        import ascend_runner

        outcome = ascend_runner.launch(["python", "-c", "print('hello')"], nproc_per_node=2)
        outcome.check()

    A KeyboardInterrupt tears the job down, then goes on. If this process dies, the job is torn down as well.
    Errors: AscendRunnerError, by its subclass, where the runner itself failed; TypeError for an unknown option.
    """
    if isinstance(command, (str, os.PathLike)):
        raise TypeError(f"launch() takes the words of a command, such as ['python', 'train.py'], not {command!r}")

    argv = [sys.executable, "-m", "ascend_runner", *_flags(options), "--", *(os.fspath(word) for word in command)]
    with open(os.memfd_create("outcome"), "r+b") as outcome_file:
        fd = outcome_file.fileno()
        env = {**(os.environ if environ is None else environ), result.LAUNCH_VARIABLE: f"{os.getpid()}:{fd}"}
        # A session of its own: a terminal's Ctrl-C would reach it beside ours, and the second one means "kill now".
        child = subprocess.Popen(
            argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, pass_fds=(fd,), start_new_session=True
        )
        try:
            status = child.wait()
        except BaseException:
            child.send_signal(signal.SIGINT)
            child.wait()
            raise
        outcome_file.seek(0)
        return result.decode(outcome_file.read(), status)


def prepare(
    table: str | os.PathLike[str] | None = None,
    *,
    timeout: float = settings.HCCL_RANK_TABLE_LIMIT,
    environ: MutableMapping[str, str] = os.environ,
) -> RankTable:
    """Await the rank table, convert it, and point RANK_TABLE_FILE and RANK_SIZE of this process at the result.

    For a script that is started by other means and only wants a table that its framework can read. `table` is a file or
    a folder; by default it is looked for where `ascend-runner` looks. `timeout` is in seconds.

        import ascend_runner

        table = ascend_runner.prepare()
        print(f"{table.rank_size} ranks on {table.server_count} servers")

    A table without devices unsets RANK_TABLE_FILE. Errors: RankTableError, OutputError.
    """
    cwd = os.getcwd()
    place = table_place(os.fspath(table) if table is not None else None, environ, cwd)
    snapshot = source.await_snapshot(place, timeout=timeout)
    rank_size = str(max(1, snapshot.table.rank_size))
    if not snapshot.table.devices:
        for variable in conflicts.TABLE:
            environ.pop(variable, None)
        environ["RANK_SIZE"] = rank_size
        return snapshot.table

    data = codec.hand_on(snapshot.table, snapshot.data)
    surroundings = plan.Surroundings(environ, cwd, os.uname().nodename, os.path.isdir)
    target = plan.place_table(data, plan.find_log_dir(settings.Settings(), surroundings), surroundings)
    environ["RANK_TABLE_FILE"] = write_table(target, warn=_warn)
    environ["RANK_SIZE"] = rank_size
    return snapshot.table


@attrs.frozen(kw_only=True)
class CurrentRank:
    """Who this process is in its job. `device_index` is the local index of its NPU; `table` None without one."""

    rank_id: int
    local_rank: int
    rank_size: int
    device_index: int
    table: RankTable | None


def current_rank(environ: Mapping[str, str] = os.environ) -> CurrentRank:
    """Tell, inside a rank, who it is.

        import ascend_runner

        rank = ascend_runner.current_rank()
        print(f"rank {rank.rank_id} of {rank.rank_size} on device {rank.device_index}")

    Errors: NotARankError outside of a rank; RankTableError for a table that cannot be read.
    """
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
    """Where the platform keeps a job's data, each as a Path; None where it has none.

    `datasets` are those that DATASET_MAP lists, by their names, and `dataset` is the folder of all of them. What is in
    `result` when the job ends is what the platform collects. A folder that a variable names need not exist yet.
    """

    dataset: Path | None
    datasets: Mapping[str, Path]
    cached_dataset: Path | None
    model: Path | None
    result: Path | None
    code: Path | None


def platform(environ: Mapping[str, str] = os.environ) -> Platform:
    """Find the platform's folders: by its variables first, then where it is known to put them. In a rank or before.

        import ascend_runner

        folders = ascend_runner.platform()
        for name, path in folders.datasets.items():
            print(name, sorted(path.iterdir())[:3])

    Errors: SettingsError for a DATASET_MAP that is no JSON object of names and paths.
    """
    found = folders.find(environ, os.path.isdir)
    paths = {name: Path(path) if path else None for name, path in found._asdict().items() if name != "datasets"}

    return Platform(datasets={name: Path(path) for name, path in found.datasets.items()}, **paths)


def _flags(options: Mapping[str, object]) -> list[str]:
    known = {option.name: option for option in settings.OPTIONS}
    flags: list[str] = []
    for name, value in options.items():
        if name not in known:
            raise TypeError(f"launch() has no option {name!r}, expected one of {', '.join(known)}")
        option = known[name]
        if value is None:
            continue
        if option.is_switch:
            flags += [option.flag] if value else []
        elif isinstance(value, (str, os.PathLike)):
            flags += [option.flag, os.fspath(value)]
        elif isinstance(value, (int, float)):
            flags += [option.flag, str(value)]
        elif isinstance(value, Iterable):
            flags += [option.flag, ",".join(map(str, value)) or "none"]
        else:
            raise TypeError(f"launch() cannot take {value!r} for {name}")
    return flags


def _number(environ: Mapping[str, str], name: str) -> int:
    value = environ.get(name, "")
    if not (value.isascii() and value.isdigit()):
        found = f"it is {value!r}" if name in environ else "it is not set"
        raise errors.NotARankError(f"this process is no rank: {name} is expected to be a whole number, and {found}")
    return int(value)


def _warn(sentence: str) -> None:
    import warnings  # here only

    warnings.warn(sentence, stacklevel=3)
