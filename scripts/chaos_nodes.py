"""Play random schedules of faults on jobs of 2 to 5 simulated nodes with 2 ranks each, and check the invariants.

A node without a fault of its own runs until the job is stopped, also without its cable; a node with one ends with a
status that the fault explains; everything ends within the grace and 20 seconds of the stop, and no process is left. A
schedule that fails is printed with its seed: `--seed N --schedules 1` plays it again. As root, nodes have network
namespaces; otherwise cables are not pulled, and that is said.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from ascend_runner.guardian import process_tree, sweep  # noqa: E402  found by the line above
from ascend_runner.node.namespaces import INTERFACE  # noqa: E402

RANKS: Final = 2  # on each node
GRACE: Final = 1.0  # seconds
LIMIT: Final = GRACE + 20.0  # a fifth of it suffices, unless the machine is busy
START_LIMIT: Final = 120.0  # seconds for all ranks to start; the machine may be busy
LONGEST: Final = 2.0  # seconds from the start of the ranks to the stop
MOST_FAULTS: Final = 5
NAMESPACES: Final = "in network namespaces"  # what the program says if the nodes have them
EXIT: Final = 7  # the status of a rank that fails
STOPPED: Final = 128 + signal.SIGTERM
KILLED: Final = 128 + signal.SIGKILL
# The ranks, one of which may fail, each with a process that ignores SIGTERM.
SCRIPT: Final = f"(trap '' TERM; sleep 1000) & echo up; while ! [ -e \"fail-$RANK\" ]; do sleep 0.05; done; exit {EXIT}"
# What can happen to a node, with the statuses that it may end with.
FAULTS: Final = {
    "rank exits": {EXIT},
    "runner killed": {KILLED},
    "guardian killed": {KILLED},
    "node stopped": {STOPPED},
    "cable pulled": set[int](),
    "cable plugged": set[int](),
}
ENDS: Final = ("job stopped", "simulation killed", "its guardian killed")


@attrs.frozen
class Schedule:
    """What happens to a job of `nodes` nodes: (seconds, fault, node) in order, and how it ends."""

    seed: int
    nodes: int
    faults: tuple[tuple[float, str, int], ...]
    end: str


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    chance = random.Random(seed)
    nodes = chance.randint(2, 5)
    times = sorted(chance.uniform(0, LONGEST) for _ in range(chance.randint(0, MOST_FAULTS)))
    faults = tuple((at, chance.choice([*FAULTS]), chance.randrange(nodes)) for at in times)
    return Schedule(seed, nodes, faults, chance.choices(ENDS, (6, 1, 1))[0])


class Play:
    """One run of the program under a schedule."""

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self._schedule, self._folder = schedule, folder
        self._screen = folder / "screen"
        options = ("--simulate", f"{schedule.nodes}x{RANKS}", "--grace", f"{GRACE}", "--log-dir", "log")
        with self._screen.open("wb") as screen:
            self._program = subprocess.Popen(
                [sys.executable, "-m", "ascend_runner", *options, "sh", "-c", SCRIPT],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=screen,
                stderr=subprocess.STDOUT,
            )

    def problems(self) -> Iterator[str]:
        """Play the schedule, and yield each invariant that does not hold."""
        if not self._is_reached(lambda: self.screen.count("] up\n") == self._schedule.nodes * RANKS, START_LIMIT):
            yield "the ranks have not started"
            self._program.kill()
            return
        runner = process_tree.children(self._program.pid)[0]
        pids = {int(node): int(pid) for node, pid in re.findall(r"node ([0-9]+) has pid ([0-9]+)", self.screen)}
        start = time.monotonic()
        for at, fault, node in self._schedule.faults:
            time.sleep(max(0.0, start + at - time.monotonic()))
            self._do(fault, node, pids[node])
        if self._program.poll() is None:
            signum = signal.SIGTERM if self._schedule.end == "job stopped" else signal.SIGKILL
            os.kill(runner if self._schedule.end == "simulation killed" else self._program.pid, signum)
        if not self._is_reached(lambda: not self._left(), LIMIT):
            yield f"still running after {LIMIT:g} s: {', '.join(map(process_tree.describe, self._left()))}"
        yield from self._wrong_statuses()

    def _do(self, fault: str, node: int, guardian: int) -> None:
        if fault == "rank exits":
            (self._folder / f"fail-{node * RANKS}").touch()
        elif fault.startswith("cable") and NAMESPACES in self.screen:
            state = "down" if fault == "cable pulled" else "up"
            enter = ("nsenter", f"--target={guardian}", "--net")
            subprocess.run([*enter, "ip", "link", "set", INTERFACE, state], capture_output=True, check=False)
        elif process_tree.look(guardian):
            runner = process_tree.children(guardian)[:1] if fault == "runner killed" else [guardian]
            for pid in runner:
                os.kill(pid, signal.SIGTERM if fault == "node stopped" else signal.SIGKILL)

    def _wrong_statuses(self) -> Iterator[str]:
        """Yield a sentence for each node with a status that nothing explains."""
        is_stopped = self._schedule.end == "job stopped"
        for node, status in re.findall(r"WARNING node ([0-9]+) ended with exit status ([0-9]+)", self.screen):
            own = [fault for _at, fault, number in self._schedule.faults if number == int(node)]
            expected = set[int]().union(*(FAULTS[fault] for fault in own))
            if int(status) not in expected | {STOPPED} or (is_stopped and not expected and int(status) != STOPPED):
                yield f"node {node} ended with exit status {status}, expected one of {sorted(expected | {STOPPED})}"

    def _left(self) -> list[process_tree.Descendant]:
        """Return the processes that are left, all of which this process has adopted."""
        self._program.poll()
        sweep.reap_adopted(keep=frozenset([self._program.pid]))
        return list(process_tree.descendants(os.getpid()))

    @staticmethod
    def _is_reached(is_true: Callable[[], bool], limit: float) -> bool:
        deadline = time.monotonic() + limit
        while not (reached := is_true()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return reached

    @property
    def screen(self) -> str:
        """What the program has shown so far."""
        return self._screen.read_text(errors="replace")


def play(seed: int) -> tuple[Schedule, list[str], str]:
    """Play the schedule of a seed; return it with what was wrong, and the screen."""
    schedule = draw(seed)
    with tempfile.TemporaryDirectory(prefix="ascend-runner-chaos-") as path:
        run = Play(schedule, Path(path))
        try:
            wrong = list(run.problems())
        finally:
            sweep.sweep()
        return schedule, wrong, run.screen


def main() -> int:
    """Play the schedules in parallel; return 1 if any of them failed."""
    parser = argparse.ArgumentParser(prog="scripts/chaos-nodes", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first schedule; the others count up from it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()

    failed, without = [], 0
    seeds = range(args.seed, args.seed + args.schedules)
    # Each process adopts what its schedule leaves behind.
    with concurrent.futures.ProcessPoolExecutor(args.jobs, initializer=process_tree.become_subreaper) as pool:
        for schedule, wrong, screen in pool.map(play, seeds):
            without += NAMESPACES not in screen
            if wrong:
                failed.append(schedule.seed)
                print("FAILED", schedule, *wrong, screen, sep="\n  ", flush=True)
    print(f"{args.schedules - len(failed)} passed, {len(failed)} failed {failed}")
    if without:
        print(f"{without} without namespaces, so that no cable was pulled")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
