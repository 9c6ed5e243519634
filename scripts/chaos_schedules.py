"""Plays random schedules of faults on 8 real ranks and checks, after each, what must always hold.

The exit status is that of the first cause; no process is left; every log is complete to the byte; the end comes within
the grace and 6 seconds. A schedule that fails is printed with its seed: `--seed N --schedules 1` plays it again.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "workers")]

import chatter  # noqa: E402  found by the line above

from ascend_runner.linux import descendants  # noqa: E402

RANKS = 8
GRACE = 1.0  # seconds
LIMIT = GRACE + 6.0
# Nanoseconds. Ranks note their death just before it; on a machine with more processes than cores the one that noted
# first may well be the one that died second. scripts/bench measures races of which only one rank can be the first.
TIE = 60_000_000
DEADLY = ("SEGV", "KILL", "ABRT", "BUS", "HUP", "INT", "TERM", "FPE")
STOPPING = ("TERM", "INT", "HUP", "QUIT")


class Schedule(NamedTuple):
    """What each rank does, and what is done to the runner (after so many seconds, by that signal, to whom)."""

    seed: int
    plans: tuple[str, ...]
    blows: tuple[tuple[float, str, str], ...]
    options: tuple[str, ...]

    @property
    def is_beheaded(self) -> bool:
        """Whether runner or guardian is killed, so that nobody can hand on the ranks' status or last bytes."""
        return any(name == "KILL" for _moment, name, _whom in self.blows)


def draw(seed: int) -> Schedule:
    """Draw a schedule."""
    dice = random.Random(seed)
    plans = []
    for _ in range(RANKS):
        words = []
        if dice.random() < 0.15:
            words.append("ignore=TERM")
        if dice.random() < 0.25:
            words.append("child=" + dice.choice(("plain", "group", "session", "daemon")))
        if dice.random() < 0.03:
            words.append(f"forks={dice.choice((10, 60))}")
        works = (f"write={dice.randrange(20_000)}", f"write={dice.randrange(900_000)}", f"nap={dice.randrange(60)}")
        words += dice.choices(works, k=dice.randrange(3))
        words.append(
            dice.choices(
                ("exit=0", f"exit={dice.randrange(1, 125)}", "die=" + dice.choice(DEADLY), "linger"), (6, 1, 1, 3)
            )[0]
        )
        plans.append(",".join(words))
    blows = []
    if any(plan.endswith("linger") for plan in plans) or dice.random() < 0.5:
        blows.append((dice.uniform(0, 0.8), dice.choice(STOPPING), "guardian"))
    if dice.random() < 0.3:
        blows.append((dice.uniform(0, 1.2), dice.choice(STOPPING), "guardian"))
    if dice.random() < 0.2:
        blows.append((dice.uniform(0.1, 0.6), "KILL", dice.choice(("runner", "guardian"))))
    if dice.random() < 0.1:
        blows.append((dice.uniform(0, 0.4), "USR1", "guardian"))
    options = dice.choice(((), ("--console", "none"), ("--quiet",), ("--log-max-size", "0")))
    return Schedule(seed, tuple(plans), tuple(sorted(blows)), options)


def play(schedule: Schedule) -> list[str]:
    """Play it, in a process of its own that sees every orphan; what was wrong."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        descendants.become_subreaper()
        folder = Path(tempfile.mkdtemp(prefix="ascend-runner-chaos-"))
        wrong = check(schedule, folder)
        shutil.rmtree(folder, ignore_errors=True)
        os.write(writer, "\n".join(wrong).encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read().decode()
    os.waitpid(pid, 0)
    return text.splitlines()


def check(schedule: Schedule, folder: Path) -> list[str]:
    """Run one schedule and look at what is left."""
    book = folder / "book"
    book.write_bytes(bytes(chatter.ENTRY.size * RANKS))
    worker = [sys.executable, "-S", "-E", str(ROOT / "tests" / "workers" / "chatter.py"), str(book), *schedule.plans]
    argv = [sys.executable, "-m", "ascend_runner", "--nproc-per-node", str(RANKS), "--log-dir", str(folder / "log")]
    argv += ["--grace", str(GRACE), *schedule.options, *worker]
    env = {"PATH": os.environ["PATH"], "MA_VJ_NAME": "chaos", "PYTHONPATH": str(ROOT)}
    start = time.monotonic()
    with open(folder / "screen", "wb") as screen:
        popen = subprocess.Popen(argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=screen, stderr=screen)
    struck = strike(schedule, popen, start)
    last_blow = max((moment for moment, _name, _whom in schedule.blows), default=0.0)
    try:
        status = popen.wait(max(last_blow, 3.0) + LIMIT - (time.monotonic() - start) + 1.0)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()
        return [f"still running after {time.monotonic() - start:.1f} s", *own_lines(folder)]
    guardian_killed = status == -signal.SIGKILL
    wrong = survivors(LIMIT if guardian_killed else 0.0)
    wrong += wrong_logs(schedule, folder)
    if not schedule.is_beheaded:
        wrong += wrong_status(schedule, status, struck, folder)
    return [*wrong, *own_lines(folder)] if wrong else []


def own_lines(folder: Path) -> list[str]:
    """Give what the runner itself has said, and any traceback, for the report of a failure."""
    lines = (folder / "screen").read_text(errors="replace").splitlines()
    return [line for line in lines if not line.startswith(("[rank ", "  | "))][-40:]


def strike(schedule: Schedule, popen: subprocess.Popen[bytes], start: float) -> list[tuple[str, int]]:
    """Deal the blows at their times; those that were dealt, with the time (ns)."""
    struck = []
    for moment, name, whom in schedule.blows:
        try:
            popen.wait(max(0.0, start + moment - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        else:
            return struck
        # Before there is a runner, the bare interpreter is there, and dies of a signal as any program does.
        while not descendants.children(popen.pid) and popen.poll() is None:
            time.sleep(0.001)
        try:
            pid = popen.pid if whom == "guardian" else descendants.children(popen.pid)[0]
            os.kill(pid, signal.Signals["SIG" + name])
            struck.append((name, time.monotonic_ns()))
        except (IndexError, ProcessLookupError):
            continue
    return struck


def survivors(seconds: float) -> list[str]:
    """Name who is left below us; after a killed guardian the runner has time for its teardown."""
    deadline = time.monotonic() + seconds
    while True:
        descendants.reap_adopted()
        left = [found for found in descendants.descendants(os.getpid()) if not found.is_zombie]
        if not left or time.monotonic() >= deadline:
            break
        time.sleep(0.005)
    descendants.kill_all()
    return [f"left behind: {found.pid} ({found.name})" for found in left]


def wrong_logs(schedule: Schedule, folder: Path) -> list[str]:
    """Compare each log with the stream that the rank was writing, and with its book."""
    wrong = []
    book = (folder / "book").read_bytes()
    for rank_id in range(RANKS):
        written, _death = chatter.ENTRY.unpack_from(book, chatter.ENTRY.size * rank_id)
        path = folder / "log" / f"chaos-proc-rank-{rank_id}-device-{rank_id}.txt"
        found = path.read_bytes() if path.exists() else b""
        expected = bytearray()
        number = 0
        while len(expected) < len(found):
            expected += chatter.line(number)
            number += 1
        if found != bytes(expected[: len(found)]):
            wrong.append(f"the log of rank {rank_id} is not what the rank wrote")
        if len(found) < written and not schedule.is_beheaded:
            wrong.append(f"the log of rank {rank_id} has {len(found)} bytes, the rank wrote {written}")
        if len(found) > written + chatter.CHUNK:
            wrong.append(f"the log of rank {rank_id} has {len(found)} bytes, the rank wrote only {written}")
    return wrong


def wrong_status(schedule: Schedule, status: int, struck: list[tuple[str, int]], folder: Path) -> list[str]:
    """Compare the exit status with what the deaths and signals, in their order, make of it."""
    book = (folder / "book").read_bytes()
    # SIGUSR1 is forwarded, and kills a rank that has not yet got itself a handler for it (128 + 10).
    causes = [(moment, 128 + signal.Signals["SIG" + name]) for name, moment in struck if name in (*STOPPING, "USR1")]
    for rank_id, plan in enumerate(schedule.plans):
        _written, death = struct.unpack_from("=QQ", book, chatter.ENTRY.size * rank_id)
        last = plan.rpartition(",")[2]
        name, _, value = last.partition("=")
        if death and name == "exit" and value != "0":
            causes.append((death, int(value)))
        elif death and name == "die":
            causes.append((death, 128 + signal.Signals["SIG" + value]))
    first = min((moment for moment, _status in causes), default=0)
    allowed = {expected for moment, expected in causes if moment - first < TIE} or {0}
    if allowed & {128 + signal.Signals["SIG" + name] for name in STOPPING}:
        # Signals that wait until the runner has imported itself come in no particular order.
        allowed |= {128 + signal.Signals["SIG" + name] for name, _moment in struck if name in STOPPING}
    if 128 + signal.SIGUSR1 in allowed:
        allowed |= {expected for _moment, expected in causes} | {0}
    # A signal that comes as the last rank ends may find the job done.
    if not any(plan.endswith("linger") for plan in schedule.plans) and all(expected > 128 for expected in allowed):
        allowed.add(0)
    return [] if status in allowed else [f"exit status {status}, expected {sorted(allowed)}"]


def main() -> int:
    """Play the schedules side by side; 1 if any went wrong."""
    parser = argparse.ArgumentParser(prog="scripts/chaos")
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule; the others follow")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1))
    args = parser.parse_args()

    seeds = range(args.seed, args.seed + args.schedules)
    failed = 0
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for schedule, wrong in zip(map(draw, seeds), pool.map(lambda seed: play(draw(seed)), seeds)):
            if wrong:
                failed += 1
                print(f"FAILED {schedule}", *wrong, sep="\n  ", flush=True)
            played = schedule.seed - args.seed + 1
            if played % 100 == 0:
                print(f"{played} of {args.schedules}, {failed} failed, {time.monotonic() - start:.0f} s", flush=True)
    print(f"{args.schedules - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
