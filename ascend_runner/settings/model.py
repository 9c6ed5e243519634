"""The settings of one run, decoded from the options on the command line and their variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from ascend_runner.errors import SettingsError
from ascend_runner.platforms.node import Overrides
from ascend_runner.settings.options import OPTIONS, REMOVED, SEPARATOR, VARIABLE_PREFIX, Option, with_dashes
from ascend_runner.settings.parsing import NONE, OFF, nearest
from ascend_runner.supervision.causes import InspectAction, WatchAction
from ascend_runner.text import counted, rank_list

VARIABLES: Final = frozenset(option.variable for option in OPTIONS if option.variable)

ATTEMPT: Final = f"{VARIABLE_PREFIX}ATTEMPT"  # the attempt that a rank belongs to, counted from 0
CHECKPOINT: Final = f"{VARIABLE_PREFIX}CHECKPOINT"  # the newest complete checkpoint, for a rank
STAGED: Final = f"{VARIABLE_PREFIX}STAGED_"  # followed by a number: the path of the copy of a dataset, for a rank
LINK_SECRETS: Final = (f"{VARIABLE_PREFIX}LINK_SECRET", f"{VARIABLE_PREFIX}LINK_SECRET_FILE")  # no rank gets these
# The run directory, and what the ranks and hooks of a runner around this one have inherited.
_INHERITED: Final = "RUN_DIR CHECKPOINT_REQUESTS EVENT JOB STATE STATUS CAUSE REPORT STEP RANKS MISSING"
_OTHERS: Final = (ATTEMPT, CHECKPOINT, *LINK_SECRETS)
_KNOWN: Final = {*VARIABLES, *_OTHERS, *(VARIABLE_PREFIX + name for name in _INHERITED.split())}

# Kubernetes makes these for each service, hence for one that is called ascend-runner.
_OF_A_SERVICE: Final = r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\w+)?)"


def unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each unknown variable with a name that begins like an option's."""
    for name in sorted(environ):
        is_known = name in _KNOWN or name.startswith(STAGED) or re.fullmatch(_OF_A_SERVICE, name)
        if name.startswith(VARIABLE_PREFIX) and not is_known:
            yield f"ignoring unknown variable {name}{_near_variable(name)}"


def _near_variable(name: str) -> str:
    flag = "--" + with_dashes(name[len(VARIABLE_PREFIX) :]).lower()  # with the common prefix, all would be near matches
    near = nearest(flag, (option.flag for option in OPTIONS if option.variable))
    return f" (did you mean {VARIABLE_PREFIX}{near[2:].replace('-', '_').upper()}?)" if near else ""


# The options that have no effect without any of others.
REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "perf_action": ("perf_threshold", "perf_drop", "perf_pattern"),
    "restart_delay": ("max_restarts",),
    "restart_on": ("max_restarts", "exit_verdict"),
    "no_restart_on": ("max_restarts", "exit_verdict"),
}
# What --simulate determines for each node, and what it cannot do.
_NOT_SIMULATED: Final = (
    "rank_table nproc_per_node nnodes min_nodes node_rank master_addr pod_name server_id hosts stdin dry_run check"
)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Settings:
    """The value of each option; None: not set, the platform or other settings decide."""

    # <options> written by scripts/generate
    rank_table: str | None = None
    rank_table_timeout: float = 1800.0
    no_table_checks: bool = False
    chip: str | None = None
    nproc_per_node: int | None = None
    nnodes: int | None = None
    min_nodes: int | None = None
    node_rank: int | None = None
    master_addr: str | None = None
    master_port: int | None = None
    pod_name: str | None = None
    server_id: str | None = None
    link: str = "auto"
    link_port: int | None = None
    link_timeout: float = 600.0
    node_timeout: float | None = None
    framework: str = "auto"
    isolate_devices: bool = False
    conda_env: str | None = None
    workdir: str | None = None
    bind: str | None = None
    stdin: int | None = None
    launcher: str = "direct"
    hosts: tuple[tuple[str, int], ...] | None = None
    job_name: str | None = None
    log_dir: str | None = None
    log_runs: int = 50
    log_max_size: int = 0
    html: str = "failure"
    catalogue: str | None = None
    console: frozenset[int] | None = None
    timestamps: bool = False
    color: str = "auto"
    progress_bars: str = "fold"
    summary: float | None = None
    quiet: bool = False
    verbose: bool = False
    grace: float = 15.0
    stop_signal: str = "TERM"
    hang_timeout: float | str | None = None
    hang_action: str | None = None
    checkpoint_signal: str = "USR1"
    checkpoint_grace: float = 0.0
    time_limit: float | None = None
    max_restarts: int = 0
    no_restart_on: frozenset[int] | None = None
    restart_on: frozenset[int] | None = None
    restart_delay: float | None = None
    exit_verdict: bool = False
    linger: float | None = None
    checkpoint_dir: str | None = None
    perf_pattern: str | None = None
    perf_threshold: float | None = None
    perf_drop: float | None = None
    perf_action: str | None = None
    stage: tuple[tuple[str, str], ...] = ()
    hold: float = 0.0
    hook: tuple[tuple[str, str], ...] = ()
    precheck: str = "warn"
    inspect: str | None = None
    dry_run: bool = False
    check: bool = False
    json: bool = False
    simulate: tuple[int, int] | None = None
    # </options>

    @property
    def names_the_ranks(self) -> bool:
        """Whether the user determines the ranks of this node, regardless of the platform's variables."""
        return self.rank_table is not None or self.nproc_per_node is not None

    @property
    def names_this_node(self) -> bool:
        """Whether the user says which part of the rank table is this node's, regardless of the platform's variables."""
        return bool(self.pod_name or self.server_id) or None not in {self.nnodes, self.node_rank}

    def without_effect(self) -> Iterator[str]:
        """Yield a sentence about each option that has no effect because another one is not set."""
        options = {option.name: option for option in OPTIONS}
        changed = {name for name, option in options.items() if getattr(self, name) != option.default}
        for name, others in REQUIRED.items():
            if name in changed and changed.isdisjoint(others):
                *flags, last = (options[other].flag for other in others)
                either = f"{', '.join(flags)} or " if flags else ""
                yield f"{options[name].flag} has no effect without {either}{last}"
        if self.hang_action and self.hang_timeout == OFF:
            yield "--hang-action has no effect with --hang-timeout off"

    def selects_beyond(self, rank_size: int) -> Iterator[str]:
        """Yield a sentence about each option that selects ranks which a job of this size does not have."""
        stdin = () if self.stdin is None else (self.stdin,)
        for option, named in (("--console", self.console or ()), ("--stdin", stdin)):
            missing = [rank for rank in sorted(named) if rank >= rank_size]
            if missing:
                yield f"{option} selects {rank_list(missing)}, but the job has only {counted(rank_size, 'rank')}"

    @property
    def overrides(self) -> Overrides:
        """The facts of this node that override the platform's."""
        return Overrides(
            nnodes=self.nnodes,
            min_nodes=self.min_nodes,
            node_rank=self.node_rank,
            master_addr=self.master_addr,
            master_port=self.master_port,
            devices_per_node=self.nproc_per_node,
        )


def decode(flags: Mapping[str, str], environ: Mapping[str, str]) -> Settings:
    """Decode options (values by name) and variables. An option overrides its variable, which is not read then.

    The values of an option that is repeated are separated by `SEPARATOR`. An empty variable is not set.

    Raises:
        SettingsError: A value is invalid, a variable belongs to a removed option, or options contradict each other.
    """
    _check_removed(environ)
    values: dict[str, object] = {}
    for option in OPTIONS:
        if option.name in flags:
            values[option.name] = _parse(option, option.flag, flags[option.name], SEPARATOR)
        elif environ.get(option.variable):
            values[option.name] = _parse(option, option.variable, environ[option.variable], "\n")
    for one, other in (("nproc_per_node", "rank_table"), ("rank_table", "nproc_per_node")):
        if one in flags and other not in flags:
            values.pop(other, None)  # it came from its variable, and the option means to start other ranks

    settings = Settings(**values)  # type: ignore[arg-type]  # each parser returns the type of its setting
    if settings.quiet and settings.verbose:
        raise SettingsError("--quiet and --verbose cannot be used together")
    if settings.json and not settings.check:
        raise SettingsError("--json requires --check")
    _check_simulation(settings)
    _check_actions(settings)
    _check_checkpoints(settings)
    both = (settings.restart_on or frozenset()) & (settings.no_restart_on or frozenset())
    if both:
        raise SettingsError(f"--restart-on and --no-restart-on both contain {min(both)}")
    return settings


def _check_removed(environ: Mapping[str, str]) -> None:
    for name, instead in REMOVED.items():
        if environ.get(VARIABLE_PREFIX + name.upper()):
            raise SettingsError(f"variable {VARIABLE_PREFIX}{name.upper()} has been removed: {instead}")


def _check_simulation(settings: Settings) -> None:
    for option in OPTIONS if settings.simulate else ():
        if option.name in _NOT_SIMULATED.split() and getattr(settings, option.name) != option.default:
            raise SettingsError(f"--simulate and {option.flag} cannot be used together")


def _check_actions(settings: Settings) -> None:
    for name, action in (("--hang-action", settings.hang_action), ("--perf-action", settings.perf_action)):
        if action == WatchAction.RESTART.value and not settings.max_restarts:
            raise SettingsError(f"{name} restart requires --max-restarts")


def _check_checkpoints(settings: Settings) -> None:
    signal, grace, limit = settings.checkpoint_signal, settings.checkpoint_grace, settings.time_limit
    if signal == NONE and grace:
        raise SettingsError("--checkpoint-grace and --checkpoint-signal none cannot be used together")
    if signal == NONE and settings.inspect == InspectAction.CHECKPOINT.value:
        raise SettingsError("--inspect checkpoint and --checkpoint-signal none cannot be used together")
    if signal == "TERM" and not grace:
        raise SettingsError(
            "--checkpoint-signal TERM requires --checkpoint-grace, because without it SIGTERM stops the job at once"
        )
    if limit is not None and grace >= limit:
        raise SettingsError(f"--checkpoint-grace ({grace:g} s) must be shorter than --time-limit ({limit:g} s)")


def _parse(option: Option, carrier: str, text: str, separator: str) -> object:
    if option.is_repeatable:
        return tuple(_parse_one(option, carrier, one) for one in text.split(separator))
    return _parse_one(option, carrier, text)


def _parse_one(option: Option, carrier: str, text: str) -> object:
    try:
        return option.parse(text)
    except ValueError as error:
        raise SettingsError(f"invalid value {option.shown(text)} for {carrier}: expected {error}") from None
