"""Logs in the user's pager."""

from __future__ import annotations

from pathlib import Path

from ascend_runner.tools.job.top_app import Pager
from tests.tools.job.conftest import JOB


def test_log_with_control_characters(tmp_path: Path) -> None:
    """The pager `less` shows any log at once, instead of a question whether to show a binary file."""
    less = tmp_path / "less"
    less.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\n')
    less.chmod(0o755)
    pager = Pager(job=JOB, environ={"PATH": str(tmp_path)}, log_path="/log/rank-{}.log".format)

    assert "" == pager.log(3)
    words = (tmp_path / "words").read_text().split()
    assert "-f" in words
    assert "/log/rank-3.log" == words[-1]
