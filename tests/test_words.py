"""What the READMEs name exists: modules, directories, and the files and headings that links lead to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "ascend_runner"
READMES: Final = sorted({*ROOT.glob("README.md"), *PACKAGE.rglob("README.md"), *(ROOT / "scripts").rglob("README.md")})
NAMES: Final = [str(readme.relative_to(ROOT)) for readme in READMES]
OF_OTHERS: Final = {
    "torch_npu_run.py",  # scripts of platforms
    "rank_table_tools.py",
    "iter_0001200/",  # directories of checkpoints
    "global_step1200/",
    "global_step_1200/",
    "checkpoint-1200/",
    "step_100/",
    "epoch_3/",
    "checkpoint-9/",
    "rank_0/",
    "rank_1/",
}

_BLOCK: Final = r"(?ms)^ *```.*?^ *```$"
_PATH: Final = r"`((?:scripts|tests|fixtures)/[\w./*-]+|[\w.*-][\w./*-]*(?:\.py|/))`"


@pytest.mark.parametrize("readme", READMES, ids=NAMES)
def test_names_exist(readme: Path) -> None:
    """Each module, directory or script that a README names exists below its directory, the package or the project."""
    named = {*re.findall(_PATH, re.sub(_BLOCK, "", readme.read_text("utf-8")))} - OF_OTHERS

    assert [] == [
        name for name in named if not any(next(base.glob(name), None) for base in (readme.parent, PACKAGE, ROOT))
    ]


@pytest.mark.parametrize("readme", READMES, ids=NAMES)
def test_links_lead_somewhere(readme: Path) -> None:
    """Each link between READMEs leads to a file and, after a `#`, to a heading in it."""
    links = re.findall(r"\]\(([^):]+)\)", re.sub(_BLOCK, "", readme.read_text("utf-8")))

    assert [] == [link for link in links if not _leads_somewhere(readme, link)]


def _leads_somewhere(readme: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = readme.parent / path if path else readme
    return target.exists() and (not anchor or anchor in _anchors(target))


def _anchors(readme: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a README."""
    headings = re.findall(r"(?m)^#+ (.*)$", re.sub(_BLOCK, "", readme.read_text("utf-8")))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
