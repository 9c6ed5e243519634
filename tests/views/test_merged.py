"""The page about a job of several nodes: its content, its size, and that no text of a report becomes markup."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ascend_runner.merge import verdict
from ascend_runner.tools.job import merged_reports
from ascend_runner.views import merged
from ascend_runner.views.merged import MergedSources
from tests.helpers import node_folders
from tests.views.conftest import Elements, write_table

HOSTILE = "</td><script>alert(1)</script>&\"'\x1b[31m\u202e\0"


def rendered(folder: Path, *, is_public: bool = False) -> str:
    """Return the page about the reports in a directory."""
    found = merged_reports.read(str(folder))
    return merged.render(
        MergedSources(
            found=found,
            verdict=verdict.judge(found.job),
            log="/log/job.txt",
            log_end=("the last words",),
            made_at=0.0,
            is_public=is_public,
        )
    ).decode()


def test_content(tmp_path: Path) -> None:
    """It has the verdict and its reasons, a row for each node, the clocks, and the ranks of all nodes."""
    node_folders.write(tmp_path, 4, culprit=21, missing=frozenset({3}))
    page = rendered(tmp_path)

    assert "Rank 21 on node 2 (worker-2), device 5 caused the failure (likely): ValueError: loss is nan" in page
    assert "<li>16 ranks on 2 nodes name it (EI0006)</li>" in page
    assert "<td>no report</td>" in page
    assert "1 without a final report" in page
    assert "from the final reports of 3 of 4 nodes" in page
    assert "synchronized to within 0.4 s" in page
    assert "the last words" in page
    assert 1 + 4 + 1 + 24 == page.count("<tr")
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page


@pytest.mark.parametrize("missing", [frozenset(), frozenset({1})])
def test_cause_stands_out(missing: frozenset[int], tmp_path: Path) -> None:
    """Of ranks that have all failed, only the suspect is marked, in the topology even if its node left no report."""
    node_folders.write(tmp_path, 2, 13, missing)
    write_table(tmp_path, 16, "10.0.0.0")
    page = Elements(rendered(tmp_path))
    strips, rows, cells = (
        [name for name in page.classes_of(tag) if name.startswith("cause")] for tag in ("li", "tr", "rect")
    )

    assert ["cause"] == cells
    assert ([] if missing else ["cause"]) == strips
    assert ["cause group", *strips] == rows
    assert any(text.startswith("Filled: ") for text in page.texts)


@pytest.mark.parametrize(("nodes", "limit"), [(2, 50_000), (8, 200_000), (128, 2_000_000)])
def test_size(nodes: int, limit: int, tmp_path: Path) -> None:
    """A page of 16, 64 and 1,024 ranks stays within the sizes of pages about one node."""
    node_folders.write(tmp_path, nodes, culprit=5)

    assert len(rendered(tmp_path).encode()) <= limit


def test_hostile_texts(tmp_path: Path) -> None:
    """Texts of reports add no element, and no character that controls anything."""
    plain, wild = tmp_path / "plain", tmp_path / "wild"
    for folder, text in ((plain, ""), (wild, HOSTILE)):
        node_folders.write(folder, 2, culprit=1)
        report = node_folders.report(0, 2, 1, pod_name=f"worker{text}", server_id=f"10.0.0.1{text}")
        ranks: list[dict[str, object]] = json.loads(json.dumps(report["ranks"]))
        for rank in ranks:
            rank["finding"] = {"exception": f"ValueError: x{text}", "code": f"E{text}"}
            rank["state"] = f"odd{text}"
        node_folders.put(folder, "job-report-node-0.json", report | {"ranks": ranks})
    pages = [rendered(folder) for folder in (plain, wild)]

    assert sorted(Elements(pages[0]).elements) == sorted(Elements(pages[1]).elements)
    assert pages[1].replace("\n", "").isprintable()


def test_public(tmp_path: Path) -> None:
    """A public page has numbers instead of names, and types of exceptions instead of messages."""
    node_folders.write(tmp_path, 2, culprit=1)
    page = rendered(tmp_path, is_public=True)

    assert "Rank 1 on node 0" in page
    assert "ValueError" in page
    for secret in ("worker-", "10.0.0", "nan", "last words", "job-"):
        assert secret not in page.partition("</style>")[2]
