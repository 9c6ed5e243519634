"""The table of npu-smi."""

from __future__ import annotations

from ascend_runner.node import npu_smi
from ascend_runner.node.npu_smi import Device
from tests.helpers.npu_tools import TWO_DIES, table


def test_devices() -> None:
    """Each chip has its card, its number on the card, its id in /dev, its name, its health and its temperature."""
    assert [
        Device(card=0, chip=0, device_id=0, name="910B3", health="OK", temperature=38),
        Device(card=1, chip=0, device_id=1, name="910B3", health="Alarm", temperature=38),
    ] == npu_smi.devices(table("OK", "Alarm"))
    assert [
        Device(card=2, chip=0, device_id=4, name="Ascend910", health="OK", temperature=38),
        Device(card=2, chip=1, device_id=5, name="Ascend910", health="Warning", temperature=71),
    ] == npu_smi.devices(TWO_DIES)


def test_unknown_temperature() -> None:
    """A device without a temperature is a device all the same."""
    found = npu_smi.devices("| 0     910B3      | OK     | -     -     0    / 0 |\n| 0      | 0000:01:00.0 | 0 |\n")

    assert [(0, "OK", None)] == [(one.device_id, one.health, one.temperature) for one in found]


def test_output_without_a_table() -> None:
    """An error message lists no device."""
    assert [] == npu_smi.devices("dcmi module initialize failed. ret is -8005\n")
