"""The table of platforms in the README, and the specs."""

from __future__ import annotations

import re
from pathlib import Path

import ascend_runner.platforms
from ascend_runner.platforms.registry import PLATFORMS

README = Path(ascend_runner.platforms.__file__).with_name("README.md")


def test_readme_lists_the_platforms_in_their_order() -> None:
    """Each platform has a row in the README's table, in the order in which they are tried."""
    names = list(dict.fromkeys(spec.name for spec in PLATFORMS))
    cells = [row.split("|")[1].strip(" `") for row in README.read_text("utf-8").splitlines() if row.startswith("|")]
    listed = [max((name for name in names if cell.startswith(name)), key=len, default="") for cell in cells]

    assert names == list(dict.fromkeys(filter(None, listed)))


def test_readme_names_the_variables_that_detect_a_platform() -> None:
    """Each variable of `detected_by` occurs in the README."""
    words = {*re.findall(r"\w+", README.read_text("utf-8"))}

    assert set() == {name for spec in PLATFORMS for name in spec.detected_by if name != "HOSTNAME"} - words
