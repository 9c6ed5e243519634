"""`ascend-runner` and `python -m ascend_runner`: the guardian, and in its child the command line."""

from __future__ import annotations

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):  # Python 3.11: -P
    del sys.path[0]  # the current directory

import os


def _end_without_memory(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Take the place of a traceback before the runner reports errors by itself: in the imports, and in the guardian."""
    # As in `errors.exhausted`, which may be what cannot be imported.
    if not (issubclass(kind, (MemoryError, SystemError)) or "failed to map" in str(error)):
        sys.__excepthook__(kind, error, traceback)
        return
    os.write(2, b"[ascend-runner] ERROR cannot run: not enough memory (RLIMIT_AS, see ulimit -v)\n")
    os._exit(125)


sys.excepthook = _end_without_memory

from ascend_runner.import_path import put_in_order

put_in_order()

import signal

# Ctrl-C before the guardian listens ends this process without a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import gc
import select
from typing import TYPE_CHECKING

from ascend_runner.errors import RUNNER_FAILED, exhausted, reason
from ascend_runner.guardian import guard
from ascend_runner.ranks.message_format import Level, format_message
from ascend_runner.text import printable

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from types import TracebackType

LAST_MESSAGE_LIMIT = 1.0  # seconds for stderr to accept a line; a terminal under Ctrl-S must not keep the guardian


def main() -> None:
    """Run the command line under a guardian, and end the process with its exit status."""
    parent, result_fd = _caller()
    try:
        status = guard.guard(
            lambda tell_guardian: _run(result_fd, tell_guardian),
            lambda sentence: _write_final_message(Level.WARNING, sentence),
            parent,
        )
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _write_final_message(Level.ERROR, f"cannot start a process: {reason(error)}{where}")
        status = RUNNER_FAILED
    os._exit(status)  # the guardian has nothing to finalize


def _caller() -> tuple[int, int | None]:
    """Return the pid of the process that has called `launch()`, and the fd for the result; 0 and None if none has."""
    words = os.environ.get("ASCEND_RUNNER_LAUNCH", "").split(":")  # see result.LAUNCH_VARIABLE
    try:
        parent, result_fd = map(int, words)
        os.fstat(result_fd)
    except (ValueError, OverflowError, OSError):
        return 0, None  # set by another program: the runner warns about it as about any unknown variable
    del os.environ["ASCEND_RUNNER_LAUNCH"]
    return parent, result_fd


def _run(result_fd: int | None, tell_guardian: Callable[[str], None]) -> int:
    try:
        gc.disable()  # modules do not become garbage, so no collection needs to search them; see cli
        import threading  # noqa: PLC0415  after the fork: the guardian stays small

        from ascend_runner.cli import main as run  # noqa: PLC0415  as above

        threading.excepthook = _report_thread
        if result_fd is None:
            return run(sys.argv[1:], os.environ, tell_guardian)
        from ascend_runner.report import result  # noqa: PLC0415  as above, and only `launch()` needs it

        return run(sys.argv[1:], os.environ, tell_guardian, lambda ended: result.write(result_fd, ended))
    except Exception as error:
        limit = exhausted(error)
        if not limit:
            raise
        _write_final_message(Level.ERROR, f"cannot run: {limit}")
        return RUNNER_FAILED


def _report_thread(ended: threading.ExceptHookArgs) -> None:
    limit = exhausted(ended.exc_value) if ended.exc_value else ""
    if limit:
        _write_final_message(Level.WARNING, f"a thread of the runner has failed: {limit}")
    else:
        sys.__excepthook__(ended.exc_type, ended.exc_value or ended.exc_type(), ended.exc_traceback)


def _write_final_message(level: Level, sentence: str) -> None:
    guard.may_write_from_the_background()
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    if poll.poll(LAST_MESSAGE_LIMIT * 1000):
        line = format_message(level, printable(sentence))
        try:
            os.write(2, line[-select.PIPE_BUF :])  # a pipe that is ready accepts this much at once
        except OSError:
            return  # the reader of stderr has gone


if __name__ == "__main__":
    main()
