"""Hooks that run beside the ranks: their time limit, their order, and that nothing of them is left."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ascend_runner.errors import StopRequestedError
from ascend_runner.guardian import process_tree, sweep
from ascend_runner.services.hooks import BackgroundHooks, Hooks
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.waiting import LIMIT, wait_until


class Job:
    """A job with hooks for its checkpoints in a directory of a test, and what is said of them."""

    def __init__(self, folder: Path, *commands: str, limit: float = LIMIT, silence: float = LIMIT) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.warnings: list[str] = []
        spec = job_spec(
            [rank_spec()], log_dir=str(folder), hooks=tuple(("checkpoint", command) for command in commands)
        )
        environ = {**os.environ, "FOLDER": str(folder)}
        self.hooks = BackgroundHooks(
            Hooks(
                job=spec,
                event="checkpoint",
                environ=environ,
                info=self.tell,
                warn=self.warnings.append,
                limit=limit,
                silence=silence,
            ),
            set(),
        )

    def tell(self, sentence: str) -> None:
        """Take note of a sentence, and let the hooks know of it."""
        self.told.append(sentence)
        (self.folder / "told").touch()

    def finish(self) -> None:
        """Wait for the hooks, and check that nothing is left of them."""
        pause = threading.Event()

        def wait(seconds: float) -> None:
            pause.wait(seconds)

        self.hooks.finish(wait)
        assert set() == self.hooks.pids

    @property
    def log(self) -> str:
        """The output of the hooks."""
        return (self.folder / "job-hook-checkpoint.txt").read_text()


def test_hooks_run_one_after_the_other(tmp_path: Path) -> None:
    """Each is told of the checkpoint; one that fails does not prevent the next one, and is told with its last line."""
    job = Job(tmp_path, "echo $STEP; sleep 0.2; echo one; exit 3", "echo two; kill -KILL $$", "cat; echo three")
    job.hooks.start({"STEP": "7"})
    job.finish()

    failed = "hook checkpoint failed: exit status {}; see " + str(tmp_path / "job-hook-checkpoint.txt")
    assert [failed.format("3 (one)"), True] == [job.warnings[0], "137" in job.warnings[1]]
    assert "7\none\ntwo\nthree\n" == job.log


def test_wait_is_announced_once(tmp_path: Path) -> None:
    """At the end of an attempt the screen says for which hooks the job waits, however many there are."""
    job = Job(tmp_path, *['while ! [ -e "$FOLDER/told" ]; do sleep 0.01; done'] * 2, silence=0.0)
    job.hooks.start({})
    job.finish()

    assert [True] == [sentence.startswith("waiting for hook checkpoint (") for sentence in job.told]


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("command", ["sleep 1000", "trap '' TERM; setsid sh -c 'sleep 1000; true' & sleep 1000"])
def test_limit(tmp_path: Path, command: str) -> None:
    """A hook that hangs is killed with everything it has started, and the next one runs."""
    before = process_tree.children(os.getpid())
    job = Job(tmp_path, command, "echo two", limit=2.0)
    job.hooks.start({})
    job.finish()

    assert ["hook checkpoint failed: timed out after 2 s and was killed"] == [one.split(";")[0] for one in job.warnings]
    assert "two\n" == job.log
    wait_until(lambda: not sweep.reap_adopted(keep=frozenset(before)))  # zombies, which the runner's loop reaps


def test_only_the_newest_checkpoint_waits(tmp_path: Path) -> None:
    """While a hook runs, a second checkpoint waits for its own; a third one takes its place."""
    job = Job(tmp_path, 'echo $STEP; while ! [ -e "$FOLDER/down" ]; do sleep 0.01; done')
    for step in (1, 2, 3):
        job.hooks.start({"STEP": str(step)})
        wait_until(lambda: job.log)
    (tmp_path / "down").touch()
    job.finish()

    assert ["skipped hook checkpoint because the previous one took too long"] == job.warnings
    assert "1\n3\n" == job.log


def test_stop_signal(tmp_path: Path) -> None:
    """What the wait raises ends the hook, and the next one does not start; nothing is left."""
    before = process_tree.children(os.getpid())
    job = Job(tmp_path, "echo one; trap '' TERM; sleep 1000; sleep 1000", "echo two")

    def stopped(_seconds: float) -> None:
        wait_until(lambda: job.log)
        raise StopRequestedError(15, "SIGTERM")

    job.hooks.start({})
    with pytest.raises(StopRequestedError):
        job.hooks.finish(stopped)

    assert ["hook checkpoint was killed: received SIGTERM"] == job.warnings
    assert "one\n" == job.log
    wait_until(lambda: not sweep.reap_adopted(keep=frozenset(before)))  # zombies, which the runner's loop reaps
