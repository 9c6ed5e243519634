"""The signals that guardian and runner handle, and their copies. Imported by the guardian: keep imports light."""

from __future__ import annotations

import signal
import time
from signal import SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGURG, SIGUSR1, SIGUSR2
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

STOP_SIGNALS = frozenset({SIGTERM, SIGINT, SIGHUP, SIGQUIT})
IMPATIENT_SIGNALS = frozenset({SIGTERM, SIGINT})  # the second stop signal means "now" if it is one of these
FORWARDED = STOP_SIGNALS | {SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}  # by the guardian, to the runner
WATCHED = FORWARDED | {SIGCHLD}
QUESTION = SIGURG  # from the guardian to the runner: whether its main thread responds; ignored by default
# Ignored at the start, these stay ignored: nohup(1), and `ascend-runner &` in a script without job control.
MAY_BE_IGNORED = frozenset({SIGHUP, SIGINT, SIGQUIT})

# pkill(1), systemd and Slurm signal guardian and runner alike, timeout(1) its child and the group, and a runner under
# another one gets its copies from both. Counted as two, they would mean SIGKILL now and cost the ranks their grace.
ONE_SIGNAL = 0.2  # seconds in which equal stop signals count as one, whatever their sender


def ignored() -> frozenset[int]:
    """Return the signals that were ignored when this process was started and that stay so."""
    return frozenset(signum for signum in MAY_BE_IGNORED if signal.getsignal(signum) is signal.SIG_IGN)


class Copies:
    """Distinguishes a stop signal from copies of it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._received: dict[int, float] = {}  # when

    def has(self, signum: int) -> bool:
        """Whether a signal that arrives now is a copy of an earlier one."""
        now = self._now()
        if signum in STOP_SIGNALS and now - self._received.get(signum, -ONE_SIGNAL) < ONE_SIGNAL:
            return True
        self._received[signum] = now
        return False
