"""The sentences after a failed attempt: about the next one, or a hold of the node, or neither. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from signal import SIGKILL
from typing import Final

from ascend_runner.errors import RETRY_MAY_HELP
from ascend_runner.lifecycle import cloud_events
from ascend_runner.lifecycle.job_machine import Event, Job, Verdict
from ascend_runner.plan.spec import JobSpec
from ascend_runner.text import clock, counted, duration, signal_name

NOT_HELD: Final = "not held (--hold): the cause is probably on another node"


def held(spec: JobSpec, job: Job, until: float, *, way_in: str, pid: int) -> str:
    """Return the lines on how long a job is held, and how to enter and release it.

    `until` is in seconds since the epoch, `pid` the process to signal. The lines belong below those about the failure.
    """
    lines = [f"  held   until {clock(until)} ({duration(job.delay)}), then exit status {_status(job)}"]
    lines += [f"  enter  {way_in}"] if way_in else []
    lines += [f"  release with ascend-job release {shlex.quote(spec.job_id)}, or kill {pid}"]
    return "\n" + "\n".join(lines)


def released(event: Event, job: Job) -> str:
    """Return the sentence on what ended the hold, with the exit status that whoever started the job sees."""
    status = f"{128 + SIGKILL} instead of {_status(job)}" if event.signum == SIGKILL else f"{_status(job)}"
    return f"{cloud_events.released(event.signum, is_orphaned=event.is_orphaned)}; exit status {status}"


def lingering(job: Job) -> str:
    """Return the line on how long a node that only lost another one stays, to show below those about the failure."""
    return (
        f"\n  waiting {duration(job.delay)} so that the node that caused the failure exits first (--linger), or until a"
        f" stop signal; then exit status {_status(job)}"
    )


def _status(job: Job) -> int | None:
    return job.status if job.exit_verdict is None else job.exit_verdict


def attempt_failed(event: Event, job: Job) -> str:
    """Describe a failed attempt and what follows: "rank 3 failed: ...; restarting in 10 s (restart 1 of 3)"."""
    delay = f" in {duration(job.delay)}" if job.delay else ""
    if job.verdict is Verdict.NO_TIME:
        return f"{event.sentence}; not restarting because the time limit would end the job before a restart{delay}"
    if job.verdict is not Verdict.RESTART:
        return f"{event.sentence}; not restarting because of {signal_name(event.signum)}"
    return f"{event.sentence}; restarting{delay} (restart {job.attempt + 1} of at most {job.policy.max_restarts})"


def attempts(job: Job) -> str:
    """Describe the attempts of a job, why it is not restarted, and the exit verdict; "" if neither was requested."""
    lines = ""
    if job.policy.max_restarts and (job.attempt or job.verdict):
        lines = f"\n  tries  {counted(job.attempt + 1, 'attempt')}"
    if job.policy.max_restarts and job.verdict:
        why = cloud_events.why_no_restart(job.verdict, job.fingerprint, is_by_status=job.status in job.policy.never)
        same = _same_failures(job.same_failures, job.attempt + 1)
        lines += f"{same}{why and f'; no restart: {why}'}"
    if job.exit_verdict is None:
        return lines
    hope = "may help" if job.exit_verdict == RETRY_MAY_HELP else "will not help"
    return f"{lines}\n  exit   {job.exit_verdict} instead of {job.status}: a retry {hope} (--exit-verdict)"


def _same_failures(same: int, attempts: int) -> str:
    """Return how many of the last attempts have failed in the same way, "" if it is only the last one."""
    if same < 2:  # noqa: PLR2004
        return ""
    if same < attempts:
        return f", the last {same} with the same failure"
    return f", {'both' if attempts == 2 else 'all'} with the same failure"  # noqa: PLR2004


def held_devices(pids: Collection[int]) -> str:
    """Return the warning about NPUs that are still in use at the start of an attempt."""
    verb = "process" if len(pids) == 1 else "processes"
    return f"starting although NPUs of this job are still in use, by {verb} {', '.join(map(str, pids))}"
