"""`ascend-runner --check`: reports what would prevent a job from running on this node, and starts nothing.

Sources: the device nodes and mounts of Ascend Docker Runtime; CANN's installation guide (where its version is);
npu-smi's reference; HCCL's error codes (EJ0001: a device is held by an earlier process).

Sources: ModelArts' own check before training (memlock, /dev/shm), Kubernetes' and Slurm's default grace periods.

Sources: HCCL's reference of environment variables (its ports, EI0019), proc(5) for /proc/net/tcp.
"""

from __future__ import annotations

import functools
import json
import os
import re
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Union

import attrs

from ascend_runner import text
from ascend_runner.engines.command import is_python, python_command
from ascend_runner.engines.registry import MODULES
from ascend_runner.errors import CheckFailedError, CommandError, OutputError, reason
from ascend_runner.frameworks import env_patch
from ascend_runner.job import table as tables
from ascend_runner.job.preparation import Preparation
from ascend_runner.job.setup import JobSetup
from ascend_runner.node import bounded, cores, disks, npu_smi
from ascend_runner.node.executables import find_executable
from ascend_runner.node.host import Host, name_of, open_files
from ascend_runner.node.probes import failure, last_line
from ascend_runner.plan.ranks import Stage
from ascend_runner.platforms.detect import KUBERNETES
from ascend_runner.platforms.node import hccl_ports
from ascend_runner.problems import Problem, Severity, Subject, error, problems_of, warning, without_repeated_remedies
from ascend_runner.ranks import log_folder
from ascend_runner.ranks.console import Console
from ascend_runner.ranks.messages import Messages
from ascend_runner.ranks.signals import Signals
from ascend_runner.secrets import Masker
from ascend_runner.services.staging import Survey, check_room, surveying
from ascend_runner.settings.model import Settings
from ascend_runner.text import abbreviated, counted, printable, size
from ascend_runner.views import screen

STAND_IN: Final = (sys.executable,)  # the command to plan with if there is none

Findings = Iterator[Union[str, Problem]]  # each good result of a subject is a sentence, each defect a problem


@attrs.frozen(kw_only=True)
class CheckContext:
    """The facts that are known before the first subject is checked.

    `prepared` holds the findings of the launcher; `command` is empty if none was given. `patience` is the number of
    seconds that a tool, a name server or a disk has to respond; a healthy npu-smi takes 1 s for 8 NPUs.
    """

    prepared: Preparation
    command: tuple[str, ...] = ()
    host: Host = attrs.field(factory=Host)
    patience: float = 10.0

    @property
    def settings(self) -> Settings:
        """The settings of the job."""
        return self.prepared.context.settings

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment of the job, with that of its conda environment."""
        return self.prepared.context.environ

    @property
    def rank_ids(self) -> tuple[int, ...]:
        """The ranks of this node, as far as they are known."""
        plan, share = self.prepared.plan, self.prepared.share
        if plan and plan.ranks:
            return tuple(rank.rank_id for rank in plan.ranks)
        return share.rank_ids if share else ()

    @property
    def nproc(self) -> int:
        """The number of ranks on this node, as far as it is known; else 0."""
        return len(self.rank_ids) or self.settings.nproc_per_node or 0

    @property
    def npus(self) -> int:
        """The number of NPUs that this node's ranks need; a table without devices is one for CPUs."""
        table = self.prepared.table
        return 0 if table and not table.devices else self.nproc


def gather(settings: Settings, environ: Mapping[str, str], signals: Signals, command: tuple[str, ...]) -> CheckContext:
    """Plan the job as a start would, without waiting for anything.

    Raises:
        SettingsError: The current directory cannot be used.
        StopRequestedError: A stop signal arrived.
    """
    setup = JobSetup(settings, environ, signals, Messages(lambda _message: None))
    prepared = setup.prepare(command or STAND_IN)
    return CheckContext(prepared=prepared, command=command)


COMPANIONS: Final = ("davinci_manager", "devmm_svm", "hisi_hdc")  # device nodes that every NPU needs
DRIVER: Final = "/usr/local/Ascend"
CANN_VARIABLES: Final = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")  # set by its set_env.sh
CANN: Final = (f"{DRIVER}/cann", f"{DRIVER}/ascend-toolkit/latest", f"{DRIVER}/nnae/latest")
MOUNT: Final = "start the container with Ascend Docker Runtime, or mount it from the host"
UNUSABLE_NODE: Final = "exclude this node from the job"


def devices(context: CheckContext) -> Findings:
    """Compare the device nodes with the needs of the job."""
    nodes = cores.nodes(context.host)
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
    is_chosen = env_patch.VISIBLE_DEVICES in context.environ
    return not is_chosen and {*wanted} <= {*present} and wanted != present[: len(wanted)]


def _order_problem(present: tuple[int, ...], context: CheckContext) -> Problem:
    wanted = _device_ids(context)
    indices = ",".join(str(present.index(device)) for device in sorted(wanted))
    return warning(
        f"the rank table assigns NPUs {', '.join(map(str, wanted))} to this node, but ranks would use the first"
        f" {len(wanted)} of /dev/davinci{text.format_numbers(sorted(present))}",
        f"set {env_patch.VISIBLE_DEVICES}={indices}"
        if wanted == tuple(sorted(wanted))
        else "sort the table by device_id",
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
    if not held and cores.devices(context.host):
        yield "no process in this container is using an NPU"


def _npus(numbers: set[int]) -> str:
    return f"NPU{'s' if len(numbers) > 1 else ''} {text.format_numbers(sorted(numbers))}"


def software(context: CheckContext) -> Findings:
    """Report the versions of the driver and CANN; nothing on a machine without them and without NPUs."""
    host, has_npus = context.host, bool(cores.devices(context.host))
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


ARGUMENTS_SHOWN: Final = 4  # words of the command


def rank_table(context: CheckContext) -> Findings:
    """Report the state of the rank table, and everything that HCCL would report about it."""
    prepared, table = context.prepared, context.prepared.table
    problems = list(prepared.about(Subject.RANK_TABLE))
    if table and context.settings.no_table_checks and prepared.plan and prepared.plan.files.table:
        found = tables.check(table, prepared.plan.files.table, prepared.context)
        problems += [attrs.evolve(one, severity=Severity.WARNING, remedy="") for one in found]
    yield from without_repeated_remedies(problems)
    if table and not problems:
        size = f"{counted(table.server_count, 'server')}, {counted(table.rank_size, 'device')}"
        yield f"{table.source}: {table.dialect.value}, {size}"
    elif not table and not problems:
        yield f"not needed for {counted(context.nproc, 'rank')} on this node" if context.nproc else "not needed"


def this_node(context: CheckContext) -> Findings:
    """Report which part of the job runs on this node; nothing if that depends on a missing rank table."""
    problems = context.prepared.about(Subject.NODE)
    yield from problems
    if context.prepared.plan and not problems:
        yield screen.placed(context.prepared.plan)


def settings(context: CheckContext) -> Findings:
    """Report settings that the launcher rejects."""
    yield from context.prepared.about(Subject.SETTINGS)


def variables(context: CheckContext) -> Findings:
    """Report variables that contradict each other or the platform's."""
    problems = context.prepared.about(Subject.VARIABLES)
    yield from problems
    if not problems:
        yield f"no conflicts; {context.prepared.why}"


def command(context: CheckContext) -> Findings:
    """Report whether the command, its interpreter and its script exist."""
    problems = context.prepared.about(Subject.COMMAND)
    for problem in problems if context.command else ():
        is_missing = context.command[0] and problem.exit_status in {126, 127}
        yield attrs.evolve(problem, remedy="use its full path, or add its directory to PATH" if is_missing else "")
    if context.command and not problems:
        yield from _check_program(context)


def _check_program(context: CheckContext) -> Findings:
    prepared = context.prepared
    if prepared.plan:
        first = prepared.plan.processes[0]
        cwd, executable, argv = first.cwd, first.executable, first.argv
    else:
        cwd, argv = prepared.context.workdir("device0"), context.command
        try:
            executable = find_executable(argv[0], cwd=cwd, search_path=context.environ.get("PATH", os.defpath))
        except CommandError as failure:
            yield from problems_of(failure)
            return

    program = os.path.join(cwd, executable)
    if not os.path.exists(program):  # an engine that is missing: a problem of --launcher
        return
    interpreter = _missing_interpreter(program)
    python = python_command(argv)
    target = "" if python is None or python.is_module else python.target
    script = target and os.path.join(cwd, target)
    if interpreter:
        yield error(f"{interpreter}, the interpreter of {program}, does not exist", "correct its first line (#!)")
    elif script and not os.path.exists(script):
        if not os.path.exists(os.path.join(prepared.context.cwd, target)):  # otherwise it is a problem of the settings
            yield error(f"{script} does not exist", "use its full path, or one relative to the working directory")
    else:
        real = os.path.realpath(program)
        words = [*Masker().arguments(argv)[:ARGUMENTS_SHOWN], *(["..."] if len(argv) > ARGUMENTS_SHOWN else [])]
        yield f"{' '.join(words)}: {program}{'' if real == program else f' ({real})'}"


def _missing_interpreter(program: str) -> str:
    """Return the interpreter in a script's first line if it does not exist: execve(2) then reports ENOENT."""
    words = _interpreter(program)
    return words[0] if words and not os.path.exists(words[0]) else ""


def _interpreter(program: str) -> list[str]:
    """Return the words of a script's first line that name its interpreter."""
    first = Host().read_bytes(program)[:256].partition(b"\n")[0]
    return os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []


def engine(context: CheckContext) -> Findings:
    """Report whether the Python of a job can import the engine that --launcher names, if that is a Python module."""
    plan, module = context.prepared.plan, MODULES.get(context.settings.launcher)
    if not plan or not module:
        return
    process = plan.processes[0]
    program = os.path.join(process.cwd, process.executable)
    python = [program] if is_python(program) else _interpreter(program)
    if not any(map(is_python, python)) or not os.path.exists(python[0]):  # a shell script may run any Python
        return

    answer = bounded.run([*python, "-c", f"import {module}"], context.patience, process.env)
    if answer is None:
        yield warning(f"{' '.join(python)} did not import {module} within {context.patience:g} s")
    elif answer.returncode:
        lines = filter(None, map(str.strip, reversed(answer.stderr.splitlines())))
        last = next(lines, f"exit status {answer.returncode}")
        yield error(
            f"{' '.join(python)} cannot import {module}: {last}",
            "install it, or select its environment with --conda-env",
        )
    else:
        yield f"{module} can be imported by {' '.join(python)}"


def folders(context: CheckContext) -> Findings:
    """Report directories that cannot be created, and a log directory that a running job of the same name writes to."""
    plan = context.prepared.plan
    try:
        disks.check_folders(plan.files.folders if plan else ())
    except OutputError as failure:
        yield error(str(failure))
        return
    if plan and log_folder.is_in_use(plan):
        yield error(log_folder.busy_sentence(plan))


MIB: Final = 1 << 20  # bytes
ENOUGH: Final = 1024 * MIB  # what ModelArts requires of /dev/shm; a log directory with less is full within hours
NEARLY_FULL: Final = 16 * MIB
ENOUGH_FILES: Final = 10_000  # inodes; a job makes some per rank, a compile cache thousands

MORE_ROOM: Final = {
    "log directory": "free some space, or use another --log-dir",
    "working directory": "free some space, or use another --workdir",
    "shared memory": "increase it: mount an emptyDir with medium Memory at /dev/shm, or use docker --shm-size",
}

MEMLOCK: Final = 16_000 * 1024  # bytes; what ModelArts requires for memory that the network card reads itself
IPC_LOCK: Final = 14  # linux/capability.h
# ModelArts requires a million of each; most clusters allow less and train well. A rank with its workers uses hundreds.
OPEN_FILES: Final = 4096
PROCESSES: Final = 16_384

# The settings of workload managers for the time between SIGTERM and SIGKILL. Both are 30 seconds by default.
KILL_AFTER: Final = {"Kubernetes": "terminationGracePeriodSeconds", "Slurm": "KillWait"}
GRACE: Final = 30.0
LEEWAY: Final = 5.0  # seconds after the grace: SIGKILL, the sweep, the last lines of the logs


@attrs.frozen(kw_only=True)
class Limit:
    """A resource of getrlimit(2): how much is enough, in which unit it is shown, why it matters and how to raise it."""

    name: str
    number: int
    enough: int
    unit: int
    stake: str
    remedy: str


LIMITS: Final = (
    Limit(
        name="locked memory",
        number=resource.RLIMIT_MEMLOCK,
        enough=MEMLOCK,
        unit=1024,
        stake="RDMA and HCCL lock host memory",
        remedy="add the capability IPC_LOCK to the container, or use docker --ulimit memlock=-1",
    ),
    Limit(
        name="open files",
        number=resource.RLIMIT_NOFILE,
        enough=OPEN_FILES,
        unit=1,
        stake="data loaders open many files",
        remedy="use docker --ulimit nofile=1048576",
    ),
    Limit(
        name="processes",
        number=resource.RLIMIT_NPROC,
        enough=PROCESSES,
        unit=1,
        stake="every thread of this user counts",
        remedy="use docker --ulimit nproc=-1",
    ),
)


def room(context: CheckContext) -> Findings:
    """Report the free space where the job writes, and whether it has permission to write there."""
    plan = context.prepared.plan
    folders = {
        "log directory": context.prepared.context.log_dir,
        "working directory": plan.processes[0].cwd if plan else context.prepared.context.workdir("device0"),
        "shared memory": "/dev/shm",  # noqa: S108  only measured
    }
    answers = bounded.call_each(
        list(folders), lambda name: _measure(context.host.path(folders[name])), context.patience
    )
    fine: list[str] = []
    for name, path in folders.items():
        found = answers.get(name)
        problem = room_problem(name, path, found, context.patience)
        if problem:
            yield problem
        elif found:
            fine.append(f"{name} {path} {size(found.free)}" if found.size else f"{name} {path} unlimited")
    if fine:
        yield f"free: {', '.join(fine)}"


@attrs.frozen(kw_only=True)
class Room:
    """Free space of a directory, or of its nearest existing parent: bytes (`size` 0: no limit) and inodes."""

    path: str
    is_writable: bool
    free: int
    size: int
    files: int


def room_problem(name: str, path: str, found: Room | None, patience: float) -> Problem | None:
    """Return the problem of a directory, if any. `found` is None if the disk did not respond in time."""
    folder = f"{name} {path}"
    if found is None:
        return error(
            f"{folder}: no response within {patience:g} s",
            "use another directory, or repair its file system",
        )
    if not found.is_writable:
        return error(
            f"{folder}: user {os.geteuid()} has no permission to write to {found.path}",
            "use another directory, or change its permissions",
        )
    if found.size and found.free < ENOUGH:
        make = error if found.free < NEARLY_FULL else warning
        return make(f"{folder}: only {size(found.free)} of {size(found.size)} free", MORE_ROOM[name])
    if found.files < ENOUGH_FILES:
        return warning(f"{folder}: only {found.files} inodes free", MORE_ROOM[name])
    return None


def _measure(path: str) -> Room | None:
    """Return the free space of a directory, which may not exist yet, or None if it is not accessible."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return Room(
        path=path,
        is_writable=os.access(path, os.W_OK | os.X_OK),
        free=found.f_bavail * found.f_frsize,
        size=found.f_blocks * found.f_frsize,
        files=found.f_favail if found.f_files else ENOUGH_FILES,  # some file systems do not count them
    )


def limits(context: CheckContext) -> Findings:
    """Compare this process's limits, which ranks inherit, with what training needs."""
    found = [finding_of_limit(limit, resource.getrlimit(limit.number)[0]) for limit in LIMITS]
    if _may_lock_memory(context.host):
        found[0] = "locked memory unlimited (CAP_IPC_LOCK)"
    yield from (finding for finding in found if isinstance(finding, Problem))
    fine = [finding for finding in found if isinstance(finding, str)]
    if fine:
        yield ", ".join(fine)


def _may_lock_memory(host: Host) -> bool:
    """Whether this process has CAP_IPC_LOCK, which lifts the limit of locked memory (capabilities(7))."""
    lines = host.read_lines("/proc/self/status")
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff")), "0")
    return bool(int(effective, 16) >> IPC_LOCK & 1)


def finding_of_limit(limit: Limit, soft: int) -> str | Problem:
    """Compare the soft limit of one resource with the amount that suffices."""
    if soft == resource.RLIM_INFINITY:
        return f"{limit.name} unlimited"
    value = f"{soft // limit.unit}{' KiB' if limit.unit > 1 else ''}"
    if soft >= limit.enough:
        return f"{limit.name} {value}"
    return warning(f"{limit.name}: {value}, less than {limit.enough // limit.unit} ({limit.stake})", limit.remedy)


def grace(context: CheckContext) -> Findings:
    """Compare --grace with the time between the platform's SIGTERM and its SIGKILL."""
    seconds, node = context.settings.grace, context.prepared.node
    manager = (node.workload_manager if node else "") or ("Kubernetes" if context.environ.get(KUBERNETES) else "")
    if not manager:
        yield f"{seconds:g} s"
        return

    if seconds + LEEWAY > GRACE:
        yield warning(
            f"--grace is {seconds:g} s, but by default {manager} kills all processes after {GRACE:g} s",
            f"set {KILL_AFTER[manager]} to {seconds + LEEWAY:g} or more, or --grace to {GRACE - LEEWAY:g} or less",
        )
    else:
        yield f"{seconds:g} s, less than the {GRACE:g} s that {manager} allows by default"


LISTEN: Final = "0A"  # a socket's state in /proc/net/tcp
INODE: Final = 9  # the column of its inode
HCCL: Final = "HCCL"


def ports(context: CheckContext) -> Findings:
    """Report processes that use the ports that the ranks will need: node 0's MASTER_PORT, and HCCL's with NPUs."""
    needed = _needed_ports(context)
    used = {found.port: found for found in _sockets(context.host) if found.port in needed}
    pids = _pids({found.inode for found in used.values()}, context.host)
    for port, found in sorted(used.items()):
        holder = f"process {name_of(context.host, pids[found.inode])}" if found.inode in pids else "a process"
        yield _port_problem(found, needed[port], holder)
    if needed and not used:
        numbers = sorted(port for port, owner in needed.items() if owner == HCCL)
        free = [f"{numbers[0]}-{numbers[-1]} (HCCL)"] if numbers else []
        free += [f"{port} ({owner})" for port, owner in needed.items() if owner != HCCL]
        yield f"free: {', '.join(free)}"


@attrs.frozen(order=True, kw_only=True)
class _Socket:
    is_listening: bool
    port: int
    inode: str


def _needed_ports(context: CheckContext) -> dict[int, str]:
    """Return the ports that the ranks of this node will listen on, with their users."""
    node, plan = context.prepared.node, context.prepared.plan
    needed: dict[int, str] = {}
    if context.npus and not context.environ.get("HCCL_HOST_SOCKET_PORT_RANGE"):
        needed.update(dict.fromkeys(hccl_ports(context.environ), HCCL))
    is_used_by_launcher = plan is not None and bool(plan.ranks) and plan.is_passed_through
    if node and node.node_rank == 0 and not is_used_by_launcher:
        needed[node.master_port] = "MASTER_PORT"
    return needed


def _port_problem(found: _Socket, user: str, holder: str) -> Problem:
    if not found.is_listening:
        return warning(
            f"port {found.port} ({user}) is in use by a connection of {holder}",
            "if this persists, reserve the port with sysctl net.ipv4.ip_local_reserved_ports",
        )
    sentence = f"port {found.port} ({user}) is in use: {holder} listens on it"
    if user == HCCL:
        return error(sentence, "kill it if it belongs to an earlier job; HCCL would report EI0019")
    # The port is taken as it is: not every framework listens on it.
    return warning(sentence, "kill it if it belongs to an earlier job, or use another MASTER_PORT on all nodes")


def _sockets(host: Host) -> list[_Socket]:
    """Read the local TCP ports, listening sockets last. Sockets without an inode only wait for their last packets."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in host.read_lines(f"/proc/net/{name}")[1:]]
    return sorted(
        _Socket(is_listening=row[3] == LISTEN, port=int(row[1].rpartition(":")[2], 16), inode=row[INODE])
        for row in rows
        if len(row) > INODE and row[INODE] != "0"
    )


def _pids(inodes: set[str], host: Host) -> dict[str, int]:
    targets = {f"socket:[{inode}]": inode for inode in inodes}
    if not targets:
        return {}
    return {targets[target]: pid for pid, target in open_files(host) if target in targets}


def names(context: CheckContext) -> Findings:
    """Report whether the names of the other nodes can be resolved; nothing if no other node is named."""
    node = context.prepared.node
    if node is None or node.nnodes == 1:
        return
    hosts = list(dict.fromkeys(filter(None, (node.master_addr, *node.hosts))))
    if hosts:
        answers = bounded.call_each(hosts, _is_resolvable, context.patience)
        yield from findings_of_names(hosts, answers, context.patience)


def findings_of_names(hosts: Sequence[str], answers: Mapping[str, bool], patience: float) -> Findings:
    """Report on the answers of a name server; hosts that are missing were not answered within `patience` seconds."""
    nodes = counted(len(hosts), "node")
    unknown = [host for host in hosts if answers.get(host) is False]
    silent = [host for host in hosts if host not in answers]
    if unknown:
        yield error(
            f"cannot resolve {len(unknown)} of {nodes}: {abbreviated(unknown)}",
            "make sure that their pods are running and that the job has a headless service (Volcano: the svc plugin)",
        )
    if silent:
        yield error(
            f"the name server did not respond within {patience:g} s for {len(silent)} of {nodes}:"
            f" {abbreviated(silent)}",
            "check the name servers in /etc/resolv.conf",
        )
    if not unknown and not silent:
        yield f"{counted(len(hosts), 'name')} resolved"


def _is_resolvable(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):  # UnicodeError: a name with an empty or overlong part
        return False


@attrs.define
class Answer:
    """What was found out about a dataset within the time limit."""

    survey: Survey = attrs.field(factory=Survey)
    is_whole: bool = False
    problems: tuple[Problem, ...] = ()


def datasets(context: CheckContext) -> Findings:
    """Report what would be copied, as far as it can be counted in time."""
    for stage in context.prepared.context.stages:
        answer = Answer()
        limit = context.patience / 2  # seconds for the listing
        is_in_time = bounded.call(context.patience, functools.partial(_look, stage, answer, limit))
        yield from answer.problems
        if not answer.problems:
            yield _survey_sentence(stage, answer, limit if is_in_time else context.patience)


def _look(stage: Stage, answer: Answer, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    try:
        for _line in surveying(stage, answer.survey):
            if time.monotonic() > deadline:
                return
        answer.is_whole = True
        check_room(stage, answer.survey.missing)
    except OSError as error:
        answer.problems = (warning(f"cannot stage {error.filename or stage.source!r}: {reason(error)}"),)
    except OutputError as error:
        answer.problems = problems_of(error)


def _survey_sentence(stage: Stage, answer: Answer, seconds: float) -> str:
    """Describe how much of a dataset is to be copied; it was listed for `seconds` unless the answer is complete."""
    missing = answer.survey.missing
    title = f"{stage.source} to {stage.place}"
    text = f"{counted(missing.files, 'file')} ({size(missing.size)}) to copy" if missing.entries else "nothing to copy"
    if answer.is_whole:
        return f"{title}: {text}"
    text = f"at least {text}" if missing.entries else f"{text} so far"
    return f"{title}: {text}; listing was cut off after {seconds:g} s"


# From the job itself to its surroundings. A subject to which nothing applies yields nothing.
SUBJECTS: Final[Mapping[str, Callable[[CheckContext], Findings]]] = {
    "rank table": rank_table,
    "this node": this_node,
    "settings": settings,
    "variables": variables,
    "command": command,
    "engine": engine,
    "datasets": datasets,
    "directories": folders,
    "devices": devices,
    "leftovers": leftovers,
    "software": software,
    "health": health,
    "ports": ports,
    "other nodes": names,
    "space": room,
    "limits": limits,
    "grace": grace,
}

OF_THIS_NODE: Final = ("leftovers", "ports", "devices", "space", "limits", "grace", "software", "health", "other nodes")

Found = tuple[str, Union[str, Problem]]  # a subject and a finding

OK: Final = "ok"
VERDICT_WIDTH: Final = len(Severity.WARNING.value)
SUBJECT_WIDTH: Final = len("other nodes")


def check(
    settings: Settings, environ: Mapping[str, str], command: tuple[str, ...], io: tuple[Signals, Console, Messages]
) -> None:
    """Check one subject after the other, and print the findings.

    Raises:
        CheckFailedError: At least one error was found.
        StopRequestedError: A stop signal arrived.
    """
    signals, console, messages = io
    host_name = os.uname().nodename
    context = gather(settings, environ, signals, command)
    found: list[Found] = []
    for subject, look in SUBJECTS.items():
        for finding in look(context):
            found.append((subject, finding))
            if not settings.json and not (settings.quiet and verdict_of(finding) == OK):
                console.print(format_finding(subject, finding))
        signals.wait_unless_stopped(0.0)
    if settings.json:
        console.print(format_json(found, host_name))

    verdicts = {verdict_of(finding) for _subject, finding in found}
    if Severity.ERROR.value in verdicts:
        raise CheckFailedError(format_summary(found, host_name))
    report = messages.info if verdicts <= {OK} else messages.warning
    report(format_summary(found, host_name))


def problems_of_this_node(
    settings: Settings, environ: Mapping[str, str], command: tuple[str, ...]
) -> Iterator[tuple[str, Iterator[Problem]]]:
    """Yield each subject about this node before a start, with its problems; the start reports those of the job itself.

    A subject is checked while its problems are taken. May be called in any thread: it neither waits for anything nor
    receives signals.
    """
    planned = attrs.evolve(settings, check=True, dry_run=True, stage=())
    context = gather(planned, environ, Signals(), command)
    for subject in OF_THIS_NODE:
        yield subject, (finding for finding in SUBJECTS[subject](context) if isinstance(finding, Problem))


def verdict_of(finding: str | Problem) -> str:
    """Return "ok", "warning" or "error"."""
    return OK if isinstance(finding, str) else finding.severity.value


def format_finding(subject: str, finding: str | Problem) -> str:
    """Format a finding in columns, with the remedy on a line below."""
    verdict = verdict_of(finding)
    shown = verdict if verdict == OK else verdict.upper()
    head = f"{shown:{VERDICT_WIDTH}}  {subject:{SUBJECT_WIDTH}}  {_one_line(_sentence(finding))}\n"
    remedy = _remedy(finding)
    return head + (f"{'':{VERDICT_WIDTH + SUBJECT_WIDTH + 4}}fix: {_one_line(remedy)}\n" if remedy else "")


def format_summary(found: Sequence[Found], host_name: str) -> str:
    """Format the last line: the number of errors and warnings, with their subjects."""
    parts = [part for severity in (Severity.ERROR, Severity.WARNING) if (part := _count(found, severity))]
    return f"{_one_line(host_name)}: {'; '.join(parts) or 'no problems found'}"


def format_json(found: Sequence[Found], host_name: str) -> str:
    """Format all findings as JSON: the host, the worst verdict, and a list of findings."""
    verdicts = [verdict_of(finding) for _subject, finding in found]
    worst = next((one.value for one in (Severity.ERROR, Severity.WARNING) if one.value in verdicts), OK)
    checks: list[Mapping[str, str]] = [
        {
            "subject": subject,
            "verdict": verdict_of(finding),
            "found": _sentence(finding),
            "fix": _remedy(finding),
        }
        for subject, finding in found
    ]
    return json.dumps({"host": host_name, "verdict": worst, "checks": checks}, indent=1) + "\n"


def _sentence(finding: str | Problem) -> str:
    return Masker().text(finding if isinstance(finding, str) else str(attrs.evolve(finding, remedy="")))


def _remedy(finding: str | Problem) -> str:
    return "" if isinstance(finding, str) else Masker().text(finding.remedy)


def _count(found: Sequence[Found], severity: Severity) -> str:
    subjects = [subject for subject, finding in found if verdict_of(finding) == severity.value]
    if not subjects:
        return ""
    return f"{counted(len(subjects), severity.value)} ({', '.join(dict.fromkeys(subjects))})"


def _one_line(text: str) -> str:
    return printable(" ".join(text.split("\n")))
