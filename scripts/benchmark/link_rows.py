"""The rows about linked nodes: how soon a failure on one stops or restarts all, and what an idle link costs.

The nodes are network namespaces of this machine, which need root, for the program and its peers alike.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from ascend_runner.guardian import process_tree
from ascend_runner.node.namespaces import Namespaces
from benchmark import measure
from benchmark.launchers import PROGRAM
from benchmark.measure import folder
from benchmark.rows import HERE
from benchmark.table import Row, megabytes, percent, seconds

RANKS: Final = 2  # on each node
RUNS: Final = 11
PEERS_RUNS: Final = 3  # torchrun takes seconds to start
SIZES: Final = (2, 4, 8)  # nodes
GIVE_UP: Final = 10.0  # seconds after a death, in which a peer's other node may not learn of it at all
SETTLED: Final = 5.0  # seconds until everything is idle
IDLE_SECONDS: Final = 30.0
LINK: Final = b"ascend_runner.link"  # in the command line of a link process
RESTARTING: Final = """
date +%s%N >"$(mktemp "$0/started-XXXXXX")"  # torchrun would replace a pid by its own
[ "$RANK" = 0 ] && mkdir "$0/died" 2>&- || exec sleep 1000
while [ "$(ls "$0" | grep -c started-)" -lt "$1" ]; do sleep 0.05; done
sleep 1
date +%s%N >"$0/died/at"
exit 7
"""


class Nodes:
    """Some nodes that reach each other at their addresses."""

    def __init__(self, number: int, path: str) -> None:
        self.addresses = [f"10.99.0.{node + 1}" for node in range(number)]
        self.path, self.agent = path, f"{path}/agent"
        self._resources = contextlib.ExitStack()
        self._namespaces = Namespaces(self.addresses)

    def __enter__(self) -> Nodes:
        self._resources.callback(self._namespaces.close)
        self._namespaces.open()
        cases = []
        for node, address in enumerate(self.addresses):
            enter = f"nsenter --net=/proc/{self.start(node, ['sleep', '1000']).pid}/ns/net unshare --uts"
            cases.append(f'{address}) set -- {enter} sh -c "hostname node-{node}; exec $*" ;;')
        text = '#!/bin/sh\nhost=$1\nshift\ncase $host in\n{}\nesac\nexec "$@"\n'.format("\n".join(cases))
        measure.write(self.agent, text.encode())
        os.chmod(self.agent, 0o700)
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def start(self, node: int, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a program on a node; it is terminated when this closes."""
        with self._namespaces.inside(node):
            return self._resources.enter_context(measure.started(command))

    def start_all(self, contestant: Contestant, *worker: str, restarts: int = 0) -> list[subprocess.Popen[bytes]]:
        """Start a launcher on each node that needs one."""
        return [self.start(node, [*words, *worker]) for node, words in enumerate(contestant(self, restarts))]


# From nodes and a number of restarts to a command line for each node that needs one, up to the command of the ranks.
Contestant = Callable[[Nodes, int], "list[list[str]]"]


def _ours(nodes: Nodes, restarts: int, link: Sequence[str] = ("--link", "require")) -> list[list[str]]:
    number, place = len(nodes.addresses), ("--master-addr", nodes.addresses[0], *link)
    job = (*place, "--job-name", "bench", "--max-restarts", str(restarts))
    each = (PROGRAM, "--nproc-per-node", str(RANKS), "--nnodes", str(number), *job)
    return [[*each, "--node-rank", str(node), "--log-dir", f"{nodes.path}/log-{node}"] for node in range(number)]


def _torchrun(nodes: Nodes, restarts: int) -> list[list[str]]:
    meeting = ("--rdzv-backend=c10d", f"--rdzv-endpoint={nodes.addresses[0]}:29400", "--rdzv-id=bench", "--no-python")
    job = (*meeting, f"--nnodes={len(nodes.addresses)}", f"--nproc-per-node={RANKS}", f"--max-restarts={restarts}")
    # It would look for the host by names, which these nodes do not have.
    places = [
        (f"--local-addr={address}", f"--rdzv-conf=is_host={not node:d}") for node, address in enumerate(nodes.addresses)
    ]
    return [["torchrun", *job, *place] for place in places]


def _mpirun(nodes: Nodes, _restarts: int) -> list[list[str]]:
    network = ("--mca", "oob_tcp_if_include", "10.99.0.0/24", "--mca", "plm_rsh_agent", nodes.agent)
    hosts = ",".join(f"{address}:{RANKS}" for address in nodes.addresses)
    return [["mpirun", "--allow-run-as-root", *network, "--host", hosts]]


OURS: Final = "ascend-runner"
PEERS: Final[dict[str, Contestant]] = {"mpirun": _mpirun, "torchrun": _torchrun}


def linked_stop() -> Iterator[Row]:
    """Time the teardown of 2, 4 and 8 linked nodes when the first rank exits with 7, or the last one."""
    for number in SIZES:
        # torchrun's other nodes notice the death of the first one, where their store is, and no other one.
        peers = ("mpirun", "torchrun") if number == SIZES[0] else ("mpirun",)
        for dying in (0, number * RANKS - 1) if number == SIZES[0] else (0,):
            told, later, gone = _medians(functools.partial(_stop, number, dying), peers)
            what = f"{number} nodes x {RANKS}, rank {dying} exits 7: to the last SIGTERM"
            yield from _compared(what, told, reach=0.1)
            yield Row("  the last node after the one that failed", later[OURS], seconds, reach=0.02)
            yield from _compared("  from the death to all launchers gone", gone)


def linked_restart() -> Iterator[Row]:
    """Time a restart in place of 2 and 4 linked nodes, from a death to the first line of the last rank."""
    for number in SIZES[:2]:
        (taken,) = _medians(functools.partial(_restart, number), ("torchrun",))
        yield from _compared(f"{number} nodes x {RANKS}, rank 0 exits 7: to the last rank restarted", taken, reach=0.15)


def linked_idle() -> Iterator[Row]:
    """Measure CPU and memory of the launchers of two nodes whose ranks sleep; the program with and without a link."""
    found = {OURS: _idle(_ours), "unlinked": _idle(functools.partial(_ours, link=("--link", "off")))}
    found.update({name: _idle(peer) for name, peer in PEERS.items() if shutil.which(name)})
    hub, spoke = found[OURS]
    alone, _other = found["unlinked"]
    yield Row(f"2 idle nodes x {RANKS}: CPU of the hub's node", hub.cpu, percent, "unlinked", alone.cpu, 0.001)
    yield Row("  CPU of the other node", spoke.cpu, percent, "unlinked", alone.cpu, 0.001)
    yield from _compared("  CPU of both", {name: sum(node.cpu for node in found[name]) for name in found}, show=percent)
    yield Row("  memory (PSS) of the hub's link process", hub.link, megabytes, reach=25e6)
    yield Row("  memory of the other link process", spoke.link, megabytes, reach=25e6)
    rest, limit = hub.memory - hub.link, alone.memory + 1e6
    yield Row("  memory of the hub's node without it", rest, megabytes, "unlinked", alone.memory, limit)
    memory = {name: sum(node.memory for node in found[name]) for name in found}
    yield from _compared("  memory of both", memory, show=megabytes)


def _medians(sample: Callable[[Contestant], Sequence[float]], peers: Sequence[str]) -> list[dict[str, float]]:
    """Measure the program, and those of these peers that are installed, in turns; return the medians of each figure."""
    found: dict[str, list[Sequence[float]]] = {}

    def run(name: str, contestant: Contestant) -> float:
        found.setdefault(name, []).append(sample(contestant))
        return 0.0

    installed = {name: (PEERS_RUNS, PEERS[name]) for name in peers if shutil.which(name)}
    contestants = {OURS: (RUNS, _ours), **installed}
    measure.alternate({name: (runs, functools.partial(run, name, one)) for name, (runs, one) in contestants.items()})
    figures = len(found[OURS][0])
    return [{name: statistics.median(one[part] for one in found[name]) for name in found} for part in range(figures)]


def _compared(
    what: str, found: Mapping[str, float], *, reach: float | None = None, show: Callable[[float], str] = seconds
) -> Iterator[Row]:
    """Give a row for each contestant that the program is compared with."""
    for peer in (name for name in found if name != OURS):
        yield Row(what, found[OURS], show, peer, found[peer], reach, is_ratio=reach is not None)
        what = ""


def _stop(number: int, dying: int, contestant: Contestant) -> tuple[float, float, float]:
    """Return the time from a death to the last SIGTERM, how much later the last node was, and to the last exit."""
    with folder() as path, Nodes(number, path) as nodes:
        ranks = number * RANKS
        worker = (sys.executable, "-S", f"{HERE}/workers/death.py", path, "1", str(ranks), str(dying))
        running = nodes.start_all(contestant, *worker)

        def is_over() -> bool:
            too_late = _stamp(path, f"died-{dying}") + GIVE_UP < time.monotonic()
            return too_late or all(popen.poll() is not None for popen in running)

        over = _await(is_over)
        gone = over if all(popen.poll() is not None for popen in running) else math.inf
        died, told = _stamp(path, f"died-{dying}"), [_stamp(path, f"told-{rank}") for rank in range(ranks)]
    firsts = [min(told[first : first + RANKS]) for first in range(0, ranks, RANKS)]
    told.pop(dying)
    return max(told) - died, max(firsts) - firsts[dying // RANKS], gone - died


def _restart(number: int, contestant: Contestant) -> tuple[float]:
    """Return the time from the death of a rank to the start of the last one of the next attempt."""
    with folder() as path, Nodes(number, path) as nodes:
        ranks = number * RANKS
        nodes.start_all(contestant, "sh", "-c", RESTARTING, path, str(ranks), restarts=1)
        names: list[str] = []

        def is_over() -> bool:
            names[:] = [name for name in os.listdir(path) if name.startswith("started-")]
            return len(names) == 2 * ranks and all(map(Path.read_bytes, (Path(path, name) for name in names)))

        _await(is_over)
        return (max(_stamp(path, name) for name in names) - _stamp(path, "died/at"),)


@attrs.frozen
class Node:
    """What the launcher's processes on a node use: `link` is the memory of the link process, part of `memory`."""

    cpu: float  # part of a core
    memory: int  # bytes
    link: int


def _idle(contestant: Contestant) -> list[Node]:
    """Return what each command line of a launcher uses while its ranks sleep."""
    with folder() as path, Nodes(SIZES[0], path) as nodes:
        running = nodes.start_all(contestant, "sleep", "1000")

        def is_over() -> bool:
            found = [one for popen in running for one in process_tree.descendants(popen.pid)]
            return sum(one.name == "sleep" for one in found) == SIZES[0] * RANKS

        _await(is_over)
        time.sleep(SETTLED)
        trees = [
            [popen.pid, *(one.pid for one in process_tree.descendants(popen.pid) if one.name != "sleep")]
            for popen in running
        ]
        before = [sum(map(measure.process_seconds, tree)) for tree in trees]
        time.sleep(IDLE_SECONDS)
        after = [sum(map(measure.process_seconds, tree)) for tree in trees]
        return [
            Node(
                (end - start) / IDLE_SECONDS,
                sum(map(measure.pss, tree)),
                sum(measure.pss(pid) for pid in tree if LINK in measure.read(f"/proc/{pid}/cmdline")),
            )
            for start, end, tree in zip(before, after, trees)
        ]


def _await(is_over: Callable[[], bool]) -> float:
    """Wait until something has happened, and return the time."""
    deadline = time.monotonic() + measure.LIMIT
    while not is_over():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not over after {measure.LIMIT:g} s")
        time.sleep(0.002)
    return time.monotonic()


def _stamp(path: str, name: str) -> float:
    """Return the time in seconds that a rank has written to a file, infinity if it has not."""
    with contextlib.suppress(FileNotFoundError):
        return int(measure.read(f"{path}/{name}") or 0) / 1e9 or math.inf
    return math.inf


ROWS: Final = (linked_stop, linked_restart, linked_idle)
