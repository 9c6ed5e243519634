"""What `ascend-job explain --catalogue` adds: a site's own explanations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.helpers.site_catalogue import LICENCE
from tests.tools.job.conftest import Tool
from tests.tools.job.explain.test_launchers import TIMEOUT, ranks, written

SITE: Final = f"""{LICENCE}
[[entry]]
id = "slow-switch"
code = "EI0006, exit status 42"
means = "the switch of rack 7 is slow"
source = "https://wiki.example.org/switches"
"""
LOG: Final = """\
Traceback (most recent call last):
  File "/code/train.py", line 212, in <module>
    checkout()
RuntimeError: licence server l1 refused: NPU out of memory
"""


@pytest.fixture
def site(tmp_path: Path) -> str:
    """The path of a site's catalogue."""
    (tmp_path / "site.toml").write_text(SITE)
    return str(tmp_path / "site.toml")


def test_logs(site: str, tool: Tool, tmp_path: Path) -> None:
    """The site's words precede what is known of an error otherwise."""
    (tmp_path / "train.log").write_text(LOG)
    status, text = tool("explain", "--catalogue", site, str(tmp_path / "train.log"))

    assert 0 == status
    known = ["  means  the licence server refuses this host", "  next   ask the platform team"]
    assert known == [line for line in text.splitlines() if line in known]
    assert "out of memory on the device" not in text


def test_rank_of_a_site(tool: Tool, tmp_path: Path) -> None:
    """A site's entry on the line of a victim explains the victim, and changes neither the rank nor the certainty."""
    entry = LICENCE.replace(r"licence server \S+ refused", "Notify register").replace("exception", "line")
    (tmp_path / "site.toml").write_text(entry.replace("l1 refused the checkout", "Notify register"))
    logs = written(tmp_path / "log", ranks("rank-{}.txt", others=TIMEOUT % (7, 7), count=3))
    causes, means = [], []
    for options in ((), ("--catalogue", str(tmp_path / "site.toml"))):
        found = json.loads(tool("explain", "--json", *options, str(logs))[1])
        causes.append(found["cause"])
        means.append([rank["finding"]["code_meaning"] for rank in found["ranks"]])

    assert (2, "certain") == (causes[0]["rank_id"], causes[0]["certainty"])
    assert causes[0] == causes[1]
    assert ["the licence server refuses this host"] * 2 == means[1][:2]
    assert means[0][2] == means[1][2]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("licence", "licence: the licence server refuses this host"),
        ("EI0006", "EI0006 (usually caused by a peer): the switch of rack 7 is slow"),
        ("42", "exit status 42: the switch of rack 7 is slow"),
    ],
)
def test_codes(word: str, expected: str, site: str, tool: Tool) -> None:
    """A code, an exit status or an id of the site is explained in its words, with its source."""
    status, text = tool("explain", word, "--catalogue", site)

    assert 0 == status
    assert expected == text.splitlines()[0]
    assert text.splitlines()[-1].startswith("  source https://wiki.example.org/")


def test_faults(site: str, tool: Tool) -> None:
    """All faults are reported before anything is read."""
    Path(site).write_text(SITE.replace("means", "mean"))
    status, text = tool("explain", "EI0006", "--catalogue", site)

    assert 2 == status
    assert [f"ascend-job: {site}, entry {number}" for number in (1, 1, 2, 2)] == [
        line.partition(" (")[0] for line in text.splitlines()
    ]


def test_no_such_file(tool: Tool) -> None:
    """It is a usage error, with the path."""
    expected = "ascend-job: cannot read --catalogue 'none.toml': no such file or directory\n"

    assert (2, expected) == tool("explain", "EI0006", "--catalogue", "none.toml")
