"""`ascend-job explain`: what an error code means, or why a job failed, from its logs, whichever launcher started it."""

from __future__ import annotations

import itertools
import json
import os
import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from signal import SIGINT, SIGTERM, Signals
from typing import Final

import attrs

from ascend_runner import report_file
from ascend_runner.diagnosis import catalogue, endings
from ascend_runner.diagnosis.catalogue import EMPTY, Catalogue, Entry
from ascend_runner.errors import SettingsError, UnreadableError, reason
from ascend_runner.members import plain
from ascend_runner.node import terminal
from ascend_runner.record.job_record import JobRecord
from ascend_runner.secrets import Masker
from ascend_runner.supervision.causes import Ending
from ascend_runner.supervision.job_machine import JobState
from ascend_runner.text import abbreviated, counted, shown, signal_name
from ascend_runner.tool import DONE, write_text
from ascend_runner.tools.job import jobs, log_reader, node_reports
from ascend_runner.tools.job.log_reader import STDIN, LogReader
from ascend_runner.views import screen

NOTHING_KNOWN: Final = 1  # exit status if the cause or a code is unknown; grep has the same for no match

# --- Codes ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Explanation:
    """What a code means, which rank usually causes it, what to do, and the source of all that; "" if unknown."""

    code: str
    meaning: str
    kind: str = ""
    next: str = ""
    source: str = ""


_CODE: Final = re.compile(
    r"E[A-Z0-9]\d{4}|[1-5]\d{5}|ERR\d{5}|0x[0-9a-f]{1,16}|(?:HCCL|driver) \d{1,5}|-?\d{1,3}|SIG[A-Z0-9+]{2,8}"
)
_OF_CANN: Final = re.compile(r"E[A-Z0-9]\d{4}|\d{6}|(?:HCCL|driver) \d+")  # a peer may be at fault
HIGHEST_STATUS: Final = 255
OURS: Final = {  # exit statuses specific to this program
    75: "with --exit-verdict: the job has failed, and a retry may help",
    93: "with --exit-verdict: the job has failed, and a retry will not help",
}
ASKED: Final[Mapping[int, str]] = {  # the sender is unknown, since this program has not started the job
    SIGTERM: "asked to stop, by the platform, a user, or a launcher after another rank has failed",
    SIGINT: "interrupted, as by Ctrl-C",
}
SIGNALS: Final = "https://man7.org/linux/man-pages/man7/signal.7.html"
CODES: Final = "https://www.hiascend.com/document"  # the source of CANN's codes that only their module explains


def is_code(word: str, site: Catalogue = EMPTY) -> bool:
    """Whether a word has the form of an error code, an exit status or a signal, or is a name in a catalogue."""
    if _CODE.fullmatch(word) and not os.path.isdir(word):
        return True
    return not os.path.lexists(word) and bool(_CODE.fullmatch(_cased(word)) or _entry_of(word) or word in site.names)


def _cased(word: str) -> str:
    """Return a code in the catalogue's letter case, any other word unchanged."""
    cased = word.lower() if word[:2].lower() in {"0x", "dr"} else word.upper()
    return cased if _CODE.fullmatch(cased) else word


def _entry_of(word: str) -> Entry | None:
    """Return the entry with this id or code, or with this list of codes."""
    return catalogue.entry_of(word) or catalogue.entry_of(next(catalogue.code_names(word), ""))


def look_up(word: str, site: Catalogue = EMPTY) -> Explanation | None:
    """Return what a code means, None if it is unknown. A site's own entry overrides the built-in explanation."""
    word = _cased(word)
    found = _built_in(word)
    entry = site.names.get(found.code if found else word)
    if entry is None:
        return found
    found = found or Explanation(word, entry.means)
    return attrs.evolve(found, meaning=entry.means, next=entry.next, source=entry.source)


def _built_in(word: str) -> Explanation | None:
    if re.fullmatch(r"-?\d{1,3}", word):
        return _of_status(int(word))
    if word in Signals.__members__:
        return _of_signal(word, Signals[word])
    entry = _entry_of(word)
    if entry is None and word.startswith("ERR") and (phrase := catalogue.first_phrase([word])):
        entry = catalogue.entry_of(phrase.code.name)
    if entry:
        return _of_entry(word, entry, catalogue.KINDS[entry.kind].value if _OF_CANN.fullmatch(word) else "")
    found = catalogue.first_code([f"{word}: [PID: 0]"])  # explained by its module
    return Explanation(word, found.code.meaning, found.code.kind.value, source=CODES) if found else None


def _of_entry(code: str, entry: Entry, kind: str = "") -> Explanation:
    return Explanation(code, entry.means, kind, entry.next, entry.source)


def _of_status(number: int) -> Explanation | None:
    """Explain an exit status, or a negative number: a signal, as in Python's subprocess."""
    code = f"exit status {number}"
    if entry := _entry_of(code):
        return _of_entry(code, entry)
    if number in OURS:
        return Explanation(code, OURS[number])
    signum = -number if number < 0 else endings.signal_behind(Ending(exit_code=number))
    if 0 < signum <= endings.SIGNAL_LIMIT:
        return _of_signal(str(number) if number < 0 else code, signum)
    meaning = "chosen by the program: see its documentation, or the end of its log"
    return Explanation(code, meaning) if 0 <= number <= HIGHEST_STATUS else None


def _of_signal(code: str, signum: int) -> Explanation:
    name = signal_name(signum)
    entry = catalogue.entry_of(name)
    code = code if code == name else f"{code} ({name})"
    if entry and signum not in ASKED:
        return _of_entry(code, entry)
    return Explanation(code, ASKED.get(signum, "sent from outside, or by the program itself"), source=SIGNALS)


def _explain_codes(words: Sequence[str], options: Namespace) -> int:
    found = [(word, look_up(word, options.site)) for word in words]
    if options.json:
        write_text(json.dumps([attrs.asdict(one) for _word, one in found if one], indent=1) + "\n")
    for word, one in found:
        if one is None:
            options.tell(f"unknown code {word!r}")
        elif not options.json:
            write_text("".join(f"{line}\n" for line in _lines_of(one)))
    return DONE if all(one for _word, one in found) else NOTHING_KNOWN


def _lines_of(one: Explanation) -> Iterator[str]:
    yield f"{one.code}{f' ({one.kind})' if one.kind else ''}: {one.meaning}"
    yield from [f"  next   {one.next}"] if one.next else []
    yield from [f"  source {one.source}"] if one.source else []


# --- The answer -------------------------------------------------------------------------------------------------------

MOST_PROBLEMS: Final = 10  # sentences to print about logs that were left out or cut short
MOST_ERRORS: Final = 3  # to print if no cause is known: the last of each log and the first of each plog
RANK: Final = ("rank_id", "name", "exit_code", "signal", "log_path", "finding")  # members of a rank in the JSON


def run(options: Namespace) -> int:
    """Explain codes, or the logs of a job, and return the exit status.

    Raises:
        SettingsError: A word is neither a file nor a code, codes and files are mixed, or --catalogue has faults.
        UnreadableError: No log can be read.
    """
    words: Sequence[str] = options.words
    options.site = _site(options)
    if all(is_code(word, options.site) for word in words):
        return _explain_codes(words, options)
    _check_words(words, options.site)
    found = of_reports(words, options)
    if isinstance(found, str):
        return _show(JobRecord(), found.splitlines(), options)
    if found:
        return _show(found, (), options)
    problems: list[str] = []
    sources = log_reader.find(words, problems)
    if not sources:
        raise UnreadableError("".join(problems[:1]) or f"no logs in {abbreviated(words)}")
    with _progress(sum(one.size for one in sources)) as advance:
        reader = LogReader(sources, advance, problems, options.site)
        reader.read()
    for problem in problems[:MOST_PROBLEMS]:
        options.tell(problem)
    if len(problems) > MOST_PROBLEMS:
        options.tell(f"... and {counted(len(problems) - MOST_PROBLEMS, 'more problem')}")
    record = reader.record()
    where = sources[0].title if len(sources) == 1 else counted(len(sources), "log")
    return _show(record, [*_nothing(reader, where)], options)


def _site(options: Namespace) -> Catalogue:
    """Return the site's own catalogue, an empty one without --catalogue. Reports all of its faults.

    Raises:
        SettingsError: The catalogue has faults, or cannot be read.
    """
    path: str | None = options.catalogue
    if path is None:
        return EMPTY
    data, faults = catalogue.read(path)
    for fault in faults[:-1]:
        options.tell(fault)
    if faults:
        raise SettingsError(faults[-1])
    return catalogue.build(catalogue.parse(data))


def _check_words(words: Iterable[str], site: Catalogue) -> None:
    """Check that each word names a log.

    Raises:
        SettingsError: A word is neither a file nor a code, or codes and files are mixed.
        UnreadableError: A file may exist, but is not accessible.
    """
    codes, logs = [], []
    for word in words:
        try:
            if word != STDIN:
                os.lstat(word)
            logs.append(word)
        except (FileNotFoundError, NotADirectoryError) as error:
            if not is_code(word, site):
                raise SettingsError(f"{word!r} is neither a file nor an error code") from error
            codes.append(word)
        except OSError as error:
            raise UnreadableError(f"cannot read {word!r}: {reason(error)}") from error
    if codes:
        raise SettingsError(f"{codes[0]!r} is an error code, and {logs[0]!r} a log: explain them separately")


SHOWN_FROM: Final = 1 << 26  # bytes; reading fewer takes no noticeable time


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], object]]:
    """Show a progress bar on standard error if it is a terminal, and rich is installed."""
    if total < SHOWN_FROM or not terminal.columns(terminal.STDERR):
        yield lambda _count: None
        return
    try:
        from rich import console, progress  # noqa: PLC0415  an extra, and 50 ms
    except ModuleNotFoundError:
        yield lambda _count: None
        return
    columns = progress.BarColumn(), progress.DownloadColumn(), progress.TimeRemainingColumn()
    with progress.Progress(*columns, console=console.Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda count: bar.advance(task, count)


def _nothing(reader: LogReader, where: str) -> Iterator[str]:
    """Yield the lines for logs without a known cause."""
    yield f"no known cause in {where}"
    errors = [
        f"  {which} error of {reader.ranks[rank_id].title}: {error}"
        for rank_id, one in sorted(reader.judged.items())
        for which, error in (("last", one.last_error), ("first", one.death.evidence.plog_error))
        if error
    ]
    yield from errors[:MOST_ERRORS]


def _show(record: JobRecord, nothing: Sequence[str], options: Namespace) -> int:
    if options.json:
        write_text(json.dumps(document(record), indent=1) + "\n")
    else:
        masker = Masker()
        lines = screen.explained(record) if record.cause else nothing
        write_text("".join(f"{shown(masker.text(line))}\n" for line in lines))
    return DONE if record.cause else NOTHING_KNOWN


def document(record: JobRecord) -> dict[str, object]:
    """Return the JSON of a diagnosis (`--json`), with members as in a report."""
    encoded = record.encode()
    ranks = [{name: plain(rank)[name] for name in RANK} for rank in (one.encode(0.0) for one in record.ranks)]
    return {"cause": encoded["cause"], "ranks": ranks}


def of_reports(words: Sequence[str], options: Namespace) -> JobRecord | str | None:
    """Return the answer of this runner's reports, if each word names a report or a directory with one.

    The answer is the record of the failed job (with several nodes, of the node with the likely cause), or a sentence if
    the job has not failed. It is None if the logs must be read, because there is no report or the runner was killed.

    Raises:
        SettingsError: The reports belong to different jobs.
    """
    reports = [_reports_at(word) for word in words]
    if not all(reports):
        return None
    paths = list(itertools.chain.from_iterable(reports))
    path = max(paths, key=_written_at)
    if len(paths) > 1:
        several = node_reports.find(words, options.environ)
        path = several.candidates[0].path if several and several.candidates else path
        if several and not path:
            return node_reports.screen(several)
    record = JobRecord.decode(report_file.read(path))
    folder = os.path.dirname(path)
    ranks = tuple(
        attrs.evolve(
            one,
            log_path=os.path.join(folder, one.log_name),
            finding=one.finding and catalogue.advised(one.finding, options.site),
        )
        for one in record.ranks
    )
    if record.cause:
        return attrs.evolve(record, ranks=ranks)
    if record.state is JobState.SUCCEEDED:
        return f"{record.job_id} has succeeded"
    is_alive = any(job.is_alive() for job in jobs.at_path(path))
    return f"{record.job_id} is running and has not failed" if is_alive else None


def _written_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _reports_at(word: str) -> list[str]:
    """Return the paths of the reports in a directory, or `word` if it is the path of a report."""
    try:
        paths = [os.path.join(word, name) for name in sorted(os.listdir(word))] if os.path.isdir(word) else [word]
    except OSError:
        return []
    return list(filter(_REPORT.search, paths))


_REPORT: Final = re.compile(rf"{report_file.KIND}(?:-[^/]+)?\.json$")
