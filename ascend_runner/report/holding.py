"""The sentences about a job that has failed and is held, so that somebody can look at its node. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime

from ascend_runner.lifecycle.machine import Event, Job
from ascend_runner.plan.job import JobSpec
from ascend_runner.supervision.events import signal_name
from ascend_runner.text import duration


def held(spec: JobSpec, job: Job, until: float, *, way_in: str, pid: int) -> str:
    """Say until when a job is held (in seconds since the epoch), and how to enter and to release it.

    `pid` is the process to signal. The lines belong below those about the failure.
    """
    end = datetime.fromtimestamp(until).astimezone().isoformat(sep=" ", timespec="seconds")
    lines = [f"  held   until {end} ({duration(job.delay)}), then exit status {_status(job)}"]
    lines += [f"  enter  {way_in}"] if way_in else []
    lines += [f"  release with ascend-job release {shlex.quote(spec.job_id)}, or kill {pid}"]
    return "\n" + "\n".join(lines)


def released(event: Event, job: Job) -> str:
    """Say what has ended the hold."""
    why = f" by {signal_name(event.signum)}" if event.signum else f": {event.sentence}"
    return f"released{why}; exit status {_status(job)}"


def lingering(job: Job) -> str:
    """Say how long a node stays that has only lost another one. The line belongs below those about the failure."""
    return (
        f"\n  waiting {duration(job.delay)} so that the node that caused the failure exits first (--linger), or until a"
        f" stop signal; then exit status {_status(job)}"
    )


def _status(job: Job) -> int | None:
    return job.status if job.exit_verdict is None else job.exit_verdict


def not_held() -> str:
    """Say that a job with --hold is not held, because it failed for a reason that is not on this node."""
    return "not held (--hold): the cause is probably on another node"


def way_in(spec: JobSpec, environ: Mapping[str, str], host_name: str, namespace: str) -> str:
    """Return the command that opens a shell where the runner runs; "" if that is not known.

    `namespace` is that of the pod, "" outside Kubernetes.
    """
    if environ.get("SLURM_JOB_ID"):
        node = environ.get("SLURMD_NODENAME") or host_name
        return f"srun --jobid={environ['SLURM_JOB_ID']} --nodelist={shlex.quote(node)} --overlap --pty bash"
    if environ.get("MA_JOB_DIR") or environ.get("MA_VJ_NAME"):
        return f"Cloud Shell of the training job in the ModelArts console, instance {spec.pod_name or host_name}"
    if environ.get("KUBERNETES_SERVICE_HOST"):
        of = f"--namespace {shlex.quote(namespace)} " if namespace else ""
        return f"kubectl exec -it {of}{shlex.quote(spec.pod_name or host_name)} -- bash"
    return ""
