"""The probes of the NPUs of this node: whether they exist, are free, healthy and linked, and which software they have.

The levels of fault codes are from MindCluster's device plugin (faultCode.json), which decides by them about a pod.
The meaning of their bits is from Ascend's driver: a part of the device, then 8 bits for the type of its sensor and 9
for the event (dms_sensor.c, dms_sensor_type.h). Other sources: the reference of npu-smi and hccn_tool, MindCluster's
documentation of their output; the device nodes and mounts of Ascend Docker Runtime; HCCL's error codes (EJ0001: a
device is held by an earlier process).
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner import text
from ascend_runner.frameworks import env_patch
from ascend_runner.node import npu_smi, npus, versions
from ascend_runner.node.findings import Defect, Findings, Node, UnusableError, failure, last_line
from ascend_runner.node.host import Host, name_of
from ascend_runner.node.npu_smi import HEALTHY, Device
from ascend_runner.text import counted

COMPANIONS: Final = ("davinci_manager", "devmm_svm", "hisi_hdc")  # device nodes that every NPU needs
MOUNT: Final = "start the container with Ascend Docker Runtime, or mount it from the host"
IS_ERROR: Final = {"Warning": False, "Alarm": True, "Critical": True, "UNKNOWN": False}  # by the health of an NPU
NET_IS_FINE: Final = "Success"
NET_HAS_FAILED: Final = frozenset({"Socket fail", "Receive timeout", "Unreachable", "Time exceeded", "Fault"})

_CODE: Final = re.compile(r"\b[0-9A-Fa-f]{8}\b")


def devices(node: Node) -> Findings:
    """Compare the device nodes with the needs of the job."""
    nodes = npus.nodes(node.host)
    present = tuple(nodes)
    if not present:
        yield from _without_devices(node)
        return

    unusable = list(_unusable(nodes.values(), node.host))
    yield from unusable
    if len(present) < node.npus:
        yield Defect(
            f"found only {_listed(nodes)} for {counted(node.npus, 'rank')}",
            "request as many NPUs as this node has ranks, or map them into the container",
            is_error=True,
        )
    elif _are_others(present, node):
        yield _order_defect(present, node.assigned)
    elif not unusable:
        yield _listed(nodes) + (f" for {counted(node.ranks, 'rank')}" if node.ranks else "")


def _without_devices(node: Node) -> Iterator[Defect]:
    if node.assigned:
        yield Defect(
            f"found no NPU (/dev/davinci*), but the rank table assigns {len(node.assigned)} to this node",
            "request them for the pod (such as huawei.com/Ascend910: 8), or map them into the container",
            is_error=_is_for_npus(node),
        )
    elif node.npus:
        yield Defect("found no NPU (/dev/davinci*)")


def _is_for_npus(node: Node) -> bool:
    """Whether this machine or image has software of Ascend: on any other one, a rank table is tried out on CPUs."""
    return node.host.exists(versions.ASCEND) or bool(versions.cann_folders(node.environ))


def _unusable(nodes: Iterable[str], host: Host) -> Iterator[Defect]:
    missing = [f"/dev/{name}" for name in COMPANIONS if not host.exists(f"/dev/{name}")]
    if missing:
        yield Defect(f"missing device nodes: {', '.join(missing)}", MOUNT, is_error=True)
    closed = [
        path
        for path in (host.path(f"/dev/{name}") for name in (*nodes, *COMPANIONS))
        if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK)
    ]
    if closed:
        others = f" and {len(closed) - 1} more" if closed[1:] else ""
        yield Defect(
            f"user {os.geteuid()} has no permission to open {closed[0]}{others}",
            f"run the job as a member of group {os.stat(closed[0]).st_gid}, which owns them",
            is_error=True,
        )


def _are_others(present: tuple[int, ...], node: Node) -> bool:
    """Whether ranks would use NPUs other than the table's: the job has only some NPUs of a machine that shows all."""
    is_chosen = env_patch.VISIBLE_DEVICES in node.environ
    return not is_chosen and {*node.assigned} <= {*present} and node.assigned != present[: len(node.assigned)]


def _order_defect(present: tuple[int, ...], wanted: tuple[int, ...]) -> Defect:
    indices = ",".join(str(present.index(device)) for device in sorted(wanted))
    is_sorted = wanted == tuple(sorted(wanted))
    return Defect(
        f"the rank table assigns NPUs {', '.join(map(str, wanted))} to this node, but ranks would use the"
        f" first {len(wanted)} of /dev/davinci{text.format_numbers(sorted(present))}",
        f"set {env_patch.VISIBLE_DEVICES}={indices}" if is_sorted else "sort the table by device_id",
    )


def _listed(nodes: Mapping[int, str]) -> str:
    prefix = next(iter(nodes.values())).rstrip("0123456789")
    return f"{counted(len(nodes), 'NPU')} (/dev/{prefix}{text.format_numbers(sorted(nodes))})"


@attrs.define
class DeviceNodes:
    """The device nodes in /dev of the NPUs of the job, as long as it runs."""

    node: Node
    _before: dict[int, str] | None = attrs.field(init=False, default=None)

    def look(self) -> Findings:
        """Yield a defect for each that has disappeared since the first look."""
        now = npus.nodes(self.node.host)
        if self._before is None:
            self._before = {one: name for one, name in now.items() if one in self.node.device_ids}
        for device_id, name in self._before.items():
            if device_id not in now:
                yield Defect(f"/dev/{name} was missing", subject=f"device {device_id}: gone", is_error=True)


def leftovers(node: Node) -> Findings:
    """Report processes that hold device nodes, which the job's ranks could not open."""
    held = npus.holders(node.host)
    for pid, numbers in sorted(held.items()):
        found = f"NPU{'s' if len(numbers) > 1 else ''} {text.format_numbers(sorted(numbers))}"
        yield Defect(
            f"process {name_of(node.host, pid)} is using {found}",
            f"if no other job is running here, kill it (kill -9 {pid}) and wait 10 s; otherwise HCCL reports EJ0001",
            is_error=True,
        )
    if not held and npus.devices(node.host):
        yield "no process in this container is using an NPU"


def software(node: Node) -> Findings:
    """Report the versions of the driver and CANN; nothing on a machine without them and without NPUs."""
    host, has_npus = node.host, bool(npus.devices(node.host))
    driver_file, driver = versions.component(host, "driver")
    named = versions.cann_folders(node.environ)
    folder, cann = versions.cann(host, node.environ)

    if has_npus and not driver:
        yield Defect(f"driver not found ({driver_file})", MOUNT)
    if has_npus and not cann:
        sentence = f"CANN not found in {', '.join((*named, *versions.CANN))}"
        yield Defect(sentence, "use an image that contains CANN")
    if cann and not named:
        script = f"{os.path.dirname(folder) if folder.endswith('/latest') else folder}/set_env.sh"
        yield Defect(
            f"{folder} exists, but {versions.CANN_VARIABLES[1]} is not set: libraries will not be found",
            f"source {script} before ascend-runner",
        )
    found = [f"driver {driver}"] if driver else []
    found += [f"CANN {cann} ({folder})"] if cann else []
    if found:
        yield ", ".join(found)


@attrs.define
class NpuHealth:
    """The health of the NPUs, by npu-smi: one call, and one more for each NPU that is not OK."""

    node: Node
    _has_worked: bool = attrs.field(init=False, default=False)

    def look(self) -> Findings:
        """Yield the present defects of the NPUs of the job, and the processes that run on NPUs before it does."""
        tool = self.node.tool("npu-smi")
        answer = tool.run("info")
        found = npu_smi.devices(answer.stdout)
        if not found:
            why = failure(answer)
            told = last_line(answer)
            known = f"printed no table in a known format{f' ({told})' if told else ''}"
            sentence = f"npu-smi info {f'failed: {why}' if why else known}"
            if not self._has_worked:
                raise UnusableError(sentence, is_error=True)
            yield Defect(sentence, subject="npu-smi", is_error=True)
            return
        unknown = unknown_health(found)
        if unknown:
            raise UnusableError(f"npu-smi info printed an unknown health status {unknown!r}")
        self._has_worked = True
        wanted = [one for one in found if not self.node.device_ids or one.device_id in self.node.device_ids]
        unhealthy = [one for one in wanted if one.health != HEALTHY]
        for one in unhealthy:
            yield from of_health(one, tool.ask("info", "-t", "health", "-i", str(one.card), "-c", str(one.chip)))
        yield from () if self.node.is_running else _running(npu_smi.processes(answer.stdout))
        if not unhealthy:
            yield f"{counted(len(wanted), 'NPU')} OK"


def unknown_health(found: Sequence[Device]) -> str:
    """Return the first unknown health, or "" if there is none."""
    words = (device.health for device in found if device.health != HEALTHY and device.health not in IS_ERROR)
    return next(words, "")


def _running(processes: Iterable[tuple[str, str, str]]) -> Iterator[Defect]:
    for card, pid, name in processes:
        yield Defect(
            f"process {pid} ({name}) is running on NPU {card}",
            "if it belongs to an earlier job, kill it (on the host, if it is not visible here)",
        )


def of_health(device: Device, details: str) -> Findings:
    """Yield the defects of an NPU that is not healthy; `details` is what `npu-smi info -t health` prints for it."""
    name, is_error = f"device {device.device_id}", IS_ERROR.get(device.health, False)
    remedy = f"run npu-smi info -t health -i {device.card} for details"
    codes = [code.upper() for code in _CODE.findall(_value(details, "Error Code"))]
    for code in dict.fromkeys(codes):
        level, heat = level_of(code), _heat(device, code)
        if level is Level.NOTHING and not heat:
            yield f"{name} reported {code} ({device.health}; {level.value})"
            continue
        action = level.value if level and level is not Level.NOTHING else ""
        meaning = "; ".join(filter(None, (device.health, heat, action)))
        yield Defect(
            f"{name} reported {code} ({meaning})",
            remedy,
            subject=f"{name}: {code}",
            is_error=level.is_error if level else is_error,
            may_pass=level is not None and level.may_pass,
        )
    if not codes:
        sentence = f"{name} reported {device.health}"
        yield Defect(sentence, remedy, subject=f"{name}: health", is_error=is_error)


def _heat(device: Device, code: str) -> str:
    """Return the words for a fault code that says that an NPU is too hot, which slows it down; else ""."""
    if not is_overheating(code):
        return ""
    return "overheating" if device.temperature is None else f"overheating, NPU at {device.temperature} °C"


@attrs.define
class Links:
    """The links of the NPUs, by hccn_tool. A reachable gateway proves that the link is up, so one call is enough."""

    node: Node
    _worked: set[int] = attrs.field(init=False, factory=set)  # devices with links that have worked

    def look(self) -> Findings:
        """Yield the present defects. A job on one node may not use a link that has never worked."""
        if not self.node.device_ids:
            raise UnusableError
        tool = self.node.tool("hccn_tool")
        for device_id in self.node.device_ids:
            health = net_health(tool.ask("-i", str(device_id), "-net_health", "-g"))
            is_fine = health == NET_IS_FINE
            state = "UP" if is_fine else link(tool.ask("-i", str(device_id), "-link", "-g"))
            if not health and not state:
                raise UnusableError("hccn_tool printed nothing in a known format")
            was_up = device_id in self._worked
            if was_up or self.node.has_peers:
                yield from of_link(device_id, state, health, was_up=was_up)
            if is_fine:
                self._worked.add(device_id)


def net_health(output: str) -> str:
    """Return the result of `hccn_tool -net_health -g`, such as "Success", or "" if it has another form."""
    return _value(output, "net health status")


def link(output: str) -> str:
    """Return the result of `hccn_tool -link -g`, "UP" or "DOWN", or "" if it has another form."""
    return _value(output, "link status").upper()


def of_link(device_id: int, state: str, health: str, *, was_up: bool) -> Iterator[Defect]:
    """Yield the defect of the link of an NPU. For a link that has never worked it is a warning: it may not be used."""
    name = f"device {device_id}"
    if state == "DOWN":
        yield Defect(f"the link of {name} was down", subject=f"{name}: link", is_error=was_up)
    elif health in NET_HAS_FAILED:
        sentence = f"{name} could not reach its gateway (net health: {health})"
        yield Defect(sentence, subject=f"{name}: net health", is_error=was_up, may_pass=True)


def _value(output: str, key: str) -> str:
    """Return the value of the first line "KEY ... : VALUE", or "" if there is none."""
    for line in output.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip().startswith(key):
            return value.strip()
    return ""


class Level(enum.Enum):
    """The action that a fault requires."""

    NOTHING = "it needs no action"
    DEGRADED = "the NPU is degraded"
    RESTART_REQUEST = "the failed operation must be repeated"
    RESTART_JOB = "the job must be restarted"
    RESET_WHEN_FREE = "the NPU must be reset once it is free"
    RESET = "the NPU must be reset"
    REPLACE = "the NPU must be taken out of service"

    @property
    def is_error(self) -> bool:
        """Whether a job can hardly continue."""
        return self not in {Level.NOTHING, Level.DEGRADED}

    @property
    def may_pass(self) -> bool:
        """Whether the fault often disappears by itself within a minute."""
        return self in {Level.RESTART_REQUEST, Level.RESTART_JOB}


def level_of(code: str) -> Level | None:
    """Return the level of a code such as 80E01801, or None if the code is unknown."""
    return _LEVELS.get(code.upper())


def is_overheating(code: str) -> bool:
    """Return whether a code says that a temperature is too high, such as 80E20207 for the processor's."""
    number = int(code, 16)
    return (number >> 9) & 0xFF == _TEMPERATURE and number & 0x1FF in _TOO_HOT


_TEMPERATURE: Final = 0x01  # a type of sensor
_TOO_HOT: Final = frozenset({0x07, 0x09, 0x0B})  # events: above the limit for a minor, major or critical fault
_CODES: Final = {
    Level.NOTHING: """
        4C1F8608 80818200 80818201 80818202 80818203 80818204 80818205 80A18005 80A18006 80A38003 80A38006 80A58003
        80A58006 80B78005 80B78006 80B98006 80BD8006 80C98006 80CB8006 80CD8003 80CD8006 80D38009 80DD8007 80DD8008
        80DE0200 80DE1803 80DE1805 80DF8006 80DF8400 80DF8401 80E00209 80E01805 80E01809 80E18006 80E1800F 80E18400
        80E18401 80E21007 80E38003 80F18003 80F18006 80F38003 80F38006 80F38009 80F78006 80FB8000 81078603 81318006
        81338004 81338006 813B8004 813B8006 81478004 81478006 814D8006 814F8004 814F8006 81578004 81578006 815F8004
        815F8006 816F8004 816F8006 817F8004 817F8006 81938004 81938006 81958004 81958006 81978004 81978006 81998006
        819B8003 819B8006 819B800D 819D8000 8C1F8608 8C1F8609 8C1F860B 8C2FA009 A2140007 A2140008 A2140009 A214000A
        A214000B A214000D A4025021 A4025041 A4025061 A4025081 A40250E1 A4025101 A4028801 A4140007 A4140008 A4140009
        A414000A A414000B A414000C A414000D A4303002 A60250C1
    """,
    Level.DEGRADED: """
        80818C06 80DE0207 80E18405 80E20207 81078605 819B8605 81A3880C 81AD8605 8C1F860A 8C2FA001
    """,
    Level.RESTART_REQUEST: """
        80BB8000 80BB8003 80BB8008 80BB8009 80BB800A 80BD8000 80BD8003 80BD8009 80C98000 80C98002 80C98003 80C98008
        80C98009 80C9800A 80CB8002 80CB8008 80CB8009 80CB800A 80CF8003 80D58000 80D58009 80D98008 80DB8000 80DB800A
        80DD8000 80DD8003 81318008 81AB8003 81AB8008 81AB800D
    """,
    Level.RESTART_JOB: """
        80E01801 81B38004 81B38009 8C204E00 A2301001 A2301002 A2303001 A4302003 A4302004 A4302005 A4302006 A4302009
        A430200A A60250A1 A6301002 A8028802 B4060006 B4060007 B4060008 B4060009 B406000D B406000E B4060010 B4060011
        B4060014 B406009C
    """,
    Level.RESET_WHEN_FREE: """
        8C044E00 8C064E00 8C084E00 8C0A4E00 8C0C4E00 8C0E4E00 8C104E00 8C124E00 8C17A005 8C19A005 8C1DA005 8C464E00
        A4193217 A4193218 A42A0000 A42F3917 A42F3918
    """,
    Level.RESET: """
        40F84E00 80A18008 80A38008 80A58008 80B58000 80B78000 80B98000 80B98008 80BD8008 80C78008 80C98001 80CB8001
        80CD8008 80CF8000 80CF8008 80CF8009 80DE1801 80DF8000 80DF8008 80DF8009 80DF800A 80E18000 80E18005 80E18008
        80E1800A 80E18404 80E21008 80E2120D 80E21E01 80E24E00 80E38008 80E39200 80E3A202 80E3A203 80E3A207 80E44E00
        80E58005 80E58009 80E58E02 80E58E03 80E78000 80E78008 80F18000 80F18008 80F1800A 80F2180D 80F38008 80F78003
        80F78008 80F78009 80F78C02 80F78C03 80F78C04 80FA4E00 80FB8005 812E4E00 812F8000 81338002 81338008 8139800A
        813B8002 813B8008 813F800A 8145800A 81478002 81478008 81498004 814F8008 81578002 81578008 815F8002 815F8008
        816F8008 817F8008 81938002 81938008 81958002 81958008 81978002 81978008 81998008 81998009 819B800A 81B38008
        81C5800A 81C7800A 81C9800A 8C03A000 8C1FA006 8C4BA00C A2141004 A2141006 A2142004 A2142006 A2145004 A4183200
        A6023001 A6023002 A6023003 A6023004 A6060000 A6060001 A6060002 A6060003 A6060004 A6060005 A606000A A606000B
        A606000C A606000F A606009D A6060FFF A607FFFF A6140001 A6140002 A6140003 A6140004 A6140005 A6140006 A6141003
        A6142003 A6143003 A6144003 A6145003 A6192D15 A6193206 A6193215 A6193248 A62F3905 A62FFFFF A6303003 A6303004
        A6360000 A6361000 A6362000 A8021004 A8060FFF A807FFFF A82A0000
    """,
    Level.REPLACE: """
        4C4BA00C 80818C00 80818C05 80DF8402 80E0020B 80E18402 80E3A201 814F8002 816F8002 817F8002 9419321B A2301000
        A2302001 A4192C1A A4193216 A419321B A419321C A42F390F A42F3916 A42F391A A6183207 A62F3934 A8028801 A819320F
        A8193234 A8193235
    """,
}
_LEVELS: Final = {code: level for level, codes in _CODES.items() for code in codes.split()}
