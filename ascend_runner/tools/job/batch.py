"""`ascend-job batch`: runs the commands of a file one after the other, and keeps the result of each beside it.

A command is identified by its words, so the file may be edited between two runs: what has succeeded stays so.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import attrs

from ascend_runner import files, programs
from ascend_runner.errors import AscendRunnerError, SettingsError, UnreadableError, reason
from ascend_runner.guardian.signal_sets import ignored
from ascend_runner.report import result
from ascend_runner.settings import command_line
from ascend_runner.settings.model import decode
from ascend_runner.text import columns, counted, duration, shown
from ascend_runner.views import wording

LARGEST: Final = 1 << 20  # bytes of a file of commands
LOG_DIR: Final = "ASCEND_RUNNER_LOG_DIR"
JOB_NAME: Final = "ASCEND_RUNNER_JOB_NAME"
RESULT: Final = "RESULT"  # what the task-training platform collects


@attrs.frozen(kw_only=True)
class Result:
    """The result of a command; `seconds` is how long it ran. `cause` is "" after a success."""

    status: int
    state: str
    seconds: float
    cause: str = ""


@attrs.frozen(kw_only=True)
class Entry:
    """A command of the file: `number` distinguishes its logs, `line` is its line in the file."""

    number: int
    line: int
    words: tuple[str, ...]
    result: Result | None = None

    @property
    def text(self) -> str:
        """The command as a shell would read it."""
        return shlex.join(self.words)

    @property
    def has_succeeded(self) -> bool:
        """Whether it need not run again."""
        return self.result is not None and self.result.status == 0


@attrs.frozen
class BatchFile:
    """A file of commands at `path`."""

    path: str

    @property
    def state_path(self) -> str:
        """The file with the results of the commands."""
        return f"{self.path}.state.json"

    def variables(self, number: int) -> dict[str, str]:
        """Return the variables of a command: its logs are beside the file, in a directory of their own."""
        base = os.path.splitext(os.path.abspath(self.path))[0]
        name = re.sub(r"[^\w.+@-]", "_", f"{os.path.basename(base)}-{number}").lstrip(".+@-")
        return {LOG_DIR: f"{base}-{number}", JOB_NAME: name}

    def environ(self, entry: Entry, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a command, whose RESULT is a directory of its own below the given one.

        Raises:
            OutputError: That directory cannot be made.
        """
        own = self.variables(entry.number)
        if environ.get(RESULT):
            own[RESULT] = os.path.join(environ[RESULT], own[JOB_NAME])
            files.make_folder(own[RESULT])
        return {**environ, **own}

    def log_dir(self, entry: Entry, environ: Mapping[str, str]) -> str:
        """Return the log directory of a command, without the path if it is beside the file."""
        own = self.variables(entry.number)
        log_dir = decode(command_line.parse(entry.words).values, {**environ, **own}).log_dir or ""
        return os.path.basename(log_dir) if log_dir == own[LOG_DIR] else log_dir

    def read(self, environ: Mapping[str, str]) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
        """Return the commands with their results so far, and a sentence for each line that is wrong.

        Raises:
            UnreadableError: A file cannot be read.
            SettingsError: There are no commands, or the file beside it is another one.
        """
        commands: list[tuple[int, tuple[str, ...]]] = []
        problems: list[str] = []
        for number, line in enumerate(self._lines(), start=1):
            try:
                words = _words(line, {**environ, **self.variables(number)})
            except AscendRunnerError as error:
                problems.append(f"{self.path}, line {number}: {error}")
            else:
                commands += [(number, words)] if words else []
        if not (commands or problems):
            raise SettingsError(f"{self.path!r} has no commands")
        return self._entries(commands), tuple(problems)

    def write(self, entries: Sequence[Entry]) -> None:
        """Write the results so far.

        Raises:
            OutputError: That is not possible.
        """
        done = [
            {"number": entry.number, "words": entry.words, **attrs.asdict(entry.result)}
            for entry in entries
            if entry.result
        ]
        files.write_atomically(self.state_path, json.dumps(done, indent=1).encode() + b"\n")

    def _lines(self) -> list[str]:
        try:
            with open(self.path, "rb") as file:
                content = file.read(LARGEST + 1)
        except OSError as error:
            raise UnreadableError(f"cannot read {self.path!r}: {reason(error)}") from error
        if len(content) > LARGEST:
            raise UnreadableError(f"cannot read {self.path!r}: it has more than {LARGEST >> 20} MiB")
        return os.fsdecode(content).split("\n")  # not splitlines(): a form feed does not end a line

    def _entries(self, commands: Sequence[tuple[int, tuple[str, ...]]]) -> tuple[Entry, ...]:
        """Number the commands by their place in the file, unless another command's logs have the number."""
        known: dict[tuple[str, ...], list[tuple[int, Result]]] = {}
        for number, words, past in self._remembered():
            known.setdefault(words, []).append((number, past))
        found = [(line, words, known[words].pop(0) if known.get(words) else None) for line, words in commands]
        taken = {before[0] for _line, _words, before in found if before}
        entries: list[Entry] = []
        for place, (line, words, before) in enumerate(found, start=1):
            number, last = before or (place, None)
            if before is None and place in taken:
                number = max({*taken, len(found)}) + 1
            taken.add(number)
            entries.append(Entry(number=number, line=line, words=words, result=last))
        return tuple(entries)

    def _remembered(self) -> list[tuple[int, tuple[str, ...], Result]]:
        try:
            with open(self.state_path, "rb") as file:
                document = json.loads(file.read(LARGEST * 16))
            return [
                (
                    int(one["number"]),
                    tuple(map(str, one["words"])),
                    Result(
                        status=int(one["status"]),
                        state=str(one["state"]),
                        seconds=float(one["seconds"]),
                        cause=str(one["cause"]),
                    ),
                )
                for one in document
            ]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UnreadableError(f"cannot read {self.state_path!r}: {reason(error)}") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise SettingsError(
                f"{self.state_path!r} is not the state of a batch; remove it to run all commands"
            ) from error


def _words(line: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words of a line, none for an empty one or a comment.

    Raises:
        AscendRunnerError: `ascend-runner` would refuse them.
    """
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise SettingsError(str(error).lower()) from None
    if words[:1] == [programs.RUNNER]:  # a line may begin with it
        del words[0]
    elif not words:
        return ()
    parsed = command_line.parse(words)
    if not parsed.command:
        raise SettingsError("no command given")
    command_line.check(parsed.command)
    decode(parsed.values, environ)
    return tuple(words)


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
            ended = _run(entry, batch.environ(entry, environ), signals)
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
    argv = [*programs.argv(programs.RUNNER), *entry.words]
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
        cause = wording.sentence_with_certainty(outcome)
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
