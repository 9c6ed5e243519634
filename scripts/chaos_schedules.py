"""Play random schedules of faults on 8 real ranks, and check the invariants after each of them.

The exit status is that of the first cause, no process is left, every log is complete to the byte, and the program ends
within the grace and 6 seconds. A schedule that fails is printed with its seed: `--seed N --schedules 1` plays it again.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "workers")]

import chatter  # noqa: E402  found by the line above

from ascend_runner.guardian import process_tree  # noqa: E402

RANKS = 8
GRACE = 1.0  # seconds
LIMIT = GRACE + 6.0
# Nanoseconds. Ranks record their death just before it, so on a busy machine the second one to record may be
# the first one to die. scripts/bench measures races in which only one rank can be the first.
TIE = 60_000_000
DEADLY = ("SEGV", "KILL", "ABRT", "BUS", "HUP", "INT", "TERM", "FPE")
STOPPING = ("TERM", "INT", "HUP", "QUIT")
# The probability of each, independently; see `Place`.
SURROUNDINGS = {
    "container": 0.1,
    "nohup": 0.1,
    "closed": 0.1,
    "stalled": 0.1,
    "long": 0.1,
    "full": 0.1,
    "little": 0.05,
    "crowded": 0.05,
    "clock": 0.1,
    "table": 0.1,
}
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
NOBODYS = 60_000  # a user id without processes; each schedule uses another one
FULL = 100_000  # bytes
CHATTER = ROOT / "tests" / "workers" / "chatter.py"
TABLE = ROOT / "fixtures" / "valid" / "group_list_8_devices.json"


def someone_else(user: int) -> tuple[str, ...]:
    """Return the command line that starts a program as another user, who may still read an interpreter below /root."""
    ids = (f"--reuid={user}", f"--regid={user}", "--clear-groups")
    return ("setpriv", *ids, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


def is_permitted(*words: str) -> bool:
    """Whether a program can be started that way here."""
    if shutil.which(words[0]) is None:
        return False
    return subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0


FORBIDDEN = {
    word
    for word, command in (("container", CONTAINER), ("crowded", someone_else(NOBODYS)))
    if not is_permitted(*command)
}


@attrs.frozen
class Schedule:
    """The plan of each rank, and the signals to the runner: after how many seconds, which one, to which process."""

    seed: int
    plans: tuple[str, ...]
    blows: tuple[tuple[float, str, str], ...]
    options: tuple[str, ...]
    surroundings: tuple[str, ...] = ()  # see `Place`

    @property
    def is_held(self) -> bool:
        """Whether processes are stopped for a while, so that what happens meanwhile is seen in no certain order."""
        return any(name == "STOP" for _moment, name, _whom in self.blows)

    @property
    def has_patience(self) -> bool:
        """Whether the program is asked to stop once, or twice at the same moment: every rank has its grace."""
        stops = {(moment, name) for moment, name, _whom in self.blows if name in STOPPING}
        return len(stops) < 2 and not (self.is_beheaded or self.is_held)

    @property
    def is_beheaded(self) -> bool:
        """Whether the runner or the guardian is killed, so that the status and last bytes of ranks may be lost."""
        return any(name == "KILL" for _moment, name, _whom in self.blows)


def draw(seed: int) -> Schedule:
    """Draw a schedule."""
    dice = random.Random(seed)
    surroundings = tuple(word for word, share in SURROUNDINGS.items() if dice.random() < share)
    deadly = DEADLY if "nohup" not in surroundings else tuple(name for name in DEADLY if name != "HUP")
    meeting = f"at={dice.randrange(200, 700)}" if dice.random() < 0.2 else ""
    plans = []
    for _ in range(RANKS):
        words = []
        if dice.random() < 0.15:
            words.append(dice.choice(("ignore=TERM", "save=200")))
        if dice.random() < 0.25:
            words.append("child=" + dice.choice(("plain", "group", "session", "daemon", "headless")))
        if dice.random() < 0.03:
            words.append(dice.choice(("forks=10", "forks=60", "forks=500", "chains=8")))
        if "crowded" in surroundings:  # a rank that cannot fork does not follow its plan
            words = [word for word in words if not word.startswith(("child", "forks", "chains"))]
        works = (f"write={dice.randrange(20_000)}", f"write={dice.randrange(900_000)}", f"nap={dice.randrange(60)}")
        words += dice.choices(works, k=dice.randrange(3))
        words += filter(None, [meeting])
        ends = ("exit=0", f"exit={dice.randrange(1, 125)}", "die=" + dice.choice(deadly), "linger", "stop,linger")
        words.append(dice.choices(ends, (6, 1, 1, 3, 0.5))[0])
        plans.append(",".join(words))
    blows = _draw_blows(dice, plans, surroundings)
    options: tuple[str, ...] = dice.choice(((), ("--console", "none"), ("--quiet",), ("--no-prefix",)))
    if dice.random() < 0.1 and not any(name == "REMOVE" for _moment, name, _whom in blows):
        options += ("--log-max-size", "64K", "--log-backups", "1000")
    return Schedule(seed, tuple(plans), tuple(sorted(blows)), options, surroundings)


def _draw_blows(dice: random.Random, plans: list[str], surroundings: tuple[str, ...]) -> list[tuple[float, str, str]]:
    blows: list[tuple[float, str, str]] = []
    if any(plan.endswith("linger") for plan in plans) or dice.random() < 0.5:
        heard = STOPPING if "nohup" not in surroundings else ("TERM", "INT", "QUIT")
        blows.append((dice.uniform(0, 0.8), dice.choice(heard), "guardian"))
    if dice.random() < 0.3:
        blows.append((dice.uniform(0, 1.2), dice.choice(STOPPING), "guardian"))
    if dice.random() < 0.2:
        blows.append((dice.uniform(0.1, 0.6), "KILL", dice.choice(("runner", "guardian"))))
    if dice.random() < 0.1:
        blows.append((dice.uniform(0, 0.4), "USR1", "guardian"))
    if dice.random() < 0.15:
        moment = dice.uniform(0, 1.0)
        blows += [(moment, dice.choice(STOPPING), "guardian") for _ in range(dice.choice((2, 5)))]
    if dice.random() < 0.1:
        blows.append((dice.uniform(0.1, 0.6), "REMOVE", "logs"))
    blows += _draw_odd_blows(dice)
    if "table" in surroundings:
        blows.append((dice.uniform(0, 0.6), "CHANGE", "table"))
    if "container" in surroundings:  # the kernel kills all others with its first process
        blows = [blow for blow in blows if blow[1] != "KILL"]
    return blows


def _draw_odd_blows(dice: random.Random) -> list[tuple[float, str, str]]:
    """Draw signals that reach guardian and runner alike, floods, and processes that are stopped for a while."""
    blows: list[tuple[float, str, str]] = []
    if dice.random() < 0.15:
        blows.append((dice.uniform(0, 0.8), dice.choice(("TERM", "INT")), "both"))
    if dice.random() < 0.1:
        blows.append((dice.uniform(0, 0.6), "USR1", "flood"))
    if dice.random() < 0.2:
        moment, whom = dice.uniform(0, 0.6), dice.choice(("runner", "guardian", "ranks"))
        blows += [(moment, "STOP", whom), (moment + dice.uniform(0.05, 1.5), "CONT", whom)]
    return blows


def play(schedule: Schedule) -> list[str]:
    """Play a schedule in a child process that adopts every orphan; return what was wrong."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        process_tree.become_subreaper()
        folder = Path(tempfile.mkdtemp(prefix="ascend-runner-chaos-"))
        try:
            wrong = check(schedule, folder)
        except Exception:  # noqa: BLE001  any error is reported, and must not propagate in the forked child
            wrong = traceback.format_exc().splitlines()
        shutil.rmtree(folder, ignore_errors=True)
        os.write(writer, "\n".join(wrong).encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read().decode()
    os.waitpid(pid, 0)
    return text.splitlines()


def check(schedule: Schedule, folder: Path) -> list[str]:
    """Run one schedule and return what was wrong."""
    book = folder / "book"
    book.write_bytes(bytes(chatter.ENTRY.size * RANKS))
    # By way of env: access(2) would tell another user that an interpreter below /root cannot be executed.
    worker = [shutil.which("env") or "env", sys.executable, "-S", "-E", str(CHATTER), str(book), *schedule.plans]
    place = Place(schedule, folder)
    argv = [*place.command(), "--log-dir", str(folder / "log"), "--grace", str(GRACE), *schedule.options, *worker]
    start = time.monotonic()
    with open(folder / "screen", "wb") as screen:
        output = place.pipe[1] if place.pipe else screen.fileno()
        popen = subprocess.Popen(
            argv, env=place.env(), cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=screen
        )
    struck = strike(schedule, popen, start, place)
    last_blow = max((moment for moment, _name, _whom in schedule.blows), default=0.0)
    try:
        status = popen.wait(max(last_blow, 3.0) + LIMIT - (time.monotonic() - start) + 1.0)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()
        return [f"still running after {time.monotonic() - start:.1f} s", *own_lines(folder)]
    finally:
        place.leave()
    guardian_killed = status == -signal.SIGKILL
    wrong = survivors(LIMIT if guardian_killed else 0.0)
    wrong += wrong_logs(schedule, folder, place)
    if schedule.has_patience:
        asked, saved = ({path.suffix for path in folder.glob(f"{what}.*")} for what in ("asked", "saved"))
        wrong += [f"rank {suffix[1:]} was not allowed to save" for suffix in asked - saved]
    if not schedule.is_beheaded and not (status == 125 and place.words & {"little", "crowded"}):
        wrong += wrong_status(schedule, status, struck, folder)
    return [*wrong, *own_lines(folder)] if wrong else []


def own_lines(folder: Path) -> list[str]:
    """Return the last lines of the runner itself, and any traceback, for the report of a failure."""
    lines = (folder / "screen").read_text(errors="replace").splitlines()
    return [line for line in lines if not line.startswith(("[rank ", "  | "))][-40:]


class Place:
    """The surroundings of one run.

    container   it is the first process of a PID namespace (where that is permitted)
    nohup       SIGHUP is ignored
    closed      stdin, stdout and stderr are closed
    stalled     stdout is a pipe that nobody reads
    long        the environment holds a string of 128 KiB
    full        no file may exceed 100 kB
    little      file descriptors are about to run out
    crowded     processes are about to run out
    clock       the wall clock jumps back and forth with every call
    table       there is a rank table, which is rewritten while the ranks run
    """

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        words = schedule.surroundings
        self.words = set(words) - FORBIDDEN
        self.folder = folder
        self.few_files = 20 + schedule.seed % 24
        self.few_processes = 1 + schedule.seed % 16
        self.user = NOBODYS + schedule.seed % 5_000
        if "crowded" in self.words:
            for path in (folder, *folder.iterdir()):
                os.chown(path, self.user, self.user)
        self.pipe = os.pipe() if "stalled" in words else None
        self.removed: dict[str, int] = {}  # descriptors of removed log files, by their names

    def command(self) -> list[str]:
        """Return the command line that starts the program here."""
        command = [*CONTAINER] if "container" in self.words else []
        if "full" in self.words:
            command += ["prlimit", f"--fsize={FULL}"]
        if "little" in self.words:
            command += ["prlimit", f"--nofile={self.few_files}"]
        if "crowded" in self.words:
            command += [*someone_else(self.user), "prlimit", f"--nproc={self.few_processes}"]
        if "nohup" in self.words:
            command += ["sh", "-c", 'trap "" HUP; exec "$@"', "sh"]
        if "closed" in self.words:
            command += ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
        program = ["-m", "ascend_runner"]
        if "clock" in self.words:
            program = [str(ROOT / "tests" / "workers" / "library_run.py"), "wild-clock", "-"]
        ranks = ["--nproc-per-node", str(RANKS)]
        if "table" in self.words:
            self.table.write_bytes(TABLE.read_bytes())
            ranks = ["--rank-table", str(self.table), "--no-table-checks"]
        return [*command, sys.executable, *program, *ranks]

    def env(self) -> dict[str, str]:
        """Return the environment."""
        env = {"PATH": os.environ["PATH"], "MA_VJ_NAME": "chaos", "PYTHONPATH": str(ROOT)}
        env["CHAOS_START"] = str(time.monotonic_ns())
        if "long" in self.words:
            env["LONG"] = "x" * (128 * 1024 - 6)
        return env

    @property
    def table(self) -> Path:
        """The path of the rank table."""
        return self.folder / "jobstart_hccl.json"

    def guardian(self, popen: subprocess.Popen[bytes]) -> int | None:
        """Return the pid of the program's first process."""
        if "container" not in self.words:
            return popen.pid
        return next(iter(process_tree.children(popen.pid)), None)

    def change(self, what: str) -> None:
        """Remove the log files or rewrite the table, if all ranks have their logs already."""
        logs = sorted((self.folder / "log").glob("chaos-proc-*"))
        if len(logs) < RANKS:
            return
        if what == "table":
            self.table.write_text("{}")
            return
        for path in logs:
            self.removed[path.name] = os.open(path, os.O_RDONLY)
            path.unlink()

    def log(self, rank_id: int) -> bytes:
        """Read the log of a rank; a removed log is not created again after its rank has ended."""
        path = self.folder / "log" / f"chaos-proc-rank-{rank_id}-device-{rank_id}.txt"
        if not path.exists() and path.name in self.removed:
            with open(self.removed.pop(path.name), "rb") as file:
                return file.read()
        backups = sorted(path.parent.glob(path.name + ".*"), key=lambda found: -int(found.suffix[1:]))
        return b"".join(found.read_bytes() for found in (*backups, path) if found.exists())

    def leave(self) -> None:
        """Close the pipe."""
        for fd in self.pipe or ():
            os.close(fd)
        self.pipe = None


def strike(schedule: Schedule, popen: subprocess.Popen[bytes], start: float, place: Place) -> list[tuple[str, int]]:
    """Send the signals at their times; return those that were sent, with the times in nanoseconds."""
    struck: list[tuple[str, int]] = []
    stopped: list[int] = []
    for moment, name, whom in schedule.blows:
        try:
            popen.wait(max(0.0, start + moment - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        else:
            proceed(stopped)  # a runner whose guardian was killed meanwhile
            return struck
        # Before it forks the runner, the guardian dies of a signal like any program.
        guardian = place.guardian(popen)
        while not (guardian and process_tree.children(guardian)) and popen.poll() is None:
            time.sleep(0.001)
            guardian = place.guardian(popen)
        if whom in {"logs", "table"}:
            place.change(whom)
            continue
        if guardian is None:  # it has already ended; kill(0) would signal our own group
            continue
        try:
            pids = targets(whom, guardian)
            stopped += pids if name == "STOP" else []
            for pid in pids:
                os.kill(pid, signal.Signals["SIG" + name])
            struck.append((name, time.monotonic_ns()))
        except (IndexError, ProcessLookupError):
            continue
    return struck


def proceed(pids: list[int]) -> None:
    """Continue processes, if they are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def targets(whom: str, guardian: int) -> list[int]:
    """Return the pids of those to strike, one for each signal."""
    runner = process_tree.children(guardian)[0]
    return {
        "guardian": [guardian],
        "runner": [runner],
        "both": [guardian, runner],
        "ranks": process_tree.children(runner),
        "flood": [guardian, runner] * 500,
    }[whom]


def survivors(seconds: float) -> list[str]:
    """Name the processes that are left; `seconds` is the time that the runner has after its guardian was killed."""
    deadline = time.monotonic() + seconds
    while True:
        process_tree.reap_adopted()
        left = [found for found in process_tree.descendants(os.getpid()) if not found.is_zombie]
        if not left or time.monotonic() >= deadline:
            break
        time.sleep(0.005)
    process_tree.kill_all()
    return [f"left behind: {found.pid} ({found.name})" for found in left]


def wrong_logs(schedule: Schedule, folder: Path, place: Place) -> list[str]:
    """Compare each log with what its rank was to write, and with the number of bytes that it recorded."""
    wrong = []
    book = (folder / "book").read_bytes()
    for rank_id in range(RANKS):
        written, _death = chatter.ENTRY.unpack_from(book, chatter.ENTRY.size * rank_id)
        found = place.log(rank_id)
        if b"KeyboardInterrupt" in found:
            continue  # Ctrl-C reached the rank while Python started, which wrote its own traceback
        expected = bytearray()
        number = 0
        while len(expected) < len(found):
            expected += chatter.line(number)
            number += 1
        if found != bytes(expected[: len(found)]):
            wrong.append(f"the log of rank {rank_id} is not what the rank wrote")
        has_room = "full" not in place.words or len(found) < FULL
        if len(found) < written and not schedule.is_beheaded and has_room:
            wrong.append(f"the log of rank {rank_id} has {len(found)} bytes, the rank wrote {written}")
        if len(found) > written + chatter.CHUNK:
            wrong.append(f"the log of rank {rank_id} has {len(found)} bytes, the rank wrote only {written}")
    return wrong


def wrong_status(schedule: Schedule, status: int, struck: list[tuple[str, int]], folder: Path) -> list[str]:
    """Compare the exit status with the order of deaths and signals."""
    book = (folder / "book").read_bytes()
    if "nohup" in schedule.surroundings:
        struck = [(name, moment) for name, moment in struck if name != "HUP"]
    causes = [(moment, 128 + signal.Signals["SIG" + name]) for name, moment in struck if name in STOPPING]
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
        # Signals that are pending while the runner starts arrive in no particular order.
        allowed |= {128 + signal.Signals["SIG" + name] for name, _moment in struck if name in STOPPING}
    if schedule.is_held:
        allowed |= {expected for _moment, expected in causes}
    # A signal may arrive after the last rank has ended.
    if not any(plan.endswith("linger") for plan in schedule.plans) and all(expected > 128 for expected in allowed):
        allowed.add(0)
    if status in allowed:
        return []
    order = ", ".join(f"{expected} after {(moment - first) / 1e6:.0f} ms" for moment, expected in sorted(causes))
    return [f"exit status {status}, expected {sorted(allowed)} (causes: {order})"]


def main() -> int:
    """Play the schedules in parallel; return 1 if any of them failed."""
    parser = argparse.ArgumentParser(prog="scripts/chaos")
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first schedule; the others count up from it")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1))
    args = parser.parse_args()

    if FORBIDDEN:
        print(f"without {' and '.join(sorted(FORBIDDEN))}, which need root", flush=True)
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # schedules send them and expect an effect
        signal.signal(signum, signal.SIG_DFL)
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
