"""Every knob of the runner: its flag, its variable, its default, what it takes. A bad value names what carried it."""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Any, Callable, Final, NamedTuple
from ascend_runner.errors import SettingsError
from ascend_runner.platforms.node import Said

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE_PREFIX: Final = "ASCEND_RUNNER_"
HCCL_RANK_TABLE_LIMIT: Final = 1800.0  # seconds that HCCL itself waits for a table to be completed
GRACE: Final = 15.0  # seconds; the platforms' own scripts take 1 + 2 + 4 + 8
LOG_BACKUPS: Final = 3  # files put aside beside the one that grows
MOST_DIGITS: Final = 6  # of a rank or a count: no job has a million ranks, and a slip must not fill the memory
CHIPS: Final = ("910", "910B", "A3", "310P", "950")  # those of rank_table.checks, which a start need not import
BINDINGS: Final = ("none", "cores", "numa")  # those of linux.cores, which a start need not import
# Those of frameworks.decide and launchers.engines, which reading the settings need not import.
FRAMEWORKS: Final = ("auto", "mindspore", "mindspore-cluster", "torch", "tensorflow", "none")
LAUNCHERS: Final = (
    "direct",
    "torchrun",
    "torch.distributed.launch",
    "init-method",
    "mpirun",
    "deepspeed",
    "msrun",
)
DIRECT: Final = "direct"
WORKDIR_DEVICE: Final = "device"
WORKDIR_INHERIT: Final = "inherit"


SIZE_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Settings(NamedTuple):
    """What the user decided. None: not decided, the plan takes what the platform offers."""

    rank_table: str | None = None
    rank_table_timeout: float = HCCL_RANK_TABLE_LIMIT
    no_table_checks: bool = False
    chip: str | None = None
    nproc_per_node: int | None = None
    nnodes: int | None = None
    node_rank: int | None = None
    master_addr: str | None = None
    master_port: int | None = None
    framework: str = "auto"
    isolate_devices: bool = False
    conda_env: str | None = None
    launcher: str = DIRECT
    mpi_hostfile: str | None = None
    mpich_hostfile: str | None = None
    deepspeed_hostfile: str | None = None
    log_dir: str | None = None
    workdir: str | None = None
    bind: str | None = None
    grace: float = GRACE
    hang_timeout: float | None = None
    log_max_size: int = 0
    log_backups: int = LOG_BACKUPS
    console: frozenset[int] | None = None
    no_prefix: bool = False
    dry_run: bool = False
    check: bool = False
    json: bool = False
    quiet: bool = False
    verbose: bool = False

    @property
    def names_the_ranks(self) -> bool:
        """Whether the user has said which ranks there are, whatever a platform's variables say."""
        return self.rank_table is not None or self.nproc_per_node is not None

    @property
    def said(self) -> Said:
        """What the user says of this node; with a rank table, its devices are the table's to say."""
        devices = self.nproc_per_node if self.rank_table is None else None
        return Said(self.nnodes, self.node_rank, self.master_addr, self.master_port, devices)


class Option(NamedTuple):
    """One knob. `parse` turns its text into the value and says, by a ValueError, what it expected instead."""

    name: str
    parse: Callable[[str], Any]  # Any: each knob has its own type, that of the field of Settings with its name
    metavar: str
    help: str
    has_variable: bool = True

    @property
    def flag(self) -> str:
        """The name on the command line, such as --log-dir."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The name in the environment, such as ASCEND_RUNNER_LOG_DIR."""
        return VARIABLE_PREFIX + self.name.upper()

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value."""
        return not self.metavar


def decode(flags: Mapping[str, str], environ: Mapping[str, str]) -> Settings:
    """Make settings of the flags given (by option name) and the environment: a flag beats its variable.

    An empty variable counts as not set. Errors: SettingsError.
    """
    values: dict[str, object] = {}
    for option in OPTIONS:
        if option.name in flags:
            values[option.name] = _parse(option, flags[option.name], option.flag)
        elif option.has_variable and environ.get(option.variable):
            values[option.name] = _parse(option, environ[option.variable], option.variable)

    if "nproc_per_node" in flags and "rank_table" not in flags:
        values.pop("rank_table", None)  # it came from the variable, and the flag means: without a table

    settings = Settings(**values)  # type: ignore[arg-type]  # each option parses to the type of its field
    if settings.quiet and settings.verbose:
        raise SettingsError("--quiet and --verbose contradict each other, expected one of them")
    if settings.json and not settings.check:
        raise SettingsError("--json is without --check, expected both: it is a form of what --check prints")
    return settings


def _parse(option: Option, text: str, carrier: str) -> object:
    try:
        return option.parse(text)
    except ValueError as error:
        raise SettingsError(f"{carrier} is {text!r}, expected {error}") from None


# --- What the options take -------------------------------------------------------------------------------------------


def _path(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("a path")
    return text


def _workdir(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("'device', 'inherit' or a folder")
    return text


def _bind(text: str) -> str | None:
    if text not in BINDINGS:
        raise ValueError(f"one of {', '.join(BINDINGS)}")
    return None if text == BINDINGS[0] else text


def _seconds(text: str) -> float:
    expected = "a number of seconds, 0 or more"
    try:
        seconds = float(text)
    except ValueError:
        raise ValueError(expected) from None
    if not 0 <= seconds < float("inf"):
        raise ValueError(expected)
    return seconds


def _count(text: str) -> int:
    if not _is_whole_number(text) or int(text) == 0:
        raise ValueError("a whole number, 1 or more")
    return int(text)


def _limit(text: str) -> float:
    seconds = _seconds(text)
    if seconds == 0:
        raise ValueError("a number of seconds above 0")
    return seconds


def _whole_number(text: str) -> int:
    if not _is_whole_number(text):
        raise ValueError("a whole number, 0 or more")
    return int(text)


def _size(text: str) -> int:
    number, unit = (text[:-1], text[-1]) if text[-1:] in SIZE_UNITS else (text, "")
    if not _is_whole_number(number):
        raise ValueError("a size such as 500M or 2G (0: no limit)")
    return int(number) * SIZE_UNITS.get(unit, 1)


def _ranks(text: str) -> frozenset[int] | None:
    if text == "all":
        return None
    if text == "none":
        return frozenset()

    ranks: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (_is_whole_number(first) and _is_whole_number(last) and int(first) <= int(last)):
            raise ValueError("'all', 'none' or ranks such as '0,8-15'")
        ranks.update(range(int(first), int(last) + 1))
    return frozenset(ranks)


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return text

    return parse


def _word(expected: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not text or not text.isprintable() or " " in text:
            raise ValueError(expected)
        return text

    return parse


def _switch(text: str) -> bool:
    if text.lower() in {"1", "true", "yes", "on"}:
        return True
    if text.lower() in {"0", "false", "no", "off"}:
        return False
    raise ValueError("1 or 0")


def _is_whole_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


OPTIONS: Final = (
    Option(
        "rank_table",
        _path,
        "PATH",
        "a rank table file, or a folder that holds jobstart_hccl.json (default: where the platform puts it)",
    ),
    Option(
        "rank_table_timeout",
        _seconds,
        "SECONDS",
        f"how long to wait until the table is completed (default: {HCCL_RANK_TABLE_LIMIT:g}, HCCL's own limit)",
    ),
    Option(
        "no_table_checks",
        _switch,
        "",
        "launch although HCCL would refuse the table; a count that contradicts its list is mended",
    ),
    Option(
        "chip",
        _one_of(*CHIPS),
        "|".join(CHIPS),
        "what the table is checked for (default: what it or SOC_VERSION says, else any chip)",
    ),
    Option("nproc_per_node", _count, "N", "no rank table: start N ranks on each node (default: as the platform says)"),
    Option("nnodes", _count, "N", "how many nodes the job has (default: as the platform says, else 1)"),
    Option("node_rank", _whole_number, "N", "the number of this node, from 0 on (default: as the platform says)"),
    Option("master_addr", _word("a name or an address"), "HOST", "where node 0 is (default: as the platform says)"),
    Option("master_port", _count, "PORT", "the port of node 0 (default: as the platform says, else 29500)"),
    Option(
        "framework",
        _one_of(*FRAMEWORKS),
        "NAME",
        f"whose variables the ranks get: {', '.join(FRAMEWORKS)} (default: auto, which suits those that need no"
        " scheduler)",
    ),
    Option("isolate_devices", _switch, "", "let each rank see its own device only, by ASCEND_RT_VISIBLE_DEVICES"),
    Option(
        "conda_env",
        _word("a name or a folder, without spaces"),
        "NAME",
        "the conda environment that COMMAND runs in (default: DEFAULT_CONDA_ENV_NAME)",
    ),
    Option(
        "launcher",
        _one_of(*LAUNCHERS),
        "NAME",
        f"who starts the ranks of a node: {', '.join(LAUNCHERS)} (default: direct, this program)",
    ),
    Option("mpi_hostfile", _path, "PATH", "where Open MPI's list of hosts is written (default: /etc/mpi/hostfile)"),
    Option("mpich_hostfile", _path, "PATH", "where MPICH's is (default: /etc/mpi/mpich_hostfile)"),
    Option("deepspeed_hostfile", _path, "PATH", "where DeepSpeed's is (default: /job/hostfile)"),
    Option("log_dir", _path, "DIR", "where each rank's log goes (default: the platform's log folder, else /tmp/log)"),
    Option(
        "workdir",
        _workdir,
        "device|inherit|DIR",
        "working directory of each rank: a folder per device, this one, or DIR (default: device where MA_MOUNT_PATH is"
        " set, else inherit)",
    ),
    Option(
        "bind",
        _bind,
        "|".join(BINDINGS),
        "place each rank next to its NPU: on cores of its own, or on all of its NUMA node (default: none)",
    ),
    Option("grace", _seconds, "SECONDS", f"from the first SIGTERM to SIGKILL (default: {GRACE:g})"),
    Option(
        "hang_timeout",
        _limit,
        "SECONDS",
        "end the job, with every rank's stack, when no rank has written anything for so long (default: off)",
    ),
    Option(
        "log_max_size",
        _size,
        "SIZE",
        "put a log file aside before it grows over SIZE, such as 500M; no line is split (default: off)",
    ),
    Option("log_backups", _whole_number, "N", f"how many log files put aside are kept (default: {LOG_BACKUPS})"),
    Option("console", _ranks, "all|none|RANKS", "whose lines are shown, such as 0 or 0,8-15 (default: all)"),
    Option("no_prefix", _switch, "", "show lines without '[rank N] '"),
    Option("dry_run", _switch, "", "print the plan as JSON and start nothing", has_variable=False),
    Option(
        "check",
        _switch,
        "",
        "start nothing; say what would hinder the job on this node, and exit with 1 if something would; COMMAND may be"
        " left out",
        has_variable=False,
    ),
    Option("json", _switch, "", "print what --check found as JSON", has_variable=False),
    Option("quiet", _switch, "", "of the runner's own lines show only warnings and errors", has_variable=False),
    Option("verbose", _switch, "", "show all of the runner's own lines", has_variable=False),
)
