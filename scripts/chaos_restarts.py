"""Play random schedules of restarts on real ranks, and check the invariants after each of them.

Ranks leave behind processes that ignore SIGTERM, in sessions of their own. A fifth of the schedules kill the runner or
the guardian, a fifth stop the job. No process of two attempts lives at once, none is left, events are whole and lead to
the state in the report, and the logs have the attempts in their order. A schedule that fails is printed with its seed:
`--seed N --schedules 1` plays it again. With `--kill-runner` every schedule kills the runner.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from ascend_runner.guardian import process_tree, sweep  # noqa: E402  found by the line above
from tests.helpers.job_files import contradictions  # noqa: E402  as above

LIMIT = 60.0  # seconds for one schedule
# The first rank says if a lock of an earlier attempt is taken; children hold the lock of their own attempt.
RANK = """
n=$ASCEND_RUNNER_ATTEMPT; echo "attempt $n"
for lock in lock-*; do
  [ $RANK != 0 ] || [ "$lock" = lock-$n ] || ! [ -e "$lock" ] || flock -xn "$lock" true || echo "overlap with $lock"
done
for how in $CHILDREN; do
  [ $how = setsid ] || how=
  (trap '' TERM; exec 9>>lock-$n; flock -sn 9; $how sleep 60) & :
done
[ $RANK = 0 ] || [ $n = $LAST ] || { [ $STUBBORN = 1 ] && trap '' TERM; sleep 60; }
[ $RANK = 0 ] || exit 0
sleep $LIFE; [ $n = $LAST ] && exit 0; [ $END = KILL ] && kill -KILL $$; exit $END
"""


@attrs.frozen
class Schedule:
    """A job that succeeds in attempt `last`, and the signal that disturbs it after so many seconds."""

    seed: int
    ranks: int
    last: int
    restarts: int
    env: tuple[tuple[str, str], ...]
    fault: tuple[float, int, str] | None  # when, which signal, to the guardian or the runner


def draw(seed: int, *, kills_runner: bool) -> Schedule:
    """Draw a schedule."""
    dice = random.Random(seed)
    last = dice.randrange(5)
    env = {
        "CHILDREN": " ".join(dice.choices(("setsid", "plain"), k=dice.randrange(3))),
        "STUBBORN": str(dice.randrange(2)),
        "LIFE": f"{dice.uniform(0, 0.1):.3f}",
        "END": dice.choice(("7", "KILL", "1")),
        "LAST": str(last),
    }
    fault = None
    fate = dice.random()
    if kills_runner:
        fault = (dice.uniform(0.1, 1.0), signal.SIGKILL, "runner")
    elif fate < 0.2:
        fault = (dice.uniform(0, 2.0), signal.SIGKILL, dice.choice(("runner", "guardian")))
    elif fate < 0.4:
        fault = (dice.uniform(0, 2.0), dice.choice((signal.SIGTERM, signal.SIGINT)), "guardian")
    return Schedule(seed, dice.randrange(1, 4), last, dice.randrange(1, 5), tuple(env.items()), fault)


def play(schedule: Schedule) -> tuple[bool, list[str]]:
    """Play a schedule; return whether its signal found the job running, and what was wrong."""
    process_tree.become_subreaper()
    with tempfile.TemporaryDirectory(prefix="ascend-runner-chaos-") as path:
        folder = Path(path)
        options = ("--nproc-per-node", schedule.ranks, "--max-restarts", schedule.restarts, "--restart-delay", "0")
        words = ("--log-dir", "log", "--job-name", "job", "--grace", "0.3", *options, "sh", "-c", RANK)
        argv = [sys.executable, "-m", "ascend_runner", *map(str, words)]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **dict(schedule.env)}
        with open(folder / "screen", "wb") as screen:
            popen = subprocess.Popen(argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=screen, stderr=screen)
        is_signaled = send_signal(schedule, popen)
        try:
            status = popen.wait(LIMIT)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()
            return is_signaled, ["still running", *survivors()]
        wrong = [
            *survivors(),
            *contradictions(folder / "log"),
            *wrong_logs(folder),
            *wrong_end(schedule, status, folder, is_signaled=is_signaled),
        ]
        return is_signaled, [*wrong, *((folder / "screen").read_text().splitlines() if wrong else ())]


def send_signal(schedule: Schedule, popen: subprocess.Popen[bytes]) -> bool:
    """Send the signal of a schedule; return whether there was somebody to get it."""
    if schedule.fault is None:
        return False
    moment, signum, target = schedule.fault
    time.sleep(moment)
    pids = [popen.pid] if target == "guardian" else process_tree.children(popen.pid)
    if popen.poll() is not None or not pids:
        return False
    os.kill(pids[0], signum)
    return True


def survivors() -> list[str]:
    """Return the processes that are left; after SIGKILL of the guardian they have a moment."""
    deadline = time.monotonic() + LIMIT
    while sweep.reap_adopted(keep=frozenset()):
        if time.monotonic() > deadline:
            left = [f"left: {found}" for found in process_tree.descendants(os.getpid())]
            sweep.sweep()
            return left
        time.sleep(0.01)
    return []


def wrong_logs(folder: Path) -> list[str]:
    """Return what is wrong with the logs: each has the attempts in their order, and no attempt met another one."""
    wrong = []
    for path in (folder / "log").glob("job-proc-*"):
        lines = path.read_text().splitlines()
        attempts = [line for line in lines if line.startswith("attempt ")]
        if attempts != [f"attempt {number}" for number in range(len(attempts))] and not _has_gaps(attempts):
            wrong.append(f"{path.name}: {attempts}")
        wrong += [f"{path.name}: {line}" for line in lines if line.startswith("overlap")]
    return wrong


def _has_gaps(attempts: list[str]) -> bool:
    """Whether some attempts are missing: a rank that was stopped at once has not reported its attempt."""
    numbers = [int(line.split()[1]) for line in attempts]
    return numbers == sorted(set(numbers))


def wrong_end(schedule: Schedule, status: int, folder: Path, *, is_signaled: bool) -> list[str]:
    """Return what is wrong with the exit status and the report, if nobody was killed."""
    if is_signaled and schedule.fault and schedule.fault[1] == signal.SIGKILL:
        return []
    report = json.loads((folder / "log" / "job-report.json").read_bytes()) if (folder / "log").exists() else None
    if report is None:
        return [] if is_signaled else ["there is no report"]
    wrong = [] if report["status"] == status else [f"status {status}, reported as {report['status']}"]
    if is_signaled:
        return wrong
    end = dict(schedule.env)["END"]
    limit = min(schedule.restarts, 3)  # of the same failure in a row
    attempt = min(schedule.last, limit)
    expected = 0 if attempt == schedule.last else 137 if end == "KILL" else int(end)
    if (attempt, expected) != (report["attempt"], status):
        wrong.append(f"attempt {report['attempt']} with status {status}, expected {attempt} with {expected}")
    return wrong


def main() -> int:
    """Play the schedules; return 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    parser.add_argument(
        "--schedules", type=int, help="default: 1000; with --kill-runner 250, of which some 200 meet a running job"
    )
    parser.add_argument("--kill-runner", action="store_true", help="with SIGKILL, in every schedule")
    parser.add_argument("--at-once", type=int, default=os.cpu_count())
    options = parser.parse_args()
    count = options.schedules or (250 if options.kill_runner else 1000)
    schedules = [draw(options.seed + number, kills_runner=options.kill_runner) for number in range(count)]
    failures = signaled = 0
    with concurrent.futures.ProcessPoolExecutor(options.at_once) as pool:
        for schedule, (is_signaled, wrong) in zip(schedules, pool.map(play, schedules)):
            signaled += is_signaled
            if wrong:
                failures += 1
                print(schedule, *wrong, sep="\n  ", flush=True)
    print(f"{count} schedules, {signaled} of them with a signal to a running job, {failures} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
