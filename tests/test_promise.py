"""What users may rely on until the next major version, tests/promised.txt: what vanishes from it is noticed."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent
KEPT: Final = ["option --grace DURATION", "report JobRecord.status: integer"]


@pytest.fixture(name="promise")
def fixture_promise(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import scripts/promise.py."""
    monkeypatch.syspath_prepend(TESTS.parent / "scripts")
    return importlib.import_module("promise")


@pytest.mark.parametrize(
    ("since", "version", "gone", "named"),
    [
        ("0.2", "0.2.0", [], []),
        ("0.2", "0.2.9", ["option --new X"], ["--new X", "__version__", "REMOVED", "CHANGELOG"]),
        ("1", "1.7.0", ["report JobRecord.ranks: array"], ["JobRecord.ranks", "__version__"]),
        ("1", "1.7.0", ["option --grace auto"], ["--grace auto"]),
        ("0.2", "0.3.0", ["rank of torch: RANK"], []),
        ("1", "2.0.0", ["option --new X"], ["--new: say in REMOVED"]),
        ("1", "2.0.0", ["option --grace auto"], []),
        ("1", "2.0.0", ["option --no-prefix"], []),
    ],
)
def test_what_vanishes(promise: ModuleType, since: str, version: str, gone: list[str], named: list[str]) -> None:
    """Only a major version may take something away; an option is then refused with what to do instead."""
    before = "\n".join([f"since version {since}", *gone, *KEPT])
    complaint = promise.broken(before, KEPT, version)

    assert bool(named) == bool(complaint)
    assert [] == [word for word in named if word not in complaint]


def test_what_is_promised() -> None:
    """Options, removed ones too, variables, exit statuses, the library and members of the report are promised."""
    lines = (TESTS / "promised.txt").read_text("utf-8").splitlines()

    assert {
        "option --nproc-per-node N",
        "option --hang-timeout auto",
        "variable ASCEND_RUNNER_GRACE",
        "removed option --no-prefix",
        "exit status of ascend-runner: 124 TIMED_OUT",
        "rank of torch: LOCAL_RANK",
        "rank of mindspore-cluster: MS_SCHED_HOST",
        "rank: RANK_TABLE_FILE",
        "library: launch",
        'report RankRecord.rank_id: {"type": "integer"}',
        "report state: failed",
    } <= {*lines}
