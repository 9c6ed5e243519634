"""Finding a machine's own devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend_runner.rank_table_tool import machine


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("\0\1\2", "cannot run {}: Exec format error"),
        ("#!/bin/sh\necho $2 >>{}.asked; exec sleep 60\n", "{} did not answer within 0.2 s"),
    ],
)
def test_tool_that_does_not_work(content: str, sentence: str, tmp_path: Path) -> None:
    """An hccn_tool that cannot be run, or does not answer, is one warning and not asked again."""
    tool = tmp_path / "hccn_tool"
    tool.write_text(content.replace("{}", str(tool)))
    tool.chmod(0o755)
    warnings: list[str] = []
    found = machine.ask_hccn_tool(range(8), warnings.append, tools=[str(tool)], timeout=0.2)

    assert {} == found
    assert [sentence.format(tool)] == warnings
    assert ("0\n" if "asked" in content else "") == "".join(path.read_text() for path in tmp_path.glob("*.asked"))


def test_missing_tool(tmp_path: Path) -> None:
    """A machine without hccn_tool has no further addresses, and there is no warning."""
    warnings: list[str] = []

    assert {} == machine.ask_hccn_tool(range(8), warnings.append, tools=[str(tmp_path / "hccn_tool")])
    assert [] == warnings
