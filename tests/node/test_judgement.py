"""What is wrong, by the output of npu-smi and hccn_tool and by the kernel's files."""

from __future__ import annotations

import pytest

from ascend_runner.node import npu_probes, npu_smi, probes
from ascend_runner.node.findings import Defect, Place
from ascend_runner.node.npu_probes import Level, is_overheating, level_of
from ascend_runner.node.npu_smi import Device
from tests.helpers.npu_tools import details, table

PLACE = Place(name="log directory", path="/log")


def device(health: str) -> Device:
    """Return device 5 with this health."""
    return Device(card=5, chip=0, device_id=5, name="910B3", health=health, temperature=38)


def defects(device: Device, details: str) -> list[Defect]:
    """Return the defects of an NPU."""
    return [one for one in npu_probes.of_health(device, details) if isinstance(one, Defect)]


@pytest.mark.parametrize(
    ("health", "is_error"), [("Warning", False), ("Alarm", True), ("Critical", True), ("UNKNOWN", False)]
)
def test_health_without_a_code(health: str, is_error: bool) -> None:  # noqa: FBT001  a parameter of the test
    """The health alone decides whether an NPU without a fault code has an error."""
    found = defects(device(health), details(health))

    assert [("device 5: health", f"device 5 reported {health}", is_error)] == [
        (one.subject, one.sentence, one.is_error) for one in found
    ]


@pytest.mark.parametrize(
    ("code", "level", "is_error", "may_pass"),
    [
        ("80E01801", Level.RESTART_JOB, True, True),
        ("80CB8002", Level.RESTART_REQUEST, True, True),
        ("8C0E4E00", Level.RESET_WHEN_FREE, True, False),
        ("80E24E00", Level.RESET, True, False),
        ("80E3A201", Level.REPLACE, True, False),
        ("80818C06", Level.DEGRADED, False, False),
    ],
)
def test_levels_of_codes(code: str, level: Level, is_error: bool, may_pass: bool) -> None:  # noqa: FBT001  as above
    """The level of a code decides, not the health."""
    found = defects(device("Warning"), details("Warning", code))

    assert level is level_of(code)
    assert [(f"device 5: {code}", is_error, may_pass)] == [(one.subject, one.is_error, one.may_pass) for one in found]
    assert found[0].sentence == f"device 5 reported {code} (Warning; {level.value})"


@pytest.mark.parametrize(
    ("code", "is_error", "action"),
    [
        ("80E20207", False, f"; {Level.DEGRADED.value}"),  # the temperature of the processor
        ("80E00209", False, ""),  # that of its memory
        ("80E0020B", True, f"; {Level.REPLACE.value}"),
        ("80B60209", False, ""),  # of an unknown part
    ],
)
def test_overheating(code: str, is_error: bool, action: str) -> None:  # noqa: FBT001  as above
    """A temperature above a limit is named, with that of the NPU, even if the code needs no action."""
    found = defects(device("Warning"), details("Warning", code))

    assert [(f"device 5 reported {code} (Warning; overheating, NPU at 38 °C{action})", is_error)] == [
        (one.sentence, one.is_error) for one in found
    ]


@pytest.mark.parametrize("code", ["80DE0200", "80E01801", "80E20206", "80E20407", "8C1F8608", "00000000"])
def test_other_codes_are_no_overheating(code: str) -> None:
    """A temperature that is too low or normal again, a voltage, and faults without a limit do not count."""
    assert not is_overheating(code)


def test_codes_that_need_no_action_and_unknown_ones() -> None:
    """A fault that needs no action is no finding; of an unknown one, the health decides."""
    found = defects(device("Alarm"), details("Alarm", "80CB8006,12345678"))

    assert [("device 5 reported 12345678 (Alarm)", True)] == [(one.sentence, one.is_error) for one in found]


def test_word_for_health_that_nobody_knows() -> None:
    """It is returned, so that it can be told."""
    assert "Splendid" == npu_probes.unknown_health(npu_smi.devices(table("OK", "Warning", "Splendid")))
    assert "" == npu_probes.unknown_health(npu_smi.devices(table("OK", "Warning")))


@pytest.mark.parametrize(
    ("state", "health", "was_up", "expected"),
    [
        ("UP", "Success", True, []),
        ("UP", "Init", True, []),
        ("DOWN", "Fault", True, [("the link of device 3 was down", True)]),
        ("DOWN", "", False, [("the link of device 3 was down", False)]),
        ("UP", "Receive timeout", True, [("device 3 could not reach its gateway (net health: Receive timeout)", True)]),
    ],
)
def test_links(state: str, health: str, was_up: bool, expected: list[tuple[str, bool]]) -> None:  # noqa: FBT001  as above
    """A link that is down is an error if it was up before, and so is a gateway that cannot be reached."""
    found = npu_probes.of_link(3, state, health, was_up=was_up)

    assert expected == [(one.sentence, one.is_error) for one in found]


def test_output_of_hccn_tool() -> None:
    """Both answers are read; another output gives none."""
    assert ("Receive timeout", "DOWN") == (
        npu_probes.net_health("net health status: Receive timeout\n"),
        npu_probes.link("link status: DOWN\n"),
    )
    assert ("", "") == (npu_probes.net_health("hccn_tool busy"), npu_probes.link(""))


@pytest.mark.parametrize(
    ("free", "whole", "expected"),
    [
        (2 << 30, 100 << 30, []),
        (900 << 20, 100 << 30, [False]),
        (8 << 20, 100 << 30, [True]),
        (60 << 20, 64 << 20, []),  # the default of /dev/shm in a container
        (2 << 20, 64 << 20, [False]),
        (0, 64 << 20, [True]),
        (0, 0, []),  # without a limit
    ],
)
def test_room(free: int, whole: int, expected: list[bool]) -> None:
    """Little room is a warning, hardly any an error; on a small file system, a part of it counts."""
    assert expected == [one.is_error for one in probes.of_space(PLACE, free, whole, is_running=True)]


@pytest.mark.parametrize(
    ("free", "whole", "expected"),
    [
        (10_000, 6_000_000, []),
        (9_999, 6_000_000, [False]),
        (99, 6_000_000, [True]),
        (60, 1_000, []),
        (49, 1_000, [False]),
        (4, 1_000, [True]),
        (0, 0, []),  # of a file system that creates them as needed
    ],
)
def test_inodes(free: int, whole: int, expected: list[bool]) -> None:
    """Few free inodes are a warning, hardly any an error: no file can be created without one."""
    assert expected == [one.is_error for one in probes.of_inodes(PLACE, free, whole)]


def test_memory_and_pressure() -> None:
    """Memory above 95 % of its limit is reported, and a minute of which most was lost to waiting."""
    psi = "some avg10=90.00 avg60=90.00 avg300=9.00 total=1\nfull avg10=80.00 avg60={:.2f} avg300=9.00 total=1\n"

    assert 1 == len(list(probes.of_memory(96, 100)))
    assert [] == [*probes.of_memory(95, 100), *probes.of_memory(96, None), *probes.of_memory(None, 100)]
    assert ["memory pressure"] == [
        one.subject for one in probes.of_pressure({"memory": psi.format(50.5), "io": psi.format(49), "cpu": ""})
    ]
