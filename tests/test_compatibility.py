"""The record of the versions that the tests of clients have run with, and the tables of .github/COMPATIBILITY.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, Literal

import pytest

import ascend_runner
from tests.clients.tested import CLIENTS, Recorder

ROOT: Final = Path(__file__).parents[1]
Outcome = Literal["passed", "failed", "skipped"]


def recorded(path: Path, **outcomes: Outcome) -> dict[str, Any]:
    """Record one test of each file of tests, with this outcome, and return the clients of the record."""
    recorder = Recorder(path)
    for name, outcome in outcomes.items():
        place = (f"tests/clients/{name}.py", 1, "test")
        recorder.pytest_runtest_logreport(
            pytest.TestReport(f"{place[0]}::test", place, {}, outcome, longrepr=None, when="call")
        )
    recorder.pytest_sessionfinish()
    clients: dict[str, Any] = json.loads(path.read_text("utf-8"))["clients"]
    return clients


def test_record(tmp_path: Path) -> None:
    """It has the versions of the clients whose tests have passed, with the files of those tests."""
    clients = recorded(tmp_path / "new" / "record.json", test_bundle="passed", test_ray="passed", test_recipes="failed")
    expected = {"tests": ["test_bundle.py"], "ascend-runner": ascend_runner.__version__}

    assert expected.items() <= clients["Python"].items()
    assert all(re.fullmatch(r"3\.\d+\.\d+\w*", version) for version in clients["Python"]["versions"])
    assert "ray" not in clients  # which both files start


def test_record_of_some_files(tmp_path: Path) -> None:
    """A run of some files of tests leaves what the record has of other clients."""
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"clients": {"Slurm": {"versions": ["23.2"]}, "Python": {"versions": ["2.7.1"]}}}))
    clients = recorded(path, test_bundle="passed", test_slurm="skipped")

    assert ["Python", "Slurm"] == [*clients]
    assert ["23.2"] == clients["Slurm"]["versions"]
    assert "2.7.1" not in clients["Python"]["versions"]


def test_record_of_a_client_that_fails_now(tmp_path: Path) -> None:
    """A client whose tests have passed earlier but fail now is no longer in it."""
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"clients": {"Slurm": {"versions": ["23.2"]}, "ray": {"versions": ["2.9.0"]}}}))

    assert ["ray"] == [*recorded(path, test_slurm="failed")]


def test_every_file_names_its_clients() -> None:
    """Each file of tests with real clients has a row that says which."""
    files = {path.name for path in (ROOT / "tests" / "clients").glob("test_*.py")}

    assert CLIENTS.keys() == files


def test_lowest_versions_are_those_of_the_package() -> None:
    """The table has each dependency that users install, with the version that pyproject.toml has."""
    page = (ROOT / ".github" / "COMPATIBILITY.md").read_text("utf-8")
    rows = dict(re.findall(r"(?m)^\| ([a-z0-9-]+) \| ([0-9.]+) \| (?:all|the extra .*) \|$", page))
    project = (ROOT / "pyproject.toml").read_text("utf-8")

    assert {"attrs", "orjson", "psutil", "py-spy", "textual"} <= rows.keys()
    assert [] == [name for name, version in rows.items() if f'"{name}>={version}' not in project]
