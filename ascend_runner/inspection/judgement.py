"""Finds the defects of this node in the output of tools and the contents of files. Pure.

Sources: the reference of npu-smi and hccn_tool, MindCluster's documentation of their output, the kernel's
Documentation/ABI/testing/sysfs-class-net and sysfs-class-infiniband, and Documentation/accounting/psi.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ascend_runner.host.npu_smi import HEALTHY, Device
from ascend_runner.inspection.fault_codes import Level, is_overheating, level_of
from ascend_runner.inspection.watchlist import Defect
from ascend_runner.text import size

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
