"""Play random schedules of faults on jobs of 2 to 5 simulated, linked nodes with 2 ranks each, and check the promises.

Trouble of the link alone stops nobody: every rank runs to its end, and every runner ends with 0. Nodes that are linked
when the first rank fails show one cause and end with one status. No two attempts have ranks alive at once, every wait
is bounded, and no process is left. A second job on the same hosts, at the same ports, with another name or another
secret, disturbs nobody and notices nothing. A schedule that fails is printed with its seed; `1 --seed N` repeats it.
One that fails by time alone while this program itself was late is played again at the end, alone. As root, nodes have
network namespaces; otherwise they have loopback addresses, and there are no cables to pull, and no proxies that delay
and reset connections. `setpriv --bounding-set=-sys_admin scripts/chaos-nodes` plays at loopback addresses as root.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "workers")]

import marks  # noqa: E402  found by the line above
from chaos_schedules import OWN_LINES, play, play_all  # noqa: E402

from ascend_runner.errors import OutputError  # noqa: E402
from ascend_runner.guardian import process_tree, sweep  # noqa: E402
from ascend_runner.job.simulation import LOOPBACK_NETWORK, NAMESPACE_NETWORK  # noqa: E402
from ascend_runner.link import meeting  # noqa: E402
from ascend_runner.node.namespaces import INTERFACE, Namespaces  # noqa: E402
from ascend_runner.plan.ranks import TABLE_NAME  # noqa: E402

RANKS: Final = 2  # on each node
GRACE: Final = 1.0  # seconds
VERDICT: Final = 5.0  # seconds, see `link.protocol.ALONE`
MARGIN: Final = 4.0  # seconds to find the cause and to exit
TROUBLE: Final = 8.0  # seconds longer, where a verdict may get lost on its way, see `job.nodes.LAST_WORD`
LAST_WORD: Final = 4.0  # seconds longer, where another link process says it, see `Limits.close_again`
LINK_TIMEOUT: Final = 20.0  # seconds; longer than a frozen link process may live, which is 15
SECOND_LIMIT: Final = 20.0  # seconds for a second job to end; a cable of its node may have been pulled
START_LIMIT: Final = 120.0  # seconds for all ranks to start on a busy machine
START_AGAIN: Final = 20.0  # seconds, likewise, of one more attempt
LONGEST: Final = 3.0  # seconds from the start of the ranks to the last fault
FROZEN: Final = 2.0  # seconds at most, but for a link process that its runner is to kill
BACK: Final = 8.0  # seconds in which nodes are certainly linked again
TIE: Final = 2.0  # seconds in which another failure may come first, on a busy machine
ON_THE_WAY: Final = 0.7  # seconds in which a failure has reached all nodes
CALM: Final = 1.0  # seconds in which all ranks of an attempt run, before they are asked to end
MOST_FAULTS: Final = 4
JOB: Final = "chaos"
MASTER_PORT: Final = 14000  # and one more for each seed, so that schedules do not meet at loopback addresses
LINK_PORT: Final = 15000  # likewise
PORTS: Final = 1000
HUB: Final = f"{NAMESPACE_NETWORK}1"
OTHER_HUB: Final = f"{NAMESPACE_NETWORK}101"  # another address of the same node, for the proxy
NAMESPACES: Final = "in network namespaces"  # what the program says if the nodes have them
STOPPED: Final = 128 + signal.SIGTERM
KILLED: Final = 128 + signal.SIGKILL
WORKER: Final = (sys.executable, "-S", "-E", str(ROOT / "tests" / "workers" / "marks.py"))
# A node is not to tell others that it has an address of its loopback interface, see ip-sysctl in the kernel's manual.
NO_ARP: Final = ("sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore")
PROXY: Final = str(ROOT / "tests" / "workers" / "proxy.py")
LINK_FAULTS: Final = ("link killed", "link frozen", "cable pulled", "proxy inserted")
FREEZES: Final = ("runner frozen", "guardian frozen")
STOPS: Final = ("rank exits", "rank killed", "runner killed", "guardian killed", "node stopped")
STATUSES: Final = {"rank killed": KILLED, "runner killed": KILLED, "guardian killed": KILLED, "node stopped": STOPPED}
REMEDIES: Final = {"frozen": "thawed", "pulled": "plugged", "inserted": "removed"}
SIGNALS: Final = {
    "killed": signal.SIGKILL,
    "frozen": signal.SIGSTOP,
    "thawed": signal.SIGCONT,
    "stopped": signal.SIGTERM,
}
SECONDS: Final = ("another name", "another name and the same port", "another secret", "another secret on each node")
ENDS: Final = ("success", "job stopped", "simulation killed", "its guardian killed")
TIMED: Final = ("still running after", "have not started", "end with the statuses", "have the verdicts", "neither run")


@attrs.frozen
class Fault:
    """What happens to a node, in seconds after the start of the ranks."""

    at: float
    name: str
    node: int


@attrs.frozen
class Schedule:
    """What happens to a job."""

    seed: int
    nodes: int
    restarts: int
    faults: tuple[Fault, ...]  # in order
    end: str
    second: str  # "" or how another job is started on the same hosts

    @property
    def stops(self) -> list[Fault]:
        """The faults that end an attempt."""
        return [fault for fault in self.faults if fault.name in STOPS]

    def linked(self) -> set[int]:
        """Return the nodes that are linked when the first attempt ends, and stay so."""
        first = min((fault.at for fault in self.stops), default=float("inf"))
        troubled = {fault.node for fault in self.faults if fault.name not in STOPS and not fault.at < first - BACK}
        return set() if 0 in troubled else set(range(self.nodes)) - troubled

    def may_be_unheard(self) -> bool:
        """Whether a node may end without the others' knowledge: these go on until HCCL reports the loss."""
        return bool(self.stops) and self.linked() != set(range(self.nodes))

    def replaceable(self) -> set[int]:
        """Return the nodes that a signal lets leave alone, for a replacement."""
        return {fault.node for fault in self.stops if fault.name == "node stopped" and self.restarts}

    def may_leave(self) -> bool:
        """Whether SIGKILL has hit all that cleans up after a node: its runner, its guardian and the outer guardian."""
        killed = {(fault.node, fault.name) for fault in self.faults}
        both = ("runner killed", "guardian killed")
        nodes = range(self.nodes)
        return self.end == "its guardian killed" and any(all((node, one) in killed for one in both) for node in nodes)

    def expected(self) -> set[int]:
        """Return the statuses that the first cause explains, an empty set if that is not clear."""
        if self.restarts or self.end != "success":
            return set()
        first = self.stops[0].at
        return {
            marks.FIRST_STATUS + fault.node * RANKS if fault.name == "rank exits" else STATUSES[fault.name]
            for fault in self.stops
            if fault.at < first + TIE
        }


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    chance = random.Random(seed)
    nodes = chance.randint(2, 5)
    kinds = chance.choice([LINK_FAULTS, STOPS, (*LINK_FAULTS, *STOPS), (*LINK_FAULTS, *STOPS, *FREEZES)])
    is_mended = kinds == (*LINK_FAULTS, *STOPS) and chance.random() < 0.5  # before anything stops
    faults = []
    for _ in range(chance.randint(1, MOST_FAULTS)):
        at, name = chance.uniform(0, LONGEST), chance.choice(kinds)
        fault = Fault(at, name, chance.randrange(name == "proxy inserted", nodes))  # there is none before node 0
        faults.append(fault)
        what, how = fault.name.split()
        if how in REMEDIES and (is_mended or what != "link" or chance.random() < 0.7):
            faults.append(Fault(fault.at + chance.uniform(0, FROZEN), f"{what} {REMEDIES[how]}", fault.node))
    later = LONGEST + FROZEN + BACK if is_mended else 0.0
    faults = [attrs.evolve(fault, at=fault.at + later * (fault.name in STOPS)) for fault in faults]
    order = tuple(sorted(faults, key=lambda fault: fault.at))
    end = "success" if kinds == LINK_FAULTS else chance.choices(ENDS, (6, 2, 1, 1))[0]
    second = chance.choice(SECONDS) if chance.random() < 1 / 3 else ""
    return Schedule(seed, nodes, chance.randint(0, 1), order, end, second)


class Play:
    """One run of the program under a schedule."""

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self._schedule, self._folder = schedule, folder
        self._screen, self._marks = folder / "screen", folder / "marks"
        self._marks.mkdir()
        self._wide = TROUBLE * any(fault.name not in STOPS for fault in schedule.faults)
        self._wide += LAST_WORD * any(fault.name == "link frozen" for fault in schedule.faults)
        self._second: list[subprocess.Popen[bytes]] = []
        self._proxies: dict[int, subprocess.Popen[bytes]] = {}
        self._pids: dict[int, int] = {}
        self._ended: dict[int, float] = {}  # when each node's guardian was seen to have ended
        self._start_time = 0.0  # of the schedule
        options = ["--simulate", f"{schedule.nodes}x{RANKS}", "--job-name", JOB, *self._options("log")]
        options += ["--max-restarts", f"{schedule.restarts}", "--restart-delay", "0"] * (schedule.restarts > 0)
        self._program = self._start([*options, *WORKER, str(self._marks)], "screen")

    def _options(self, log: str) -> list[str]:
        number = self._schedule.seed % PORTS
        port = ["--link-port", f"{LINK_PORT + number}"] if self._schedule.second.endswith("port") else []
        port += ["--master-port", f"{self._master_port}"]
        return ["--grace", f"{GRACE}", "--log-dir", log, "--link-timeout", f"{LINK_TIMEOUT}", *port]

    @property
    def _master_port(self) -> int:
        return MASTER_PORT + self._schedule.seed % PORTS

    @property
    def _limit(self) -> float:
        """Seconds from the first failure to the end of all nodes that are linked."""
        return GRACE + VERDICT + MARGIN + self._wide + LINK_TIMEOUT * self._schedule.restarts

    def _start(self, words: list[str], screen: str, *enter: str, **environ: str) -> subprocess.Popen[bytes]:
        with (self._folder / screen).open("wb") as file:
            return subprocess.Popen(
                [*enter, sys.executable, "-m", "ascend_runner", *words],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environ},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def problems(self) -> Iterator[str]:
        """Play the schedule, and yield each promise that is not kept."""
        if not self._is_reached(lambda: self._are_up() or self._has_ended(), START_LIMIT) or self._has_ended():
            yield f"the ranks have not started within {START_LIMIT:g} s"
            return
        simulation = process_tree.children(self._program.pid)[0]
        self._pids = {int(node): int(pid) for node, pid in re.findall(r"node ([0-9]+) has pid ([0-9]+)", self.screen)}
        if self._schedule.second:
            self._start_second()
        self._start_time = time.monotonic()
        for fault in self._schedule.faults:
            self._is_reached(lambda: False, self._start_time + fault.at - time.monotonic())
            with suppress(ProcessLookupError, FileNotFoundError, IndexError):
                self._do(fault, self._pids[fault.node])
        yield from self._finish(simulation)
        yield from self._end_second()
        if not self._is_reached(lambda: not self._left(), self._limit) and not self._schedule.may_leave():
            yield f"still running after {self._limit:g} s: {', '.join(map(process_tree.describe, self._left()))}"
        yield from (path.name for path in self._marks.glob("overlap-*"))
        if not self._schedule.end.endswith("killed"):
            yield from self._wrong_ends()

    def _finish(self, simulation: int) -> Iterator[str]:
        """Let the job end: by itself after a failure, and otherwise as the schedule says."""
        if self._schedule.end == "success":
            limit = self._limit + START_AGAIN * self._schedule.restarts
            is_settled = self._is_reached(lambda: self._has_ended() or self._is_calm(), limit)
            if not (is_settled or self._schedule.may_be_unheard()):
                yield f"the ranks neither run nor has the job ended after {limit:g} s"
            (self._marks / "finish").touch()
            return
        self._is_reached(lambda: False, ON_THE_WAY)
        if not self._has_ended():
            signum = signal.SIGTERM if self._schedule.end == "job stopped" else signal.SIGKILL
            os.kill(simulation if self._schedule.end == "simulation killed" else self._program.pid, signum)

    def _has_ended(self) -> bool:
        return self._program.poll() is not None

    def _is_calm(self) -> bool:
        """Whether the ranks of all nodes run in one attempt, and go on to do so."""
        if not self._are_up():
            return False
        end = time.monotonic() + CALM
        while self._are_up() and time.monotonic() < end:
            time.sleep(0.05)
        return self._are_up()

    def _are_up(self) -> bool:
        alive = [words[0] for words in self._alive()]
        return len(alive) == self._schedule.nodes * RANKS and len(set(alive)) == 1

    def _alive(self) -> list[list[str]]:
        """Return attempt, rank, pid and start of the first processes of the ranks."""
        found = [path.name.split("-")[1:] for path in self._marks.glob("rank-*")]
        return [words for words in found if marks.started(words[2]) == words[3]]

    # --- Faults -------------------------------------------------------------------------------------------------------

    def _do(self, fault: Fault, guardian: int) -> None:
        """Do something to a node that is still there."""
        what, how = fault.name.split()
        if what in {"cable", "proxy"}:
            if NAMESPACES in self.screen:
                self._trouble(fault)
        elif what == "rank":
            for attempt, rank, pid, _start in self._alive():
                if int(rank) == fault.node * RANKS and how == "exits":
                    (self._marks / f"fail-{attempt}-{rank}").touch()
                elif int(rank) == fault.node * RANKS:
                    os.kill(int(pid), signal.SIGKILL)
        elif marks.started(str(guardian)):
            runner = process_tree.children(guardian)[0] if what in {"runner", "link"} else guardian
            for target in self._links_of(runner) if what == "link" else [runner]:
                os.kill(target, SIGNALS[how])

    def _trouble(self, fault: Fault) -> None:
        """Pull or plug the cable of a node; or let a proxy of its own have the hub's address there, or no longer."""
        if fault.name in {"cable pulled", "cable plugged"}:
            self._run(fault.node, "ip", "link", "set", INTERFACE, "down" if fault.name == "cable pulled" else "up")
        elif fault.name == "proxy inserted" and fault.node not in self._proxies and self._run(fault.node, *NO_ARP):
            self._run(0, "ip", "address", "add", f"{OTHER_HUB}/24", "dev", INTERFACE)
            self._run(
                fault.node, "ip", "address", "add", f"{HUB}/32", "dev", "lo"
            )  # resets the connections that there are
            seed, identity = f"{self._schedule.seed}", meeting.identity_of("", JOB, self._master_port)
            ports = meeting.derive_ports(identity, {}, {self._master_port})
            ports = (LINK_PORT + self._schedule.seed % PORTS,) if self._schedule.second.endswith("port") else ports
            words = [sys.executable, "-S", "-E", PROXY, seed, HUB, OTHER_HUB, *map(str, ports)]
            with (self._folder / f"proxy-screen-{fault.node}").open("wb") as file:
                self._proxies[fault.node] = subprocess.Popen([*self._enter(fault.node), *words], stderr=file)
        elif fault.name == "proxy removed" and fault.node in self._proxies:
            proxy = self._proxies.pop(fault.node)
            proxy.terminate()
            proxy.wait()
            self._run(fault.node, "ip", "address", "delete", f"{HUB}/32", "dev", "lo")

    def _enter(self, node: int) -> tuple[str, ...]:
        """Return the command that runs another one where a node is."""
        return ("nsenter", f"--target={self._pids[node]}", "--net") if NAMESPACES in self.screen else ()

    def _run(self, node: int, *words: str) -> bool:
        """Run a command where a node is, and return whether it has succeeded: the node may have ended."""
        return subprocess.run([*self._enter(node), *words], capture_output=True, check=False).returncode == 0

    @staticmethod
    def _links_of(runner: int) -> list[int]:
        """Return the link process of a runner, if it has one now."""
        pids = process_tree.children(runner)
        return [pid for pid in pids if b"ascend_runner.link" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    # --- A second job on the same hosts -------------------------------------------------------------------------------

    def _start_second(self) -> None:
        how, table = self._schedule.second, self._folder / "log" / TABLE_NAME
        for node in self._pids:
            place = [f"--nnodes={self._schedule.nodes}", f"--node-rank={node}", "--rank-table", str(table)]
            options = [*place, "--job-name", JOB if "secret" in how else "second", *self._options(f"second-{node}")]
            options += ["--master-addr", HUB if NAMESPACES in self.screen else f"{LOOPBACK_NETWORK}1", "--inspect=off"]
            words = [*options, "sh", "-c", "touch second-up-$RANK; while ! [ -e second-end ]; do sleep 0.1; done"]
            secret = f"the secret of node {node if how.endswith('node') else 0}"
            environ = {meeting.SECRET: secret} if "secret" in how else {}
            self._second.append(self._start(words, f"second-screen-{node}", *self._enter(node), **environ))
        self._is_reached(self._is_second_up, START_LIMIT)

    def _is_second_up(self) -> bool:
        ups = list(self._folder.glob("second-up-*"))
        return len(ups) == self._schedule.nodes * RANKS or any(runner.poll() for runner in self._second)

    def _end_second(self) -> Iterator[str]:
        (self._folder / "second-end").touch()
        for node, runner in enumerate(self._second):
            if not self._is_reached(lambda runner=runner: runner.poll() is not None, SECOND_LIMIT):  # type: ignore[misc]
                yield f"the second job's node {node} is still running after {SECOND_LIMIT:g} s"
            elif runner.returncode:
                text = (self._folder / f"second-screen-{node}").read_text()
                yield f"the second job's node {node} has ended with exit status {runner.returncode}: {text}"

    # --- The end ------------------------------------------------------------------------------------------------------

    def _wrong_ends(self) -> Iterator[str]:
        """Yield a sentence for what is wrong in the ends of ranks and nodes."""
        schedule = self._schedule
        found = re.findall(r"WARNING node ([0-9]+) ended with exit status ([0-9]+)", self.screen)
        of_all = re.findall(r"ERROR all nodes ended with exit status ([0-9]+)", self.screen)
        statuses = {**dict.fromkeys(self._pids, int(*of_all)), **{int(node): int(status) for node, status in found}}
        if not schedule.stops and schedule.end == "success":
            ended = len(list(self._marks.glob("end-0-*")))
            if ended != schedule.nodes * RANKS or any(statuses.values()):
                yield f"trouble of the link has stopped ranks: {ended} ended by themselves, exit statuses {statuses}"
            return
        linked, expected = schedule.linked(), schedule.expected()
        heard = (fault.at for fault in schedule.stops if fault.node in linked)
        first = self._start_time + min(heard, default=math.inf)
        late = {node for node in linked if self._ended.get(node, first) - first > self._limit}
        if late:
            yield f"nodes {sorted(late)} were linked, and still running after {self._limit:g} s"
        if expected and not {statuses[node] for node in linked} <= expected | {KILLED}:
            yield f"nodes {sorted(linked)} were linked, and end with the statuses {statuses}, expected {expected}"
        killed = {fault.node for fault in schedule.stops if fault.name in {"runner killed", "guardian killed"}}
        killed |= schedule.replaceable()
        if len({statuses[node] for node in linked - killed}) > 1:
            yield f"nodes {sorted(linked)} were linked, and end with the statuses {statuses}"
        has_hub = not any(fault.node == 0 and fault.name == "guardian killed" for fault in schedule.stops)
        found_in = {node: self._verdict(node) for node in linked - killed if has_hub}
        verdicts = {node: verdict for node, verdict in found_in.items() if verdict}  # one that is signalled needs none
        if len({json.dumps(verdict) for verdict in verdicts.values()}) > 1:
            yield f"nodes {sorted(linked)} were linked, and have the verdicts {verdicts}"
        causes = {fault.node for fault in schedule.stops}
        for node, verdict in verdicts.items():
            if verdict["node"] not in {*causes, None} and schedule.end != "job stopped":
                yield f"node {node} shows node {verdict['node']} as the cause, which has not failed"

    def _verdict(self, node: int) -> dict[str, Any] | None:
        """Return what a node's report says about the one cause of all nodes."""
        for path in self._folder.glob(f"log/*-report-node-{node}.json"):
            verdict = json.loads(path.read_bytes()).get("verdict")
            if verdict:
                return {name: verdict.get(name) for name in ("attempt", "node", "rank_id", "status", "is_alone")}
        return None

    def _left(self) -> list[process_tree.Descendant]:
        """Return the processes that are left, all of which this process has adopted."""
        self._program.poll()
        sweep.reap_adopted(keep=frozenset([self._program.pid, *(runner.pid for runner in self._second)]))
        return list(process_tree.descendants(os.getpid()))

    def _is_reached(self, is_true: Callable[[], bool], limit: float) -> bool:
        deadline = time.monotonic() + limit
        while not (reached := is_true()) and time.monotonic() < deadline:
            time.sleep(min(0.05, max(0.0, deadline - time.monotonic())))
            gone = (node for node, pid in self._pids.items() if not marks.started(str(pid)))
            self._ended = {**dict.fromkeys(gone, time.monotonic()), **self._ended}
        return reached

    @property
    def screen(self) -> str:
        """What the program has shown so far."""
        return self._screen.read_text(errors="replace")


def check(schedule: Schedule, folder: Path) -> list[str]:
    """Play a schedule; return what was wrong, and the screen."""
    run = Play(schedule, folder)
    wrong = list(run.problems())
    return [*wrong, *(OWN_LINES + line for line in run.screen.splitlines())] if wrong else []


def main() -> int:
    """Play the schedules in parallel; return 1 if any of them failed."""
    parser = argparse.ArgumentParser(prog="scripts/chaos-nodes", description=__doc__)
    parser.add_argument("schedules", type=int, nargs="?", default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first schedule; the others count up from it")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1))
    args = parser.parse_args()
    try:
        with closing(Namespaces([HUB])) as namespaces:
            namespaces.open()
    except OutputError as error:
        print(f"at loopback addresses, no cables pulled, no proxies: no network namespaces ({error})", flush=True)
    return play_all(lambda seed: play(partial(check, draw(seed))), draw, args, TIMED)


if __name__ == "__main__":
    sys.exit(main())
