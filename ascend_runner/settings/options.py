"""The table of options: each option of the command line is written here, once.

`Settings`, the keyword arguments of `launch()`, `--help` and the table in README.md beside it follow from it;
`scripts/generate` writes the static ones. Choices come from the modules that implement them.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Callable, Collection, Mapping
from typing import Final

import attrs

from ascend_runner.engines import registry as engines
from ascend_runner.frameworks import registry as frameworks
from ascend_runner.node import cores
from ascend_runner.platforms.chips import CHIPS
from ascend_runner.settings import parsing
from ascend_runner.supervision.causes import InspectAction, WatchAction
from ascend_runner.text import quoted

VARIABLE_PREFIX: Final = "ASCEND_RUNNER_"
REMOVED: Final[Mapping[str, str]] = {  # options of earlier versions, and what to do instead
    "deepspeed_hostfile": "DeepSpeed's host file is written to the log directory unless /job/hostfile exists",
    "inspect_interval": "a node is inspected once a minute; --inspect off turns it off",
    "log_backups": "three rotated log files are kept; choose a larger --log-max-size",
    "max_same_failures": "the same failure is retried three times in a row; limit all restarts with --max-restarts",
    "mpi_hostfile": "set OMPI_MCA_orte_default_hostfile to the path of Open MPI's host file",
    "mpich_hostfile": "set HYDRA_HOST_FILE to the path of MPICH's host file",
    "no_prefix": "show one rank with --console RANK, or read its log file, which has no prefixes",
}
_NAMES_ELSEWHERE: Final[Mapping[str, str]] = {
    "--nproc-per-node": "-n -np --np --nproc --nprocs --num-proc --num-procs --num-processes --num-gpus --worker-num"
    " --local-worker-num --ntasks --ntasks-per-node",
    "--nnodes": "-N --nodes --num-nodes --num-machines",
    "--node-rank": "--machine-rank",
    "--master-addr": "--main-process-ip --sched-host",
    "--master-port": "--main-process-port --sched-port",
    "--rank-table": "--rank-table-file",
    "--rank-table-timeout": "--cluster-time-out",
    "--hosts": "-H --host --hostfile --machinefile --nodelist",
    "--bind": "--bind-core --bind-numa --bind-to --numa-binding",
    "--grace": "--shutdown-timeout",
    "--isolate-devices": "--virtual-local-rank",
    "--console": "-t --tee -r --redirects --local-ranks-filter --tail-worker-log",
}
FOREIGN: Final[Mapping[str, str]] = {  # options of other launchers, with what to use instead or why there is nothing
    **{theirs: ours for ours, names in _NAMES_ELSEWHERE.items() for theirs in names.split()},
    **dict.fromkeys(
        ("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf"),
        "there is no rendezvous; --nnodes, --node-rank and --master-addr describe nodes without a platform",
    ),
    "--standalone": "not needed; without --nnodes and a platform, the job runs on this node alone",
    "--join": "not needed; ascend-runner always waits for the ranks, and reports the cause of a failure",
    **dict.fromkeys(
        ("--sim-level", "--sim-rank-id"),
        "no launcher is needed: env MS_SIMULATION_LEVEL=1 RANK_SIZE=8 RANK_ID=0 python train.py simulates a rank",
    ),
    "--worker-log-name": "a log is named after the job, the rank and its device; set --job-name and --log-dir",
    "--allow-run-as-root": "not needed",
    **dict.fromkeys(("--no-python", "--run-path"), "not needed; the command is any program, such as python train.py"),
    "--use-env": "not needed; the ranks find their numbers in RANK, LOCAL_RANK and other variables",
    "--role": "there are no roles; all ranks run the same command",
    "--local-addr": "not needed; the nodes connect to --master-addr",
    "--monitor-interval": "not needed; the end of a rank is noticed at once",
    "--start-method": "not needed; each rank is a program of its own",
    "--signals-to-handle": "not needed; SIGTERM, SIGINT, SIGHUP and SIGQUIT stop the ranks, and SIGUSR1 and SIGUSR2 are"
    " passed on to those that handle them",
    "--event-log-handler": "not needed; events are written to <job>-events.jsonl in --log-dir",
    "--logs-specs": "not needed; the output of each rank is written to a file in --log-dir",
    **dict.fromkeys(
        ("--duplicate-stdout-filters", "--duplicate-stderr-filters"),
        "ascend-job logs -f --grep PATTERN shows the lines that match, of all ranks",
    ),
    "--print-completion": "ascend-job completion bash prints the completions of all commands",
    "-x": "not needed; the ranks inherit all environment variables",
}
SEPARATOR: Final = "\0"  # separates the values of a repeated option; no argument contains it


class Topic(enum.Enum):
    """A group of options in `--help`, by the word for `--help TOPIC`."""

    TABLE = "table", "rank table"
    NODES = "nodes", "nodes and ranks"
    RANKS = "ranks", "what each rank gets"
    LAUNCHERS = "launchers", "other launchers"
    OUTPUT = "output", "logs and console"
    STOPPING = "stopping", "stopping"
    RESTARTS = "restarts", "restarts after a failure"
    PERFORMANCE = "performance", "slow training"
    DATA = "data", "datasets"
    HOOKS = "hooks", "hooks, and a hold after a failure"
    HEALTH = "health", "health of the node"
    CHECKS = "checks", "dry run, checks and simulation"

    def __init__(self, word: str, title: str) -> None:
        """`word` is the TOPIC of `--help TOPIC`, `title` the heading."""
        self.word = word
        self.title = title


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Option:
    """One option of a topic. A switch has no `metavar` and takes no value. `choices` are all values that are accepted.

    An option with `is_repeatable` may be given more than once, and its setting is a tuple of all values. In a variable,
    each line has one value.

    `parse` turns the text into the value of the setting, or raises a ValueError with the expected form. `default_text`
    describes a default that depends on the platform or on other settings. `shown` returns an invalid value as the error
    shows it.
    """

    name: str
    help: str
    choices: Collection[str] = ()
    metavar: str = attrs.Factory(lambda option: "|".join(option.choices), takes_self=True)
    parse: Callable[[str], object] = attrs.Factory(
        lambda option: parsing.one_of(option.choices) if option.choices else parsing.switch, takes_self=True
    )
    default: object = attrs.Factory(lambda option: None if option.metavar else False, takes_self=True)
    default_text: str = ""
    has_variable: bool = True
    is_common: bool = False
    is_repeatable: bool = False
    shown: Callable[[str], str] = repr

    @property
    def flag(self) -> str:
        """The name on the command line, such as --log-dir."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable, such as ASCEND_RUNNER_LOG_DIR; empty if there is none."""
        return VARIABLE_PREFIX + self.name.upper() if self.has_variable else ""

    @property
    def usage(self) -> str:
        """The flag and its value, such as --log-dir DIR."""
        return f"{self.flag} {self.metavar}".rstrip()

    @property
    def is_switch(self) -> bool:
        """Whether the option takes no value."""
        return not self.metavar

    @property
    def shown_default(self) -> str:
        """The default as help shows it; empty for a switch."""
        if self.default_text or self.is_switch:
            return self.default_text
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


def with_dashes(flag: str) -> str:
    """Return a flag with dashes: torchrun accepts --nproc_per_node as well."""
    return flag.replace("_", "-")


HCCL_RANK_TABLE_LIMIT: Final = 1800.0  # seconds that HCCL itself waits for a complete rank table
WORKDIR_DEVICE: Final = "device"
WORKDIR_INHERIT: Final = "inherit"
FOLD: Final = "fold"
HTML: Final = ("failure", "always", "never")
PROGRESS_BARS: Final = (FOLD, "pass")
STOP_SIGNUMS: Final = {"TERM": signal.SIGTERM, "INT": signal.SIGINT}
COLOR_AUTO: Final = "auto"
COLOR_ALWAYS: Final = "always"
COLOR_NEVER: Final = "never"
ACTIONS: Final = tuple(action.value for action in WatchAction)
INSPECT_ACTIONS: Final = tuple(action.value for action in InspectAction)
PRECHECK_STOP: Final = "stop"
PRECHECKS: Final = (parsing.OFF, "warn", PRECHECK_STOP)
COLORS: Final = (COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER)
CHECKPOINT_SIGNUMS: Final = {"USR1": signal.SIGUSR1, "USR2": signal.SIGUSR2, "TERM": signal.SIGTERM, parsing.NONE: 0}
BINDINGS: Final = (parsing.NONE, *cores.BINDINGS)
LINK_REQUIRED: Final = "require"
LINKS: Final = ("auto", parsing.OFF, LINK_REQUIRED)

OPTIONS_OF: Final[Mapping[Topic, tuple[Option, ...]]] = {
    Topic.TABLE: (
        Option(
            name="rank_table",
            metavar="PATH",
            parse=parsing.path,
            default_text="where the platform puts it",
            help="rank table file, or a directory that contains jobstart_hccl.json",
        ),
        Option(
            name="rank_table_timeout",
            metavar="DURATION",
            parse=parsing.seconds,
            default=HCCL_RANK_TABLE_LIMIT,
            help="how long to wait for a complete rank table; HCCL itself waits 1800 s",
        ),
        Option(
            name="no_table_checks",
            help="start the job even if HCCL would reject the rank table; counts that do not match their lists are"
            " corrected",
        ),
        Option(
            name="chip",
            choices=CHIPS,
            default_text="from the rank table or SOC_VERSION, else any",
            help="chip to check the rank table for",
        ),
    ),
    Topic.NODES: (
        Option(
            name="nproc_per_node",
            metavar="N",
            parse=parsing.devices,
            default_text="from the platform",
            help="start N ranks on each node; the platform's rank table and number of devices are not used",
            is_common=True,
        ),
        Option(
            name="nnodes",
            metavar="N",
            parse=parsing.count,
            default_text="from the platform, else 1",
            help="number of nodes",
            is_common=True,
        ),
        Option(
            name="min_nodes",
            metavar="N",
            parse=parsing.count,
            default_text="the number of nodes",
            help="also start if the rank table lists fewer nodes than expected, but at least N",
        ),
        Option(
            name="node_rank",
            metavar="N",
            parse=parsing.number,
            default_text="from the platform",
            help="rank of this node, counted from 0",
            is_common=True,
        ),
        Option(
            name="master_addr",
            metavar="HOST",
            parse=parsing.word("a host name or an address"),
            default_text="from the platform",
            help="host name or address of node 0",
            is_common=True,
        ),
        Option(
            name="master_port",
            metavar="PORT",
            parse=parsing.count,
            default_text="from the platform, else 29500; on a single node a free port if 29500 is busy",
            help="port of node 0; not 60000 to 60031 or 16666, which HCCL uses",
        ),
        Option(
            name="pod_name",
            metavar="NAME",
            parse=parsing.word("a name without spaces"),
            default_text="from the platform",
            help="pod_name of this node in the rank table",
        ),
        Option(
            name="server_id",
            metavar="ID",
            parse=parsing.word("a name or an address without spaces"),
            default_text="from the platform",
            help="server_id of this node in the rank table, or another address of its server",
        ),
        Option(
            name="link",
            choices=LINKS,
            default=LINKS[0],
            help="link the runners of a job of several nodes, so that a failure on one node stops all ranks everywhere"
            " and all of them exit with its status; require: start no rank before every node has joined",
        ),
        Option(
            name="link_port",
            metavar="PORT",
            parse=parsing.count,
            default_text="one of eight between 17000 and 29999, derived from the job",
            help="port on which node 0 listens for the other nodes",
        ),
        Option(
            name="link_timeout",
            metavar="DURATION",
            parse=parsing.positive_seconds,
            default=600.0,
            help="how long to wait for nodes that are missing, with --link require or before a restart",
        ),
        Option(
            name="node_timeout",
            metavar="DURATION",
            parse=parsing.positive_seconds,
            default_text="off",
            help="stop the job if a node has been out of contact for this long; off: only if HCCL reports the node as"
            " lost, or all other ranks are silent as well",
        ),
    ),
    Topic.RANKS: (
        Option(
            name="framework",
            metavar="NAME",
            choices=frameworks.NAMES,
            default=frameworks.AUTO,
            help=f"framework to set variables for: {', '.join(frameworks.NAMES)}; auto suits all frameworks that need"
            " no scheduler process",
            is_common=True,
        ),
        Option(
            name="isolate_devices",
            help="make only its own device visible to each rank (ASCEND_RT_VISIBLE_DEVICES)",
        ),
        Option(
            name="conda_env",
            metavar="NAME",
            parse=parsing.word("a name or a directory, without spaces"),
            default_text="DEFAULT_CONDA_ENV_NAME",
            help="conda environment to run COMMAND in: its name below ANACONDA_DIR, or its directory",
        ),
        Option(
            name="workdir",
            metavar=f"{WORKDIR_DEVICE}|{WORKDIR_INHERIT}|DIR",
            parse=parsing.directory_or(WORKDIR_DEVICE, WORKDIR_INHERIT),
            default_text="device on ModelArts, else inherit",
            help="working directory of each rank: one per device, the current directory, or DIR",
        ),
        Option(
            name="bind",
            choices=BINDINGS,
            parse=parsing.one_or_none(BINDINGS),
            default_text=parsing.NONE,
            help="bind each rank to CPU cores near its NPU: to cores of its own, or to all cores of the NUMA node",
        ),
        Option(
            name="stdin",
            metavar="none|RANK",
            parse=parsing.rank_or_none,
            default_text=parsing.NONE,
            help="rank that reads standard input, for input() and pdb; its output is shown at once and without a"
            " prefix",
        ),
    ),
    Topic.LAUNCHERS: (
        Option(
            name="launcher",
            metavar="NAME",
            choices=engines.NAMES,
            default=engines.DIRECT,
            help=f"program that starts the ranks of a node: {', '.join(engines.NAMES)}; direct is ascend-runner itself",
        ),
        Option(
            name="hosts",
            metavar="HOST[:N],...",
            parse=parsing.hosts,
            default_text="from the platform's variables or host files",
            help="all hosts of the job in the order of the nodes, each with its number of devices",
        ),
    ),
    Topic.OUTPUT: (
        Option(
            name="job_name",
            metavar="NAME",
            parse=parsing.job_name,
            default_text="the platform's job id, else the name of the command",
            help="name of the job in its logs and report, and JOB_ID of the ranks",
        ),
        Option(
            name="log_dir",
            metavar="DIR",
            parse=parsing.path,
            default_text="the platform's, else a new directory ./logs/<job>-<time>",
            help="directory for the log of each rank and the report; ./logs/latest links to the newest one",
            is_common=True,
        ),
        Option(
            name="log_runs",
            metavar="N",
            parse=parsing.count,
            default=50,
            help="number of earlier runs whose logs and reports are kept, in DIR/run-<n> or in ./logs, in addition to"
            " the newest one that succeeded",
        ),
        Option(
            name="log_max_size",
            metavar="SIZE",
            parse=parsing.size,
            default=0,
            default_text="no limit",
            help="rotate a log file before it exceeds SIZE, such as 500M, without splitting a line",
        ),
        Option(
            name="html",
            choices=HTML,
            default=HTML[0],
            help="when to also write the report as an HTML file; failure: unless the job succeeds or a signal stops it",
        ),
        Option(
            name="catalogue",
            metavar="FILE",
            parse=parsing.path,
            default_text="none",
            help="TOML file with this site's own explanations of errors, which precede the built-in ones on the failure"
            " screen; its format is that of ascend_runner/diagnosis/catalogue",
        ),
        Option(
            name="console",
            metavar="all|none|RANKS",
            parse=parsing.ranks,
            default_text="all",
            help="ranks to show on the console, such as 0 or 0,8-15",
            is_common=True,
        ),
        Option(name="timestamps", help="begin each line on the console with the time"),
        Option(
            name="color",
            choices=COLORS,
            default=COLOR_AUTO,
            help="color prefixes and messages; auto: on a terminal, unless NO_COLOR is set or TERM is dumb or unset,"
            " and always with FORCE_COLOR",
        ),
        Option(
            name="progress_bars",
            choices=PROGRESS_BARS,
            default=FOLD,
            help="show a line that is redrawn with carriage returns every second, or every 10 seconds if several ranks"
            " have one (fold), or each time (pass)",
        ),
        Option(
            name="summary",
            metavar="DURATION",
            parse=parsing.positive_seconds,
            default_text="off",
            help="write a line about the running job at this interval: running ranks, last step, slow and quiet"
            " ranks; for environments where ascend-job cannot be run",
        ),
        Option(name="quiet", help="show only warnings and errors of ascend-runner itself", has_variable=False),
        Option(name="verbose", help="show all messages of ascend-runner itself", has_variable=False),
    ),
    Topic.STOPPING: (
        Option(
            name="grace",
            metavar="DURATION",
            parse=parsing.seconds,
            default=15.0,  # the platforms' own scripts wait 1 + 2 + 4 + 8 s
            help="time to wait for the ranks to exit before they are killed",
            is_common=True,
        ),
        Option(
            name="stop_signal",
            choices=STOP_SIGNUMS,
            parse=parsing.signal_of(STOP_SIGNUMS),
            default="TERM",
            help="signal that asks the ranks to stop; after Ctrl-C it is always INT",
        ),
        Option(
            name="hang_timeout",
            metavar="DURATION|auto|off",
            parse=parsing.seconds_or_auto,
            default_text="auto, with --hang-action warn",
            help="consider the job hung if no rank writes anything, or sends a heartbeat, for this long; auto adapts to"
            " the pauses of the job and is at least 10 minutes; if it is given, the flight recorders of torch and"
            " torch_npu are switched on",
        ),
        Option(
            name="hang_action",
            choices=ACTIONS,
            default_text="warn; if --hang-timeout is given, stop, or restart with --max-restarts",
            help="what to do about a hang, after collecting the stacks of all ranks; stop ends the job even with"
            " --max-restarts",
        ),
        Option(
            name="checkpoint_signal",
            choices=CHECKPOINT_SIGNUMS,
            parse=parsing.signal_of(CHECKPOINT_SIGNUMS),
            default="USR1",
            help="signal that asks for a checkpoint: sent to ascend-runner, it reaches the processes of the ranks that"
            " handle it",
        ),
        Option(
            name="checkpoint_grace",
            metavar="DURATION",
            parse=parsing.seconds,
            default=0.0,
            help="time to wait for the ranks to save a checkpoint before SIGTERM, --time-limit, --inspect stop or"
            " --perf-action stops them; 0 disables this",
        ),
        Option(
            name="time_limit",
            metavar="DURATION",
            parse=parsing.positive_seconds,
            default_text="no limit",
            help="time after which the job is stopped, with exit status 124; measured from the start of the job, across"
            " all attempts",
        ),
    ),
    Topic.RESTARTS: (
        Option(
            name="max_restarts",
            metavar="N",
            parse=parsing.number,
            default=0,
            help="maximum number of restarts after a failure, of all nodes together; failures that a restart cannot fix"
            " are not retried",
            is_common=True,
        ),
        Option(
            name="no_restart_on",
            metavar="STATUS,...",
            parse=parsing.statuses,
            default_text="decided by the cause",
            help="exit statuses and signals after which the job is not restarted, such as 2,SIGSEGV",
        ),
        Option(
            name="restart_on",
            metavar="STATUS,...",
            parse=parsing.statuses,
            default_text="decided by the cause",
            help="exit statuses and signals after which the job is restarted, whatever the cause",
        ),
        Option(
            name="restart_delay",
            metavar="DURATION",
            parse=parsing.seconds,
            default_text="0 at first and after progress, else 10 s, doubled each time up to 300 s",
            help="time between the end of an attempt and the start of the next one",
        ),
        Option(
            name="exit_verdict",
            help="exit with 75 if a retry by the platform may help, or 93 if it will not, instead of the exit status of"
            " a failed rank",
        ),
        Option(
            name="linger",
            metavar="DURATION",
            parse=parsing.seconds,
            default_text="30 on MindCluster, else 0",
            help="delay the exit of a node whose ranks failed only because they lost a peer, so that the node with the"
            " cause exits first",
        ),
        Option(
            name="checkpoint_dir",
            metavar="DIR",
            parse=parsing.path,
            default_text="unknown",
            help="directory where the training saves its checkpoints, which need not exist yet; a newer checkpoint is"
            " progress, and the newest complete one is passed to the ranks in ASCEND_RUNNER_CHECKPOINT",
        ),
    ),
    Topic.PERFORMANCE: (
        Option(
            name="perf_pattern",
            metavar="REGEX",
            parse=parsing.step_pattern,
            default_text="the lines of common frameworks",
            help="regular expression for further lines about a step, with groups named step, seconds or ms, hardware,"
            " e2e (both in ms)",
            shown=quoted,
        ),
        Option(
            name="perf_threshold",
            metavar="RATIO",
            parse=parsing.ratio,
            default_text="off",
            help="consider the training slow if hardware time / end-to-end time is above RATIO in three steps in a row",
        ),
        Option(
            name="perf_drop",
            metavar="RATIO",
            parse=parsing.ratio,
            default_text="off",
            help="consider the training slow if it has lost more than this fraction of its best speed, such as 0.3; the"
            " speed is the median of 20 steps",
        ),
        Option(
            name="perf_action",
            choices=ACTIONS,
            default_text=WatchAction.WARN.value,
            help="what to do when the training is slow, or one rank of a node is slower than the others; stop ends the"
            " job even with --max-restarts",
        ),
    ),
    Topic.DATA: (
        Option(
            name="stage",
            metavar="SRC:DST",
            parse=parsing.stage,
            default=(),
            default_text="none",
            help="copy the dataset SRC, a directory or a file, into the directory DST on a local disk before the ranks"
            " start; {stage:0} in COMMAND is replaced with the path of the copy, which the ranks also find in"
            " ASCEND_RUNNER_STAGED_0; repeatable",
            is_repeatable=True,
        ),
    ),
    Topic.HOOKS: (
        Option(
            name="hold",
            metavar="DURATION",
            parse=parsing.seconds,
            default=0.0,
            default_text="off",
            help="keep the runner, and thus its container, alive for this long after a failure, or until ascend-job"
            " release",
        ),
        Option(
            name="hook",
            metavar="EVENT=CMD",
            parse=parsing.hook,
            default=(),
            default_text="none",
            help=f"run the shell command CMD at an event ({', '.join(parsing.HOOKS)}), 60 s at most; repeatable",
            shown=lambda text: repr(text.partition("=")[0]),  # the command may contain a secret
            is_repeatable=True,
        ),
    ),
    Topic.HEALTH: (
        Option(
            name="precheck",
            choices=PRECHECKS,
            default="warn",
            help="check this node as --check does; warn: while the job waits for its rank table, a host or a dataset,"
            " or 2 s after the start, without delaying it; stop: before the start, which an error prevents",
        ),
        Option(
            name="inspect",
            choices=INSPECT_ACTIONS,
            default_text="warn if this node has NPUs, else off",
            help="watch the NPUs, links, disks and memory of this node while the job runs, and after an error warn, ask"
            " for a checkpoint, or stop the job with exit status 124",
        ),
    ),
    Topic.CHECKS: (
        Option(
            name="dry_run",
            help="print the plan as JSON and start nothing",
            has_variable=False,
        ),
        Option(
            name="check",
            help="report within seconds what would prevent the job from running on this node, and start nothing; the"
            " exit status is 1 if there is an error; COMMAND is optional",
            has_variable=False,
            is_common=True,
        ),
        Option(name="json", help="print the results of --check as JSON", has_variable=False),
        Option(
            name="simulate",
            metavar="NODESxRANKS",
            parse=parsing.grid,
            default_text="off",
            help="run the job on simulated nodes, such as 4x8 for four nodes with eight ranks each: each has its own"
            " runner and, as root, its own network namespace; no NPU and no platform is needed",
            has_variable=False,
        ),
    ),
}
OPTIONS: Final = tuple(option for options in OPTIONS_OF.values() for option in options)
