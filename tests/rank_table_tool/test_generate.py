"""A machine's own table."""

from __future__ import annotations

import pytest

from ascend_runner.errors import RankTableError
from ascend_runner.rank_table_tool.generate import make_table, parse_conf, parse_devices, parse_tool


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("0-7", (0, 1, 2, 3, 4, 5, 6, 7)),
        ("3", (3,)),
        ("2-5", (2, 3, 4, 5)),
        ("8-11", (8, 9, 10, 11)),
        ("4,0-1", (4, 0, 1)),
        (" 0 , 10 ", (0, 10)),
    ],
)
def test_devices(text: str, devices: tuple[int, ...]) -> None:
    """Any ranges will do: across 4, above 9, in any order."""
    assert devices == parse_devices(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "'' is not a number or a range such as 8-15"),
        ("[0,8)", "'[0' is not a number or a range such as 8-15"),
        ("0-", "'0-' is not a number or a range such as 8-15"),
        ("٣", "'٣' is not a number or a range such as 8-15"),
        ("3-1", "'3-1' is not a number or a range such as 8-15"),
        ("0-3,2", "duplicate device id 2"),
        ("0-1024", "too many devices: 1025, expected at most 1024"),
    ],
)
def test_no_devices(text: str, sentence: str) -> None:
    """A text that is not a list of devices is an error."""
    with pytest.raises(ValueError, match=r".") as caught:
        parse_devices(text)

    assert sentence == str(caught.value)


def test_conf() -> None:
    """hccn.conf has a line per address; others are passed over, the last one counts."""
    lines = (
        "address_0=192.168.1.1",
        " address_10 = 192.168.1.10 ",
        "netmask_0=255.255.255.0",
        "#address_3=x",
        "address_0=192.168.1.2",
        "netdetect_0=192.168.1.9",
        "address_x=1",
    )

    assert {0: "192.168.1.2", 10: "192.168.1.10"} == parse_conf("\n".join(lines))


def test_tool() -> None:
    """hccn_tool prints the address among other lines."""
    assert "192.168.1.1" == parse_tool("ipaddr:192.168.1.1\nnetmask:255.255.255.0\n")
    assert not parse_tool("Command execute failed!\n")


def test_devices_of_the_conf() -> None:
    """Without a choice the table has what hccn.conf knows, by number and not by text."""
    table, unknown = make_table("a", None, {10: "192.168.1.10", 2: "192.168.1.2"}, lambda _: {})

    assert [(2, "192.168.1.2", 0), (10, "192.168.1.10", 1)] == [
        (device.device_id, device.device_ip, device.rank_id) for device in table.devices
    ]
    assert () == unknown


def test_tool_knows_what_the_conf_does_not() -> None:
    """The order of ranks is that of the choice; hccn_tool is asked for addresses that are missing."""
    table, unknown = make_table(
        "a", (5, 1), {1: "192.168.1.1"}, lambda devices: {5: "192.168.1.5"} if list(devices) == [5] else {}
    )

    assert [(5, "192.168.1.5"), (1, "192.168.1.1")] == [
        (device.device_id, device.device_ip) for device in table.devices
    ]
    assert () == unknown


def test_missing_addresses() -> None:
    """Devices without an address are returned, as such a table works on one machine only."""
    table, unknown = make_table("a", (0, 1, 3), {3: "192.168.1.3"}, lambda _: {0: ""})

    assert ["", "", "192.168.1.3"] == [device.device_ip for device in table.devices]
    assert (0, 1) == unknown


def test_no_device_at_all() -> None:
    """A machine without devices has no table."""
    with pytest.raises(RankTableError, match=r"^no devices found in hccn\.conf or /dev"):
        make_table("a", None, {}, lambda _: {})
