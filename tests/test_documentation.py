"""The pages of the documentation, as scripts/site_pages.py writes them for MkDocs."""

from __future__ import annotations

import html
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from signal import Signals
from typing import Final

import pytest

from ascend_runner import errors, tool
from ascend_runner.diagnosis import catalogue, codes
from ascend_runner.diagnosis.finding import CollectiveGroup, Finding, Peer, StackGroup
from ascend_runner.record.job_record import (
    AttemptRecord,
    CauseRecord,
    CheckpointRecord,
    Condition,
    JobRecord,
    Staged,
    StepRecord,
)
from ascend_runner.record.nodes import JobVerdict, NodeRecord
from ascend_runner.record.rank_record import RankRecord
from ascend_runner.settings.options import OPTIONS
from ascend_runner.supervision.causes import NodeFinding
from ascend_runner.tools.job import commands, explain

ROOT: Final = Path(__file__).parent.parent
READMES: Final = [path for top in ("", "ascend_runner/**/", "scripts/**/") for path in ROOT.glob(f"{top}README.md")]
FILES: Final = sorted(Path(catalogue.FOLDER).iterdir())
ENTRIES: Final = [entry for path in FILES for entry in catalogue.parse(path.read_bytes())]

_BLOCK: Final = r"(?ms)^ *```.*?^ *```$"
_CODE: Final = rf"{_BLOCK}|`[^`\n]*`"


def write(target: Path) -> dict[str, str]:
    """Write the pages, and return their text by their address."""
    scripts = ROOT / "scripts"
    subprocess.run([sys.executable, "-m", "site_pages", target], cwd=scripts, check=True)
    top = target / "pages"
    return {str(path.relative_to(top)): path.read_text("utf-8") for path in sorted(top.rglob("*.md"))}


@pytest.fixture(name="pages", scope="module")
def fixture_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the text of each page by its address."""
    return write(tmp_path_factory.mktemp("site"))


def test_placeholders_are_code() -> None:
    """A placeholder such as <job> is in a code span or an indented block: elsewhere GitHub takes it for HTML."""
    blocks = rf"{_CODE}|^    [^\n]*$"
    found = {path: re.findall(r"<[\w ]+>", re.sub(blocks, "", path.read_text("utf-8"))) for path in READMES}

    assert {} == {path: tags for path, tags in found.items() if tags}


def test_each_readme_is_a_chapter(pages: dict[str, str]) -> None:
    """The text of each README of the program is on a page."""
    headings = {heading for page in pages.values() for heading in re.findall(r"(?m)^## (.*?) \{", page)}

    assert 20 < len(READMES)
    assert [] == [
        (str(path), heading)
        for path in READMES
        for heading in re.findall(r"(?m)^## (.*)$", re.sub(_BLOCK, "", path.read_text("utf-8")))
        if heading not in headings
    ]


def test_each_link_leads_somewhere(pages: dict[str, str]) -> None:
    """Each link leads to a page and, after a `#`, to a heading on it; each picture is there."""
    dead = [
        (page, link)
        for page, text in pages.items()
        for link in re.findall(r"\]\(([^()\s:]+)\)", re.sub(_CODE, "", text))
        if not _leads_somewhere(pages, page, link)
    ]

    assert [] == dead


def _leads_somewhere(pages: Mapping[str, str], page: str, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
    if target.startswith("assets/"):
        return (ROOT / "fixtures" / posixpath.basename(target)).exists()
    return target in pages and (not anchor or f"{{ #{anchor} }}\n" in pages[target])


def test_no_two_headings_have_one_anchor(pages: dict[str, str]) -> None:
    """An anchor leads to one heading."""
    for page, text in pages.items():
        anchors = re.findall(r"(?m)^#+ .* \{ #(\S+) \}$", text)

        assert (page, sorted(set(anchors))) == (page, sorted(anchors))


def test_each_option_has_a_section(pages: dict[str, str]) -> None:
    """The page of the options has each with its value, its variable and its default."""
    sections = pages["options.md"].split("\n#### ")
    for option in OPTIONS:
        (section,) = (one for one in sections if one.startswith(f"`{option.usage}` {{ #{option.name} }}"))

        assert not option.variable or f"`{option.variable}`" in section
        assert not option.shown_default or "Default: " in section


def test_each_known_error_has_a_page(pages: dict[str, str]) -> None:
    """A page has the codes, samples, Chinese words and source of an entry, and that of its subject leads to it."""
    indexes = "".join(text for page, text in pages.items() if page.endswith("/index.md"))
    for entry in ENTRIES:
        page = pages[f"errors/{entry.id}.md"]
        words = [*catalogue.code_names(entry.code), *entry.sample, entry.title_zh, *entry.words_zh, entry.source]
        titles = re.findall("<h2 .*>(.*)</h2>", page)

        assert (entry.id, []) == (entry.id, [word for word in words if word.strip("\n") not in page])
        assert ["What the line looks like", "What it means", "What to do", "Where that is from"] == titles
        assert f"](../{entry.id}.md)" in indexes


def test_meaning_and_advice_are_on_the_page(pages: dict[str, str]) -> None:
    """Under their headings, a page has what an entry means and, if that is known, what to do."""
    for entry in ENTRIES:
        page = re.sub(r"\[(`[^]]*`)\]\([^)]*\)", r"\1", pages[f"errors/{entry.id}.md"])  # without links from options
        _, _line, meaning, advice, _source = re.split("<h2 .*>.*</h2>", re.sub(r"[\\`]", "", html.unescape(page)))
        told = [f"{text.replace(chr(96), '')}." for text in (entry.means, entry.next)]

        assert (entry.id, True) == (entry.id, told[0].lower() in meaning.lower())
        assert (entry.id, True) == (entry.id, not entry.next or told[1].lower() in advice.lower())


def test_exit_statuses_have_a_page(pages: dict[str, str]) -> None:
    """It explains each exit status of the runner, of a rank that a known signal ended, and of `ascend-job`."""
    page = pages["exit-status.md"]
    rows = dict(re.findall(r"(?m)^\| ([\dN][^|]*) \| (.+) \|$", page))
    signals = {
        f"{128 + Signals[entry.code]}": f"[{entry.code}](errors/{entry.id}.md) | "
        for entry in ENTRIES
        if entry.code.startswith("SIG")
    }
    ours = [value for name, value in vars(errors).items() if name.isupper() and isinstance(value, int)]
    explained = [name for names in rows for name in names.split(", ")]

    assert sorted(["0", *map(str, ours), "N", "128 + S", *signals]) == sorted(explained)
    assert signals == {name: rows[name][: len(words)] for name, words in signals.items()}
    assert sorted({tool.USAGE, explain.NOTHING_KNOWN, *commands.STATUSES.values()}) == [
        int(status) for status in re.findall(r"(?m)^(\d)  \w", page)
    ]


# How a rank ended is not seen in its log, and beside the others there is always a code or a message that says more.
LOOKED_UP: Final = ("SIG", "exit status ", "ERR", "0x")


def test_codes_are_recognized_in_their_lines(pages: dict[str, str]) -> None:
    """A code is found in the line that its page shows, and not as a part of a longer number, a hex number or a path."""
    for entry in ENTRIES:
        if entry.match or entry.code.startswith(LOOKED_UP):
            continue
        line = re.split(r"(?m)^```.*\n", pages[f"errors/{entry.id}.md"])[1].strip()
        first, *_ = names = [*catalogue.code_names(entry.code)]
        for name in names:
            printed = _printed(name)
            sample = line.replace(_printed(first), printed)
            near = [sample.replace(printed, text) for text in (f"{printed}777777", f"99{printed}", f"0x{printed}")]
            near += [f"saved /data/step-{printed}/checkpoint_{printed}.pt", f"loss {printed} at step {printed}"]
            found = catalogue.first_code([sample])

            assert (sample, entry.as_code(name)) == (sample, found and found.code)
            assert [] == [one for one in near if catalogue.first_code([one])]


def test_codes_that_are_only_looked_up(pages: dict[str, str]) -> None:
    """Those that say less than what is beside them in a log are explained by name, and not found in their lines."""
    for entry in ENTRIES:
        if entry.code.startswith(LOOKED_UP) and not entry.match:
            (line,) = re.findall(r"(?m)^```.*\n(.*)\n```", pages[f"errors/{entry.id}.md"])

            assert [entry] * 2 == [
                catalogue.entry_of(name) for name in (entry.id, next(catalogue.code_names(entry.code)))
            ]
            assert (line, None) == (line, catalogue.first_code([line]))


def _printed(code: str) -> str:
    return code.removesuffix(codes.OF_THE_SERVER).rpartition(" ")[2]


def test_each_subject_has_titles(pages: dict[str, str]) -> None:
    """Each file of the catalogue has an English and a Chinese title."""
    first_lines = [pages[f"errors/{path.stem}/index.md"].partition("\n")[0] for path in FILES]

    assert [] == [
        line for line in first_lines if not re.fullmatch(r"# [A-Zv].* <small lang=\"zh-CN\">.+</small>", line)
    ]


REPORT: Final = JobRecord(
    cause=CauseRecord(suspected_peer=Peer()),
    ranks=(RankRecord(rank_id=0, finding=Finding(points_at=(Peer(),))),),
    hang=(StackGroup(rank_ids=(0,), state="", frames=()),),
    collectives=(CollectiveGroup(),),
    attempts=(AttemptRecord(),),
    staged=(Staged(source="", place="", files=0, size=0, copied=0, seconds=0.0),),
    conditions=(Condition(condition="", sentence="", since=0.0),),
    last_step=StepRecord(),
    last_checkpoint=CheckpointRecord(),
    findings=(NodeFinding(subject="", sentence="", at=0.0),),
    verdict=JobVerdict(),
    nodes=(NodeRecord(),),
)


def test_each_member_of_the_report_is_described(pages: dict[str, str]) -> None:
    """The page of the report's members has a table with exactly the members of each record."""
    tables = re.findall(r"\|---\|---\|---\|\n((?:\|.*\n)+)", pages["report-members.md"])
    described = {frozenset(re.findall(r"(?m)^\| `(\w+)` \|", table)) for table in tables}

    assert described == set(_objects(REPORT.encode()))


def _objects(value: object) -> Iterator[frozenset[str]]:
    """Yield the names of the members of each object in a document."""
    if isinstance(value, dict) and value:
        yield frozenset(value)
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(member)


def test_equal_sources_give_equal_pages(pages: dict[str, str], tmp_path: Path) -> None:
    """Whatever the hashes of a run are, the pages are the same."""
    assert pages == write(tmp_path)
