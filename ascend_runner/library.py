"""The functions that run the program: launch a command, plan it, check a node.

Each runs the command line in a child process: there is one code path, and a notebook, a thread or an asyncio
program keeps its own signal handlers.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypedDict

from ascend_runner import errors, programs
from ascend_runner.record.rank_record import Outcome
from ascend_runner.report import result
from ascend_runner.settings import parsing
from ascend_runner.settings.options import OPTIONS, OPTIONS_OF, REMOVED, Topic

if TYPE_CHECKING:
    from typing_extensions import Unpack  # typing.Unpack: Python 3.11


class Options(TypedDict, total=False):
    """The options of the command line by name. None is the same as leaving an option out. Times are in seconds."""

    # <options> written by scripts/generate
    rank_table: str | os.PathLike[str] | None
    rank_table_timeout: float | None
    no_table_checks: bool
    chip: str | None
    nproc_per_node: int | None
    nnodes: int | None
    min_nodes: int | None
    node_rank: int | None
    master_addr: str | None
    master_port: int | None
    pod_name: str | None
    server_id: str | None
    link: str | None
    link_port: int | None
    link_timeout: float | None
    node_timeout: float | None
    framework: str | None
    isolate_devices: bool
    conda_env: str | None
    workdir: str | os.PathLike[str] | None
    bind: str | None
    stdin: int | None
    launcher: str | None
    hosts: str | Iterable[str] | None
    job_name: str | None
    log_dir: str | os.PathLike[str] | None
    log_runs: int | None
    log_max_size: int | str | None
    html: str | None
    catalogue: str | os.PathLike[str] | None
    console: str | Iterable[int] | None
    timestamps: bool
    color: str | None
    progress_bars: str | None
    summary: float | None
    quiet: bool
    verbose: bool
    grace: float | None
    stop_signal: str | None
    hang_timeout: float | str | None
    hang_action: str | None
    checkpoint_signal: str | None
    checkpoint_grace: float | None
    time_limit: float | None
    max_restarts: int | None
    no_restart_on: str | Iterable[int | str] | None
    restart_on: str | Iterable[int | str] | None
    restart_delay: float | None
    exit_verdict: bool
    linger: float | None
    checkpoint_dir: str | os.PathLike[str] | None
    perf_pattern: str | None
    perf_threshold: float | None
    perf_drop: float | None
    perf_action: str | None
    stage: str | Iterable[str] | None
    hold: float | None
    hook: str | Iterable[str] | None
    precheck: str | None
    inspect: str | None
    # </options>


def launch(
    command: Sequence[str | os.PathLike[str]],
    *,
    environ: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> Outcome:
    """Run `command` as `ascend-runner [OPTIONS] COMMAND` does, wait until it ends, and return the outcome.

    `options` are the command-line options by name, such as `nproc_per_node=4`, `grace=60.0` (seconds), `console=[0]`
    or `exit_verdict=True`. The output of the ranks is shown as usual. `environ` and `cwd` are by default from this
    process. A failed rank raises no exception: see `Outcome.status`, `Outcome.cause` and `Outcome.check()`.

        import ascend_runner

        outcome = ascend_runner.launch(["python", "-c", "print('hello')"], nproc_per_node=2)
        outcome.check()

    A KeyboardInterrupt stops the job before it propagates. If this process dies, the job is stopped as well.

    Raises:
        AscendRunnerError: The runner itself failed; the subclass names the kind of failure.
        TypeError: An option is unknown, or `command` is not a sequence.
    """
    return _run([*_flags(options), "--", *_words(command)], environ, cwd)


def plan(
    command: Sequence[str | os.PathLike[str]],
    *,
    environ: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> dict[str, Any]:
    """Return the document that `ascend-runner --dry-run [OPTIONS] COMMAND` prints, and start nothing.

        import ascend_runner

        plan = ascend_runner.plan(["python", "train.py"], nproc_per_node=2)
        for rank in plan["ranks"]:
            print(rank["rank_id"], rank["cwd"], rank["variables"])

    Raises:
        AscendRunnerError: The job cannot be planned; the subclass names the kind of failure.
        TypeError: An option is unknown, or `command` is not a sequence.
    """
    return _printed(["--dry-run", *_flags(options), "--", *_words(command)], environ, cwd)


def check(
    command: Sequence[str | os.PathLike[str]] = (),
    *,
    environ: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> dict[str, Any]:
    """Return the document that `ascend-runner --check --json [OPTIONS] [COMMAND]` prints, and start nothing.

        import ascend_runner

        found = ascend_runner.check(["python", "train.py"], nproc_per_node=2)
        if found["verdict"] != "ok":
            print([finding for finding in found["checks"] if finding["verdict"] != "ok"])

    Errors that a check finds raise no exception.

    Raises:
        AscendRunnerError: The check itself failed; the subclass names the kind of failure.
        TypeError: An option is unknown, or `command` is not a sequence.
    """
    return _printed(["--check", "--json", *_flags(options), "--", *_words(command)], environ, cwd)


def _words(command: Sequence[str | os.PathLike[str]]) -> list[str]:
    if isinstance(command, (str, os.PathLike)):
        raise TypeError(f"the command must be a sequence such as ['python', 'train.py'], not {command!r}")
    return [os.fspath(word) for word in command]


def _printed(
    words: Sequence[str], environ: Mapping[str, str] | None, cwd: str | os.PathLike[str] | None
) -> dict[str, Any]:
    """Run a command line that prints JSON, and return the decoded document."""
    with open(os.memfd_create("printed"), "r+b") as printed:
        with suppress(errors.CheckFailedError):
            _run(words, environ, cwd, printed.fileno())
        printed.seek(0)
        document: dict[str, Any] = json.load(printed)
    return document


def _run(
    words: Sequence[str],
    environ: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    stdout: int | None = None,
) -> Outcome:
    """Run a command line in a child process and return its outcome; `stdout` is a file for its output."""
    argv = [*programs.argv(programs.RUNNER), *words]
    with open(os.memfd_create("outcome"), "r+b") as outcome_file:
        fd = outcome_file.fileno()
        env = {**(os.environ if environ is None else environ), result.LAUNCH_VARIABLE: f"{os.getpid()}:{fd}"}
        # In its own session: Ctrl-C in a terminal would reach it, too, and a second SIGINT means "kill now".
        child = subprocess.Popen(argv, env=env, cwd=cwd, stdout=stdout, pass_fds=(fd,), start_new_session=True)
        try:
            status = child.wait()
        except BaseException:
            is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # the child ignores it as well
            child.send_signal(signal.SIGTERM if is_ignored else signal.SIGINT)
            child.wait()
            raise
        outcome_file.seek(0)
        try:
            return result.decode(outcome_file.read(), status)
        except errors.AscendRunnerError as error:
            error.args = (_with_parameters(str(error)),)
            raise


def _with_parameters(sentence: str) -> str:
    """Return the sentence of an error with the parameters in place of the options: nproc_per_node=8."""
    names = {option.flag: option.name for option in OPTIONS if option not in OPTIONS_OF[Topic.CHECKS]}

    def parameter(found: re.Match[str]) -> str:
        name = names.get(found["flag"])
        return found[0] if name is None else f"{name}={found['value']}" if found["value"] else name

    return re.sub(r"(?<![\w-])(?P<flag>--[a-z-]+)(?: (?P<value>\d+|[A-Z]+)\b)?", parameter, sentence)


def _flags(options: Mapping[str, object]) -> list[str]:
    known = {option.name: option for option in OPTIONS if option not in OPTIONS_OF[Topic.CHECKS]}
    flags: list[str] = []
    for name, value in options.items():
        if name in REMOVED:
            raise TypeError(f"option {name!r} has been removed: {REMOVED[name]}")
        if name not in known:
            raise TypeError(f"unknown option {name!r}, expected one of {', '.join(known)}")
        option = known[name]
        if value is None:
            continue
        if option.is_switch:
            flags += [option.flag] if value else []
        elif isinstance(value, (str, os.PathLike)):
            flags += [option.flag, os.fspath(value)]
        elif isinstance(value, (int, float)):
            unit = "B" if option.parse is parsing.size else ""
            flags += [option.flag, f"{value}{unit}"]
        elif isinstance(value, Iterable) and option.is_repeatable:
            flags += [word for one in value for word in (option.flag, str(one))]
        elif isinstance(value, Iterable):
            flags += [option.flag, ",".join(map(str, value)) or "none"]
        else:
            raise TypeError(f"invalid value for {name}: {value!r}")
    return flags
