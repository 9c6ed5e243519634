"""What must not be set together, as one table: refused where it is forbidden, cleaned where it is stale.

Sources: HCCL's user guide and environment variable reference, torch_npu's list of variables, MindSpore's msrun.
"""

from __future__ import annotations

import enum

from ascend_runner.annotations import TYPE_CHECKING, Callable, Final, NamedTuple
from ascend_runner.errors import SettingsError
from ascend_runner.platforms.variables import is_whole_number

from .hccl import VISIBLE_DEVICES, visible_devices
from .situation import Changes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .situation import Situation

CONNECT_TIMEOUTS: Final = range(120, 7200 + 1)  # seconds that HCCL takes; anything else is EI0001
LOWEST_MINDSPORE_PORT: Final = 1024
HIGHEST_CHIEF_PORT: Final = 65520
EVENT_TIMEOUT: Final = 1868  # seconds, torch_npu's default


class Remedy(enum.Enum):
    """What is done about a conflict."""

    REFUSE = enum.auto()
    CLEAN = enum.auto()
    WARN = enum.auto()


class Conflict(NamedTuple):
    """One row: when it holds, for a framework in a situation; what is done; the sentence why.

    `names` are what CLEAN unsets; a star at its end makes a name stand for all that begin so. The sentence is filled in
    with variables, by their names, and with `nproc`, `rank_size` and `port`.
    """

    holds: Callable[[str, Situation], bool]
    remedy: Remedy
    sentence: str
    names: tuple[str, ...] = ()


def _is_set(situation: Situation, *names: str) -> bool:
    return any(_matching(names, situation.environ))


def _number(situation: Situation, name: str, *, default: int) -> int:
    text = situation.environ.get(name, "")
    return int(text) if is_whole_number(text) else default


def _uses_chief(framework: str, situation: Situation) -> bool:
    return framework == "tensorflow" and not situation.table_path and situation.rank_size > 1


def _is_other_size(situation: Situation, name: str) -> bool:
    return situation.environ.get(name, "") not in {"", str(situation.rank_size)}


def _are_devices_malformed(situation: Situation) -> bool:
    devices = visible_devices(situation.environ)
    if not all(map(is_whole_number, devices)):
        return True
    numbers = [int(device) for device in devices]
    return numbers != sorted({*numbers})


def _is_event_timeout_low(situation: Situation) -> bool:
    # 0 means no limit for either.
    exec_timeout = _number(situation, "HCCL_EXEC_TIMEOUT", default=0)
    event_timeout = _number(situation, "HCCL_EVENT_TIMEOUT", default=EVENT_TIMEOUT)
    return 0 < event_timeout <= exec_timeout


def _is_connect_timeout_odd(situation: Situation) -> bool:
    text = situation.environ.get("HCCL_CONNECT_TIMEOUT", "")
    return bool(text) and (not is_whole_number(text) or int(text) not in CONNECT_TIMEOUTS)


TABLE: Final = ("RANK_TABLE_FILE", "RANK_TABLE_FILE_V_1_0", "MINDSPORE_HCCL_CONFIG_PATH")
CHIEF: Final = ("CM_CHIEF_IP", "CM_CHIEF_PORT", "CM_CHIEF_DEVICE", "CM_WORKER_SIZE", "CM_WORKER_IP")
CLUSTER: Final = ("MS_ROLE", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_WORKER_NUM", "MS_NODE_ID", "MS_SERVER_NUM")

CONFLICTS: Final = (
    # --- stale: what an earlier launcher, or the platform for the whole node, has left
    Conflict(
        lambda _framework, situation: _is_set(situation, *TABLE),
        Remedy.CLEAN,
        "the platform's rank table is a folder, a link, or in a form that frameworks do not read: the ranks are given a"
        " converted one, or none",
        TABLE,
    ),
    Conflict(
        lambda framework, situation: framework in {"auto", "torch"} and _is_set(situation, "RANK", "WORLD_SIZE"),
        Remedy.CLEAN,
        "RANK and WORLD_SIZE count nodes on most platforms, and processes for torch: they are set anew for each rank",
        ("RANK", "WORLD_SIZE"),
    ),
    Conflict(
        lambda _framework, situation: _is_set(situation, "TORCHELASTIC_*"),
        Remedy.CLEAN,
        "TORCHELASTIC_* belong to torchrun: with its agent's store rank 0 would open none, and all would wait",
        ("TORCHELASTIC_*",),
    ),
    Conflict(
        lambda framework, situation: not _uses_chief(framework, situation) and _is_set(situation, *CHIEF),
        Remedy.CLEAN,
        "CM_* and RANK_TABLE_FILE, RANK_ID, RANK_SIZE exclude each other: the ranks get the latter",
        CHIEF,
    ),
    Conflict(
        lambda framework, situation: _uses_chief(framework, situation) and _is_set(situation, "RANK_ID", "RANK_SIZE"),
        Remedy.CLEAN,
        "CM_* and RANK_TABLE_FILE, RANK_ID, RANK_SIZE exclude each other: the ranks get the former",
        ("RANK_ID", "RANK_SIZE"),
    ),
    Conflict(
        lambda framework, situation: (
            framework != "mindspore-cluster" and bool(situation.table_path) and _is_set(situation, *CLUSTER)
        ),
        Remedy.CLEAN,
        "MS_ROLE and a rank table would be two descriptions of one cluster: the ranks get the table",
        CLUSTER,
    ),
    # --- forbidden: HCCL or a framework would refuse it, hang, or take the wrong card
    Conflict(
        lambda framework, situation: framework == "mindspore" and not situation.table_path and situation.rank_size > 1,
        Remedy.REFUSE,
        "--framework mindspore needs a rank table for {rank_size} ranks, and there is none: expected --framework"
        " mindspore-cluster",
    ),
    Conflict(
        lambda _framework, situation: _are_devices_malformed(situation),
        Remedy.REFUSE,
        f"{VISIBLE_DEVICES} is {{{VISIBLE_DEVICES}!r}}, expected rising numbers with commas and nothing else, such as"
        " 0,1,2: CANN ignores what follows the first that is wrong",
    ),
    Conflict(
        lambda _framework, situation: 0 < len(visible_devices(situation.environ)) < len(situation.rank_ids),
        Remedy.REFUSE,
        f"{VISIBLE_DEVICES} is {{{VISIBLE_DEVICES}!r}}, expected as many devices as this node has ranks, {{nproc}}",
    ),
    Conflict(
        lambda framework, situation: framework == "mindspore-cluster" and situation.isolate_devices,
        Remedy.REFUSE,
        "--isolate-devices does not go with --framework mindspore-cluster: its ranks take the device of their local"
        " number, and each would see one device only, number 0",
    ),
    Conflict(
        lambda framework, situation: (
            framework == "mindspore-cluster" and situation.node.master_port < LOWEST_MINDSPORE_PORT
        ),
        Remedy.REFUSE,
        f"the port of node 0 is {{port}}, expected {LOWEST_MINDSPORE_PORT} or more: MS_SCHED_PORT takes no less",
    ),
    Conflict(
        lambda framework, situation: (
            _uses_chief(framework, situation) and situation.node.master_port > HIGHEST_CHIEF_PORT
        ),
        Remedy.REFUSE,
        f"the port of node 0 is {{port}}, expected {HIGHEST_CHIEF_PORT} or less: CM_CHIEF_PORT takes no more",
    ),
    Conflict(
        lambda _framework, situation: (
            situation.environ.get("HCCL_INTRA_PCIE_ENABLE") == "1" == situation.environ.get("HCCL_INTRA_ROCE_ENABLE")
        ),
        Remedy.REFUSE,
        "HCCL_INTRA_PCIE_ENABLE and HCCL_INTRA_ROCE_ENABLE are both 1, expected at most one of them",
    ),
    Conflict(
        lambda framework, situation: framework == "mindspore-cluster" and _is_other_size(situation, "MS_WORKER_NUM"),
        Remedy.REFUSE,
        "MS_WORKER_NUM is {MS_WORKER_NUM!r}, expected the number of ranks, {rank_size}: with fewer the cluster is not"
        " built, and with more the last fail",
    ),
    Conflict(
        lambda framework, situation: _uses_chief(framework, situation) and _is_other_size(situation, "CM_WORKER_SIZE"),
        Remedy.REFUSE,
        "CM_WORKER_SIZE is {CM_WORKER_SIZE!r}, expected the number of ranks, {rank_size}",
    ),
    # --- odd: it may work with this version of CANN, or with this script
    Conflict(
        lambda _framework, situation: (
            situation.environ.get("HCCL_WHITELIST_DISABLE") == "0" and not _is_set(situation, "HCCL_WHITELIST_FILE")
        ),
        Remedy.WARN,
        "HCCL_WHITELIST_DISABLE is 0, expected HCCL_WHITELIST_FILE as well: HCCL checks against a list that it lacks",
    ),
    Conflict(
        lambda _framework, situation: _is_connect_timeout_odd(situation),
        Remedy.WARN,
        "HCCL_CONNECT_TIMEOUT is {HCCL_CONNECT_TIMEOUT!r}, expected a whole number of seconds, 120 to 7200 (EI0001)",
    ),
    Conflict(
        lambda framework, situation: framework in {"auto", "torch"} and _is_event_timeout_low(situation),
        Remedy.WARN,
        "HCCL_EVENT_TIMEOUT (1868 by default) is not above HCCL_EXEC_TIMEOUT, {HCCL_EXEC_TIMEOUT}: torch_npu gives up"
        " before HCCL says why",
    ),
    Conflict(
        lambda framework, situation: framework == "torch" and situation.isolate_devices,
        Remedy.WARN,
        "with --isolate-devices each rank sees one device, number 0: a script that takes the device of its LOCAL_RANK"
        " finds none",
    ),
)


def settle(framework: str, situation: Situation) -> Changes:
    """Refuse, clean and warn, as the table says. Errors: SettingsError, for the first that is forbidden."""
    said = told(framework, situation)
    for remedy, sentence in said:
        if remedy is Remedy.REFUSE:
            raise SettingsError(sentence)

    stale = (conflict.names for conflict in CONFLICTS if conflict.names and conflict.holds(framework, situation))
    return Changes(
        unset=frozenset(name for names in stale for name in _matching(names, situation.environ)),
        notes=tuple(sentence for remedy, sentence in said if remedy is Remedy.CLEAN),
        warnings=tuple(sentence for remedy, sentence in said if remedy is Remedy.WARN),
    )


def told(framework: str, situation: Situation) -> tuple[tuple[Remedy, str], ...]:
    """Give the sentence of every row that holds."""
    facts = {
        **situation.environ,
        "nproc": str(len(situation.rank_ids)),
        "rank_size": str(situation.rank_size),
        "port": str(situation.node.master_port),
    }
    return tuple(
        (conflict.remedy, conflict.sentence.format_map(facts))
        for conflict in CONFLICTS
        if conflict.holds(framework, situation)
    )


def _matching(names: tuple[str, ...], environ: Mapping[str, str]) -> list[str]:
    """Give those variables that names, or names with a star, stand for."""
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    return [name for name in environ if name in names or (prefixes and name.startswith(prefixes))]
