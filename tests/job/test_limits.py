"""Findings about room, limits and the grace period, from trees of files and from real ones."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from ascend_runner.job import check
from ascend_runner.link.meeting import SECRET
from ascend_runner.node import probes
from ascend_runner.node.findings import Defect, Place
from ascend_runner.node.probes import GIB
from ascend_runner.plan.spec import LinkPlan
from ascend_runner.platforms.node import Node
from ascend_runner.settings.model import Settings
from tests.helpers.trees import tree
from tests.helpers.waiting import LIMIT
from tests.job.contexts import context, in_context, job_of, look_at, prepared, remedies

# --- Room -------------------------------------------------------------------------------------------------------------


def test_room(tmp_path: Path) -> None:
    """A directory that does not exist yet is measured where it would be made."""
    given = in_context(context(nproc=1), settings=Settings(log_dir=str(tmp_path / "not" / "yet")))
    verdicts = [verdict for verdict, _ in look_at("space", given)]

    assert "error" not in verdicts
    assert not (tmp_path / "not").exists()


def test_no_room_on_a_full_disk() -> None:
    """Before a start 1 GiB is needed, however small the file system is: a full one is an error."""
    place = Place(name="log directory", path="/x", remedy="use another")
    found = [probes.of_space(place, free, 2 * GIB, is_running=False) for free in (2 * GIB, 900 << 20, 1 << 20)]

    assert [
        [],
        [("log directory /x: only 900.0 MiB of 2.0 GiB free", False, "use another")],
        [("log directory /x: only 1.0 MiB of 2.0 GiB free", True, "use another")],
    ] == [[(one.sentence, one.is_error, one.remedy) for one in defects] for defects in found]
    assert ["log directory /x: only 3 of 6,000 inodes free"] == [
        one.sentence for one in probes.of_inodes(place, 3, 6000)
    ]


UNPRIVILEGED = """
import os
from ascend_runner.settings.model import Settings
from tests.job.contexts import context, in_context, look_at
if os.geteuid() == 0:
    os.setuid(65534)
given = in_context(context("/", nproc=1), settings=Settings(log_dir="/proc/not/yet"))
for verdict, sentence in look_at("space", given):
    print(verdict, sentence)
"""


def test_no_permission() -> None:
    """A directory that this user may not write to is an error; root drops its privileges to see one."""
    command = [sys.executable, "-c", UNPRIVILEGED]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT).stdout
    user = os.geteuid() or 65534

    wanted = f"error log directory /proc/not/yet: user {user} has no permission to write to /proc"
    assert wanted in printed.splitlines()


# --- Limits -----------------------------------------------------------------------------------------------------------

LIMITED = """
import resource, sys
from tests.job.contexts import context, look_at
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
for _verdict, sentence in look_at("limits", context(sys.argv[1])):
    print(sentence)
"""


@pytest.mark.parametrize(("capabilities", "is_limited"), [("00000000a80425fb", True), ("00000000a80465fb", False)])
def test_limits_of_a_real_process(tmp_path: Path, capabilities: str, *, is_limited: bool) -> None:
    """Limits are compared with what training needs; CAP_IPC_LOCK lifts the first."""
    root = tree(tmp_path, {"proc/self/status": f"Name:\tpython\nCapEff:\t{capabilities}\n"})
    printed = subprocess.run(
        [sys.executable, "-c", LIMITED, root], capture_output=True, text=True, check=True, timeout=LIMIT
    ).stdout.splitlines()
    memory = "locked memory: 64 KiB, less than 16000 (RDMA and HCCL lock host memory)"
    files = "open files: 1024, less than 4096 (data loaders open many files)"

    assert [memory, files] == printed[:2] if is_limited else [files] == printed[:1]
    assert is_limited or "locked memory unlimited (CAP_IPC_LOCK)" in printed[-1]


@pytest.mark.parametrize(
    ("soft", "expected"),
    [(resource.RLIM_INFINITY, "unlimited"), (16_000 << 10, "16000 KiB"), ((16_000 << 10) - 1, None)],
)
def test_limit_is_enough_from_its_threshold_on(soft: int, expected: str | None) -> None:
    """Exactly the expected value is enough, and so is no limit."""
    finding = probes.of_limit(probes.LIMITS[0], soft)

    assert f"locked memory {expected}" == finding if expected else isinstance(finding, Defect)


# --- The grace period -------------------------------------------------------------------------------------------------

VOLCANO = {"VC_TASK_INDEX": "0", "VC_WORKER_HOSTS": "a,b"}
SLURM = {"SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0"}
MPI = {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}


@pytest.mark.parametrize(
    ("environ", "grace", "expected"),
    [
        ({}, 600.0, ("ok", "600 s")),
        (MPI, 600.0, ("ok", "600 s")),
        (VOLCANO, 25.0, ("ok", "25 s, less than the 30 s that Kubernetes allows by default")),
        (VOLCANO, 26.0, ("warning", "--grace is 26 s, but by default Kubernetes kills all processes after 30 s")),
        ({**MPI, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, 60.0, None),
        (SLURM, 60.0, ("warning", "--grace is 60 s, but by default Slurm kills all processes after 30 s")),
    ],
)
def test_grace(environ: dict[str, str], grace: float, expected: tuple[str, str] | None) -> None:
    """The grace period and the sweep after it must fit into the time that the platform allows."""
    given = in_context(context("/", environ), settings=Settings(grace=grace))
    wanted = expected or ("warning", "--grace is 60 s, but by default Kubernetes kills all processes after 30 s")

    assert [wanted] == look_at("grace", given)


@pytest.mark.parametrize(
    ("rank_size", "grace", "is_short"), [(4, 15.0, True), (4, 44.0, True), (4, 45.0, False), (2, 15.0, False)]
)
def test_grace_that_is_too_short_for_a_report(rank_size: int, grace: float, *, is_short: bool) -> None:
    """On several nodes a note says which grace period leaves HCCL the time to report where a connection was lost."""
    given = context("/", nproc=2)
    plan = attrs.evolve(job_of(range(2)), rank_size=rank_size)
    found = look_at("grace", in_context(prepared(given, plan=plan), settings=Settings(nproc_per_node=2, grace=grace)))

    assert ["ok"] == [verdict for verdict, _sentence in found]
    assert is_short is found[0][1].endswith("use --grace 45)")


def test_grace_says_what_to_set() -> None:
    """The remedy names the platform's setting and the option."""
    given = in_context(context("/", SLURM), settings=Settings(grace=60.0))

    assert ["set KillWait to 65 or more, or --grace to 25 or less"] == remedies("grace", given)


# --- The link ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "environ", "expected"),
    [
        (None, {}, "none (--link off): a failure on another node does not stop this one"),
        (None, {"X": ""}, "none (the address of node 0 is unknown): a failure on another node does not stop this one"),
        (1, {}, "node 1 of 2 will look for node 0 at worker-0, one of the ports 17000-17007; " + check.DERIVED_KEY),
        (0, {SECRET: "x" * 16}, "node 0 of 2 will listen on one of the ports 17000-17007; the key is a secret"),
    ],
)
def test_link(node: int | None, environ: dict[str, str], expected: str) -> None:
    """The link to the other nodes, or what it means that there is none."""
    plan = attrs.evolve(job_of(range(2)), nodes=(2, 0))
    if node is not None:
        planned = LinkPlan(node=node, nodes=2, key=b"", hubs=("worker-0",), ports=tuple(range(17000, 17008)))
        plan = attrs.evolve(plan, link=planned)
    given = prepared(context("/", environ, nproc=2), plan=plan, node=Node(nnodes=2))
    settings = Settings(link="auto" if environ else "off")

    assert [("ok", expected)] == look_at("link", in_context(given, settings=settings))
