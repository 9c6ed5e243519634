"""How the failure of a tool is described."""

from __future__ import annotations

import subprocess

import pytest

from ascend_runner.node.findings import LONGEST_ERROR, failure


@pytest.mark.parametrize(
    ("status", "stdout", "stderr", "expected"),
    [
        (0, "", "a warning", ""),
        (1, "", "", "exit status 1"),
        (-9, "a table", "", "killed by SIGKILL (a table)"),
        (2, "a table", "first\n\x1b[31mno \x07permission\x1b[0m \n\n", "exit status 2 (no \\x07permission)"),
        (2, "", "https://me:s3cr3t@host", "exit status 2 (https://me:***@host)"),
        (2, "", 100_000 * "x", f"exit status 2 ({LONGEST_ERROR * 'x'})"),
    ],
)
def test_failure_of_a_tool(status: int, stdout: str, stderr: str, expected: str) -> None:
    """Its last line of error text gives the reason, masked, printable and not too long."""
    assert expected == failure(subprocess.CompletedProcess(["tool"], status, stdout, stderr))
