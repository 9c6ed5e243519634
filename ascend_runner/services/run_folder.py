"""A directory that the runner and its ranks share while they run: small files and sockets, only for this user."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

import attrs

from ascend_runner.plan.job import JobSpec

RUN_DIR_VARIABLE: Final = "ASCEND_RUNNER_RUN_DIR"
REQUESTS_VARIABLE: Final = "ASCEND_RUNNER_CHECKPOINT_REQUESTS"  # as in training.rank_calls
LONGEST: Final = 80  # bytes of the path: that of a socket in it has at most 107 (unix(7))


@contextmanager
def opened(environ: Mapping[str, str]) -> Iterator[str]:
    """Make a directory for one run, and remove it afterwards. Yields "" if no place is usable: the job runs without.

    It is locked as long as this process lives. Directories of runs that were killed are removed.
    """
    for base in filter(_is_usable, _bases(environ)):
        _remove_abandoned(base)
        try:
            folder, lock = _make(base)
        except OSError:  # the file system is full
            continue
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
        return
    yield ""


def _make(base: str) -> tuple[str, int]:
    """Make a directory and lock it; return its path and the descriptor that holds the lock."""
    while True:
        folder = tempfile.mkdtemp(prefix="run-", dir=base)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:  # another run may have taken it for abandoned before it was locked
            return folder, lock
        os.close(lock)


def with_requests(job: JobSpec, folder: str) -> JobSpec:
    """Return the plan with the file in which the ranks agree on the step of a checkpoint."""
    name, value = REQUESTS_VARIABLE, os.path.join(folder, "requests")
    return attrs.evolve(
        job,
        ranks=tuple(
            attrs.evolve(
                rank,
                env={
                    **{known: value for known, value in rank.env.items() if known != name},
                    **({name: f"USR1:{value}"} if folder else {}),
                },
            )
            for rank in job.ranks
        ),
    )


def _bases(environ: Mapping[str, str]) -> Iterator[str]:
    if environ.get(RUN_DIR_VARIABLE):
        yield environ[RUN_DIR_VARIABLE]
    if environ.get("XDG_RUNTIME_DIR"):
        yield os.path.join(environ["XDG_RUNTIME_DIR"], "ascend-runner")
    yield "/run/ascend-runner"
    yield f"/dev/shm/ascend-runner-{os.getuid()}"  # noqa: S108  only a directory of this user is used


def _is_usable(base: str) -> bool:
    """Whether a directory exists or can be made, and no other user can write to it."""
    if not os.path.isabs(base) or len(os.fsencode(base)) > LONGEST:
        return False
    with suppress(OSError):
        os.mkdir(base, 0o700)
    try:
        found = os.lstat(base)
    except OSError:
        return False
    is_ours = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and is_ours and os.access(base, os.W_OK | os.X_OK)


def _remove_abandoned(base: str) -> None:
    """Remove the directories of runs of which no process is left: their locks are free."""
    with suppress(OSError):
        for name in os.listdir(base):
            with suppress(OSError):
                folder = os.open(os.path.join(base, name), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(os.path.join(base, name), ignore_errors=True)
                finally:
                    os.close(folder)
