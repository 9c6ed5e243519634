"""The first page says the same in English and in Chinese: commands, options, exit statuses, links and numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import attrs
import pytest

ROOT: Final = Path(__file__).parent.parent
ENGLISH: Final = ROOT / "README.md"
CHINESE: Final = ROOT / ".github" / "README.zh-CN.md"
PAGES: Final = (ENGLISH, CHINESE)

_BLOCK: Final = r"(?ms)^```.*?^```$|(?:^ {4}[^\n]*\n)+"
_COMMENT: Final = r"\s+#.*"  # of a command: translated
_CODE: Final = r"`([^`]+)`"
_LINK: Final = r"\]\(([^)#]*)(#[^)]*)?\)"
_NUMBER: Final = r"\d+(?:\.\d+)?|\bSIG\w+"  # and names of signals


@attrs.frozen
class Facts:
    """What a row of a table, an item of a list or the other text of a section says in any language."""

    code: frozenset[str]
    links: frozenset[str]
    numbers: frozenset[str]


@attrs.frozen
class Section:
    """A section: its blocks of code, and the facts of its text, its rows and its items, in their order."""

    blocks: tuple[str, ...]
    facts: tuple[Facts, ...]


def read(page: Path, text: str) -> list[Section]:
    """Return the sections of a page with this text."""
    return [_section(page, part) for part in re.split(r"(?m)^## .*$", text)]


def _section(page: Path, text: str) -> Section:
    blocks = tuple(re.sub(_COMMENT, "", found[0]) for found in re.finditer(_BLOCK, text))
    lines = re.sub(_BLOCK, "", text).splitlines()
    units = [line for line in lines if line.startswith(("|", "- "))]
    rest = "\n".join(line for line in lines if line not in units)
    return Section(blocks, tuple(_facts(page, unit) for unit in (rest, *units)))


def _facts(page: Path, text: str) -> Facts:
    prose = re.sub(_LINK, "", re.sub(_CODE, "", text))
    links = {_target(page, found[1]) + (found[2] or "") for found in re.finditer(_LINK, text)}
    return Facts(
        code=frozenset(re.findall(_CODE, text)),
        links=frozenset(links) - {str(other.relative_to(ROOT)) for other in PAGES},
        numbers=frozenset(re.findall(_NUMBER, prose)),
    )


def _target(page: Path, link: str) -> str:
    """Return a link relative to the project, or the address of another site."""
    return link if ":" in link else str((page.parent / link).resolve().relative_to(ROOT))


def test_both_pages_say_the_same() -> None:
    """Section by section, both pages have the same code, links, numbers and signals."""
    english, chinese = (read(page, page.read_text("utf-8")) for page in PAGES)

    assert english == chinese


@pytest.mark.parametrize("page", PAGES)
def test_links(page: Path) -> None:
    """The pages link to each other, and each link leads to a file."""
    links = {found[1] for found in re.finditer(_LINK, page.read_text("utf-8")) if ":" not in found[1]}
    targets = {_target(page, link) for link in links}

    assert str(next(other for other in PAGES if other != page).relative_to(ROOT)) in targets
    assert [] == [target for target in targets if not (ROOT / target).exists()]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scripts/demo", "scripts/play"),
        ("--epochs 5", "--epochs 6"),
        ("loss is nan at step 17", "loss is nan at step 18"),
        ("`--grace DURATION`", "`--patience DURATION`"),
        ("| 15 |", "| 30 |"),
        ("\n| 124 |", "\n| 123 |"),
        ("\n| 126, 127 |", "\n| 126 |"),
        ("SIGUSR2", "SIGPWR"),
        ("guardian/README.md#limits", "guardian/README.md#bounds"),
        ("views/README.md", "report/README.md"),
        ("\n- **", "\n**"),
        ("\n## ", "\n"),
        ("import ascend_runner", "import ascend_job"),
    ],
)
@pytest.mark.parametrize("page", PAGES)
def test_a_change_of_one_page_is_found(page: Path, old: str, new: str) -> None:
    """A page that changes alone differs from the other."""
    text = page.read_text("utf-8")

    assert old in text
    assert read(page, text) != read(page, text.replace(old, new, 1))


def test_each_room_has_a_row() -> None:
    """The README of the package names each of its directories and modules, and nothing else."""
    rows = re.findall(r"(?m)^\| (.*?) \| ", (ROOT / "ascend_runner" / "README.md").read_text().split("## ")[0])
    named = {name for row in rows for name in re.findall(_CODE, row)}
    modules = (ROOT / "ascend_runner").glob("*.py")
    rooms = {package.parent.name for package in (ROOT / "ascend_runner").glob("*/__init__.py")}

    assert rooms | {module.name for module in modules if module.name != "__init__.py"} == named
