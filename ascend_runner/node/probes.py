"""The probes of this node's health: what each looks at, and when it is a defect.

The levels are those of MindCluster's device plugin (faultCode.json), which decides by them about a pod. The meaning of
the bits is that of Ascend's driver: a part of the device, then 8 bits for the type of its sensor and 9 for the event
(dms_sensor.c, dms_sensor_type.h).

Sources: the reference of npu-smi and hccn_tool, MindCluster's documentation of their output, the kernel's
Documentation/ABI/testing/sysfs-class-net and sysfs-class-infiniband, and Documentation/accounting/psi.rst.

A probe raises TimeoutError if its tool hangs, and `UnusableError` if it does not work on this node.
"""

from __future__ import annotations

import enum
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import attrs

from ascend_runner.errors import reason
from ascend_runner.node import bounded, cores, executables, memory, npu_smi
from ascend_runner.node.host import Host
from ascend_runner.node.npu_smi import HEALTHY, Device
from ascend_runner.secrets import Masker
from ascend_runner.supervision.causes import Ending, FindingKind, NodeFinding
from ascend_runner.text import last_lines, size

# Seconds for which a defect that often disappears by itself has to last. It is less than a minute, so that with the
# default interval the second inspection reports it.
CONFIRM_AFTER: Final = 55.0


@attrs.frozen(kw_only=True)
class Defect:
    """A defect of this node. `subject` identifies it; `sentence` describes it in the past tense."""

    subject: str
    sentence: str
    is_error: bool = False
    may_pass: bool = False


@attrs.define
class _Seen:
    defect: Defect
    since: float
    is_reported: bool = False


@attrs.define
class Watchlist:
    """The present defects by probe. `at` is in seconds since the epoch."""

    _seen: dict[str, dict[str, _Seen]] = attrs.field(init=False, factory=dict)
    _hangs: dict[str, int] = attrs.field(init=False, factory=dict)  # hangs in a row, by probe

    def note(self, probe: str, defects: Sequence[Defect], at: float) -> list[NodeFinding]:
        """Record the defects that a probe has found in this round; return findings on those that are new or gone."""
        self._hangs[probe] = 0
        before, now = self._seen.get(probe, {}), {}
        findings = []
        for defect in defects:
            seen = before.get(defect.subject) or _Seen(defect, at)
            now[defect.subject] = seen
            is_due = not defect.may_pass or at - seen.since >= CONFIRM_AFTER
            is_worse = defect.is_error and not seen.defect.is_error
            if is_due and (is_worse or not seen.is_reported):
                seen.defect, seen.is_reported = defect, True
                findings.append(
                    NodeFinding(
                        subject=defect.subject, sentence=defect.sentence, at=seen.since, is_error=defect.is_error
                    )
                )
        self._seen[probe] = now
        gone = [seen for subject, seen in before.items() if seen.is_reported and subject not in now]
        return findings + [_recovered(seen.defect, at) for seen in gone]

    def note_hang(self, probe: str, seconds: float, at: float) -> list[NodeFinding]:
        """Record that a probe has not returned in time: a notice the first time, a defect the second time in a row."""
        hangs = self._hangs.get(probe, 0) + 1
        sentence = f"{probe} did not respond within {seconds:g} s"
        if hangs == 1:
            findings = [notice(probe, sentence, at)]
        else:
            before = tuple(seen.defect for seen in self._seen.get(probe, {}).values())
            hung = Defect(subject=f"{probe}: hang", sentence=f"{sentence} twice in a row", is_error=True)
            findings = self.note(probe, (*before, hung), at)
        self._hangs[probe] = hangs
        return findings


def notice(subject: str, sentence: str, at: float) -> NodeFinding:
    """Return a finding about the inspection itself."""
    return NodeFinding(subject=subject, sentence=sentence, at=at, kind=FindingKind.NOTICE)


def _recovered(defect: Defect, at: float) -> NodeFinding:
    sentence = f"resolved: {defect.sentence}"
    return NodeFinding(subject=defect.subject, sentence=sentence, at=at, kind=FindingKind.RECOVERED)


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
    """Return whether a code says that a temperature is too high, such as 80E20207 for that of the processor."""
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


IS_ERROR: Final = {"Warning": False, "Alarm": True, "Critical": True, "UNKNOWN": False}  # by the health of an NPU
NET_IS_FINE: Final = "Success"
NET_HAS_FAILED: Final = frozenset({"Socket fail", "Receive timeout", "Unreachable", "Time exceeded", "Fault"})
GIB: Final = 1 << 30
ENOUGH: Final = (GIB, 0.05)  # bytes, and part of a small file system; less room is a warning
NEARLY_NONE: Final = (GIB >> 6, 0.005)  # less than this is an error
ENOUGH_INODES: Final = (10_000, 0.05)  # likewise, in files
NEARLY_NO_INODES: Final = (100, 0.005)
FULL_MEMORY: Final = 0.95  # fraction of the control group's limit
STALLED: Final = 50.0  # per cent of the last minute in which nothing could run for lack of a resource

_CODE: Final = re.compile(r"\b[0-9A-Fa-f]{8}\b")
_PRESSURE: Final = re.compile(r"^full .*avg60=(?P<percent>[0-9.]+)", re.MULTILINE)


def of_health(device: Device, details: str) -> Iterator[Defect]:
    """Yield the defects of an NPU that is not healthy; `details` is what `npu-smi info -t health` prints for it."""
    name, is_error = f"device {device.device_id}", IS_ERROR.get(device.health, False)
    codes = _CODE.findall(_value(details, "Error Code"))
    for code in dict.fromkeys(code.upper() for code in codes):
        level, heat = level_of(code), _heat(device, code)
        if level is not Level.NOTHING or heat:
            action = level.value if level and level is not Level.NOTHING else ""
            meaning = "; ".join(filter(None, (device.health, heat, action)))
            yield Defect(
                subject=f"{name}: {code}",
                sentence=f"{name} reported {code} ({meaning})",
                is_error=level.is_error if level else is_error,
                may_pass=level is not None and level.may_pass,
            )
    if not codes:
        yield Defect(subject=f"{name}: health", sentence=f"{name} reported {device.health}", is_error=is_error)


def _heat(device: Device, code: str) -> str:
    """Return the words for a fault code that says that an NPU is too hot, which slows it down; else ""."""
    if not is_overheating(code):
        return ""
    return "overheating" if device.temperature is None else f"overheating, NPU at {device.temperature} °C"


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
        yield Defect(subject=f"{name}: link", sentence=f"the link of {name} was down", is_error=was_up)
    elif health in NET_HAS_FAILED:
        sentence = f"{name} could not reach its gateway (net health: {health})"
        yield Defect(subject=f"{name}: net health", sentence=sentence, is_error=was_up, may_pass=True)


def gone_devices(before: Mapping[int, str], now: Mapping[int, str]) -> Iterator[Defect]:
    """Yield a defect for each NPU whose device node has disappeared."""
    for device_id, node in before.items():
        if device_id not in now:
            yield Defect(subject=f"device {device_id}: gone", sentence=f"/dev/{node} was missing", is_error=True)


def fallen(kind: str, before: Mapping[str, bool], now: Mapping[str, bool]) -> Iterator[Defect]:
    """Yield a defect for each interface or port that was up at first and is now down; states are by name."""
    for name, was_up in before.items():
        if was_up and not now.get(name):
            yield Defect(subject=f"{kind} {name}", sentence=f"{kind} {name} was down", is_error=True)


def flapping(before: Mapping[str, int], now: Mapping[str, int]) -> Iterator[Defect]:
    """Yield a defect for each InfiniBand port whose counter shows that it lost its link since the last inspection."""
    for name, count in now.items():
        lost = count - before.get(name, count)
        if lost > 0:
            times = "once" if lost == 1 else f"{lost} times"
            yield Defect(
                subject=f"InfiniBand port {name}: flapping", sentence=f"InfiniBand port {name} lost its link {times}"
            )


def of_room(name: str, path: str, free: int, whole: int) -> Iterator[Defect]:
    """Yield a defect if a file system is nearly full. Sizes are in bytes; `whole` is 0 if there is no limit."""
    is_error = _is_scarce(free, whole, ENOUGH, NEARLY_NONE)
    if is_error is not None:
        sentence = f"only {size(free)} of {size(whole)} were free in the {name} {path}"
        yield Defect(subject=f"room in {path}", sentence=sentence, is_error=is_error)


def of_inodes(name: str, path: str, free: int, whole: int) -> Iterator[Defect]:
    """Yield a defect if a file system is nearly out of inodes; `whole` is 0 if there is no limit."""
    is_error = _is_scarce(free, whole, ENOUGH_INODES, NEARLY_NO_INODES)
    if is_error is not None:
        sentence = f"only {free:,} of {whole:,} inodes were free in the {name} {path}"
        yield Defect(subject=f"inodes in {path}", sentence=sentence, is_error=is_error)


def _is_scarce(free: int, whole: int, enough: tuple[int, float], nearly_none: tuple[int, float]) -> bool | None:
    """Return whether a resource is nearly used up, or None if enough is left or there is no limit."""
    if free >= min(enough[0], enough[1] * whole):
        return None
    return free < min(nearly_none[0], nearly_none[1] * whole)


def of_memory(used: int | None, limit: int | None) -> Iterator[Defect]:
    """Yield a defect if the control group is nearly out of memory.

    `used` is in bytes, without the page cache, or None if unknown. `limit` is in bytes, or None if there is none.
    """
    if used is not None and limit and used > FULL_MEMORY * limit:
        sentence = f"{size(used)} of the memory limit of {size(limit)} were in use"
        yield Defect(subject="memory", sentence=sentence)


def of_pressure(resources: Mapping[str, str]) -> Iterator[Defect]:
    """Yield a defect for each resource whose pressure stall information shows that all processes waited for it."""
    for name, text in resources.items():
        found = _PRESSURE.search(text)
        if found and float(found["percent"]) > STALLED:
            share = f"{float(found['percent']):.0f} % of the last minute"
            sentence = f"all processes were stalled waiting for {name} for {share}"
            yield Defect(subject=f"{name} pressure", sentence=sentence)


def unknown_health(found: Sequence[Device]) -> str:
    """Return the first health whose meaning is unknown, or "" if there is none."""
    words = (device.health for device in found if device.health != HEALTHY and device.health not in IS_ERROR)
    return next(words, "")


def _value(text: str, key: str) -> str:
    """Return the value of the first line "KEY ... : VALUE", or "" if there is none."""
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip().startswith(key):
            return value.strip()
    return ""


LONGEST_ERROR: Final = 200  # characters that a sentence takes from a tool's error text
MOST_ERROR_TEXT: Final = 1 << 16  # characters at its end that are searched for secrets


class UnusableError(Exception):
    """A probe does not work on this node. Its message is the reason, or "" if there is nothing to report."""


@attrs.frozen(kw_only=True)
class Place:
    """A directory that the job writes to; `name` describes it in messages."""

    name: str
    path: str


@attrs.frozen(kw_only=True)
class Node:
    """The node to inspect. `device_ids` are the NPUs of the job; without any, all that npu-smi lists are inspected."""

    host: Host
    environ: Mapping[str, str]
    device_ids: tuple[int, ...] = ()
    places: tuple[Place, ...] = ()
    seconds: float = 10.0  # the limit for each probe
    has_peers: bool = False  # whether ranks on other nodes need the links from the beginning

    def tool(self, name: str, folders: tuple[str, ...]) -> str:
        """Return the path of a tool.

        Raises:
            UnusableError: It is not installed.
        """
        search_path = self.environ.get("PATH", os.defpath).split(os.pathsep)
        found = executables.find_tool(name, (*search_path, *map(self.host.path, folders)))
        if not found:
            raise UnusableError
        return found


@attrs.define
class Tool:
    """A tool that a probe runs. All its runs in one round share the time of the probe."""

    node: Node
    path: str
    _ends: float = attrs.field(init=False, default=0.0)

    def begin(self) -> None:
        """Begin a round, with new time."""
        self._ends = time.monotonic() + self.node.seconds

    def ask(self, *arguments: str) -> str:
        """Run the tool, and return its output. See `call`."""
        return self.call(*arguments).stdout

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the tool.

        Raises:
            TimeoutError: It does not respond.
            UnusableError: It cannot be run.
        """
        try:
            answer = bounded.run([self.path, *arguments], self._ends - time.monotonic(), self.node.environ)
        except OSError as error:
            raise UnusableError(f"cannot run {self.path}: {reason(error)}") from error
        if answer is None:
            raise TimeoutError
        return answer


def failure(answer: subprocess.CompletedProcess[str]) -> str:
    """Return how a tool failed, such as "exit status 1 (no permission)", or "" if it exited with 0."""
    if not answer.returncode:
        return ""
    last = last_line(answer)
    return f"{Ending.of(answer.returncode)}{f' ({last})' if last else ''}"


def last_line(answer: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of a tool's error text, or else of its output, with secrets masked."""
    text = answer.stderr if answer.stderr.strip() else answer.stdout
    lines = last_lines(Masker().data(text[-MOST_ERROR_TEXT:].encode()))
    return lines[-1].strip()[:LONGEST_ERROR] if lines else ""


HCCN_TOOL_FOLDERS: Final = ("/usr/local/Ascend/driver/tools", "/usr/local/bin", "/usr/local/sbin")
NETWORK: Final = "/sys/class/net"
INFINIBAND: Final = "/sys/class/infiniband"
PRESSURES: Final = ("memory", "io")  # full pressure on the CPU of a whole system is undefined


class Probe(Protocol):
    """Probes one aspect of this node."""

    def look(self) -> Iterator[Defect]:
        """Yield the present defects.

        Raises:
            TimeoutError: A tool does not respond.
            UnusableError: The probe does not work on this node.
        """


class NpuHealth:
    """The health of the NPUs, by npu-smi: one call, and one more for each NPU that is not OK."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._tool = Tool(node, node.tool("npu-smi", npu_smi.FOLDERS))
        self._has_worked = False

    def look(self) -> Iterator[Defect]:
        """Yield the present defects."""
        self._tool.begin()
        answer = self._tool.call("info")
        found = npu_smi.devices(answer.stdout)
        why = failure(answer)
        unknown = unknown_health(found)
        if not found and self._has_worked:
            sentence = f"npu-smi info failed: {why}" if why else "npu-smi info did not list any NPU"
            yield Defect(subject="npu-smi", sentence=sentence, is_error=True)
        elif not found or unknown:
            what = f"printed an unknown health status {unknown!r}" if unknown else "printed no table in a known format"
            if why and not unknown:
                what = f"failed: {why}"
            raise UnusableError(f"npu-smi info {what}; the health of the NPUs is not inspected")
        self._has_worked = True
        wanted = self._node.device_ids
        for device in found:
            if device.health != npu_smi.HEALTHY and (not wanted or device.device_id in wanted):
                place = ("-i", str(device.card), "-c", str(device.chip))
                yield from of_health(device, self._tool.ask("info", "-t", "health", *place))


class DeviceNodes:
    """The device nodes of the NPUs in /dev."""

    def __init__(self, node: Node) -> None:
        self._host = node.host
        self._before = {one: name for one, name in cores.nodes(node.host).items() if one in node.device_ids}

    def look(self) -> Iterator[Defect]:
        """Yield the present defects."""
        yield from gone_devices(self._before, cores.nodes(self._host))


class Links:
    """The links of the NPUs, by hccn_tool. A reachable gateway proves that the link is up, so one call is enough."""

    def __init__(self, node: Node) -> None:
        self._node = node
        if not node.device_ids:
            raise UnusableError
        self._tool = Tool(node, node.tool("hccn_tool", HCCN_TOOL_FOLDERS))
        self._worked: set[int] = set()  # devices whose links have worked

    def look(self) -> Iterator[Defect]:
        """Yield the present defects."""
        self._tool.begin()
        for device_id in self._node.device_ids:
            health = net_health(self._tool.ask("-i", str(device_id), "-net_health", "-g"))
            is_fine = health == NET_IS_FINE
            state = "UP" if is_fine else link(self._tool.ask("-i", str(device_id), "-link", "-g"))
            if not health and not state:
                raise UnusableError(
                    "hccn_tool printed nothing in a known format; the links of the NPUs are not inspected"
                )
            was_up = device_id in self._worked
            if was_up or self._node.has_peers:
                yield from of_link(device_id, state, health, was_up=was_up)
            if is_fine:
                self._worked.add(device_id)


class Network:
    """The network interfaces of this machine that were up at first."""

    def __init__(self, node: Node) -> None:
        self._host = node.host
        self._before = self._states()

    def _states(self) -> dict[str, bool]:
        names = [name for name in self._host.listdir(NETWORK) if name != "lo"]
        states = {name: self._host.read_text(f"{NETWORK}/{name}/operstate").strip() for name in names}
        # Interfaces of containers come and go; one without a known state is virtual.
        return {name: state != "down" for name, state in states.items() if state in {"up", "down", "lowerlayerdown"}}

    def look(self) -> Iterator[Defect]:
        """Yield the present defects."""
        now = self._states()
        present = {name: was_up for name, was_up in self._before.items() if name in now}
        yield from fallen("network interface", present, now)


class InfiniBand:
    """The InfiniBand ports of this machine."""

    def __init__(self, node: Node) -> None:
        self._host = node.host
        self._before, self._lost = self._states(), self._losses()
        if not self._before:
            raise UnusableError

    def _ports(self) -> Iterator[tuple[str, str]]:
        for device in self._host.listdir(INFINIBAND):
            for port in self._host.listdir(f"{INFINIBAND}/{device}/ports"):
                yield f"{device}/{port}", f"{INFINIBAND}/{device}/ports/{port}"

    def _states(self) -> dict[str, bool]:
        return {name: "ACTIVE" in self._host.read_text(f"{path}/state") for name, path in self._ports()}

    def _losses(self) -> dict[str, int]:
        texts = {name: self._host.read_text(f"{path}/counters/link_downed").strip() for name, path in self._ports()}
        return {name: int(text) for name, text in texts.items() if text.isdigit()}

    def look(self) -> Iterator[Defect]:
        """Yield the present defects."""
        before, self._lost = self._lost, self._losses()
        yield from fallen("InfiniBand port", self._before, self._states())
        yield from flapping(before, self._lost)


class Room:
    """The free space and inodes of one directory. Each has a probe of its own, since the disk of another may hang."""

    def __init__(self, node: Node, place: Place) -> None:
        self._place = place
        self._path = node.host.path(place.path)

    def look(self) -> Iterator[Defect]:
        """Yield the present defects."""
        try:
            found = os.statvfs(self._path)
        except OSError:  # it may not exist yet
            return
        free, whole = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        yield from of_room(self._place.name, self._place.path, free, whole)
        yield from of_inodes(self._place.name, self._place.path, found.f_favail, found.f_files)


class Memory:
    """The memory of the job's control group, and the pressure on memory and disks."""

    def __init__(self, node: Node) -> None:
        self._host = node.host

    def look(self) -> Iterator[Defect]:
        """Yield the present defects."""
        yield from of_memory(*memory.working_set(self._host))
        group = cores.find(self._host, "memory", "memory.usage_in_bytes", "memory.current")
        own = group.folders[0] if group and not group.is_v1 else ""
        yield from of_pressure({name: self._pressure(name, own) for name in PRESSURES})

    def _pressure(self, name: str, own: str) -> str:
        text = self._host.read_text(f"{own}/{name}.pressure") if own else ""
        return text or self._host.read_text(f"/proc/pressure/{name}")


def all_probes(node: Node) -> dict[str, Callable[[], Probe]]:
    """Return the constructor of each probe by its name. Most constructors read the initial state, which may hang."""
    return {
        "npu-smi": partial(NpuHealth, node),
        "/dev": partial(DeviceNodes, node),
        "hccn_tool": partial(Links, node),
        NETWORK: partial(Network, node),
        INFINIBAND: partial(InfiniBand, node),
        "/proc and the control group": partial(Memory, node),
        **{place.path: partial(Room, node, place) for place in node.places},
    }
