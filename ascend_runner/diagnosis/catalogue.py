"""The catalogue of known errors: what a code or a message means, what to do about it, and which document says so.

Its entries are the TOML files in the directory `catalogue` beside this module, one for each subject; README.md explains
their keys. They are checked by the tests alone, and read once: by `ascend-job explain`, or for a failure by the thread
that loads ahead of it all that it needs, since which ranks are stopped, and when, depends on the meaning of its error.
A site adds a file of its own with --catalogue, which is checked before the job starts. Its entries only advise: they
never decide which rank is the cause.

An expression is compiled only where its longest literal occurs in the text, because compiling all of them would take
longer than everything else that is done for a failed rank.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from ascend_runner.diagnosis import codes, expressions
from ascend_runner.diagnosis.codes import Code, Found, Kind
from ascend_runner.diagnosis.finding import Finding
from ascend_runner.errors import SettingsError, reason
from ascend_runner.text import LINE_LIMIT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER: Final = os.path.join(os.path.dirname(__file__), "catalogue")
BEGINNING: Final = 1000  # characters; the time that some expressions take grows with their square

LINE: Final = "line"
EXCEPTION: Final = "exception"
# The kinds of entries; "lost" is a lost connection, which in a collective is a lost peer.
KINDS: Final = {"own": Kind.ROOT, "either": Kind.EITHER, "peer": Kind.SECONDARY, "lost": Kind.EITHER}
_TURNS: Final = {"own": 0, "either": 1, "peer": 1, "lost": 2}  # what a rank did itself precedes what it reports


@attrs.frozen(kw_only=True)
class Entry:
    """One known error, with the keys of its table in TOML. It has a `code`, expressions that `match`, or both."""

    id: str
    means: str
    source: str
    next: str = ""
    code: str = ""
    match: tuple[str, ...] = ()
    on: str = LINE
    sample: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    title_zh: str = ""
    words_zh: tuple[str, ...] = ()
    # The following keys are only for the program's own entries.
    kind: str = "own"
    wrapper: bool = False
    general: bool = False
    package: bool = False
    worker: bool = False
    restart: str = ""
    beside: str = ""

    @property
    def advice(self) -> str:
        """What it means and what to do, in one line."""
        return f"{self.means}: {self.next}" if self.next else self.means

    def as_code(self, name: str) -> Code:
        """Return the code `name` of this entry, or the entry itself by its id."""
        return Code(
            name.partition(codes.OF_THE_SERVER)[0],
            self.means,
            KINDS[self.kind],
            next=self.next,
            is_wrapper=self.wrapper,
            is_connection=self.kind == "lost",
            is_of_worker=self.worker,
        )


Rule = tuple[Entry, Sequence[str]]  # an entry, and the literals one of which must occur


@attrs.frozen(eq=False, repr=False)
class Catalogue:
    """Entries in the order in which they are tried, and the codes that they explain."""

    rules: Mapping[str, Sequence[Rule]]  # by what they match on
    codes: Mapping[str, Code]
    names: Mapping[str, Entry]  # by each code, and by the id

    def first(self, on: str, lines: Sequence[str], *, is_own: bool = False) -> Found | None:
        """Find the first entry that matches a line; `is_own` leaves out those for the words of packages."""
        text = "\n".join(lines).lower()
        for entry, literals in self.rules[on]:
            if (is_own and entry.package) or not any(literal in text for literal in literals):
                continue
            matches = re.compile("|".join(entry.match), re.IGNORECASE).search
            line = next(filter(matches, lines), None)
            if line is not None:
                return Found(entry.as_code(entry.id), line)
        return None


def build(entries: Iterable[Entry]) -> Catalogue:
    """Return a catalogue of entries."""
    found = sorted(entries, key=lambda entry: (entry.wrapper, _TURNS[entry.kind], entry.general))
    rules: dict[str, list[Rule]] = {LINE: [], EXCEPTION: []}
    for entry in found:
        if entry.match:
            rules[entry.on].append((entry, [*expressions.literals("|".join(entry.match))]))
    named = [(name, entry) for entry in found for name in code_names(entry.code)]
    return Catalogue(
        rules=rules,
        codes={name: entry.as_code(name) for name, entry in named},
        names=dict([*named, *((entry.id, entry) for entry in found)]),
    )


@functools.cache
def ours() -> Catalogue:
    """Return the program's own catalogue.

    Raises:
        OSError: Its files cannot be read.
    """
    return build(itertools.chain.from_iterable(map(parse, _read_files())))


def _known() -> Catalogue:
    """Return the program's own catalogue, empty if its files cannot be read: the rank is found without explanations."""
    try:
        return ours()
    except OSError:
        return EMPTY


EMPTY: Final = build(())


def _read_files() -> Iterator[bytes]:
    for name in sorted(os.listdir(FOLDER)):
        with open(os.path.join(FOLDER, name), "rb") as file:
            yield file.read()


def read(path: str) -> tuple[bytes, list[str]]:
    """Return the content of a site's file (`--catalogue`), and its faults. A FIFO counts as empty.

    Raises:
        SettingsError: The file cannot be read.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise SettingsError(f"cannot read --catalogue {path!r}: {reason(error)}") from error
    return data, faults(data, path)


LARGEST: Final = 1 << 20  # bytes of a site's file


def parse(data: bytes) -> Iterator[Entry]:
    """Yield the entries of a file that has no faults."""
    for fields in tomllib.loads(data.decode())["entry"]:
        yield _entry(fields)


def _entry(fields: Mapping[str, Any]) -> Entry:
    lists = {key: _listed(fields[key]) for key in LISTS if key in fields}
    return Entry(**{**fields, **lists})


def _listed(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


LISTS: Final = ("match", "sample", "near", "words_zh")  # each is a string or a list of strings


def first_code(lines: Sequence[str]) -> Found | None:
    """Find the first known code, see `codes.first`."""
    return codes.first(lines, _known().codes)


def first_phrase(lines: Sequence[str]) -> Found | None:
    """Find a telling phrase, the most specific first. Meant for the lines around a failure only."""
    return _known().first(LINE, lines)


def class_of(message: Sequence[str], *, is_own: bool = False) -> Found | None:
    """Find the class of an error with an unknown message, by the beginnings of its lines.

    With `is_own`, the user's program has chosen the words, not a package.
    """
    return _known().first(EXCEPTION, [line[:BEGINNING] for line in message], is_own=is_own)


def entry_of(name: str) -> Entry | None:
    """Return the entry that a finding names by a code or an id, None if it names none."""
    return _known().names.get(name)


def advised(finding: Finding, site: Catalogue) -> Finding:
    """Return a finding with the advice of a site's own entry, if one matches; nothing else changes."""
    frames = [line for line in finding.traceback if line.startswith("  ")]
    said = [line[:LINE_LIMIT] for line in (*texts_of("\n".join([*frames, finding.exception])), *finding.traceback)]
    around = [*said, finding.code_line, finding.plog_error, *finding.last_lines]
    found = site.first(EXCEPTION, said) or site.first(LINE, around)
    code = found.code if found else site.codes.get(finding.code)
    return attrs.evolve(finding, code_meaning=code.meaning, next=code.next) if code else finding


def code_names(text: str) -> Iterator[str]:
    """Yield each code of a list such as "EK0003-EK0005, HCCL 7, SIGSEGV"."""
    for part in filter(None, text.split(", ")):
        match = _CODES.fullmatch(part)
        if match and not match["first"]:
            yield part
        elif match:
            prefix, first, last, suffix = match.groups(default="")
            for number in range(int(first), int(last or first) + 1):
                yield f"{prefix}{number:0{len(first)}d}{suffix}"


_CODES: Final = re.compile(
    r"SIG[A-Z]+|ERR\d{5}|0x[0-9a-f]{1,16}|exit status \d{1,3}|"
    rf"(E[A-Z]?|HCCL |driver )?(?P<first>\d{{1,6}})(?:-(?:E[A-Z]?)?(\d{{1,6}}))?({codes.OF_THE_SERVER})?"
)


# --- Faults -----------------------------------------------------------------------------------------------------------

_TYPES: Final = {field.name: bool if str(field.type) == "bool" else str for field in attrs.fields(Entry)}
_OURS: Final = frozenset({"kind", "wrapper", "general", "package", "worker", "restart", "beside"})
_CHOICES: Final = {
    "on": (LINE, EXCEPTION),
    "kind": tuple(KINDS),
    "restart": ("never", "helps"),
    "beside": ("disks", "memory", "ports", "shm"),
}
LONGEST_ADVICE: Final = 160  # characters, which take two lines of a terminal
MOST_OPEN_REPETITIONS: Final = 2  # the worst line takes half a second; with one more, a minute
SHORTEST: Final = 3  # letters, or bytes of UTF-8, of a literal; a shorter one occurs in most logs


def faults(data: bytes, name: str, *, is_ours: bool = False) -> list[str]:
    """Return everything that is wrong with a file of entries, one sentence each; `name` is its path."""
    if len(data) > LARGEST:
        return [f"{name} is larger than {LARGEST} bytes"]
    try:
        document = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        return [f"{name} is not TOML: {error}"]
    tables = document.pop("entry", [])
    if document or not tables or not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        return [f"{name}: expected tables [[entry]] and nothing else"]

    found, numbers = [], dict[str, int]()
    for number, fields in enumerate(tables, 1):
        label = f"{name}, entry {number}" + (f" ({fields['id']!r})" if "id" in fields else "")
        wrong = {key: reason for key in fields if (reason := _fault_of_key(key, fields[key], is_ours=is_ours))}
        entry = _entry({**dict.fromkeys(_NEEDED, ""), **{key: fields[key] for key in fields if key not in wrong}})
        names = (one for one in (entry.id, *code_names(entry.code)) if numbers.setdefault(one, number) != number)
        reasons = [
            *wrong.values(),
            *_missing(fields, is_ours=is_ours),
            *_faults_of_entry(entry, is_ours=is_ours),
            *(f"{one!r} belongs to entry {numbers[one]} already" for one in names if one),
        ]
        found += [f"{label}: {reason}" for reason in reasons]
    return found


def _fault_of_key(key: str, value: object, *, is_ours: bool) -> str:
    """Return what is wrong with a key or the type of its value, "" if nothing."""
    if key not in _TYPES:
        return f"unknown key {key!r}, expected one of {', '.join(one for one in _TYPES if is_ours or one not in _OURS)}"
    if key in _OURS and not is_ours:
        return f"key {key!r} is reserved for the program's own entries"
    if key in LISTS and isinstance(value, list):
        is_good = bool(value) and all(isinstance(one, str) and one for one in value)
        return "" if is_good else f"{key} must be a string or a list of strings, none of them empty"
    if not isinstance(value, _TYPES[key]) or not value:
        return f"{key} must be {'true' if _TYPES[key] is bool else 'a string'}, and not empty"
    if key in _CHOICES and value not in _CHOICES[key]:
        return f"invalid {key} {value!r}, expected {' or '.join(map(repr, _CHOICES[key]))}"
    return ""


def _missing(fields: Mapping[str, object], *, is_ours: bool) -> Iterator[str]:
    needed = (*_NEEDED, *(_CHINESE if is_ours else ()), *(("sample", "near") if "match" in fields else ()))
    yield from (f"missing key {key!r}" for key in needed if key not in fields)
    if "code" not in fields and "match" not in fields:
        yield "missing key 'code' or 'match'"


_NEEDED: Final = ("id", "means", "source")
_CHINESE: Final = ("title_zh", "words_zh")


def _faults_of_entry(entry: Entry, *, is_ours: bool) -> Iterator[str]:
    """Yield what is wrong with the values of an entry, as far as it has them."""
    if not re.fullmatch(r"(?:[a-z0-9]+(?:-[a-z0-9]+)*)?", entry.id):
        yield f"invalid id {entry.id!r}, expected words in lower case with hyphens between them"
    if not re.fullmatch(r"(?:https?://[^\s/]+(?:/\S*)?)?", entry.source):
        yield f"invalid source {entry.source!r}, expected a URL"
    if not entry.advice.isprintable() or len(entry.advice) > LONGEST_ADVICE:
        yield f"means and next must be one printable line of at most {LONGEST_ADVICE} characters together"
    reasons = [f"invalid code {part!r}" for part in entry.code.split(", ") if part and not _CODES.fullmatch(part)]
    for pattern in (*entry.match, "|".join(entry.match)) if entry.match else ():  # they may have groups of one name
        found = _faults_of_expression(pattern, entry.on, is_ours=is_ours)
        reasons = reasons or [f"expression {pattern!r}: {one}" for one in found]
    yield from reasons or _faults_of_samples(entry)


def _faults_of_expression(pattern: str, on: str, *, is_ours: bool) -> Iterator[str]:
    reasons = list(expressions.faults(pattern))
    yield from reasons
    if not (is_ours or reasons) and expressions.open_ends(pattern) > MOST_OPEN_REPETITIONS:
        why = f"more than {MOST_OPEN_REPETITIONS} repetitions also match the character that may follow them"
        yield f"it may take too long: {why}; split it, or limit them, as in .{{0,9}}"
    if on == LINE and not reasons and min(len(text.encode()) for text in expressions.literals(pattern)) < SHORTEST:
        yield f"each alternative needs a text of at least {SHORTEST} letters outside of groups"


def _faults_of_samples(entry: Entry) -> Iterator[str]:
    """Yield the samples that an entry does not match, and the near misses that it does."""
    catalogue = build([entry])

    def is_found(text: str) -> bool:
        lines = texts_of(text)
        if entry.match:
            return catalogue.first(entry.on, lines) is not None
        found = codes.first(lines, catalogue.codes)
        return found is not None and found.code.name in catalogue.codes

    yield from (f"it does not match its sample {text.strip()!r}" for text in entry.sample if not is_found(text))
    yield from (f"it matches its near miss {text.strip()!r}" for text in entry.near if is_found(text))


def texts_of(sample: str) -> list[str]:
    """Return what of a sample is searched: its lines, or of a traceback its message, last frame and source line."""
    lines = [line for line in sample.splitlines() if line.strip()]
    at = max((at for at, line in enumerate(lines) if line.startswith("  File ")), default=-1)
    message = [line for line in lines if not line.startswith("  ")]
    if at < 0 or not message:
        return lines
    return [*message, *(f"{line.strip()}: {message[0]}" for line in lines[at : at + 2] if line.startswith("  "))]
