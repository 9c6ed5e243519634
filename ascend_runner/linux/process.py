"""How a rank's process is started, watched and ended on Linux.

Knows pids, groups, sessions and wait statuses. Knows no rank table, no settings and no policy: who is to be signalled,
and when, is decided in `supervision.machine`.
"""

from __future__ import annotations

import os

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple
from ascend_runner.plain_signal import SIGCONT, SIGPIPE, SIGTERM, SIGXFSZ
from ascend_runner.supervision.events import Ending

if TYPE_CHECKING:
    from ascend_runner.job.plan import RankSpec


SPARE_DESCRIPTORS: Final = 4  # a pidfd; a folder of /proc and a file in it; one more
IGNORED_BY_PYTHON: Final = (SIGPIPE, SIGXFSZ)  # no other program expects to find them ignored


class Usage(NamedTuple):
    """What a process took (getrusage(2)): its peak memory in bytes, and seconds of CPU time."""

    max_rss: int
    user_seconds: float
    system_seconds: float


class Leader:
    """The first process of a rank: leader of its own session and group, which carry its pid as their number."""

    def __init__(self, spec: RankSpec, output: int) -> None:
        """Start it, with stdin empty and both outputs on the fd `output`. Errors: OSError, with nothing started."""
        _refuse_the_last_descriptors(output)
        self.pid = _spawn(spec, output) if spec.cores is None else _spawn_on_cores(spec.cores, spec, output)

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
        _pid, _status, usage = os.wait4(self.pid, 0)
        return Usage(usage.ru_maxrss * 1024, usage.ru_utime, usage.ru_stime)


def _refuse_the_last_descriptors(any_fd: int) -> None:
    """See that enough are left to watch and end what runs, and to tell of it. Errors: OSError (EMFILE)."""
    spare: list[int] = []
    try:
        while len(spare) < SPARE_DESCRIPTORS:
            spare.append(os.dup(any_fd))
    finally:
        for fd in spare:
            os.close(fd)


def _spawn(spec: RankSpec, output: int) -> int:
    """Start the program of a rank in a session of its own; its pid. Errors: OSError.

    A session, so that a terminal's Ctrl-C does not reach ranks behind the runner's back. The runner's descriptors are
    closed on exec (PEP 446), those that it has inherited, too (`guardian.guard`). The C library's own signals, 32 and
    33, were seen to be ignored in who is started this way.
    """
    if not _is_here(spec.cwd):
        return _spawn_elsewhere(spec, output)
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
    ]
    try:
        return os.posix_spawn(
            spec.executable, spec.argv, spec.env, file_actions=files, setsid=True, setsigdef=IGNORED_BY_PYTHON
        )
    except NotImplementedError:  # this Python was built for a glibc before 2.26, as conda's were for long
        return _spawn_elsewhere(spec, output)


def _spawn_on_cores(cores: frozenset[int], spec: RankSpec, output: int) -> int:
    """Start it where it is to run on certain cores.

    A child inherits the mask of the thread that starts it. Setting the child's own afterwards would come too late for
    the threads that it has by then.
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
        return False  # whoever starts something there says why not


def _spawn_elsewhere(spec: RankSpec, output: int) -> int:
    """Start it in a folder that is not the runner's own, which never moves."""
    import subprocess  # 6 ms of a start-up of 35

    # Never preexec_fn: it turns vfork into fork, 20 ms instead of 0.6 ms under a large heap.
    popen = subprocess.Popen(
        spec.argv,
        executable=spec.executable,
        env=spec.env,
        cwd=spec.cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    popen.returncode = 0  # or subprocess would reap the process, which is for us to do
    return popen.pid
