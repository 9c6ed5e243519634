"""The NPUs of this node: whether those that the job needs exist, are free and healthy, and which software they have.

Sources: the device nodes and mounts of Ascend Docker Runtime; CANN's installation guide (where its version is);
npu-smi's reference; HCCL's error codes (EJ0001: a device is held by an earlier process).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ascend_runner import text
from ascend_runner.check.context import CheckContext, Findings
from ascend_runner.errors import reason
from ascend_runner.frameworks import hccl
from ascend_runner.host import bounded, npu, npu_smi
from ascend_runner.host.host import Host
from ascend_runner.host.open_files import name_of, open_files
from ascend_runner.inspection.node import failure, last_line
from ascend_runner.problems import Problem, error, warning
from ascend_runner.text import counted

COMPANIONS: Final = ("davinci_manager", "devmm_svm", "hisi_hdc")  # device nodes that every NPU needs
DRIVER: Final = "/usr/local/Ascend"
CANN_VARIABLES: Final = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")  # set by its set_env.sh
CANN: Final = (f"{DRIVER}/cann", f"{DRIVER}/ascend-toolkit/latest", f"{DRIVER}/nnae/latest")
MOUNT: Final = "start the container with Ascend Docker Runtime, or mount it from the host"
UNUSABLE_NODE: Final = "exclude this node from the job"


def devices(context: CheckContext) -> Findings:
    """Compare the device nodes with the needs of the job."""
    nodes = npu.nodes(context.host)
    present = tuple(nodes)
    if not present:
        yield from _without_devices(context)
        return

    unusable = list(_unusable(nodes.values(), context.host))
    yield from unusable
    if len(present) < context.npus:
        yield error(
            f"found only {_listed(nodes)} for {counted(context.npus, 'rank')}",
            "request as many NPUs as this node has ranks, or map them into the container",
        )
    elif _are_others(present, context):
        yield _order_problem(present, context)
    elif not unusable:
        yield _listed(nodes) + (f" for {counted(context.nproc, 'rank')}" if context.nproc else "")


def _without_devices(context: CheckContext) -> Iterator[Problem]:
    if context.prepared.table and context.npus:
        yield error(
            f"found no NPU (/dev/davinci*), but the rank table assigns {context.npus} to this node",
            "request them for the pod (such as huawei.com/Ascend910: 8), or map them into the container",
        )
    elif context.npus:
        yield warning("found no NPU (/dev/davinci*)")


def _unusable(nodes: Iterable[str], host: Host) -> Iterator[Problem]:
    missing = [f"/dev/{name}" for name in COMPANIONS if not host.exists(f"/dev/{name}")]
    if missing:
        yield error(f"missing device nodes: {', '.join(missing)}", MOUNT)
    closed = [
        path
        for path in (host.path(f"/dev/{name}") for name in (*nodes, *COMPANIONS))
        if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK)
    ]
    if closed:
        others = f" and {len(closed) - 1} more" if closed[1:] else ""
        yield error(
            f"user {os.geteuid()} has no permission to open {closed[0]}{others}",
            f"run the job as a member of group {os.stat(closed[0]).st_gid}, which owns them",
        )


def _are_others(present: tuple[int, ...], context: CheckContext) -> bool:
    """Whether ranks would use NPUs other than the table's: the job has only some NPUs of a machine that shows all."""
    wanted = _device_ids(context)
    is_chosen = hccl.VISIBLE_DEVICES in context.environ
    return not is_chosen and {*wanted} <= {*present} and wanted != present[: len(wanted)]


def _order_problem(present: tuple[int, ...], context: CheckContext) -> Problem:
    wanted = _device_ids(context)
    indices = ",".join(str(present.index(device)) for device in sorted(wanted))
    return warning(
        f"the rank table assigns NPUs {', '.join(map(str, wanted))} to this node, but ranks would use the first"
        f" {len(wanted)} of /dev/davinci{text.format_numbers(sorted(present))}",
        f"set {hccl.VISIBLE_DEVICES}={indices}" if wanted == tuple(sorted(wanted)) else "sort the table by device_id",
    )


def _device_ids(context: CheckContext) -> tuple[int, ...]:
    """Return the physical ids of this node's devices in the table; none without a table."""
    table = context.prepared.table
    if not table or not context.npus:
        return ()
    return tuple(table.rank(rank_id).device_id for rank_id in context.rank_ids)


def _listed(nodes: Mapping[int, str]) -> str:
    prefix = next(iter(nodes.values())).rstrip("0123456789")
    return f"{counted(len(nodes), 'NPU')} (/dev/{prefix}{text.format_numbers(sorted(nodes))})"


def leftovers(context: CheckContext) -> Findings:
    """Report processes that hold device nodes, which the job's ranks could not open."""
    is_node = re.compile(re.escape(context.host.root) + r"/dev/v?davinci(\d+)").fullmatch
    held: dict[int, set[int]] = {}
    for pid, target in open_files(context.host):
        node = is_node(target)
        if node:
            held.setdefault(pid, set()).add(int(node[1]))
    for pid, numbers in sorted(held.items()):
        yield error(
            f"process {name_of(context.host, pid)} is using {_npus(numbers)}",
            f"if no other job is running here, kill it (kill -9 {pid}) and wait 10 s; otherwise HCCL reports EJ0001",
        )
    if not held and npu.devices(context.host):
        yield "no process in this container is using an NPU"


def _npus(numbers: set[int]) -> str:
    return f"NPU{'s' if len(numbers) > 1 else ''} {text.format_numbers(sorted(numbers))}"


def software(context: CheckContext) -> Findings:
    """Report the versions of the driver and CANN; nothing on a machine without them and without NPUs."""
    host, has_npus = context.host, bool(npu.devices(context.host))
    installed = _value(host, "/etc/ascend_install.info", "Driver_Install_Path_Param") or DRIVER
    driver = _value(host, f"{installed}/driver/version.info", "package_version", "Version")
    named = [context.environ[name] for name in CANN_VARIABLES if context.environ.get(name)]
    found = [(folder, version) for folder in (*named, *CANN) if (version := _cann_version(host, folder))]

    if has_npus and not driver:
        yield warning(f"driver not found ({installed}/driver/version.info)", MOUNT)
    if has_npus and not found:
        yield warning(f"CANN not found in {', '.join((*named, *CANN))}", "use an image that contains CANN")
    if found and not named:
        folder = found[0][0]
        script = f"{os.path.dirname(folder) if folder.endswith('/latest') else folder}/set_env.sh"
        yield warning(
            f"{folder} exists, but {CANN_VARIABLES[1]} is not set: libraries will not be found",
            f"source {script} before ascend-runner",
        )
    versions = [f"driver {driver}"] if driver else []
    versions += [f"CANN {found[0][1]} ({found[0][0]})"] if found else []
    if versions:
        yield ", ".join(versions)


def _cann_version(host: Host, folder: str) -> str:
    arch = os.uname().machine
    names = (f"{arch}-linux/ascend_toolkit_install.info", "ascend_toolkit_install.info", "ascend_nnae_install.info")
    return next(filter(None, (_value(host, f"{folder}/{name}", "version") for name in names)), "")


def _value(host: Host, path: str, *keys: str) -> str:
    """Read a value from lines of KEY=VALUE, by the first of the keys that exists."""
    lines = host.read_lines(path)
    values = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
    return next(filter(None, map(values.get, keys)), "") or ""


def health(context: CheckContext) -> Findings:
    """Report the health of the NPUs as npu-smi shows it; nothing without npu-smi."""
    tool = npu_smi.find(context.host, context.environ)
    if not tool:
        return
    try:
        answer = bounded.run([tool, "info"], context.patience, context.environ)
    except OSError as problem:
        yield warning(f"cannot run {tool}: {reason(problem)}")
        return

    if answer is None:
        yield error(f"{tool} did not respond within {context.patience:g} s: the driver hangs", UNUSABLE_NODE)
        return
    found = npu_smi.devices(answer.stdout)
    why = failure(answer)
    if why or not found:
        outcome = f"failed: {why}" if why else f"lists no device: {last_line(answer) or 'no output'}"
        yield error(f"{tool} info {outcome}", UNUSABLE_NODE)
        return
    yield from _health_of(found, npu_smi.processes(answer.stdout))


def _health_of(found: list[npu_smi.Device], processes: list[tuple[str, str, str]]) -> Findings:
    unhealthy = [one for one in found if one.health != npu_smi.HEALTHY]
    for one in unhealthy:
        make = warning if one.health == "Warning" else error
        remedy = f"run npu-smi info -t health -i {one.card} for details"
        yield make(f"NPU {one.card} ({one.name}) reports {one.health}", remedy)
    for number, pid, name in processes:
        yield warning(
            f"process {pid} ({name}) is running on NPU {number}",
            "if it belongs to an earlier job, kill it (on the host, if it is not visible here)",
        )
    if not unhealthy:
        yield f"{counted(len(found), 'NPU')} OK"
