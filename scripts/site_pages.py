"""Write the documentation as pages for MkDocs, with its configuration. Called by `scripts/docs`.

Chapters are READMEs. Options, members of the report and known errors come from their tables. Equal sources give equal
pages. A link that leads to no page of the site, such as one to a module, becomes plain text.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from signal import Signals
from typing import Any, Final

import attrs
from report_schema import TARGET as REPORT_SCHEMA

from ascend_runner.diagnosis import catalogue, endings
from ascend_runner.diagnosis.catalogue import Entry
from ascend_runner.settings.options import OPTIONS, OPTIONS_OF, Option
from ascend_runner.tools.job import main as job_tool

ROOT: Final = Path(__file__).parents[1]
SITE: Final = ROOT / "scripts" / "site"


@attrs.frozen
class Chapter:
    """A page by hand: its address, its README, its titles, and Chinese words by which it is found as well."""

    page: str
    source: str
    title: str
    title_zh: str
    words_zh: str

    @property
    def name(self) -> str:
        """What it is called in the navigation."""
        return f"{self.title} {self.title_zh}".rstrip()


def _sections() -> Iterator[tuple[str, tuple[Chapter, ...]]]:
    for section in (SITE / "chapters.txt").read_text("utf-8").strip().split("\n\n"):
        name, *lines = section.splitlines()
        yield name, tuple(Chapter(*map(str.strip, line.split("|"))) for line in lines)


def anchor(title: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


SECTIONS: Final = dict(_sections())
CHAPTERS: Final = {chapter.page: chapter for chapters in SECTIONS.values() for chapter in chapters}
MANIFESTS: Final = sorted(path for path in (ROOT / "scripts/manifests").iterdir() if path.suffix != ".md")
TARGETS: Final = {  # the pages that links to files lead to
    **{chapter.source: page for page, chapter in CHAPTERS.items() if chapter.source},
    **{f"scripts/manifests/{path.name}": f"manifests.md#{anchor(path.name)}" for path in MANIFESTS},
    "ascend_runner/record/job_record.py": "report-members.md#jobrecord",
    "ascend_runner/record/rank_record.py": "report-members.md#rankrecord",
}


def pages() -> dict[str, str]:
    """Return the text of each page by its address."""
    return {**{page: _chapter(chapter) for page, chapter in CHAPTERS.items()}, **dict(_errors())}


def _chapter(chapter: Chapter) -> str:
    text = BODIES.get(chapter.page, _readme)(chapter)
    return (
        f"---\nsearch: {{boost: 3}}\n---\n{heading(chapter.title, chapter.title_zh, chapter.words_zh.split())}\n{text}"
    )


def heading(title: str, title_zh: str, words_zh: Sequence[str] = ()) -> str:
    """Return the heading of a page, with its Chinese title, and the words by which it is found as well."""
    chinese = f' <small lang="zh-CN">{title_zh}</small>' if title_zh else ""
    words = f'<p class="words" lang="zh-CN">{" · ".join(words_zh)}</p>\n' if words_zh else ""
    return f"# {title}{chinese}\n\n{words}"


# --- READMEs ----------------------------------------------------------------------------------------------------------

_FENCED: Final = re.compile(r"(?ms)^(```.*?^```$)")
_LINK: Final = re.compile(r"(!?)\[((?:`[^`]*`|[^\[\]`])*)\]\(([^()\s]+)\)")


def _readme(chapter: Chapter) -> str:
    """Return the text of a README without its title, for Python-Markdown instead of GitHub."""
    text = (ROOT / chapter.source).read_text("utf-8").partition("\n")[2]
    text = re.sub(r"(?ms)^```mermaid\n(.*?)^```$", _transitions, text)
    parts = _FENCED.split(re.sub(r"(?m)^<!-- .* -->\n", "", text))
    return "".join(part if index % 2 else _prose(part, chapter) for index, part in enumerate(parts))


def _prose(text: str, chapter: Chapter) -> str:
    text = re.sub(r"(?m)^(##+) (.*)$", lambda found: f"{found[0]} {{ #{anchor(found[2])} }}", text)
    text = re.sub(r"(?m)^\|.*$", _row, text)
    return _LINK.sub(partial(_link, chapter), "".join(_reindented(text)))


def _row(found: re.Match[str]) -> str:
    """Return a row of a table, in which Python-Markdown takes a backslash between backticks literally."""
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), found[0])


def _reindented(text: str) -> Iterator[str]:
    """Yield the lines of a text with its lists as Python-Markdown wants them.

    What belongs to an item is indented by 4, and an empty line follows an item of several paragraphs.
    """
    width, gap = 0, ""  # of the item's mark; an empty line in the item
    for line in text.splitlines(keepends=True):
        mark = re.match(r"- |\d+\. ", line)
        if mark:
            yield gap
            width, gap = mark.end(), ""
        elif not line.strip():
            gap = line if width else ""
        elif not line.startswith(" " * width):
            width, gap = 0, ""
        yield f"    {line[width:]}" if width and not mark and line.strip() else line


def _link(chapter: Chapter, found: re.Match[str]) -> str:
    """Return a link to a page of the site, or its text if it leads to none."""
    mark, text, link = found.groups()
    path, _, fragment = link.partition("#")
    if not path or ":" in path:
        return found[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(chapter.source), path))
    if mark:
        return f"![{text}](assets/{posixpath.basename(path)})"
    target = TARGETS.get(path)
    return f"[{text}]({target}{fragment and '#'}{fragment})" if target else text


def _transitions(found: re.Match[str]) -> str:
    """Return a state diagram as a table, since Mermaid would draw it with a script from elsewhere."""
    edges = re.findall(r"(?m)^ *(\w+) --> (\w+)(?:: (.*))?$", found[1])
    rows = (f"| `{before}` | {_event(words)} | `{after}` |\n" for before, after, words in edges)
    return f"| state | event | next state |\n|---|---|---|\n{''.join(rows)}"


def _event(label: str) -> str:
    return label.replace("<br/>/", " /").replace("<br/>", ", ")


def _chinese(chapter: Chapter) -> str:
    return f'<div lang="zh-CN" markdown>\n{_readme(chapter)}\n</div>\n'


# --- Reference --------------------------------------------------------------------------------------------------------

_FLAGS: Final = {option.flag for option in OPTIONS}


def _options(chapter: Chapter) -> str:
    """Return the README of settings, with a section for each option instead of a row."""
    sections = "".join(
        f"### {topic.title.capitalize()} {{ #{topic.word} }}\n\n{''.join(map(_option, options))}"
        for topic, options in OPTIONS_OF.items()
    )
    return re.sub(r"(?m)^\| option \|.*\n(?:\|.*\n)+", lambda _: sections, _readme(chapter))


def _option(option: Option) -> str:
    default = option.shown_default and f"Default: {_text(option.shown_default)}."
    variable = option.variable and f"Variable: `{option.variable}`."
    notes = " ".join(filter(None, (default, variable)))
    return f"#### `{option.usage}` {{ #{option.name} }}\n\n{_sentence(option.help)}\n\n{notes}\n{{ .note }}\n\n"


def _sentence(text: str, up: str = "") -> str:
    """Return a phrase as a sentence."""
    begins_with_a_word = re.match(r"[a-z]+\b(?![-._=(/])", text)
    return f"{_text(text[0].upper() + text[1:] if begins_with_a_word else text, up)}."


def _text(text: str, up: str = "") -> str:
    """Return plain text as Markdown, with a link from each option that it names; `up` leads to the top of the site."""
    escaped = re.sub(r"([\\`*_\[\]])", r"\\\1", html.escape(text, quote=False))
    return re.sub(r"--[a-z][a-z-]*", lambda found: _flag(found[0], up), escaped)


def _flag(flag: str, up: str) -> str:
    return f"[`{flag}`]({up}options.md#{flag[2:].replace('-', '_')})" if flag in _FLAGS else f"`{flag}`"


def _exit_status(_chapter: Chapter) -> str:
    """Return the exit statuses of the programs, and what a signal usually means."""
    first = re.split(r"(?m)^## (.*) \{.*\n", _readme(CHAPTERS["index.md"]))
    statuses = re.sub(r"(?s)^.*?\n|\n\n.*", "", job_tool.EPILOG)
    signals = (entry for subject in subjects() for entry in subject.entries if _is_signal(entry))
    return f"""## ascend-runner {{ #ascend-runner }}

{first[first.index("Exit status") + 1].strip()}

## If a signal ended a rank {{ #signals }}

| status | signal | usual meaning |
|---|---|---|
{"".join(map(_signal, signals))}
## ascend-job {{ #ascend-job }}

```text
{textwrap.dedent(statuses)}
```
"""


def _signal(entry: Entry) -> str:
    return f"| {_status(entry)} | [{entry.code}](errors/{entry.id}.md) | {_text(entry.means)} |\n"


def _is_signal(entry: Entry) -> bool:
    return entry.code.startswith("SIG")


def _status(entry: Entry) -> int:
    return endings.SHELL_BASE + Signals[entry.code]


def _manifests(chapter: Chapter) -> str:
    """Return the README of the manifests, and the manifests."""
    files = (
        f"## {path.name} {{ #{anchor(path.name)} }}\n\n```{LANGUAGES[path.suffix]}\n{path.read_text('utf-8')}```\n\n"
        for path in MANIFESTS
    )
    return f"{_readme(chapter)}\n{''.join(files)}"


LANGUAGES: Final = {".yaml": "yaml", ".sbatch": "bash"}


def _members(_chapter: Chapter) -> str:
    """Return a section for each record of the report, with its members."""
    records = ((name, one) for name, one in DEFINITIONS.items() if "properties" in one)
    return f"{MEMBERS}\n{''.join(_record(name, one) for name, one in records)}"


DEFINITIONS: Final[Mapping[str, Any]] = json.loads(REPORT_SCHEMA.read_text("utf-8"))["definitions"]
MEMBERS: Final = """The object in `<job>-report.json` is a [JobRecord](#jobrecord).
[The report](report.md#the-report-file) says when it is written, and by which rules it changes. Sizes are in bytes,
durations in seconds. Times are ISO 8601 with an offset. What does not apply is null, or empty.
"""
KINDS: Final = {"string": "text", "boolean": "true or false"}


def _record(name: str, record: Mapping[str, Any]) -> str:
    rows = "".join(
        f"| `{member}` | {_kind(schema)} | {_row_text(schema.get('description', ''))} |\n"
        for member, schema in record["properties"].items()
    )
    others = "| `...` |  | other members, by the condition |\n" if name == "Condition" else ""
    title = f"## {name} {{ #{name.lower()} }}"
    return f"{title}\n\n{record['description']}\n\n| member | type | meaning |\n|---|---|---|\n{rows}{others}\n"


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the type of a member in words."""
    if "anyOf" in schema or isinstance(schema.get("type"), list):
        plain = schema["anyOf"][0] if "anyOf" in schema else {**schema, "type": schema["type"][0]}
        return f"{_kind(plain)}, or null"
    if "$ref" in schema:
        return _reference(schema["$ref"].rpartition("/")[2])
    if schema.get("type") == "array":
        items = schema["items"]
        return "list of pairs" if items.get("type") == "array" else f"list of {_kind(items)}"
    return "integer" if "const" in schema else KINDS.get(schema["type"], schema["type"])


def _reference(name: str) -> str:
    if "properties" in DEFINITIONS[name]:
        return f"[{name}](#{name.lower()})"
    choices = ", ".join(f'`"{one}"`' for one in DEFINITIONS[name].get("enum", ()))
    return "[state](stopping.md#states)" if name == "state" else choices or name


def _row_text(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "\\|")


# --- Known errors -----------------------------------------------------------------------------------------------------


@attrs.frozen
class Subject:
    """A file of the catalogue, with the titles that it has in `subjects.txt`."""

    name: str
    title: str
    title_zh: str
    entries: tuple[Entry, ...]

    @property
    def page(self) -> str:
        """The address of its page."""
        return f"errors/{self.name}/index.md"


def subjects() -> Iterator[Subject]:
    """Yield the files of the catalogue, in the order in which they are shown."""
    lines = (SITE / "subjects.txt").read_text("utf-8").splitlines()
    titles = {name: (title, title_zh) for name, title, title_zh in (map(str.strip, line.split("|")) for line in lines)}
    files = {path.stem: path for path in sorted(Path(catalogue.FOLDER).iterdir())}
    for name in (*titles, *(name for name in files if name not in titles)):
        title, title_zh = titles.get(name, (name, ""))
        yield Subject(name, title, title_zh, tuple(catalogue.parse(files[name].read_bytes())))


def _errors() -> Iterator[tuple[str, str]]:
    """Yield the address and the text of each page of the catalogue."""
    found = [*subjects()]
    rows = (f"| [{one.title}]({one.name}/index.md) | {one.title_zh} | {len(one.entries)} |\n" for one in found)
    yield (
        "errors/index.md",
        f"{heading(*OVERVIEW)}{INTRODUCTION}\n| subject | 主题 | errors |\n|---|---|---|\n{''.join(rows)}",
    )
    for subject in found:
        yield subject.page, _subject(subject)
        for entry in subject.entries:
            yield f"errors/{entry.id}.md", _error(entry)


OVERVIEW: Final = ("Known errors", "已知错误", ("报错", "错误码", "故障案例"))
INTRODUCTION: Final = """What the runner and `ascend-job explain` know about codes and messages in logs, each from a
public source. Type a code or a part of the message in the search field. [Diagnosis](../diagnosis.md) says how the cause
of a failure is found, and [how a site adds errors of its own](../diagnosis.md#the-catalogue).
"""


def _subject(subject: Subject) -> str:
    rows = (
        f"| [`{_name(entry)}`](../{entry.id}.md)<br>{entry.title_zh} | {_text(entry.means, '../../')} |\n"
        for entry in subject.entries
    )
    return f"{heading(subject.title, subject.title_zh)}| error | meaning |\n|---|---|\n{''.join(rows)}"


def _name(entry: Entry) -> str:
    return entry.code or entry.id


def _error(entry: Entry) -> str:
    """Return the page of an entry; what is the same on many pages is not searched."""
    title = entry.code or f"{_sentence(entry.means, '../')[:-1]} <small>`{entry.id}`</small>"
    remedy = _sentence(entry.next, "../") if entry.next else f"{NO_REMEDY[entry.kind]}\n{UNSEARCHED}"
    restart = f"\n\n{RESTART[entry.restart]}\n{UNSEARCHED}" if entry.restart else ""
    return f"""{heading(title, entry.title_zh, entry.words_zh)}
<h2 data-search-exclude="">What the line looks like</h2>

{_sample(entry)}

<h2 data-search-exclude="">What it means</h2>

{_sentence(entry.means, "../")}

{f"A shell shows it as exit status {_status(entry)}." if _is_signal(entry) else _blame(entry)}
{UNSEARCHED}

<h2 data-search-exclude="">What to do</h2>

{remedy}{restart}

<h2 data-search-exclude="">Where that is from</h2>

[{_address(entry.source)}]({entry.source})
{UNSEARCHED}

On the command line: `ascend-job explain {shlex.quote(_name(entry))}`
{UNSEARCHED}
"""


UNSEARCHED: Final = "{ data-search-exclude= }"


def _address(url: str) -> str:
    """Return how to show the address of a document: without its version on GitHub."""
    return _text(re.sub(r"/blob/[0-9a-f]{40}/", ": ", url.partition("://")[2]))


def _blame(entry: Entry) -> str:
    if entry.code.startswith("exit status "):
        return "Programs choose their exit statuses: others may mean something else by it."
    return BLAME["wrapper" if entry.wrapper else entry.kind]


BLAME: Final = {
    "own": "The rank that reports it is usually the cause.",
    "either": "The rank that reports it, or one of its peers, is the cause.",
    "peer": "It is usually a consequence: another rank has failed, or is late.",
    "lost": "It reports a lost connection. Between ranks, that is usually a consequence of the failure of another one.",
    "wrapper": "It only announces another error, which is near it in the log.",
}
NO_REMEDY: Final = {
    **dict.fromkeys(
        ("own", "either"), "There is no remedy that is certain. The lines before it in the log may say more."
    ),
    **dict.fromkeys(
        ("peer", "lost"),
        "Look for the rank that failed first: `ascend-job explain` with the logs of all ranks names it.",
    ),
}
RESTART: Final = {"never": "A restart does not help.", "helps": "The cause may be gone after a restart."}


def _sample(entry: Entry) -> str:
    """Return lines that report an error; of a code, how CANN or torch_npu prints it."""
    codes = [*catalogue.code_names(entry.code)]
    lines = "\n\n".join(sample.strip("\n") for sample in entry.sample) or _form(codes[0])
    names = f"\n\nCodes: {', '.join(f'`{code}`' for code in codes)}." if len(codes) > 1 else ""
    return f"``` {{.text .sample}}\n{lines}\n```{names}"


def _form(code: str) -> str:
    form = next(form for prefix, form in FORMS.items() if code.startswith(prefix))
    return form.format(code.rpartition(" ")[2])


# How CANN, torch_npu and the runner print a code, by its first letters. The tests take samples and near misses of each
# code from them.
_AT: Final = "build/CMakeFiles/torch_npu.dir/compiler_depend.ts"
FORMS: Final = {
    "HCCL ": f"RuntimeError: createHCCLComm:{_AT}:1479 HCCL function error: HcclGetRootInfo(&id), error code is {{}}",
    "driver ": "[drv api] halMemAlloc failed: device_id=0, size=5046586573(bytes), drvRetCode={}!",
    "ERR": "[ERROR] 2025-04-08-18:07:20 (PID:4711, Device:0, RankID:0) {} ...",
    "0x": "The extend info: errcode:({}, 0, 0) errorStr: ...",
    "E": "{}: [PID: 4711] 2025-04-08-18:07:20.444.436 ...",
    "SIG": "rank 5 failed: killed by {}",
    "exit status ": "rank 5 failed: exit status {}",
    "207001 ": f"RuntimeError: operator():{_AT}:52 NPU function error: aclrtMallocHost(p, size), error code is 207001",
    **dict.fromkeys(
        ("161", "361", "561"),
        f"RuntimeError: operator():{_AT}:1130 NPU function error: call aclnnAdd failed, error code is {{}}",
    ),
    **dict.fromkeys(
        ("145", "245", "500", "545"),
        f"RuntimeError: InnerRun:{_AT}:234 OPS function error: Conv3D, error code is {{}}",
    ),
    "": f"RuntimeError: Sync:{_AT}:340 NPU function error: AclrtSynchronizeStream(stream), error code is {{}}",
}


# --- The site ---------------------------------------------------------------------------------------------------------

BODIES: Final[Mapping[str, Callable[[Chapter], str]]] = {  # of pages that are not just a README
    "chinese.md": _chinese,
    "manifests.md": _manifests,
    "options.md": _options,
    "exit-status.md": _exit_status,
    "report-members.md": _members,
}
ASSETS: Final = (
    *(path for path in sorted(SITE.iterdir()) if path.suffix in {".css", ".js"}),
    ROOT / "fixtures" / "html-report.png",
    ROOT / "fixtures" / "ascend-job-top.svg",
)


def _navigation() -> Iterator[Mapping[str, object]]:
    guide, reference, development = (
        {name: [{one.name: one.page} for one in chapters]} for name, chapters in SECTIONS.items()
    )
    yield guide
    yield reference
    yield {"Known errors 已知错误": [{"Overview 概览": "errors/index.md"}, *map(_errors_of, subjects())]}
    yield development


def _errors_of(subject: Subject) -> dict[str, object]:
    pages = ({f"{_name(entry)} {entry.title_zh}".rstrip(): f"errors/{entry.id}.md"} for entry in subject.entries)
    return {f"{subject.title} {subject.title_zh}".rstrip(): [{"All 全部": subject.page}, *pages]}


def main(target: Path) -> None:
    """Write pages and configuration to a directory."""
    assets = target / "pages" / "assets"
    assets.mkdir(parents=True)
    for path in ASSETS:
        shutil.copy(path, assets)
    for page, text in pages().items():
        path = target / "pages" / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    nav = json.dumps({"nav": [*_navigation()]}, ensure_ascii=False)[1:-1]  # JSON is YAML, too
    (target / "mkdocs.yml").write_text(f"{(SITE / 'mkdocs.yml').read_text('utf-8')}{nav}\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
