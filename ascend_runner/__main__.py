"""`ascend-runner` and `python -m ascend_runner`: the guardian first, then, in its child, the command line."""

from __future__ import annotations

import sys

# `python -m` puts the current folder first: a user's subprocess.py or select.py would be taken for Python's own.
if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):  # Python 3.11's -P leaves it out
    del sys.path[0]

import gc

from .plain_signal import SIG_DFL, SIGINT, default_int_handler, getsignal, signal

# An early Ctrl-C, before the guardian listens, ends this as any program, without a traceback.
if getsignal(SIGINT) is default_int_handler:
    signal(SIGINT, SIG_DFL)

# Imports make thousands of objects that live on, and collecting among them costs 1.5 ms of a start-up of 35.
gc.disable()

import os  # noqa: E402  the line above must come first

from .annotations import TYPE_CHECKING  # noqa: E402
from .errors import RUNNER_FAILED, reason  # noqa: E402
from .linux import guardian  # noqa: E402

if TYPE_CHECKING:
    from .reporter import Level

NO_DESCRIPTORS = (23, 24)  # ENFILE, EMFILE, without an import of errno
LAST_WORDS_LIMIT = 1.0  # seconds


def main() -> None:
    """Run the command line under a guardian and end the process with its status."""
    parent, _, result_fd = os.environ.pop("ASCEND_RUNNER_LAUNCH", "").partition(":")  # see result.LAUNCH_VARIABLE
    try:
        status = guardian.guard(lambda: _run(int(result_fd) if result_fd else None), _tell, int(parent or 0))
    except OSError as error:
        _tell(f"no process can be started: {reason(error)}", "ERROR")
        status = RUNNER_FAILED

    # Nothing is left to be finalised here, and finalising takes as long as starting a rank.
    os._exit(status)


def _tell(sentence: str, level: Level = "WARNING") -> None:
    """Say a last sentence, where stderr takes it: a terminal under Ctrl-S must not keep the guardian."""
    import select

    from .reporter import own_line
    from .text import printable

    guardian.may_write_from_the_background()
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    if poll.poll(LAST_WORDS_LIMIT * 1000):
        line = own_line(level, printable(sentence))
        try:
            os.write(2, line[-select.PIPE_BUF :])  # so much a pipe with room takes at once
        except OSError:
            return  # nobody is left to tell


def _run(result_fd: int | None) -> int:
    try:
        from .cli import main as run  # after the fork: the guardian stays small

        gc.freeze()
        gc.enable()
        return run(sys.argv[1:], os.environ, result_fd)
    except OSError as error:
        if error.errno not in NO_DESCRIPTORS:
            raise
        _tell(f"there is no room to run in: {reason(error)}", "ERROR")
        return RUNNER_FAILED


if __name__ == "__main__":
    main()
