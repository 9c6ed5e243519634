"""The catalogue: its own entries, and the faults of a file that a site adds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from ascend_runner.diagnosis import catalogue, expressions
from ascend_runner.diagnosis.catalogue import EXCEPTION, FOLDER, LINE, Entry, faults, first_phrase
from ascend_runner.diagnosis.log_evidence import read
from ascend_runner.supervision.causes import Ending

FILES: Final = sorted(Path(FOLDER).iterdir())
ENTRIES: Final = [entry for path in FILES for entry in catalogue.parse(path.read_bytes())]
MATCHING: Final = [entry for entry in ENTRIES if entry.match]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.stem))
def test_our_entries_have_no_faults(path: Path) -> None:
    """Each has known keys, Chinese words, matches its sample, and does not match its near miss."""
    assert [] == faults(path.read_bytes(), path.name, is_ours=True)


def test_no_two_entries_have_one_name() -> None:
    """Ids and codes are unique, whatever file they are in."""
    names = [name for entry in ENTRIES for name in (entry.id, *catalogue.code_names(entry.code))]

    assert [] == sorted({name for name in names if names.count(name) > 1})


@pytest.mark.parametrize("entry", MATCHING, ids=lambda entry: str(entry.id))
def test_sample_is_explained_by_its_entry(entry: Entry) -> None:
    """Of all entries, an entry is the one that explains its samples."""
    assert [entry.id] * len(entry.sample) == [_id_of(entry, sample) for sample in entry.sample]


def _id_of(entry: Entry, sample: str) -> str:
    if entry.on == LINE:
        found = first_phrase(["step 1", *sample.splitlines()])
        return found.code.name if found else ""
    frame = "" if sample.startswith("  File ") else '  File "/job/train.py", line 61, in main\n    step(batch)\n'
    log = f"Traceback (most recent call last):\n{frame}{sample}\n"
    return read(log.encode(), Ending(exit_code=1)).code


def test_titles_and_search_words_are_chinese() -> None:
    """Each entry has a title and a word in Chinese characters, and its words add to the title."""
    chinese = re.compile("[\u4e00-\u9fff]")

    assert [] == [entry.id for entry in ENTRIES if not chinese.search(entry.title_zh)]
    assert [] == [entry.id for entry in ENTRIES if not any(map(chinese.search, entry.words_zh))]
    assert [] == [(entry.id, word) for entry in ENTRIES for word in entry.words_zh if word in entry.title_zh]


def test_expressions_are_compiled_where_their_text_occurs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading compiles none, and a search only those of which an alternative has a text that occurs in the log."""
    compiled: list[str] = []
    compile_any = re.compile

    def compile_one(text: str, flags: int = 0) -> re.Pattern[str]:
        compiled.append(text)
        return compile_any(text, flags)

    monkeypatch.setattr(re, "compile", compile_one)
    known = catalogue.build(ENTRIES)
    in_vain = known.first(LINE, ["nothing to see"])

    assert (None, []) == (in_vain, compiled)

    line = "OSError: [Errno 28] No space left on device"
    found = known.first(LINE, [line])

    assert found is not None
    assert [] == [text for text in compiled if not any(one in line.lower() for one in expressions.literals(text))]
    assert "no-space-left-on-device" == found.code.name


def test_every_meaning_fits_on_a_line() -> None:
    """The meaning of each entry takes less than a line of the failure screen."""
    assert [] == [entry.id for entry in ENTRIES if len(entry.means) > 100]


def test_entries_on_an_exception_blame_the_rank() -> None:
    """The class of an unknown error says nothing about a peer, so the entry may not, either."""
    assert {"own"} == {entry.kind for entry in MATCHING if entry.on == EXCEPTION}


GOOD: Final = """
[[entry]]
id = "licence"
match = 'licence server .* refused'
on = "line"
means = "the licence server refuses this host"
next = "ask the platform team"
source = "https://wiki.example.org/licences"
sample = "ERROR licence server l1 refused the checkout"
near = "licence server l1 granted 8 seats"
"""


CODE: Final = """
[[entry]]
id = "slow-switch"
code = "EI0006"
means = "the switch of rack 7 is slow"
source = "http://wiki/switches"
"""


def test_file_of_a_site() -> None:
    """A site's file may explain codes, and match lines or exceptions, also in one entry."""
    both = GOOD.replace('on = "line"', 'code = "EI0007"')

    assert [] == faults(f"{GOOD}{CODE}".encode(), "site.toml")
    assert [] == faults(f"{both}{CODE}".encode(), "site.toml")


@pytest.mark.parametrize(
    ("reason", "old", "new"),
    [
        ("unknown key 'nxt'", "next", "nxt"),
        ("missing key 'near'", 'near = "licence server l1 granted 8 seats"', ""),
        ("means must be a string, and not empty", '"the licence server refuses this host"', "3"),
        ("sample must be a string or a list of strings", '"ERROR licence server l1 refused the checkout"', "[1]"),
        ("invalid on 'file', expected 'line' or 'exception'", '"line"', '"file"'),
        ("invalid id 'Our licence'", '"licence"', '"Our licence"'),
        ("missing key 'source'", 'source = "https://wiki.example.org/licences"', ""),
        ("source must be a string, and not empty", '"https://wiki.example.org/licences"', '""'),
        ("source must be a string, and not empty", '"https://wiki.example.org/licences"', "['https://a']"),
        ("invalid source 'our wiki', expected a URL", "https://wiki.example.org/licences", "our wiki"),
        ("invalid source 'ftp://wiki.example.org/licences', expected a URL", "https:", "ftp:"),
        ("invalid source 'https:///licences', expected a URL", "wiki.example.org", ""),
        ("invalid source 'https://our wiki/licences', expected a URL", "wiki.example.org", "our wiki"),
        ("invalid source 'see https://wiki.example.org/licences', expected a URL", "https:", "see https:"),
        ("invalid source 'https://wiki.example.org/our licences', expected a URL", "org/licences", "org/our licences"),
        ("means and next must be one printable line", "ask the platform team", "ask " * 50),
        ("it does not match its sample 'ERROR'", "ERROR licence server l1 refused the checkout", "ERROR"),
        ("it matches its near miss", "granted 8 seats", "refused 8 seats"),
        ("it is invalid", "'licence server .* refused'", "'licence server (.* refused'"),
        ("it may take exponential time", "'licence server .* refused'", "'licence server (?:.*)* refused'"),
        ("it may take too long", "'licence server .* refused'", "'.*aaa.*aaa.*b|licence server .* refused'"),
        ("redefinition of group name", "'licence server .* refused'", "['(?P<a>licence) server', 'refused (?P<a>a)']"),
        ("each alternative needs a text of at least 3", "'licence server .* refused'", r"'\w+ \w+|refused'"),
        ("key 'kind' is reserved for the program's own entries", 'on = "line"', 'kind = "peer"'),
        ("invalid code 'EI06x'", "match = 'licence server .* refused'", 'code = "EI06x"'),
    ],
)
def test_faults_of_a_site(reason: str, old: str, new: str) -> None:
    """Each fault is reported with the file, the entry and the reason."""
    assert old in GOOD
    (fault,) = faults(f"{CODE}{GOOD.replace(old, new)}".encode(), "site.toml")

    assert fault.startswith("site.toml, entry 2")
    assert reason in fault


def test_fault_of_the_syntax() -> None:
    """Its line and column are reported."""
    (fault,) = faults(b"[[entry]]\nid = licence\n", "site.toml")

    assert fault.startswith("site.toml is not TOML: ")
    assert fault.endswith(" (at line 2, column 6)")


def test_all_faults_at_once() -> None:
    """A file with several faults is mended once."""
    assert 4 == len(faults(f"{CODE}{CODE}{GOOD.replace('means', 'mean')}".encode(), "site.toml"))


def test_an_entry_that_explains_nothing() -> None:
    """An entry needs something to explain."""
    assert ["site.toml, entry 1 ('slow-switch'): missing key 'code' or 'match'"] == faults(
        CODE.replace('code = "EI0006"', "").encode(), "site.toml"
    )


@pytest.mark.parametrize("text", ["", "entry = 1", "[[entries]]", "a = ", "[[entry]]\n'"])
def test_no_entries(text: str) -> None:
    """What is not a file of entries is one fault."""
    assert 1 == len(faults(text.encode(), "site.toml"))
