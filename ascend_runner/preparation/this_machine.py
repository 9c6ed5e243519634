"""The machine that a plan is for: cores and NPUs of the ranks, a free port, the terminal, and what is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from ascend_runner.frameworks import hccl
from ascend_runner.guardian import process_tree
from ascend_runner.host import cores, executables, npu, terminal
from ascend_runner.host.host import Host
from ascend_runner.output.messages import Messages
from ascend_runner.plan.context import PlanContext
from ascend_runner.plan.job import JobSpec, with_cores, with_devices
from ascend_runner.plan.this_node import NodeShare
from ascend_runner.platforms import detect
from ascend_runner.platforms.node import FREE_PORT
from ascend_runner.report import holding

NAMESPACE_FILE: Final = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"  # exists in any pod


def placed(job: JobSpec, context: PlanContext, say: Callable[[str], None]) -> JobSpec:
    """Return the plan with the NPU of each rank, as far as that is known, and the cores that --bind requests for it."""
    host, nproc = Host(), len(job.ranks)
    devices = npu.of_ranks(host, nproc, hccl.visible_devices(context.environ))
    job = with_devices(job, devices)
    if not context.settings.bind:
        return job
    placement = cores.place(host, context.settings.bind, nproc, devices)
    if not placement.is_near:
        say("--bind divides the cores evenly: the NUMA node of each NPU is unknown")
    return with_cores(job, placement.cores)


def device_ids(spec: JobSpec, environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return the NPUs of this node that a job uses, as far as they exist."""
    host, visible = Host(), hccl.visible_devices(environ)
    return npu.of_ranks(host, len(spec.ranks), visible) if spec.ranks else npu.devices(host)


def choose_port(share: NodeShare, context: PlanContext, say: Callable[[str], None]) -> NodeShare:
    """Choose the port of a job on a single node if neither the user nor the platform has."""
    node = share.node
    if node.nnodes > 1 or "master_port" in node.sources:
        return share
    port = context.hold_port(node.master_port)
    if port == node.master_port:
        return share

    say(f"port {node.master_port} is in use; using port {port} instead")
    sources = {**node.sources, "master_port": FREE_PORT}
    return attrs.evolve(share, node=attrs.evolve(node, master_port=port, sources=sources))


def await_release(
    spec: JobSpec, environ: Mapping[str, str], pause: Callable[[float], None], messages: Messages
) -> None:
    """Wait until no process has the NPUs of a job open."""
    holders = npu.await_release(Host(), device_ids(spec, environ), pause)
    if holders:
        messages.warning(holding.held_devices(holders))


def note_what_is_missing(spec: JobSpec, messages: Messages) -> None:
    """Report facilities that this system or installation lacks for the job."""
    search_path = spec.processes[0].env.get("PATH", os.defpath)
    if spec.hang_timeout is not None and not executables.find_py_spy(search_path):
        messages.info(f"{executables.NO_PY_SPY}: stacks of a hang will show kernel frames instead of Python frames")
    if not process_tree.is_proc_ours():
        messages.warning(
            "/proc is missing or belongs to another PID namespace: stop signals go to whole process groups instead of"
            " to the processes that handle them, and SIGUSR1 and SIGUSR2 are not forwarded (mount /proc, or use"
            " unshare --mount-proc)"
        )


def way_in(spec: JobSpec, environ: Mapping[str, str]) -> str:
    """Return the command that opens a shell where this runner runs, "" if it is unknown."""
    namespace = Host().read_text(NAMESPACE_FILE).strip()
    return detect.way_in(environ, spec.pod_name, os.uname().nodename, namespace)


def without_stolen_stdin(job: JobSpec, warn: Callable[[str], None]) -> JobSpec:
    """Return the plan without a rank that would take the terminal's input from what runs in the foreground."""
    readers = [process for process in job.processes if process.has_stdin]
    if not readers or not terminal.is_in_background(os.getpgid(os.getppid())):
        return job
    warn("--stdin is ignored because the job runs in the background")
    return attrs.evolve(
        job,
        ranks=tuple(attrs.evolve(rank, has_stdin=False) for rank in job.ranks),
        beside=tuple(attrs.evolve(process, has_stdin=False) for process in job.beside),
    )
