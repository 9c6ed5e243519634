"""The descriptors that watching processes takes."""

from __future__ import annotations

import errno
import os

import pytest

from ascend_runner.processes import descriptors


def test_python_without_pidfd_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that was built without the call, as conda's are, is like a kernel without it."""
    monkeypatch.delattr(os, "pidfd_open", raising=False)

    with pytest.raises(OSError, match=os.strerror(errno.ENOSYS)):
        descriptors.open_pidfd(os.getpid(), 0)


def test_process_that_was_reaped() -> None:
    """A pid without a process is ESRCH, or ENOSYS where the kernel has no pidfds."""
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)

    with pytest.raises(OSError, match=f"{os.strerror(errno.ESRCH)}|{os.strerror(errno.ENOSYS)}"):
        descriptors.open_pidfd(pid, 0)
