"""The limits behind errors, however Python words them."""

from __future__ import annotations

import errno

import pytest

from ascend_runner.errors import exhausted


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        (MemoryError(), "RLIMIT_AS"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "RLIMIT_AS"),
        (ImportError("libz.so.1: failed to map segment from shared object"), "RLIMIT_AS"),
        (SystemError("error return without exception set"), "RLIMIT_AS"),
        (SystemError("<built-in function compile> returned NULL without setting an exception"), "RLIMIT_AS"),
        (OSError(errno.EMFILE, "Too many open files"), "RLIMIT_NOFILE"),
    ],
)
def test_limit_behind_an_error(error: Exception, limit: str) -> None:
    """It is found in the error, and in the one that it follows."""
    later = RuntimeError("cannot start")
    later.__context__ = error

    assert limit in exhausted(error)
    assert exhausted(error) == exhausted(later)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOENT, "No such file"), ImportError("no module"), SystemError("bad argument")]
)
def test_error_without_a_limit(error: Exception) -> None:
    """Any other error is shown as what it is."""
    assert "" == exhausted(error)
