"""How a rank's process is started, watched and ended on Linux.

Knows pids, groups, sessions and wait statuses. Knows no rank table, no settings and no policy: who is to be signalled,
and when, is decided in `supervision.machine`.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from signal import SIGCONT, SIGTERM

from ascend_runner.annotations import TYPE_CHECKING, NamedTuple
from ascend_runner.supervision.events import Ending

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ascend_runner.job.plan import RankSpec


class Usage(NamedTuple):
    """What a process took (getrusage(2)): its peak memory in bytes, and seconds of CPU time."""

    max_rss: int
    user_seconds: float
    system_seconds: float


class Leader:
    """The first process of a rank: leader of its own session and group, which carry its pid as their number."""

    def __init__(self, spec: RankSpec, output: int) -> None:
        """Start it, with stdin empty and both outputs on the fd `output`. Errors: OSError, with nothing started."""
        # Sessions of their own, so that a terminal's Ctrl-C does not reach ranks behind the runner's back. Never
        # preexec_fn: it turns vfork into fork, 20 ms instead of 0.6 ms under a large heap.
        with _on_cores(spec.cores):
            self._popen = subprocess.Popen(
                spec.argv,
                executable=spec.executable,
                env=spec.env,
                cwd=spec.cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.pid = self._popen.pid

    def peek(self) -> Ending | None:
        """Tell how it ended, None while it lives, without reaping it.

        Look, don't reap: while the leader stays a zombie its number cannot be given to a stranger, so signalling its
        group is safe (waitid(2), WNOWAIT). Reaping in a SIGCHLD handler, as most launchers do, opens that race.
        """
        seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if seen is None:
            return None
        if seen.si_code == os.CLD_EXITED:
            return Ending(exit_code=seen.si_status)

        return Ending(signum=seen.si_status, core_dumped=seen.si_code == os.CLD_DUMPED)

    def signal_group(self, signum: int) -> None:
        """Send `signum` to its process group; with SIGTERM comes SIGCONT, for a stopped process cannot act on it."""
        try:
            os.killpg(self.pid, signum)
            if signum == SIGTERM:
                os.killpg(self.pid, SIGCONT)
        except (ProcessLookupError, PermissionError):
            return  # nobody left whom we may signal

    def reap(self) -> Usage:
        """Give the number back; what the process, and all that it had waited for, took. It must have ended."""
        _pid, status, usage = os.wait4(self.pid, 0)
        self._popen.returncode = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        return Usage(usage.ru_maxrss * 1024, usage.ru_utime, usage.ru_stime)


@contextmanager
def _on_cores(cores: frozenset[int] | None) -> Iterator[None]:
    """Let what is started meanwhile have these cores; None: those of the runner.

    A child inherits the mask of the thread that starts it. Setting the child's own afterwards would come too late for
    the threads that it has by then.
    """
    if cores is None:
        yield
        return

    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)
