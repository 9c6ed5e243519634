"""What ends a wait: a changed file, a closed pipe, the end of a runner."""

from __future__ import annotations

import fcntl
import os
import select
from pathlib import Path

import attrs
import pytest

from ascend_runner.tools.job.jobs import FileWatch, JobEnd
from tests.tools.job.conftest import JOB


def test_changes_of_files(tmp_path: Path) -> None:
    """The kernel tells their names, however they are changed; a read changes nothing."""
    (tmp_path / "old").touch()
    watch = FileWatch(str(tmp_path), is_local=True)
    with (tmp_path / "old").open("a") as file:
        file.write("x")
    written = watch.wait(None)
    (tmp_path / "new").touch()
    created = watch.wait(None)
    (tmp_path / "new").rename(tmp_path / "newer")
    renamed = watch.wait(None)
    (tmp_path / "old").read_text()
    read = watch.wait(0)
    watch.close()
    watch.close()

    assert [{"old"}, {"new"}, {"newer"}, set()] == [written, created, renamed, read]


def test_changes_of_one_file(tmp_path: Path) -> None:
    """Other files are of no interest."""
    (tmp_path / "file").touch()
    watch = FileWatch(str(tmp_path / "file"), is_local=True)
    (tmp_path / "other").touch()
    other = watch.wait(0)
    (tmp_path / "file").write_text("x")
    own = watch.wait(None)
    watch.close()

    assert [set(), {""}] == [other, own]


def test_pipe_that_is_closed(tmp_path: Path) -> None:
    """It ends the wait."""
    watch = FileWatch(str(tmp_path), is_local=True)
    reader, writer = os.pipe()
    os.close(writer)
    names = watch.wait(None, reader)
    os.close(reader)
    watch.close()

    assert set() == names


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("is_local", [True, False])
def test_directory_that_cannot_be_watched(tmp_path: Path, is_local: bool) -> None:  # noqa: FBT001  a parameter
    """Where the kernel cannot tell of all changes, any file may have changed after a while."""
    watch = FileWatch(str(tmp_path / "none") if is_local else str(tmp_path), is_local=is_local)

    assert watch.wait(None) is None
    watch.close()


def test_end_of_a_runner(tmp_path: Path) -> None:
    """It is reported when the lock is free."""
    lock = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    end = JobEnd([attrs.evolve(JOB, run_folder=str(tmp_path))] * 2)
    before = end.has_come()
    poll = select.poll()
    poll.register(end.locks[0], 0)
    is_quiet = poll.poll(0) == []
    os.close(lock)
    events = poll.poll(60_000)
    after = end.has_come()
    end.close()

    assert [False, True, True, True] == [before, is_quiet, bool(events), after]
    assert [] == end.locks


def test_job_that_has_ended(tmp_path: Path) -> None:
    """There is nothing to wait for."""
    end = JobEnd([attrs.evolve(JOB, run_folder=str(tmp_path))])

    assert end.has_come()
    assert [] == end.locks
