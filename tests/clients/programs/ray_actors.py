"""Starts an actor on each NPU of a Ray cluster, lets something happen to the cluster, and calls the actors again.

ray_actors.py            prints where the actors are, and ends
ray_actors.py raise      one of them raises an exception
ray_actors.py WHAT NODE  kills the gcs_server, raylet, actor, command or runner of a node, or stops its runner (stop,
                         interrupt)
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import ray


class Actor:
    """Has an NPU."""

    def where(self) -> tuple[str, str, int]:
        """Return the address of its node, its NPU and its pid."""
        context = ray.get_runtime_context()
        return ray.util.get_node_ip_address(), context.get_accelerator_ids()["NPU"][0], os.getpid()

    def fail(self) -> None:
        """Raise an exception."""
        raise ValueError("loss is nan at step 17")


def happen(what: str, node: str, actors: dict[str, int]) -> None:
    """Send a signal to a process of a node."""
    pid = {"command": os.getpid(), "actor": actors[node]}.get(what) or find(what, node)
    os.kill(pid, {"stop": signal.SIGTERM, "interrupt": signal.SIGINT}.get(what, signal.SIGKILL))


def find(what: str, node: str) -> int:
    """Return the pid of the GCS, or of the raylet or the runner of a node: relatives of the raylet of this cluster."""
    words = {f"--gcs-address={os.environ['RAY_ADDRESS']}", f"--node_ip_address={node}"}
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    raylet = next(pid for pid in pids if name_of(pid) == "raylet" and words <= set(read(pid, "cmdline").split("\0")))
    starter = parent_of(raylet)
    if what == "gcs_server":
        return next(pid for pid in pids if name_of(pid) == what and parent_of(pid) == starter)
    return raylet if what == "raylet" else parent_of(parent_of(starter))


def read(pid: int, name: str) -> str:
    """Return a file of a process, "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


def name_of(pid: int) -> str:
    """Return the name of a process."""
    return read(pid, "comm").strip()


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(read(pid, "stat").rpartition(")")[2].split()[1])


ray.init()
remote = ray.remote(resources={"NPU": 1}, num_cpus=0, scheduling_strategy="SPREAD")(Actor)
actors = [remote.remote() for _ in range(int(ray.cluster_resources()["NPU"]))]
places = sorted(ray.get([actor.where.remote() for actor in actors]))
for address, npu, _pid in places:
    print(f"actor on {address} with NPU {npu}", flush=True)
if sys.argv[1:] == ["raise"]:
    ray.get(actors[-1].fail.remote())
if sys.argv[2:]:
    happen(sys.argv[1], sys.argv[2], {address: pid for address, _npu, pid in places})
while sys.argv[2:]:
    ray.get([actor.where.remote() for actor in actors])
    time.sleep(0.1)
print("the command has ended", flush=True)
