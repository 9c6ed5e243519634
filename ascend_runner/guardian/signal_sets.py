"""The signals that guardian and runner handle. Imported by the guardian, so only `signal` is imported here."""

from __future__ import annotations

from signal import SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2

STOP_SIGNALS = frozenset({SIGTERM, SIGINT, SIGHUP, SIGQUIT})
FORWARDED = STOP_SIGNALS | {SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}  # from the guardian to the runner
WATCHED = FORWARDED | {SIGCHLD}
