"""Variables and options that must not be combined, as one table: refused, removed or warned about.

Sources: HCCL's user guide and environment variable reference, torch_npu's list of variables, MindSpore's msrun.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from ascend_runner.errors import SettingsError
from ascend_runner.frameworks.env_patch import VISIBLE_DEVICES, EnvPatch, LaunchContext, visible_devices
from ascend_runner.platforms import tf_config
from ascend_runner.platforms.node import number_of
from ascend_runner.text import is_whole_number

CONNECT_TIMEOUTS: Final = range(120, 7200 + 1)  # seconds that HCCL accepts; anything else is EI0001
LOWEST_MINDSPORE_PORT: Final = 1024
HIGHEST_CHIEF_PORT: Final = 65520
EVENT_TIMEOUT: Final = 1868  # seconds, torch_npu's default
EXEC_TIMEOUT: Final = 1836  # seconds, HCCL's default
# Seconds that HCCL accepts as HCCL_EXEC_TIMEOUT, by chip; 0 means no limit.
EXEC_TIMEOUTS: Final = {"910": range(1, 17341), "910B": range(2**31), "A3": range(2**31), "950": range(65536)}
LONGEST_IN_AIV: Final = 1091  # seconds, on the 950 with HCCL_OP_EXPANSION_MODE=AIV

TABLE: Final = ("RANK_TABLE_FILE", "RANK_TABLE_FILE_V_1_0", "MINDSPORE_HCCL_CONFIG_PATH")
CHIEF: Final = ("CM_CHIEF_IP", "CM_CHIEF_PORT", "CM_CHIEF_DEVICE", "CM_WORKER_SIZE", "CM_WORKER_IP")
CLUSTER: Final = ("MS_ROLE", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_WORKER_NUM", "MS_NODE_ID", "MS_SERVER_NUM")


class Remedy(enum.Enum):
    """The treatment of a conflict."""

    REFUSE = "refuse"
    REMOVE = "remove"
    WARN = "warn"


@attrs.frozen(eq=False, repr=False)
class Conflict:
    """One row: when it holds, what is done, and the sentence for the user.

    REMOVE unsets `names`; a name that ends in a star stands for all variables with that prefix. The sentence is
    formatted with the variables by their names, and with the facts in `find`.
    """

    holds: Callable[[LaunchContext], bool]
    remedy: Remedy
    sentence: str
    names: tuple[str, ...] = ()


def resolve(context: LaunchContext) -> EnvPatch:
    """Refuse and remove as the table says; `find` also has what to warn about.

    Raises:
        SettingsError: A combination is refused; the first one is named.
    """
    found = find(context)
    for remedy, sentence in found:
        if remedy is Remedy.REFUSE:
            raise SettingsError(sentence)

    stale = (conflict.names for conflict in CONFLICTS if conflict.names and conflict.holds(context))
    return EnvPatch(
        unset=frozenset(name for names in stale for name in _matching(names, context.environ)),
        notes=tuple(sentence for remedy, sentence in found if remedy is Remedy.REMOVE),
    )


def find(context: LaunchContext) -> tuple[tuple[Remedy, str], ...]:
    """Return remedy and sentence of every row that holds."""
    allowed = _exec_timeouts(context)
    facts = {
        **context.environ,
        "nproc": str(context.nproc),
        "rank_size": str(context.rank_size),
        "port": str(context.node.master_port),
        "event_timeout": f"{_event_timeout(context)}{_source(context, 'HCCL_EVENT_TIMEOUT')}",
        "exec_timeout": f"{_exec_timeout(context) or '0, no limit'}{_source(context, 'HCCL_EXEC_TIMEOUT')}",
        "allowed": f"{allowed[0]} to {allowed[-1]}",
        "chip": f" on the {context.chip}" if context.chip in EXEC_TIMEOUTS else "",
    }
    return tuple(
        (conflict.remedy, conflict.sentence.format_map(facts)) for conflict in CONFLICTS if conflict.holds(context)
    )


def _matching(names: tuple[str, ...], environ: Mapping[str, str]) -> list[str]:
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    return [name for name in environ if name in names or (prefixes and name.startswith(prefixes))]


def _is_set(context: LaunchContext, *names: str) -> bool:
    return any(_matching(names, context.environ))


def _is_torch(context: LaunchContext) -> bool:
    return context.framework in {"auto", "torch"}


def _is_cluster(context: LaunchContext) -> bool:
    return context.framework == "mindspore-cluster"


def _uses_chief(context: LaunchContext) -> bool:
    return context.framework == "tensorflow" and not context.table_path and context.rank_size > 1


def _is_other_size(context: LaunchContext, name: str) -> bool:
    return context.environ.get(name, "") not in {"", str(context.rank_size)}


def _are_devices_malformed(context: LaunchContext) -> bool:
    devices = visible_devices(context.environ)
    if not all(map(is_whole_number, devices)):
        return True
    numbers = [int(device) for device in devices]
    return numbers != sorted({*numbers})


def _source(context: LaunchContext, name: str) -> str:
    return "" if context.environ.get(name) else ", the default"


def _event_timeout(context: LaunchContext) -> int:
    return number_of(context.environ, "HCCL_EVENT_TIMEOUT", EVENT_TIMEOUT)


def _exec_timeout(context: LaunchContext) -> int:
    """Return HCCL's limit in seconds; 0: there is none."""
    is_bad = _is_exec_timeout_bad(context)
    return EXEC_TIMEOUT if is_bad else number_of(context.environ, "HCCL_EXEC_TIMEOUT", EXEC_TIMEOUT)


def _is_event_timeout_short(context: LaunchContext) -> bool:
    """Whether torch_npu stops waiting for a collective operation before HCCL does; 0 is no limit for both."""
    event, execution = _event_timeout(context), _exec_timeout(context)
    return event > 0 and (not execution or event <= execution)


def _exec_timeouts(context: LaunchContext) -> range:
    if context.chip == "950" and context.environ.get("HCCL_OP_EXPANSION_MODE") == "AIV":
        return range(LONGEST_IN_AIV + 1)
    return EXEC_TIMEOUTS.get(context.chip or "", range(2**31))


def _is_exec_timeout_bad(context: LaunchContext) -> bool:
    text = context.environ.get("HCCL_EXEC_TIMEOUT", "")
    return bool(text) and (not is_whole_number(text, 10) or int(text) not in _exec_timeouts(context))


def _is_connect_timeout_bad(context: LaunchContext) -> bool:
    text = context.environ.get("HCCL_CONNECT_TIMEOUT", "")
    return bool(text) and (not is_whole_number(text) or int(text) not in CONNECT_TIMEOUTS)


# Left over from an earlier launcher, or set by the platform for the whole node.
_STALE: Final = (
    Conflict(
        lambda context: _is_set(context, *TABLE),
        Remedy.REMOVE,
        "removed the platform's rank table variables: they name a directory, a link or a format that frameworks cannot"
        " read; the ranks get a converted table, or none",
        TABLE,
    ),
    Conflict(
        lambda context: _is_torch(context) and _is_set(context, "RANK", "WORLD_SIZE"),
        Remedy.REMOVE,
        "replaced RANK and WORLD_SIZE: they count nodes on most platforms, but processes for torch",
        ("RANK", "WORLD_SIZE"),
    ),
    Conflict(
        lambda context: _is_set(context, "TORCHELASTIC_*"),
        Remedy.REMOVE,
        "removed TORCHELASTIC_*: they belong to torchrun, and all ranks would wait for its agent's store",
        ("TORCHELASTIC_*",),
    ),
    Conflict(
        lambda context: not _uses_chief(context) and _is_set(context, *CHIEF),
        Remedy.REMOVE,
        "removed CM_*: they conflict with RANK_TABLE_FILE, RANK_ID and RANK_SIZE, which are set for the ranks",
        CHIEF,
    ),
    Conflict(
        lambda context: _uses_chief(context) and _is_set(context, "RANK_ID", "RANK_SIZE"),
        Remedy.REMOVE,
        "removed RANK_ID and RANK_SIZE: they conflict with CM_*, which is set for the ranks",
        ("RANK_ID", "RANK_SIZE"),
    ),
    Conflict(
        lambda context: not _is_cluster(context) and bool(context.table_path) and _is_set(context, *CLUSTER),
        Remedy.REMOVE,
        "removed MS_ROLE and the other variables of a MindSpore cluster: the ranks get a rank table instead",
        CLUSTER,
    ),
    Conflict(
        lambda context: context.framework != "tensorflow" and context.nproc > 1 and _is_set(context, tf_config.NAME),
        Remedy.REMOVE,
        "removed TF_CONFIG: it gives this node one task, but {nproc} ranks run here; --framework tensorflow gives each"
        " rank a task of its own",
        (tf_config.NAME,),
    ),
)

# HCCL or a framework would refuse it, hang, or take the wrong device.
_FORBIDDEN: Final = (
    Conflict(
        lambda context: context.framework == "mindspore" and not context.table_path and context.rank_size > 1,
        Remedy.REFUSE,
        "--framework mindspore requires a rank table for {rank_size} ranks, but there is none: use --framework"
        " mindspore-cluster",
    ),
    Conflict(
        _are_devices_malformed,
        Remedy.REFUSE,
        f"invalid value {{{VISIBLE_DEVICES}!r}} for {VISIBLE_DEVICES}: expected ascending numbers separated by commas,"
        " such as 0,1,2 (CANN ignores everything after the first invalid entry)",
    ),
    Conflict(
        lambda context: 0 < len(visible_devices(context.environ)) < context.nproc,
        Remedy.REFUSE,
        f"{VISIBLE_DEVICES} ({{{VISIBLE_DEVICES}}}) lists fewer devices than this node has ranks ({{nproc}})",
    ),
    Conflict(
        lambda context: _is_cluster(context) and context.isolate_devices,
        Remedy.REFUSE,
        "--isolate-devices cannot be used with --framework mindspore-cluster: each rank opens the device whose index"
        " is its local rank, but would see only device 0",
    ),
    Conflict(
        lambda context: _is_cluster(context) and context.node.master_port < LOWEST_MINDSPORE_PORT,
        Remedy.REFUSE,
        f"port {{port}} of node 0 is below {LOWEST_MINDSPORE_PORT}, the lowest one that MindSpore accepts",
    ),
    Conflict(
        lambda context: _uses_chief(context) and context.node.master_port > HIGHEST_CHIEF_PORT,
        Remedy.REFUSE,
        f"port {{port}} of node 0 is above {HIGHEST_CHIEF_PORT}, the highest one that CM_CHIEF_PORT accepts",
    ),
    Conflict(
        lambda context: (
            context.environ.get("HCCL_INTRA_PCIE_ENABLE") == "1" == context.environ.get("HCCL_INTRA_ROCE_ENABLE")
        ),
        Remedy.REFUSE,
        "HCCL_INTRA_PCIE_ENABLE and HCCL_INTRA_ROCE_ENABLE cannot both be 1",
    ),
    Conflict(
        lambda context: _is_cluster(context) and _is_other_size(context, "MS_WORKER_NUM"),
        Remedy.REFUSE,
        "MS_WORKER_NUM is {MS_WORKER_NUM!r}, but the number of ranks is {rank_size}",
    ),
    Conflict(
        lambda context: _uses_chief(context) and _is_other_size(context, "CM_WORKER_SIZE"),
        Remedy.REFUSE,
        "CM_WORKER_SIZE is {CM_WORKER_SIZE!r}, but the number of ranks is {rank_size}",
    ),
)

# It may work with this version of CANN, or with this script.
_SUSPICIOUS: Final = (
    Conflict(
        lambda context: (
            context.environ.get("HCCL_WHITELIST_DISABLE") == "0" and not _is_set(context, "HCCL_WHITELIST_FILE")
        ),
        Remedy.WARN,
        "HCCL_WHITELIST_DISABLE is 0, but HCCL_WHITELIST_FILE is not set: HCCL has no whitelist to check against",
    ),
    Conflict(
        _is_connect_timeout_bad,
        Remedy.WARN,
        "invalid value {HCCL_CONNECT_TIMEOUT!r} for HCCL_CONNECT_TIMEOUT: expected a whole number of seconds from 120"
        " to 7200 (EI0001)",
    ),
    Conflict(
        lambda context: _is_torch(context) and _is_event_timeout_short(context),
        Remedy.WARN,
        "HCCL_EVENT_TIMEOUT ({event_timeout}) does not exceed HCCL_EXEC_TIMEOUT ({exec_timeout}): torch_npu gives up"
        " before HCCL reports the cause",
    ),
    Conflict(
        _is_exec_timeout_bad,
        Remedy.WARN,
        "invalid value {HCCL_EXEC_TIMEOUT!r} for HCCL_EXEC_TIMEOUT: expected {allowed} seconds{chip}",
    ),
    Conflict(
        lambda context: context.framework == "torch" and context.isolate_devices,
        Remedy.WARN,
        "with --isolate-devices each rank sees only device 0: a script that uses LOCAL_RANK as its device index fails",
    ),
)

CONFLICTS: Final = (*_STALE, *_FORBIDDEN, *_SUSPICIOUS)
