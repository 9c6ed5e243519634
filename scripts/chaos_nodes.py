"""Play random schedules of faults on jobs of 2 to 5 simulated, linked nodes with 2 ranks each, and check the promises.

Trouble of the link alone stops nobody: every rank runs to its end, and every runner ends with 0. Nodes that are linked
when the first rank fails show one cause and end with one status. No two attempts have ranks alive at once, every wait
is bounded, and no process is left. A second job on the same hosts notices nothing. A schedule that fails is printed
with its seed: `--seed N --schedules 1` plays it again. One that fails by time alone while this program itself was late
is played again at the end, alone. As root, nodes have network namespaces; otherwise cables are not pulled.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "workers")]

import marks  # noqa: E402  found by the line above
from chaos_schedules import OWN_LINES, play, play_all  # noqa: E402

from ascend_runner.guardian import process_tree, sweep  # noqa: E402
from ascend_runner.node.namespaces import INTERFACE  # noqa: E402

RANKS: Final = 2  # on each node
GRACE: Final = 1.0  # seconds
VERDICT: Final = 5.0  # seconds, see `link.protocol.ALONE`
MARGIN: Final = 4.0  # seconds to find the cause and to exit
TROUBLE: Final = 8.0  # seconds longer, where a verdict may get lost on its way, see `job.nodes.LAST_WORD`
LINK_TIMEOUT: Final = 30.0  # seconds; longer than a frozen link process may live, which is 15
START_LIMIT: Final = 120.0  # seconds for all ranks to start; the machine may be busy
LONGEST: Final = 3.0  # seconds from the start of the ranks to the last fault
FROZEN: Final = 2.0  # seconds at most, but for a link process that its runner is to kill
BACK: Final = 8.0  # seconds in which nodes are certainly linked again
TIE: Final = 2.0  # seconds in which another failure may come first, on a busy machine
ON_THE_WAY: Final = 0.7  # seconds in which a failure has reached all nodes; a node that is signalled before ends alone
CALM: Final = 1.0  # seconds in which all ranks of an attempt run, before they are asked to end
MOST_FAULTS: Final = 4
PORT: Final = "21000"
NAMESPACES: Final = "in network namespaces"  # what the program says if the nodes have them
STOPPED: Final = 128 + signal.SIGTERM
KILLED: Final = 128 + signal.SIGKILL
WORKER: Final = (sys.executable, "-S", "-E", str(ROOT / "tests" / "workers" / "marks.py"))
LINK_FAULTS: Final = ("link killed", "link frozen", "cable pulled")
FREEZES: Final = ("runner frozen", "guardian frozen")
STOPS: Final = ("rank exits", "rank killed", "runner killed", "guardian killed", "node stopped")
STATUSES: Final = {"rank killed": KILLED, "runner killed": KILLED, "guardian killed": KILLED, "node stopped": STOPPED}
REMEDIES: Final = {"frozen": "thawed", "pulled": "plugged"}
SIGNALS: Final = {
    "killed": signal.SIGKILL,
    "frozen": signal.SIGSTOP,
    "thawed": signal.SIGCONT,
    "stopped": signal.SIGTERM,
}
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

    def signalled_early(self) -> set[int]:
        """Return the nodes that a signal stops while the failure of another one may be on its way."""
        signals = [fault for fault in self.stops if fault.name == "node stopped"]
        return {
            fault.node
            for fault in signals
            if any(other.node != fault.node and abs(other.at - fault.at) < ON_THE_WAY for other in self.stops)
        }

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
        fault = Fault(chance.uniform(0, LONGEST), chance.choice(kinds), chance.randrange(nodes))
        faults.append(fault)
        what, how = fault.name.split()
        if how in REMEDIES and (is_mended or what != "link" or chance.random() < 0.7):
            faults.append(Fault(fault.at + chance.uniform(0, FROZEN), f"{what} {REMEDIES[how]}", fault.node))
    later = LONGEST + FROZEN + BACK if is_mended else 0.0
    faults = [attrs.evolve(fault, at=fault.at + later * (fault.name in STOPS)) for fault in faults]
    order = tuple(sorted(faults, key=lambda fault: fault.at))
    end = "success" if kinds == LINK_FAULTS else chance.choices(ENDS, (6, 2, 1, 1))[0]
    second = chance.choices(("", "another name", "another name and the same port"), (4, 1, 1))[0]
    return Schedule(seed, nodes, chance.randint(0, 1), order, end, second)


class Play:
    """One run of the program under a schedule."""

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self._schedule, self._folder = schedule, folder
        self._screen, self._marks = folder / "screen", folder / "marks"
        self._marks.mkdir()
        self._wide = TROUBLE * any(fault.name not in STOPS for fault in schedule.faults)
        self._second: list[subprocess.Popen[bytes]] = []
        self._pids: dict[int, int] = {}
        options = ["--simulate", f"{schedule.nodes}x{RANKS}", *self._options("log")]
        options += ["--max-restarts", f"{schedule.restarts}", "--restart-delay", "0"] * (schedule.restarts > 0)
        self._program = self._start([*options, *WORKER, str(self._marks)], "screen")

    def _options(self, log: str) -> list[str]:
        port = ["--link-port", PORT] if self._schedule.second.endswith("port") else []
        return ["--grace", f"{GRACE}", "--log-dir", log, "--link-timeout", f"{LINK_TIMEOUT}", *port]

    def _start(self, words: list[str], screen: str, *enter: str) -> subprocess.Popen[bytes]:
        with (self._folder / screen).open("wb") as file:
            return subprocess.Popen(
                [*enter, sys.executable, "-m", "ascend_runner", *words],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def problems(self) -> Iterator[str]:
        """Play the schedule, and yield each promise that is not kept."""
        if not self._is_reached(self._are_up, START_LIMIT):
            yield f"the ranks have not started within {START_LIMIT:g} s"
            return
        simulation = process_tree.children(self._program.pid)[0]
        self._pids = {int(node): int(pid) for node, pid in re.findall(r"node ([0-9]+) has pid ([0-9]+)", self.screen)}
        if self._schedule.second and NAMESPACES in self.screen:
            self._start_second()
        start = time.monotonic()
        for fault in self._schedule.faults:
            time.sleep(max(0.0, start + fault.at - time.monotonic()))
            with suppress(ProcessLookupError, FileNotFoundError, IndexError):
                self._do(fault, self._pids[fault.node])
        yield from self._finish(simulation)
        yield from self._end_second()
        limit = GRACE + VERDICT + MARGIN + self._wide + LINK_TIMEOUT * self._schedule.restarts
        if not self._is_reached(lambda: not self._left(), limit):
            yield f"still running after {limit:g} s: {', '.join(map(process_tree.describe, self._left()))}"
        yield from (path.name for path in self._marks.glob("overlap-*"))
        if not self._schedule.end.endswith("killed"):
            yield from self._wrong_ends()

    def _finish(self, simulation: int) -> Iterator[str]:
        """Let the job end: by itself after a failure, and otherwise as the schedule says."""
        if self._schedule.end == "success":
            limit = START_LIMIT + LINK_TIMEOUT
            if not self._is_reached(lambda: self._program.poll() is not None or self._is_calm(), limit):
                yield f"the ranks neither run nor has the job ended after {limit:g} s"
            (self._marks / "finish").touch()
            return
        time.sleep(ON_THE_WAY)
        if self._program.poll() is None:
            signum = signal.SIGTERM if self._schedule.end == "job stopped" else signal.SIGKILL
            os.kill(simulation if self._schedule.end == "simulation killed" else self._program.pid, signum)

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
        if what == "cable" and NAMESPACES in self.screen:
            state = "down" if how == "pulled" else "up"
            enter = ("nsenter", f"--target={guardian}", "--net")
            subprocess.run([*enter, "ip", "link", "set", INTERFACE, state], capture_output=True, check=False)
        elif what == "rank":
            for attempt, rank, pid, _start in self._alive():
                if int(rank) == fault.node * RANKS and how == "exits":
                    (self._marks / f"fail-{attempt}-{rank}").touch()
                elif int(rank) == fault.node * RANKS:
                    os.kill(int(pid), signal.SIGKILL)
        elif what != "cable" and marks.started(str(guardian)):
            runner = process_tree.children(guardian)[0] if what in {"runner", "link"} else guardian
            for target in self._links_of(runner) if what == "link" else [runner]:
                os.kill(target, SIGNALS[how])

    @staticmethod
    def _links_of(runner: int) -> list[int]:
        """Return the link process of a runner, if it has one now."""
        pids = process_tree.children(runner)
        return [pid for pid in pids if b"ascend_runner.link" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    # --- A second job on the same hosts -------------------------------------------------------------------------------

    def _start_second(self) -> None:
        table = next(self._folder.glob("log/*.json"))
        for node, pid in self._pids.items():
            place = [f"--nnodes={self._schedule.nodes}", f"--node-rank={node}", "--rank-table", str(table)]
            options = [*place, "--job-name", "second", *self._options(f"second-{node}"), "--inspect=off"]
            script = "while ! [ -e second-end ]; do sleep 0.1; done"
            enter = ("nsenter", f"--target={pid}", "--net")
            self._second.append(self._start([*options, "sh", "-c", script], f"second-screen-{node}", *enter))

    def _end_second(self) -> Iterator[str]:
        (self._folder / "second-end").touch()
        for node, runner in enumerate(self._second):
            if not self._is_reached(lambda runner=runner: runner.poll() is not None, START_LIMIT):  # type: ignore[misc]
                yield f"the second job's node {node} is still running after {START_LIMIT:g} s"
            elif runner.returncode:
                text = (self._folder / f"second-screen-{node}").read_text()
                yield f"the second job's node {node} has ended with exit status {runner.returncode}: {text}"

    # --- The end ------------------------------------------------------------------------------------------------------

    def _wrong_ends(self) -> Iterator[str]:
        """Yield a sentence for what is wrong in the ends of ranks and nodes."""
        schedule = self._schedule
        found = re.findall(r"WARNING node ([0-9]+) ended with exit status ([0-9]+)", self.screen)
        statuses = {**dict.fromkeys(self._pids, 0), **{int(node): int(status) for node, status in found}}
        if not schedule.stops and schedule.end == "success":
            ended = len(list(self._marks.glob("end-0-*")))
            if ended != schedule.nodes * RANKS or any(statuses.values()):
                yield f"trouble of the link has stopped ranks: {ended} ended by themselves, exit statuses {statuses}"
            return
        linked, expected = schedule.linked(), schedule.expected()
        if expected and not {statuses[node] for node in linked} <= expected | {KILLED}:
            yield f"nodes {sorted(linked)} were linked, and end with the statuses {statuses}, expected {expected}"
        killed = {fault.node for fault in schedule.stops if fault.name in {"runner killed", "guardian killed"}}
        killed |= schedule.signalled_early()
        if len({statuses[node] for node in linked - killed}) > 1:
            yield f"nodes {sorted(linked)} were linked, and end with the statuses {statuses}"
        found_in = {node: self._verdict(node) for node in linked - killed if 0 not in killed}
        verdicts = {node: verdict for node, verdict in found_in.items() if verdict}  # one that is signalled needs none
        if len({json.dumps(verdict) for verdict in verdicts.values()}) > 1:
            yield f"nodes {sorted(linked)} were linked, and have the verdicts {verdicts}"
        causes = {fault.node for fault in schedule.stops}
        for node, verdict in verdicts.items():
            if verdict["node"] not in {*causes, None} and schedule.end != "job stopped":
                yield f"node {node} shows node {verdict['node']} as the cause, which has not failed"

    def _verdict(self, node: int) -> dict[str, Any] | None:
        """Return what a node's report says about the one cause of all nodes."""
        for path in self._folder.glob(f"log/node-{node}/*-report-node-{node}.json"):
            verdict = json.loads(path.read_bytes()).get("verdict")
            if verdict:
                return {name: verdict.get(name) for name in ("attempt", "node", "rank_id", "status", "is_alone")}
        return None

    def _left(self) -> list[process_tree.Descendant]:
        """Return the processes that are left, all of which this process has adopted."""
        self._program.poll()
        sweep.reap_adopted(keep=frozenset([self._program.pid, *(runner.pid for runner in self._second)]))
        return list(process_tree.descendants(os.getpid()))

    @staticmethod
    def _is_reached(is_true: Callable[[], bool], limit: float) -> bool:
        deadline = time.monotonic() + limit
        while not (reached := is_true()) and time.monotonic() < deadline:
            time.sleep(0.05)
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
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first schedule; the others count up from it")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1))
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("without network namespaces, which need root: no cable is pulled, and there is no second job", flush=True)
    return play_all(lambda seed: play(partial(check, draw(seed))), draw, args, TIMED)


if __name__ == "__main__":
    sys.exit(main())
