"""The table of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend_runner.tools.rank_table import commands


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
    """Device ids are numbers and ranges, in any order."""
    assert devices == commands.parse_devices(text)


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
    """Text that is not a list of distinct devices is an error."""
    with pytest.raises(ValueError, match=r".") as caught:
        commands.parse_devices(text)

    assert sentence == str(caught.value)


def test_conf() -> None:
    """hccn.conf has a line per address; other lines are ignored, and of duplicates the last one counts."""
    lines = (
        "address_0=192.168.1.1",
        " address_10 = 192.168.1.10 ",
        "netmask_0=255.255.255.0",
        "#address_3=x",
        "address_0=192.168.1.2",
        "netdetect_0=192.168.1.9",
        "address_x=1",
    )

    assert {0: "192.168.1.2", 10: "192.168.1.10"} == commands.parse_conf("\n".join(lines))


def test_tool() -> None:
    """hccn_tool prints the address among other lines."""
    assert "192.168.1.1" == commands.parse_tool("ipaddr:192.168.1.1\nnetmask:255.255.255.0\n")
    assert not commands.parse_tool("Command execute failed!\n")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("\0\1\2", "cannot run {}: exec format error"),
        ("#!/bin/sh\necho $2 >>{}.asked; exec sleep 1000\n", "{} did not respond within 0.2 s"),
    ],
)
def test_tool_that_does_not_work(content: str, sentence: str, tmp_path: Path) -> None:
    """An hccn_tool that cannot be run, or does not answer, is one warning and not asked again."""
    tool = tmp_path / "hccn_tool"
    tool.write_text(content.replace("{}", str(tool)))
    tool.chmod(0o755)
    warnings: list[str] = []
    found = commands.ask_hccn_tool(range(8), warnings.append, tools=[str(tool)], timeout=0.2)

    assert {} == found
    assert [sentence.format(tool)] == warnings
    assert ("0\n" if "asked" in content else "") == "".join(path.read_text() for path in tmp_path.glob("*.asked"))


def test_missing_tool(tmp_path: Path) -> None:
    """A machine without hccn_tool has no further addresses, and there is no warning."""
    warnings: list[str] = []

    assert {} == commands.ask_hccn_tool(range(8), warnings.append, tools=[str(tmp_path / "hccn_tool")])
    assert [] == warnings
