"""The page: what it shows, how large it is, and that nothing in a report becomes a part of it that is not text."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.views.conftest import BEGAN, Elements, Write, document, node, rank, rendered, write_table

HOSTILE = (
    "</pre><script>alert(1)</script><img src=x onerror=alert(1)>",
    '" onload="alert(1)" x=\'',
    "' onfocus='alert(1)",
    "]]><!-- <style>*{display:none}</style>",
    "{{ 7 * 7 }}{% for x in y %}{{ config }}",
    "&lt;b&gt;&#60;script&#62;",
    "javascript:alert(1)//../../",
    "\x1b[31mred\x1b[0m\x00\x08\x7f\x9b31m",
    "\u202eevil\u2066\u200f\ufeff\u2028",
    "\ud800\udcff",
    "</style></title></svg></details></table></html>",
)


def log(rank_id: int, text: str = "") -> bytes:
    """Return the log of a rank."""
    lines = "".join(f"step:[ {step}/ 1563], loss: 2.{step}{text}\n" for step in range(30))
    end = "ValueError: loss is nan\n" if rank_id == 5 else ""
    return (lines + end).encode(errors="surrogatepass")


def differing(rank_id: int) -> bytes:
    """Return a log of long lines, which is unlike any other."""
    word = "".join(chr(ord("a") + int(digit)) for digit in str(rank_id))
    return "".join(f"{word} <&> {'x' * 500} {word * line}\n" for line in range(30)).encode()


def training(rank_id: int) -> bytes:
    """Return the log of a training, which is unlike any other, with a long end."""
    lines = (
        f"step {step} loss {7 + rank_id - step / 90:.4f}, time {400 + rank_id * step % 37}ms" for step in range(500)
    )
    return "\n".join(lines).encode() + b"\n" + differing(rank_id)


def test_sections(write: Write) -> None:
    """The cause comes first; evidence, ranks and the ends of logs follow, each text once."""
    page = Elements(rendered(write(document(8), log, command=("python", "train.py", "--lr", "1e-3"))))
    texts = "\n".join(page.texts)
    wanted = [
        "Rank 5 failed: ValueError: loss is nan at step 17 (exit status 1)",
        "Slow",
        "rank 3 is slow, since ",
        "17 of 400, 0.615 s per step",
        "python train.py --lr 1e-3",
        "Evidence",
        "Traceback (most recent call last):",
        "EI0006 (may be a consequence): a connection timed out",
        "Stacks",
        "step (train.py:7)",
        "Timeline",
        "Ranks",
        "rank 5",
        "Ends of the logs",
        "History",
        "it failed (likely the cause)",
        "restart in 10 s",
        "Environment",
        "a warning",
    ]
    place = 0
    for text in wanted:
        place = texts.find(text, place) + 1
        assert place, text

    assert [] == page.open
    assert 2 == texts.count("step:[ 29/ 1563]")  # of rank 5, and of all others
    assert "./job-proc-rank-5-device-5.txt" in page.links


@pytest.mark.parametrize("state", ["preparing", "running", "succeeded", "stopped", "expired", "holding", "other", ""])
def test_states(state: str, write: Write) -> None:
    """A page can be made at any time, also before there are ranks."""
    running: dict[str, Any] = {"state": "running", "exit_code": None, "signal": None, "ended_at": "", "seconds": 0.0}
    reports = (
        document(8, state=state, cause=None, status=None, ended_at="", seconds=0.0, ranks=[]),
        document(2, state=state, cause=None, ranks=[rank(0, **running), {"rank_id": 1, "state": "running"}]),
    )
    pages = [Elements(rendered(write(report))) for report in reports]

    assert [[], []] == [page.open for page in pages]


def test_running_job(write: Write) -> None:
    """The rank that is quiet is named above, comes first and has a label; what is unknown of all has no column."""
    now = datetime.now().astimezone()
    cells: dict[str, Any] = {
        "state": "running",
        "signal": None,
        "ended_at": "",
        "started_at": now.isoformat(),
        "user_seconds": None,
    }
    ranks = [
        rank(one, **cells, last_output_at=(now - timedelta(seconds=one // 5 * 600)).isoformat()) for one in range(6)
    ]
    report = document(6, state="running", cause=None, ranks=ranks, ended_at="", seconds=0.0, started_at=BEGAN)
    page = Elements(rendered(write(report)))
    healthy = rendered(write({**report, "ranks": ranks[:5], "conditions": []}))
    hanging, slow = (
        rendered(write({**report, "ranks": ranks[:5], "conditions": [{"sentence": "it is", **condition}]}))
        for condition in ({"condition": "hanging"}, {"condition": "slow", "rule": "straggler", "rank_id": 3})
    )

    assert any(text.startswith("Rank 5 has been quiet for 10 min") for text in page.texts)
    assert ["rank 5", "rank 0"] == [text for text in page.texts if re.fullmatch("rank [05]", text)][:2]
    assert {"quiet"} == {text for text in page.texts if text == "quiet"}
    assert "CPU time" not in page.texts
    assert "Time" not in page.texts[page.texts.index("Rank") : page.texts.index("Log")]
    assert "All 5 ranks are running</h1>" in healthy
    assert "All 5 ranks are running, but the job hangs</h1>" in hanging
    assert [0, 2] == [text.count(">slow</em>") for text in (hanging, slow)]


def test_time_of_all_attempts(write: Write) -> None:
    """The head of the page has the time of the whole job, with earlier attempts and the delays between them."""
    attempts = [{"attempt": 0, "started_at": "2026-11-22T09:37:36.000+08:00"}, {"attempt": 1, "started_at": BEGAN}]
    text = rendered(write(document(2, attempt=1, attempts=attempts)))

    assert "after 10 min 12 s" in text


def test_cause_is_not_repeated_as_a_condition(write: Write) -> None:
    """A hang that has ended the job is its cause, no present condition."""
    hang = {"condition": "hanging", "sentence": "no output", "since": "2026-11-22T09:47:36+08:00"}

    waits = {"group": "0", "rank_ids": [0, 1], "number": 7, "is_waiting": True}
    page = rendered(write(document(2, conditions=[hang], collectives=[waits])))

    assert "Hanging" in page
    assert "ranks 0, 1 wait in collective #7 of process group 0" in page
    assert "Hanging" not in rendered(write(document(2, conditions=[hang], cause={"sentence": "no output, likely"})))


@pytest.mark.deep
def test_strange_members(write: Write) -> None:
    """Members of another type, or out of range, count as missing, except for the state, which makes it a report."""
    odd: list[object] = [None, True, -1, 1e300, "x" * 10, [], {}, [[]], [{}], "9999-12-31T23:59:59-12:00"]
    report = document(2)
    for index, name in enumerate(sorted(report.keys() - {"job_id", "ranks", "state"}) * 3):
        ranks = [{**rank(0), key: odd[(index + place) % len(odd)]} for place, key in enumerate(rank(0))]
        one = {**report, name: odd[(index * 7) % len(odd)], "ranks": [*ranks, {"rank_id": 0}]}
        page = Elements(rendered(write(one)))

        assert [] == page.open


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize(("count", "limit"), [(8, 50_000), (64, 200_000), (1024, 2_000_000)])
@pytest.mark.parametrize("logs", [log, differing, training])
def test_size(count: int, limit: int, logs: Callable[[int], bytes], write: Write) -> None:
    """A page with its topology stays within its limit, even if no two logs are alike."""
    finding = {"exception": "RuntimeError: <" + "&" * 500, "excerpt": ["&" * 600] * 20, "code": "EI0006"}
    report = document(count)
    if logs is differing:
        report["ranks"] = [rank(one, state="failed", exit_code=1, signal=None, finding=finding) for one in range(count)]
    path = write(report, logs)
    write_table(path.parent, count)
    page = rendered(path)

    assert 'id="topology"' in page
    assert len(page.encode()) <= limit


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("is_public", [False, True])
def test_hostile_text(text: str, is_public: bool, write: Write) -> None:  # noqa: FBT001  pytest gives it
    """Whatever is in a report or a log: no element, attribute or comment more, no other link, no control character."""
    plain = Elements(
        rendered(write(document(8, "x"), lambda one: log(one, "x"), command=("x", "x")), is_public=is_public)
    )
    shown = rendered(write(document(8, text), lambda one: log(one, text), (text, text)), is_public=is_public)
    page = Elements(shown)

    assert plain.elements == page.elements
    assert all(link.startswith(("#", "./")) for link in page.links)
    assert all(char.isprintable() or char == "\n" for char in shown)


def test_marks(write: Write) -> None:
    """The marks below the lines of a traceback are elements, which are hidden where lines wrap; the text stays."""
    lines = ["    a = b + c", "        ~~^~~", "  |     ^^^", "x ^ y", "", "ValueError: x"]
    text = rendered(write(document(1), lambda _rank: "\n".join(lines).encode()))
    page = re.sub(r'<span class="marks" aria-hidden="true">([^<]*)</span>', r"\1", text)

    assert 2 == text.count('<span class="marks"') > page.count('<span class="marks"')
    assert "\n".join(lines) in page


def test_legend(write: Write) -> None:
    """The note above the timeline explains only what the timeline shows."""
    assert [True, False] == ["Hatched" in rendered(write(document(count))) for count in (8, 1)]


def test_cause_stands_out(write: Write, tmp_path: Path) -> None:
    """Of ranks that have all failed, only the cause is marked, in words and in each picture, and it comes first."""
    report = document(8, nodes=[])
    ends: dict[str, Any] = {"state": "failed", "exit_code": 1, "signal": None}
    report["ranks"] = [rank(one, **ends) for one in range(8)]
    write_table(tmp_path, 8)
    page = Elements(rendered(write(report)))
    strips, rows, cells = (
        [name for name in page.classes_of(tag) if name in {"cause", "failed"}] for tag in ("li", "tr", "rect")
    )

    assert ["cause", *["failed"] * 7] == strips == rows
    assert (1, 7) == (cells.count("cause"), cells.count("failed"))
    assert 3 == page.texts.count("likely cause")  # the head, the strip and the row
    assert "Filled: likely cause. Thick outline: failed." in page.texts


def test_peer_to_check(write: Write, tmp_path: Path) -> None:
    """If all ranks here report a peer, that peer is marked in the topology, and none of them as the cause."""
    report = document(16, nodes=[])
    cause: Any = report["cause"]
    cause.update(is_a_consequence=True, suspected_peer={"rank_id": 12})
    report["ranks"] = [rank(one) for one in range(8)]
    write_table(tmp_path, 16)
    page = Elements(rendered(write(report)))

    assert ["cause"] == [name for tag in ("rect", "li", "tr") for name in page.classes_of(tag) if name == "cause"]
    assert "Filled: check first. Thin outline: other ranks. Plain: ranks of other nodes." in page.texts


@pytest.mark.parametrize(
    ("finding", "title", "key"),
    [
        ({"exception": "E: x", "excerpt": ["Fatal E: x", "  file"]}, "From job.txt", "Fatal E: x"),
        ({"exception": "E: x\nmore", "excerpt": ["E: x", "E: x", "more"]}, "From job.txt", "E: x"),
        ({"code_line": "EI0006", "last_lines": ["step 1", "EI0006: x"]}, "Last lines of job.txt", "EI0006: x"),
        ({"last_lines": ["step 1", "step 2"]}, "Last lines of job.txt", None),
    ],
)
def test_evidence(finding: dict[str, object], title: str, key: str | None, write: Write) -> None:
    """The line that names the error is emphasized, and none if the log ends without an error."""
    page = rendered(write(document(1, ranks=[rank(0, finding=finding, log_path="/log/job.txt")])))
    found = re.search(r'<pre class="cause">(.*?)</pre>', page, re.DOTALL)
    assert found
    strong = re.findall(r"<b>(.*?)</b>", found[1])
    lines: Any = finding.get("excerpt") or finding["last_lines"]

    assert ([key] if key else []) == strong
    assert f">{title}</p>" in page
    assert lines == re.sub("</?b>", "", found[1]).strip().splitlines()


def test_nodes(write: Write) -> None:
    """The verdict is followed by the nodes, of which the one with the cause stands out; many are counted."""
    text = rendered(write(document(8)))
    shown = [one.strip() for one in Elements(text).texts if one.strip()]
    table = shown[shown.index("Verdict of all nodes: rank 5 on node 1 failed") + 1 :]

    assert ["Node", "Place", "State", "Round trip", "Differs", "Cause"] == table[:6]
    assert ["0", "pod-0", "stopped", "0.3 ms", "CANN 8.0", "1", "pod-1", "failed"] == table[6:14]
    assert '<tr class="cause"><th scope="row">1</th>' in text
    assert ">and 960 nodes stopped<" in rendered(write(document(8, nodes=[node(number) for number in range(1024)])))


def test_cause_on_another_node(write: Write, tmp_path: Path) -> None:
    """The end of its log is the evidence, with the line that the verdict quotes, and the topology marks its rank."""
    verdict = {
        "node": 3,
        "rank_id": 12,
        "sentence": "rank 12 failed: ValueError: loss is nan (exit status 1)",
        "certainty": "likely",
        "lines": ["step 16", "ValueError: loss is nan"],
        "log": "/log/rank-12.txt",
        "pod": "pod-3",
        "tied": [1],
        "missing": [2],
    }
    cause = {"kind": "node_failed", "sentence": "it failed"}
    write_table(tmp_path, 16)
    ranks = [rank(one) for one in range(8)]
    text = rendered(write(document(16, verdict=verdict, cause=cause, ranks=ranks)))
    page = Elements(text)
    shown = [one.strip() for one in page.texts if one.strip()]
    evidence = shown[shown.index("From rank-12.txt") :][:11]

    assert ["step 16", "ValueError: loss is nan", "Node", "3, pod pod-3", "Log"] == evidence[1:6]
    assert ["/log/rank-12.txt on that node", "Also", "node 1 may have failed first"] == evidence[6:9]
    assert ["Nodes", "nothing heard from node 2"] == evidence[9:]
    assert "<b>ValueError: loss is nan</b>" in text
    assert (
        "Verdict of all nodes: rank 12 on node 3 failed: ValueError: loss is nan (exit status 1) (likely the cause)"
        in shown
    )
    assert 1 == page.classes_of("rect").count("cause")
    assert "Filled: likely cause. Thin outline: other ranks. Plain: ranks of other nodes." in shown


def test_long_line(write: Write) -> None:
    """A line of a megabyte is cut."""
    page = rendered(write(document(8), lambda _rank: b"x" * (1 << 20) + b"\n"))

    assert len(page) < 50_000


def test_nothing_is_loaded_or_run(write: Write) -> None:
    """The policy permits only the style that the page has; there is no script, no other address, no inline style."""
    text = rendered(write(document(8), log))
    page = Elements(text)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()

    assert f"default-src 'none'; style-src 'sha256-{digest}'" in text
    assert not {"script", "link", "iframe", "object", "form", "img", "base"} & {element[0] for element in page.elements}
    assert not [element for element in page.elements for name in element[1:] if name == "style" or name[:2] == "on"]
    assert not re.search(r"url\((?!#)|@import|https?:", text)


def test_only_files_beside_the_report_are_read(write: Write, tmp_path: Path) -> None:
    """A report that names files elsewhere shows nothing of them."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "log.txt").write_text("private\n")
    (tmp_path / "link.txt").symlink_to(elsewhere / "log.txt")
    paths = (str(elsewhere / "log.txt"), "/etc/passwd", "../elsewhere/log.txt", str(tmp_path / "link.txt"))
    page = rendered(write(document(4, ranks=[rank(one, log_path=path) for one, path in enumerate(paths)])))

    assert "private" not in page
    assert "root:" not in page


@pytest.mark.parametrize("text", [text for text in HOSTILE if text.isascii() or "\ud800" not in text])
def test_hostile_rank_table(text: str, write: Write) -> None:
    """Names in a rank table add no kind of element, no attribute, and no character that is not printable."""
    path = write(document(16, text, job_id="job"))
    write_table(path.parent, 16, f"192.168.0.25{text}", address=f"10.0.0.1{text}")
    shown = rendered(path)
    page = Elements(shown)
    plain = write(document(16, "x" * 99, job_id="job"))
    write_table(path.parent, 16, f"192.168.0.25{'x' * 99}")

    assert [] == page.open
    assert "Topology" in page.texts
    assert set(page.elements) <= set(Elements(rendered(plain)).elements)
    assert all(char.isprintable() or char == "\n" for char in shown)


@pytest.mark.deep
def test_many_ranks_have_few_elements(write: Write) -> None:
    """A page about 1,024 ranks is as easy to read aloud as one about 64, also if no two logs are alike."""
    counts = {}
    for logs in (log, lambda rank_id: bytes(ord("a") + int(digit) for digit in str(rank_id)) + b"\n"):
        for count in (64, 1024):
            path = write(document(count), logs)
            write_table(path.parent, count)
            counts[count] = len(Elements(rendered(path)).elements)

        assert counts[1024] < counts[64] < 2500


def test_topology(write: Write, tmp_path: Path) -> None:
    """The rank table beside the logs is drawn with the states of the ranks, if it is that of the job."""
    path = write(document(8))
    table = write_table(tmp_path, 8)
    drawn = Elements(rendered(path))
    write_table(tmp_path, 8, "192.168.0.26")
    of_other_servers = rendered(path)
    write_table(tmp_path, 16)
    other = rendered(path)
    table.write_bytes(b"{")

    assert [] == drawn.open
    assert "Topology" in drawn.texts
    assert 1 == drawn.classes_of("rect").count("cause")
    assert 7 == drawn.classes_of("rect").count("stopped")
    assert "Topology" not in of_other_servers
    assert "Topology" not in other
    assert "Topology" not in rendered(path)
    assert "Topology" not in rendered(path, is_public=True)


def test_topology_elsewhere(write: Write, tmp_path: Path) -> None:
    """A rank table that the report names is drawn, if it is a regular file with the owner of the report."""
    home = tmp_path / "home"
    home.mkdir()
    table = write_table(home, 8)
    link = tmp_path / "link.json"
    link.symlink_to(table)
    named = {str(table): True, str(link): False, str(home): False, "": False, "/dev/zero": False, "\0": False}
    found = {name: "Topology" in rendered(write(document(8, rank_table=name))) for name in named}

    assert named == found


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_topology_of_somebody_else(write: Write, tmp_path: Path) -> None:
    """A rank table of another owner than that of the report is not read."""
    home = tmp_path / "home"
    home.mkdir()
    table = write_table(home, 8)
    path = write(document(8, rank_table=str(table)))
    os.chown(path, 65534, 65534)

    assert "Topology" not in rendered(path)


def test_versions(write: Write) -> None:
    """The versions of the software are on the page, without what is not installed."""
    software = {"CANN": "8.2.RC1", "Python": "3.11", "torch": "2.6.0", "mindspore": ""}
    text = rendered(write(document(2, software=software)))

    assert "<dt>CANN</dt><dd>8.2.RC1</dd>" in text
    assert "<dt>torch</dt><dd>2.6.0</dd>" in text
    assert "<dt>mindspore</dt>" not in text
