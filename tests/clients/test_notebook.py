"""Rank tables and outcomes in a notebook that a real kernel runs, and in the page that nbconvert makes of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.clients.conftest import LIMIT, PATH
from tests.helpers.surroundings import CLEAN

TABLE = Path(__file__).parents[2] / "fixtures" / "valid" / "server_list_8_devices.json"
SOURCES = (
    f"import ascend_runner; ascend_runner.rank_table.read({str(TABLE)!r})",
    "ascend_runner.launch(['sh', '-c', 'exit $RANK'], nproc_per_node=2, log_dir='<b>log', quiet=True)",
)
CELL: dict[str, object] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}


def test_notebook(tmp_path: Path) -> None:
    """Each cell shows a table beside its text. A page has it as it is, and a sanitized page has its cells."""
    path = tmp_path / "notebook.ipynb"
    cells = [{**CELL, "id": f"cell{number}", "source": source} for number, source in enumerate(SOURCES)]
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    convert("--to", "notebook", "--execute", "--inplace", str(path))
    convert("--to", "html", str(path))
    page = path.with_suffix(".html").read_text()
    convert("--to", "html", "--HTMLExporter.sanitize_html=True", str(path))
    sanitized = path.with_suffix(".html").read_text()
    results = [
        output["data"]
        for cell in json.loads(path.read_text())["cells"]
        for output in cell["outputs"]
        if output["output_type"] == "execute_result"
    ]

    assert [{"text/plain", "text/html"}] * 2 == [{*result} for result in results]
    table, outcome = ("".join(result["text/html"]) for result in results)
    assert "<th>device_ip</th>" in table
    assert "<td>failed (exit status 1)</td>" in outcome
    assert "&lt;b&gt;log" in outcome
    assert "<b>log" not in page + sanitized
    for text in (table, outcome):
        assert text in page
        assert {*re.findall("<td>.*?</td>", text)} <= {*re.findall("<td>.*?</td>", sanitized)}


def convert(*words: str) -> None:
    """Run nbconvert."""
    command = [sys.executable, "-m", "nbconvert", "--log-level", "ERROR", *words]
    environ = {**CLEAN, "PATH": PATH, "HOME": str(Path(words[-1]).parent)}
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert 0 == ended.returncode, ended.stderr
