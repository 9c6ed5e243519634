"""The NPUs of this node: whether those that the job takes are there, free and healthy, and what software they have.

Sources: the device nodes and mounts of Ascend Docker Runtime; CANN's installation guide (where its version stands);
npu-smi's reference; HCCL's error codes (EJ0001: a card is held by an earlier process).
"""

from __future__ import annotations

import os
import re

from ascend_runner import text
from ascend_runner.annotations import TYPE_CHECKING, Final
from ascend_runner.errors import reason
from ascend_runner.frameworks import hccl
from ascend_runner.linux import bounded, npu
from ascend_runner.linux.cgroup import read
from ascend_runner.linux.open_files import name_of, open_files

from .line import Line, error, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .scene import Scene

COMPANIONS: Final = ("davinci_manager", "devmm_svm", "hisi_hdc")  # no NPU works without these device nodes
NPU_SMI_FOLDERS: Final = ("/usr/local/sbin", "/usr/local/bin")  # where the driver puts it, or a container's mount
DRIVER: Final = "/usr/local/Ascend"
CANN_VARIABLES: Final = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")  # what its set_env.sh sets
CANN: Final = (f"{DRIVER}/cann", f"{DRIVER}/ascend-toolkit/latest", f"{DRIVER}/nnae/latest")
MOUNT: Final = "start the container with Ascend Docker Runtime, or mount it from the host"

# Of `npu-smi info`: "| 0     910B3    | OK     | 93.6 ..." for a card, "| 0       0   | 4711   | python ..." below.
_CARD: Final = re.compile(r"^\|\s*(\d+)\s+(\S+)\s*\|\s*([A-Za-z]+)\s*\|", re.MULTILINE)
_PROCESS: Final = re.compile(r"^\|\s*(\d+)\s+\d+\s*\|\s*(\d+)\s*\|\s*(\S+)", re.MULTILINE)


def devices(scene: Scene) -> Iterator[Line]:
    """Compare the device nodes with what the job takes."""
    nodes = npu.nodes(scene.root)
    present = tuple(nodes)
    if not present:
        if scene.table and scene.npus:
            yield error(
                f"no NPU is to be seen (/dev/davinci*), and the rank table gives {scene.npus} to this node",
                "request them for the pod (huawei.com/Ascend910: 8, or the like), or map them into the container",
            )
        elif scene.npus:
            yield warning("no NPU is to be seen (/dev/davinci*), the ranks would find none")
        return

    unusable = list(_unusable(nodes.values(), scene.root))
    yield from unusable
    if len(present) < scene.npus:
        yield error(
            f"{_listed(nodes)}, fewer than this node has ranks, {scene.npus}",
            "request as many as the rank table gives to this node, or map them into the container",
        )
    elif _are_others(present, scene):
        wanted = _ids(scene)
        indices = ",".join(str(present.index(device)) for device in sorted(wanted))
        yield warning(
            f"the rank table gives this node the NPUs {', '.join(map(str, wanted))}, but ranks would take the first"
            f" {len(wanted)} of /dev/davinci{text.rank_numbers(list(present))}",
            f"set {hccl.VISIBLE_DEVICES}={indices}"
            if wanted == tuple(sorted(wanted))
            else "order the table by device_id",
        )
    elif not unusable:
        yield ok(f"{_listed(nodes)}{_for_ranks(scene.nproc)}")


def _unusable(nodes: Iterable[str], root: str) -> Iterator[Line]:
    missing = [name for name in COMPANIONS if not os.path.exists(f"{root}/dev/{name}")]
    if missing:
        yield error(f"there is no {' and no '.join(f'/dev/{name}' for name in missing)}", MOUNT)
    names = [*nodes, *COMPANIONS]
    closed = [
        path
        for path in (f"{root}/dev/{name}" for name in names)
        if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK)
    ]
    if closed:
        group = os.stat(closed[0]).st_gid
        yield error(
            f"user {os.geteuid()} must not open {closed[0]}" + (f" and {len(closed) - 1} more" if closed[1:] else ""),
            f"run the job as a member of group {group}, which owns them",
        )


def _are_others(present: tuple[int, ...], scene: Scene) -> bool:
    """Whether ranks would take other NPUs than the table's: all of a machine are there, and the job has some."""
    wanted = _ids(scene)
    is_chosen = hccl.VISIBLE_DEVICES in scene.environ
    return not is_chosen and {*wanted} <= {*present} and wanted != present[: len(wanted)]


def _ids(scene: Scene) -> tuple[int, ...]:
    """Give the physical ids of this node's devices in the table; none without a table."""
    if not scene.table or not scene.job or not scene.npus:
        return ()
    return tuple(scene.table.rank(rank.rank_id).device_id for rank in scene.job.ranks)


def _listed(nodes: Mapping[int, str]) -> str:
    prefix = next(iter(nodes.values())).rstrip("0123456789")
    return f"{len(nodes)} NPU{'s' if len(nodes) > 1 else ''} (/dev/{prefix}{text.rank_numbers(list(nodes))})"


def _for_ranks(nproc: int) -> str:
    return f" for {nproc} rank{'s' if nproc > 1 else ''}" if nproc else ""


def leftovers(scene: Scene) -> Iterator[Line]:
    """Name the processes that hold device nodes: a job's own ranks would not get them."""
    is_node = re.compile(re.escape(scene.root) + r"/dev/v?davinci(\d+)").fullmatch
    held: dict[int, set[int]] = {}
    for found in open_files(scene.root):
        node = is_node(found.target)
        if node:
            held.setdefault(found.pid, set()).add(int(node[1]))
    for pid, numbers in sorted(held.items()):
        yield error(
            f"process {name_of(pid, scene.root)} holds davinci {text.rank_numbers(list(numbers))}",
            f"if no other job is meant to run here: kill -9 {pid}, and wait 10 s; HCCL would say EJ0001",
        )
    if not held and npu.devices(scene.root):
        yield ok("no process of this container holds a device node")


def software(scene: Scene) -> Iterator[Line]:
    """Give the versions of driver and CANN; nothing on a machine that has neither them nor NPUs."""
    root, has_npus = scene.root, bool(npu.devices(scene.root))
    installed = _value(f"{root}/etc/ascend_install.info", "Driver_Install_Path_Param") or DRIVER
    info = f"{root}{installed}/driver/version.info"
    driver = _value(info, "package_version", "Version")
    named = [scene.environ[name] for name in CANN_VARIABLES if scene.environ.get(name)]
    found = [(folder, version) for folder in (*named, *CANN) if (version := _cann_version(root + folder))]

    if has_npus and not driver:
        yield warning(f"no driver is to be seen ({installed}/driver/version.info)", MOUNT)
    if has_npus and not found:
        yield warning(f"no CANN is to be seen (neither {' nor '.join((*named, *CANN))})", "use an image that has it")
    if found and not named:
        folder = found[0][0]
        yield warning(
            f"{folder} is there, but {CANN_VARIABLES[1]} is not set: libraries will be missing",
            f"source {os.path.dirname(folder) if folder.endswith('/latest') else folder}/set_env.sh before the runner",
        )
    versions = [f"driver {driver}"] if driver else []
    versions += [f"CANN {found[0][1]} ({found[0][0]})"] if found else []
    if versions:
        yield ok(", ".join(versions))


def _cann_version(folder: str) -> str:
    arch = os.uname().machine
    names = (f"{arch}-linux/ascend_toolkit_install.info", "ascend_toolkit_install.info", "ascend_nnae_install.info")
    return next(filter(None, (_value(f"{folder}/{name}", "version") for name in names)), "")


def _value(path: str, *keys: str) -> str:
    """Read a value from lines of KEY=VALUE; the first of the keys that is there counts."""
    lines = read(path).decode(errors="replace").splitlines()
    values = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
    return next(filter(None, map(values.get, keys)), "") or ""


def health(scene: Scene) -> Iterator[Line]:
    """Ask npu-smi how the cards are; nothing where there is no npu-smi."""
    folders = [*scene.environ.get("PATH", os.defpath).split(os.pathsep), *(scene.root + at for at in NPU_SMI_FOLDERS)]
    tools = (os.path.join(folder, "npu-smi") for folder in folders if folder)
    tool = next((path for path in tools if os.path.isfile(path) and os.access(path, os.X_OK)), "")
    if not tool:
        return
    try:
        answer = bounded.run([tool, "info"], scene.patience, scene.environ)
    except OSError as failure:
        yield warning(f"{tool} cannot be run: {reason(failure)}")
        return

    if answer is None:
        yield error(
            f"{tool} gave no answer within {scene.patience:g} s: the driver hangs", "take this node out of the job"
        )
        return
    cards = _CARD.findall(answer.text)
    if answer.status or not cards:
        last = next(filter(None, map(str.strip, reversed(answer.text.splitlines()))), "nothing")
        yield error(
            f"{tool} info ended with {answer.status} and no card, it says: {last}", "take this node out of the job"
        )
        return
    yield from _judged_cards(cards, _PROCESS.findall(answer.text))


def _judged_cards(cards: list[tuple[str, str, str]], processes: list[tuple[str, str, str]]) -> Iterator[Line]:
    ill = [(number, name, state) for number, name, state in cards if state != "OK"]
    for number, name, state in ill:
        say = warning if state == "Warning" else error
        yield say(f"NPU {number} ({name}) reports {state}", f"npu-smi info -t health -i {number} tells why")
    for number, pid, name in processes:
        yield warning(
            f"process {pid} ({name}) runs on NPU {number}",
            "if it is an earlier job's: end it, on the host if it is not to be seen here",
        )
    if not ill:
        yield ok(f"{len(cards)} NPU{'s report' if len(cards) > 1 else ' reports'} OK")
