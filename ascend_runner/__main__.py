"""`ascend-runner` and `python -m ascend_runner`: the guardian, and in its child the command line."""

from __future__ import annotations

import sys

# `python -m` puts the current folder first, where a user's select.py would be taken for Python's own.
if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):  # Python 3.11: -P
    del sys.path[0]

import signal

# Ctrl-C before the guardian listens ends this process without a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import errno
import os
import select

from ascend_runner.errors import RUNNER_FAILED, reason
from ascend_runner.guardian import guard
from ascend_runner.output.messages import Level, format_message
from ascend_runner.text import printable

LAST_WORDS_LIMIT = 1.0  # seconds for stderr to accept a line; a terminal under Ctrl-S must not keep the guardian


def main() -> None:
    """Run the command line under a guardian, and end the process with its exit status."""
    parent, _, result_fd = os.environ.pop("ASCEND_RUNNER_LAUNCH", "").partition(":")  # see result.LAUNCH_VARIABLE
    try:
        status = guard.guard(
            lambda: _run(int(result_fd) if result_fd else None),
            lambda sentence: _write_last_words(Level.WARNING, sentence),
            int(parent or 0),
        )
    except OSError as error:
        _write_last_words(Level.ERROR, f"cannot start a process: {reason(error)}")
        status = RUNNER_FAILED
    os._exit(status)  # the guardian has nothing to finalize


def _run(result_fd: int | None) -> int:
    try:
        from ascend_runner.cli import main as run  # noqa: PLC0415  after the fork: the guardian stays small

        return run(sys.argv[1:], os.environ, result_fd)
    except OSError as error:
        if error.errno not in {errno.ENFILE, errno.EMFILE}:
            raise
        _write_last_words(Level.ERROR, f"cannot run: {reason(error)}")
        return RUNNER_FAILED


def _write_last_words(level: Level, sentence: str) -> None:
    guard.may_write_from_the_background()
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    if poll.poll(LAST_WORDS_LIMIT * 1000):
        line = format_message(level, printable(sentence))
        try:
            os.write(2, line[-select.PIPE_BUF :])  # a pipe that is ready accepts this much at once
        except OSError:
            return  # stderr has no reader any more


if __name__ == "__main__":
    main()
