"""Starts, watches, signals and reaps the first process of one rank on Linux, and reports the order of exits.

SIGCHLD reports that some child ended, not which one was first: on a busy machine, two exits 50 ms apart arrive in one
wake-up. It does not report processes deeper in a rank's tree, nor the exit of a rank that a debugger traces. A pidfd
does, and the ready list of an epoll instance keeps their order. Without pidfds, the manager notices these exits at its
next poll.

Deals with pids, groups, sessions and wait statuses. It has no access to rank tables or settings, and makes no decision:
`supervision.machine` decides which rank is signaled, and when.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import subprocess
from contextlib import suppress
from signal import SIGPIPE, SIGXFSZ
from typing import Final

from ascend_runner import errors
from ascend_runner.guardian import process_tree
from ascend_runner.plan.spec import RankSpec
from ascend_runner.record.facts import RankReaped
from ascend_runner.supervision.causes import Ending, SpawnFailed


class ExitWatch:
    """Watches processes. Readable (`fileno`) when one of them has ended."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._pids: dict[int, int] = {}  # pids by pidfd

    def add(self, pid: int) -> None:
        """Watch another process, if the kernel permits it and a descriptor is left."""
        fd = -1 if pid in self._pids.values() else process_tree.open_pidfd(pid)
        if fd >= 0:
            self._epoll.register(fd, select.EPOLLIN)
            self._pids[fd] = pid

    def fileno(self) -> int:
        """Return the descriptor that is readable when a process has ended."""
        return self._epoll.fileno()

    def take_ended(self) -> list[int]:
        """Return the pids that have ended since the last call, in order of exit, and stop watching them."""
        ended = [fd for fd, _events in self._epoll.poll(0, max(1, len(self._pids)))]
        return [self._forget(fd) for fd in ended]

    def close(self) -> None:
        """Stop watching. May be called twice."""
        for fd in list(self._pids):
            self._forget(fd)
        self._epoll.close()

    def _forget(self, fd: int) -> int:
        self._epoll.unregister(fd)  # close() alone is not enough while a process being started has a copy
        os.close(fd)
        return self._pids.pop(fd)


IGNORED_BY_PYTHON: Final = (SIGPIPE, SIGXFSZ)  # other programs start with the default action


class Leader:
    """The first process of a rank. It leads a session and a process group of its own, whose ids are its pid."""

    def __init__(self, spec: RankSpec, output: int) -> None:
        """Start the process with an empty stdin, or with ours, and stdout and stderr on the fd `output`.

        Raises:
            OSError: It cannot be started; no process is left of the attempt.
        """
        self.spec = spec
        self.is_reported = False  # whether its end was reported
        self.pid = _spawn(spec, output) if spec.cores is None else _spawn_on_cores(spec.cores, spec, output)
        # A new process shares the memory of the runner until it executes its program, and the kernel counts that.
        self._least_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in KiB

    def peek(self) -> Ending | None:
        """Return how it ended, or None while it is alive, without reaping it.

        It does not reap: while the leader stays a zombie, its pid cannot be given to another process, so signaling its
        group is safe (waitid(2), WNOWAIT). Reaping in a SIGCHLD handler, as most launchers do, opens that race.
        """
        seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if seen is None:
            return None
        if seen.si_code == os.CLD_EXITED:
            return Ending(exit_code=seen.si_status)

        return Ending(signum=seen.si_status, core_dumped=seen.si_code == os.CLD_DUMPED)

    def peek_closely(self) -> Ending | None:
        """Like `peek`, but also detects an exit that the kernel has reported only to a debugger (ptrace(2))."""
        if ending := self.peek():
            return ending
        found = process_tree.look(self.pid)
        if not (found and found.is_zombie):
            return None
        status = found.wait_status
        if os.WIFEXITED(status):
            return Ending(exit_code=os.WEXITSTATUS(status))
        return Ending(signum=os.WTERMSIG(status), core_dumped=os.WCOREDUMP(status))

    def signal_group(self, signum: int) -> None:
        """Signal its process group, if any process of it is left that may be signaled."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)

    def reap(self) -> RankReaped:
        """Release the pid, and return the resources used by the process and the children it waited for.

        The process must have ended. While a debugger keeps it, nothing is released, and the times are 0.
        """
        _pid, _status, usage = os.wait4(self.pid, os.WNOHANG)
        return RankReaped(
            rank_id=self.spec.rank_id,
            max_rss=usage.ru_maxrss * 1024 if usage.ru_maxrss > self._least_peak else None,
            user_seconds=usage.ru_utime,
            system_seconds=usage.ru_stime,
        )


def explain_failure(error: OSError, spec: RankSpec) -> SpawnFailed:
    """Turn the error of a failed start into an event, with the exit status that a shell would give for it."""
    reason, exit_status = _reason_and_status(error, spec)
    return SpawnFailed(spec.rank_id, reason, exit_status)


def _spawn(spec: RankSpec, output: int) -> int:
    """Start the program of a rank in a new session; return its pid.

    In a session of their own, ranks do not receive a terminal's Ctrl-C without the runner. The runner's descriptors are
    closed on exec (PEP 446), and so are those it has inherited (see `guardian.guard`). The C library's
    internal signals 32 and 33 were seen to be ignored in processes started by posix_spawn.

    Raises:
        OSError: The program cannot be started.
    """
    if spec.has_stdin:
        # Of a terminal, a process of another session may read without being in the foreground.
        os.set_inheritable(0, True)
    if not _is_here(spec.cwd):
        return _spawn_elsewhere(spec, output)
    stdin = [] if spec.has_stdin else [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    files = [*stdin, (os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]
    try:
        return os.posix_spawn(
            spec.executable, spec.argv, spec.env, file_actions=files, setsid=True, setsigdef=IGNORED_BY_PYTHON
        )
    except NotImplementedError:  # setsid: a Python built for a glibc before 2.26, as conda's was for long
        return _spawn_elsewhere(spec, output)


def _spawn_on_cores(cores: frozenset[int], spec: RankSpec, output: int) -> int:
    """Start the program with its threads limited to `cores`.

    A child inherits the affinity of the thread that starts it. Setting the child's own afterwards would be too late for
    the threads it has by then.
    """
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        return _spawn(spec, output)
    finally:
        os.sched_setaffinity(0, own)


def _is_here(folder: str) -> bool:
    try:
        return os.path.samefile(folder, ".")
    except OSError:
        return False  # starting a process there reports the reason


def _spawn_elsewhere(spec: RankSpec, output: int) -> int:
    """Start the program in another directory than the runner, which never changes its own."""
    # Never preexec_fn: it turns vfork into fork, which takes 20 ms instead of 0.6 ms with a large heap.
    popen = subprocess.Popen(
        spec.argv,
        executable=spec.executable,
        env=spec.env,
        cwd=spec.cwd,
        stdin=None if spec.has_stdin else subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    popen.returncode = 0  # or subprocess would reap the process, which `Leader.reap` does
    return popen.pid


def _reason_and_status(error: OSError, spec: RankSpec) -> tuple[str, int]:
    reason, program = errors.reason(error), repr(spec.executable)
    if error.filename == spec.cwd and spec.cwd != spec.executable:
        return f"working directory {spec.cwd!r}: {reason}", errors.RUNNER_FAILED
    if isinstance(error, FileNotFoundError) and not os.path.exists(os.devnull):
        return f"{os.devnull!r} does not exist; mount /dev in the container", errors.RUNNER_FAILED
    if isinstance(error, FileNotFoundError):
        # The kernel reports a missing interpreter of a script as if the script were missing.
        if os.path.exists(os.path.join(spec.cwd, spec.executable)):
            reason = "the interpreter in its first line does not exist"
        return f"{program}: {reason}", errors.COMMAND_NOT_FOUND
    if error.errno == errno.ENOEXEC:
        hint = "a script must begin with #! and its interpreter; a binary must be built for this architecture"
        return f"{program}: {reason} ({hint})", errors.COMMAND_NOT_EXECUTABLE
    if isinstance(error, PermissionError):
        return f"{program}: {reason}", errors.COMMAND_NOT_EXECUTABLE
    return reason, errors.RUNNER_FAILED
