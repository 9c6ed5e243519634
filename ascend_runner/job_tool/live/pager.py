"""Shows a log, stacks or events in the user's pager, outside of the screen of `ascend-job top`."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import attrs

from ascend_runner.errors import AscendRunnerError, reason
from ascend_runner.host import executables
from ascend_runner.job_tool.job import snapshot
from ascend_runner.job_tool.job.jobs import FoundJob
from ascend_runner.job_tool.processes import rank_stacks
from ascend_runner.job_tool.status import event_lines
from ascend_runner.text import printable

LESS: Final = "less"
# No question before a log with control characters, which are shown as "^[" even if the variable LESS has -r or -R;
# no preprocessor, which cannot follow a file.
LESS_OPTIONS: Final = ("-f", "-+r", "-+R", "-L")


@attrs.frozen(kw_only=True)
class Pager:
    """Shows texts about a job in the pager, or on the terminal if there is none."""

    job: FoundJob
    environ: Mapping[str, str]
    log_path: Callable[[int], str]

    def log(self, rank_id: int) -> str:
        """Follow the log of a rank."""
        path = self.log_path(rank_id)
        if not path:
            return f"cannot find the log of rank {rank_id}"
        command = self._command()
        if not command:  # the escapes are those of `ascend-job logs`
            follow = ("logs", self.job.log_dir, "-f", "-r", str(rank_id))
            return _run((sys.executable, sys.argv[0], *follow))
        options = ("+F",) if os.path.basename(command[0]) == LESS else ()
        return _run((*command, *options, path))

    def stacks(self, _rank_id: int) -> str:
        """Show the stacks of all ranks of this node."""
        found = rank_stacks.leaders(snapshot.take(self.job))
        if not found:
            return f"no rank of {self.job.name} is running on this machine"
        note = f"comparing the stacks for up to {rank_stacks.COMPARED:g} s ..."
        print(note, flush=True)  # noqa: T201  on the normal screen, which the user sees meanwhile
        py_spy = executables.find_py_spy(self.environ.get("PATH", os.defpath))
        return self._show(rank_stacks.text(found, py_spy, rank_stacks.COMPARED))

    def events(self, _rank_id: int) -> str:
        """Show the events of the job."""
        return self._show("".join(f"{line}\n" for line in event_lines.lines(self.job, follows=False)))

    def _show(self, text: str) -> str:
        command = self._command()
        if command:
            return _run(command, text)
        print(text)  # noqa: T201  as above
        with suppress(EOFError, KeyboardInterrupt):
            input("press Enter to return ")
        return ""

    def _command(self) -> Sequence[str]:
        """Return the command of the user's pager, or of less, or () if neither is installed."""
        search_path = self.environ.get("PATH", os.defpath)
        words = [LESS]
        with suppress(ValueError):  # an unclosed quotation
            words = shlex.split(self.environ.get("PAGER", "")) or words
        for command in (words, [LESS]):
            try:
                found = executables.find_executable(command[0], cwd=os.getcwd(), search_path=search_path)
            except AscendRunnerError:
                continue
            return (found, *command[1:], *(LESS_OPTIONS if os.path.basename(found) == LESS else ()))
        return ()


def _run(command: Sequence[str], text: str = "") -> str:
    """Run a command on the terminal until the user leaves it, or SIGTERM ends both; return a note if it fails."""
    stops: list[int] = []
    started: list[subprocess.Popen[bytes]] = []

    def stop(signum: int, _frame: object) -> None:
        stops.append(signum)
        for popen in started:
            popen.terminate()

    # Ctrl-C is for the command, which does not inherit a handler.
    handlers = {
        signum: signal.signal(signum, act) for signum, act in ((signal.SIGINT, _ignore), (signal.SIGTERM, stop))
    }
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE if text else None) as popen:
            started.append(popen)
            if stops:  # before it was started
                popen.terminate()
            popen.communicate(text.encode(errors="replace") if text else None)
    except OSError as error:
        return f"cannot start {printable(command[0])}: {reason(error)}"
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
    return f"{printable(command[0])} failed (exit status {popen.returncode})" if popen.returncode > 0 else ""


def _ignore(_signum: int, _frame: object) -> None:
    """Do nothing at a signal."""
