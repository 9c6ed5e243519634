"""Looking for checkpoints on a disk that hangs: a stop signal ends that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from ascend_runner.job.job_hooks import look_for_checkpoints
from ascend_runner.node.bounded import Patience
from tests.helpers import disk
from tests.helpers.waiting import wait_until

NO_LIMITS: Final = (1e6, 1e6)


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[str]:
    """Return a directory on a disk that hangs."""
    if not disk.is_possible():
        pytest.skip("a disk that hangs needs bindfs(1), /dev/fuse and root")
    mounted = disk.Disk(tmp_path)
    mounted.mount()
    mounted.inject("HANG")
    threads = list(Path(f"/proc/{mounted.pid}/task").iterdir())
    wait_until(lambda: all("State:\tT" in (thread / "status").read_text() for thread in threads))
    yield str(mounted.path)
    mounted.unmount()


def always() -> bool:
    """Say that a signal has arrived before."""
    return True


def never() -> bool:
    """Say that no signal has arrived."""
    return False


def soon() -> Callable[[], bool]:
    """Return what says that a signal has arrived when it is asked for the second time."""
    answers = iter([False])
    return lambda: next(answers, True)


def test_next_stop_signal_ends_a_look_that_hangs(hung: str) -> None:
    """The first signal does, and after it the second one."""
    assert look_for_checkpoints(hung, Patience(soon(), never), NO_LIMITS) is None
    assert look_for_checkpoints(hung, Patience(always, soon()), NO_LIMITS) is None


def test_look_that_hangs_has_a_limit(hung: str) -> None:
    """It is given up without a signal as well, and sooner after one."""
    assert look_for_checkpoints(hung, Patience(never, never), (0.1, 1e6)) is None
    assert look_for_checkpoints(hung, Patience(always, never), (1e6, 0.1)) is None


def test_checkpoint_is_found_after_a_stop(tmp_path: Path) -> None:
    """The hooks of a job that was stopped learn of its newest checkpoint; without a directory nothing is known."""
    (tmp_path / "epoch=0-step=7.ckpt").mkdir()
    (tmp_path / "epoch=0-step=7.ckpt" / "meta.pt").touch()

    found = look_for_checkpoints(str(tmp_path), Patience(always, never))
    assert found
    assert found.is_known
    assert look_for_checkpoints("", Patience(never, never)) is None
