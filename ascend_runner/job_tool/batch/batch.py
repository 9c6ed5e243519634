"""Runs the commands of a file one after the other with ascend-runner, and shows their results."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import attrs

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError, SettingsError, UnreadableError, reason
from ascend_runner.guardian.signal_sets import ignored
from ascend_runner.job_tool.batch.batch_file import BatchFile, Entry, Result
from ascend_runner.report import causes, result
from ascend_runner.text import columns, counted, duration, shown

PASSED_ON: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
TYPED: Final = frozenset({signal.SIGINT, signal.SIGQUIT})  # Ctrl-C and Ctrl-\
SI_KERNEL: Final = 0x80  # asm-generic/siginfo.h; the code of signals that are typed
FAILED: Final = 1  # the exit status of a batch with a command that has failed or was not run
NARROWEST: Final = 20  # characters of a command in the table
Tell = Callable[[str], None]


def run(path: str, environ: Mapping[str, str], tell: Tell, *, keeps_going: bool) -> tuple[str, int]:
    """Run the commands of a file that have not succeeded; return a table of all, and the exit status.

    A failure ends it, unless it `keeps_going`. The result of each command is written when it has ended.

    Raises:
        SettingsError: Something in the file is wrong, or another process is running it. Nothing was started.
        UnreadableError: It cannot be read.
        OutputError: The results cannot be written.
        AscendRunnerError: A command cannot be started.
    """
    batch = BatchFile(path)
    entries, signum = _run_all(batch, environ, tell, keeps_going=keeps_going)
    status = 0 if all(entry.has_succeeded for entry in entries) else FAILED
    return _summary(batch, entries, environ), 128 + signum if signum else status


def _run_all(
    batch: BatchFile, environ: Mapping[str, str], tell: Tell, *, keeps_going: bool
) -> tuple[tuple[Entry, ...], int]:
    """Run the commands; return the results of all, and the signal that has ended it, or 0."""
    with _locked(batch.path), _Signals() as signals:
        entries, problems = batch.read(environ)
        if problems:
            for problem in problems[:-1]:
                tell(problem)
            raise SettingsError(problems[-1])
        batch.write(entries)
        for index, entry in enumerate(entries):
            if signals.signum:
                break
            if entry.has_succeeded:
                continue
            tell(f"command {index + 1} of {len(entries)}: {entry.text}")
            ended = _run(entry, {**environ, **batch.variables(entry.number)}, signals)
            entries = (*entries[:index], attrs.evolve(entry, result=ended), *entries[index + 1 :])
            batch.write(entries)
            if ended.status and not keeps_going:
                break
    return entries, signals.signum


def _summary(batch: BatchFile, entries: Sequence[Entry], environ: Mapping[str, str]) -> str:
    """Return a table of the commands, and how many have succeeded."""
    heads = ("logs", "state", "time", "command")
    rows = []
    for entry in entries:
        state = "not run"
        if entry.result:
            state = f"{entry.result.state} ({entry.result.status})" if entry.result.status else entry.result.state
        folder = shown(batch.log_dir(entry, environ))
        rows.append((folder, state, duration(entry.result.seconds) if entry.result else "", shown(entry.text)))
    width = shutil.get_terminal_size().columns
    lines = [
        line if len(line) <= width else f"{line[: max(NARROWEST, width) - 4]} ..." for line in columns(heads, rows)
    ]
    failed = [
        f"{shown(entry.result.cause)} (line {entry.line})" for entry in entries if entry.result and entry.result.cause
    ]
    lines += ["", *failed] if failed else []
    done = sum(entry.has_succeeded for entry in entries)
    lines += ["", f"{done} of {counted(len(entries), 'command')} succeeded, see {shown(batch.state_path)}"]
    return "".join(f"{line}\n" for line in lines)


def _run(entry: Entry, environ: Mapping[str, str], signals: _Signals) -> Result:
    """Run a command. It stops if this process dies.

    Raises:
        AscendRunnerError: It cannot be started.
    """
    began = time.monotonic()
    argv = [sys.executable, "-m", "ascend_runner", *entry.words]
    try:
        with open(os.memfd_create("outcome"), "r+b") as file:
            fd = file.fileno()
            env = {**environ, result.LAUNCH_VARIABLE: f"{os.getpid()}:{fd}"}
            with subprocess.Popen(argv, env=env, pass_fds=(fd,)) as child:
                status = signals.wait_for(child)
            file.seek(0)
            data = file.read()
    except OSError as error:
        raise AscendRunnerError(f"cannot start the command on line {entry.line}: {reason(error)}") from error
    status = 128 - status if status < 0 else status
    try:
        outcome = result.decode(data, status)
        cause = causes.sentence_with_certainty(outcome)
        state = str(outcome.report.get("state", "")) or ("failed" if status else "succeeded")
    except AscendRunnerError as error:
        cause, state = str(error), "failed"
    return Result(status=status, state=state, seconds=round(time.monotonic() - began, 3), cause=cause)


class _Signals:
    """Forwards signals to the running command. They are blocked, also for the command, whose guardian waits for them.

    A signal from the terminal reaches the command as well, because it is in the same process group. It is not
    forwarded: on a busy machine, the copy could arrive too late for the runner to recognize it as one.
    """

    def __init__(self) -> None:
        self._passed_on = PASSED_ON - ignored()
        self._first = 0
        self._mask: Collection[int] = ()

    def __enter__(self) -> _Signals:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*self._passed_on, signal.SIGCHLD})
        return self

    def __exit__(self, *_: object) -> None:
        while self.signum and signal.sigtimedwait(self._passed_on, 0):
            pass  # the exit status reports the first one, so no later one ends this process
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    @property
    def signum(self) -> int:
        """The first signal received so far, or 0."""
        if not self._first:
            info = signal.sigtimedwait(self._passed_on, 0)
            self._first = info.si_signo if info else 0
        return self._first

    def wait_for(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for a command, and return its exit status."""
        if self.signum:  # received before the child was started
            child.send_signal(self.signum)
        while child.poll() is None:
            info = signal.sigwaitinfo({*self._passed_on, signal.SIGCHLD})
            if info.si_signo in self._passed_on:
                self._first = self._first or info.si_signo
                if not (info.si_code == SI_KERNEL and info.si_signo in TYPED):
                    child.send_signal(info.si_signo)
        return child.wait()


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold a lock for the file of commands: two runs of it at once would write to the same directories.

    The lock is on a file beside it: an editor may replace the file itself, and NFS locks only what is open for writing.
    """
    try:
        open(path, "rb").close()
    except OSError as error:
        raise UnreadableError(f"cannot read {path!r}: {reason(error)}") from error
    folder, name = os.path.split(path)
    with ExitStack() as stack:
        with suppress(OSError):  # a directory that cannot be written: see what follows
            fd = files.open_lock(os.path.join(folder, f".{name}.lock"))
            stack.callback(os.close, fd)
            if not files.try_lock(fd):
                raise SettingsError(f"another ascend-job batch is running {path!r}")
        yield
