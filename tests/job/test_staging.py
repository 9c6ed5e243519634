"""Findings about the datasets that a job would stage."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

import attrs
import pytest

from ascend_runner.job.check import CheckContext
from ascend_runner.plan.ranks import Stage
from tests.helpers import data_trees
from tests.job.contexts import context, look_at, prepared


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Make a dataset."""
    return data_trees.make(tmp_path / "source")


def staged(*stages: Stage) -> CheckContext:
    """Return the context of a job that stages datasets."""
    given = context(nproc=1)
    return prepared(given, context=attrs.evolve(given.prepared.context, stages=stages))


def test_what_would_be_copied(source: Path, tmp_path: Path) -> None:
    """The files that are missing are counted, and nothing is made."""
    found = look_at("datasets", staged(Stage(str(source), f"{tmp_path}/copy")))

    assert [("ok", f"{source} to {tmp_path}/copy: 21 files (51.3 KiB) to copy")] == found
    assert not (tmp_path / "copy").exists()


def test_complete_copy(source: Path, tmp_path: Path) -> None:
    """If everything is there, nothing would be copied."""
    (tmp_path / "copy").mkdir()
    assert [("ok", f"{source / 'empty'} to {tmp_path}/copy: nothing to copy")] == look_at(
        "datasets", staged(Stage(str(source / "empty"), f"{tmp_path}/copy"))
    )


def test_listing_that_takes_long(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was counted within half of the time is named as the least, with the reason."""
    ticks, caller = itertools.count(), threading.get_ident()
    monkeypatch.setattr(time, "monotonic", lambda: 0.0 if threading.get_ident() == caller else float(next(ticks)))
    given = attrs.evolve(staged(Stage(str(source), f"{tmp_path}/copy")), patience=20.0)
    ((_, sentence),) = look_at("datasets", given)

    assert f"{source} to {tmp_path}/copy: at least " in sentence
    assert sentence.endswith(" to copy; listing was cut off after 10 s")


def test_copy_that_is_impossible(source: Path, tmp_path: Path) -> None:
    """What would end the job is an error."""
    (source / "empty" / "up").symlink_to(source)
    ((verdict, sentence),) = look_at("datasets", staged(Stage(str(source), f"{tmp_path}/copy")))

    assert "error" == verdict
    assert str(source / "empty" / "up") in sentence
