"""Play random schedules of faults on 8 real ranks, and check the invariants after each of them.

The exit status is that of the first cause, no process is left, every byte is in its log or was counted as lost, and the
program ends within the grace and 6 seconds. A schedule that fails is printed with its seed: `--seed N --schedules 1`
plays it again. One that fails by time alone while this program itself was late is played again at the end, alone.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "workers")]

import chatter  # noqa: E402  found by the line above
from chaos_draw import DISKS, RANKS, STOPPING, Schedule, draw  # noqa: E402

from ascend_runner.guardian import process_tree, sweep  # noqa: E402
from tests.helpers.disk import Disk  # noqa: E402
from tests.helpers.disk import is_possible as is_disk_possible  # noqa: E402

GRACE = 1.0  # seconds
LIMIT = GRACE + 6.0
# Nanoseconds. Ranks record their death just before it, so on a busy machine the second one to record may be
# the first one to die. scripts/bench measures races in which only one rank can be the first.
TIE = 60_000_000
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
NOBODYS = 60_000  # a user id without processes; each schedule uses another one
FULL = 100_000  # bytes
RATES = (2_000_000, 4_000_000, 8_000_000)  # bytes per second of a slow disk
IN_FLIGHT = 256 * 1024  # bytes of a write that fails or hangs, some of which may have reached the disk
KEY = 512  # bytes of a log in which there is the number of a line, so that they can be found in the stream
LATE = 0.25  # seconds; see `Lateness`
OVERLOAD = 3.0  # processes for each processor that want to run; a schedule that is late then is played again
ALONE = 3  # times at most
STUCK_LIMIT = 2.0  # seconds
AWAIT_LIMIT = 5.0  # seconds for the first rank to write something, which none may be to do
NO_RESPONSE = "the runner did not respond"  # what the guardian says
UNKNOWN = "the result of the job is unknown"  # likewise, if it hung before it had one
NO_RESULT = "cannot run: too many open files"  # a runner without descriptors counts nothing
OWN_LINES = "  | "
MACHINE_LATE = "this program was late by"
TIMED = ("still running after", "exit status", "the runner was killed", "was not allowed to save", "only slow")
CHATTER = ROOT / "tests" / "workers" / "chatter.py"
TABLE = ROOT / "fixtures" / "valid" / "group_list_8_devices.json"


def someone_else(user: int) -> tuple[str, ...]:
    """Return the command line that starts a program as another user that may still read an interpreter below /root."""
    ids = (f"--reuid={user}", f"--regid={user}", "--clear-groups")
    return ("setpriv", *ids, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


def is_permitted(*words: str) -> bool:
    """Whether a program can be started that way here."""
    if shutil.which(words[0]) is None:
        return False
    return subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0


def find_forbidden() -> dict[str, str]:
    """Return the surroundings that are impossible here, with what they need."""
    forbidden = {}
    if not is_permitted(*CONTAINER):
        forbidden["container"] = "unshare(1) and root"
    if not is_permitted(*someone_else(NOBODYS)):
        forbidden["crowded"] = "setpriv(1) and root"
    if not is_disk_possible():
        forbidden.update(dict.fromkeys(DISKS, "bindfs(1), /dev/fuse and root"))
    return forbidden


FORBIDDEN = find_forbidden()


class Lateness:
    """Measures by how many seconds this process was late at most, and how many processes wanted to run on average."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._running: list[int] = []
        threading.Thread(target=self._measure, daemon=True).start()

    @property
    def load(self) -> float:
        """The load since the start for each processor, which the load average shows only a minute later."""
        return sum(self._running) / max(len(self._running), 1) / (os.cpu_count() or 1)

    def _measure(self) -> None:
        while True:
            due = time.monotonic() + 0.02
            time.sleep(0.02)
            self.seconds = max(self.seconds, time.monotonic() - due)
            # The fourth field is "running/all" (proc(5)); this thread is running as well.
            self._running.append(int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]) - 1)


def play(check: Callable[[Path], list[str]]) -> list[str]:
    """Play a schedule in a folder, in a child process that adopts every orphan; return what was wrong.

    If this process dies, the child ends what it has started, and removes the folder.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        process_tree.become_subreaper()
        folder, lateness = Path(tempfile.mkdtemp(prefix="ascend-runner-chaos-")), Lateness()
        on_end(end_once)
        process_tree.ask_for_signal_at_parent_death(signal.SIGTERM)
        try:
            wrong = check(folder)
        except BaseException:  # noqa: BLE001  any error is reported, and must not propagate in the forked child
            wrong = traceback.format_exc().splitlines()
        on_end(signal.SIG_IGN)  # what follows is not to be cut short
        sweep.sweep()  # nothing may go on beside the schedules that follow
        shutil.rmtree(folder, ignore_errors=True)
        if wrong and (lateness.seconds > LATE or lateness.load > OVERLOAD):
            late = f"{lateness.seconds:.2f} s at a load of {lateness.load:.1f} for each processor"
            wrong.insert(0, f"{MACHINE_LATE} {late}")
        with contextlib.suppress(BrokenPipeError):
            os.write(writer, "\n".join(wrong).encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read().decode()
    os.waitpid(pid, 0)
    return text.splitlines()


def on_end(handler: Callable[..., object] | signal.Handlers) -> None:
    """Handle the signals that end a schedule. The kernel sends SIGHUP if a group is orphaned while we stop others."""
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, handler)


def end_once(*_: object) -> None:
    """Let this process clean up and exit, however many of these signals arrive."""
    on_end(signal.SIG_IGN)
    sys.exit(1)


def check(schedule: Schedule, folder: Path) -> list[str]:
    """Run one schedule and return what was wrong."""
    book = folder / "book"
    book.write_bytes(bytes(chatter.ENTRY.size * RANKS))
    # By way of env: access(2) would tell another user that an interpreter below /root cannot be executed.
    worker = [shutil.which("env") or "env", sys.executable, "-S", "-E", str(CHATTER), str(book), *schedule.plans]
    place = Place(schedule, folder)
    argv = [*place.command(), "--log-dir", str(place.log_dir), "--grace", str(GRACE), *schedule.options, *worker]
    start = time.monotonic()
    with open(folder / "screen", "wb") as screen:
        output = place.pipe[1] if place.pipe else screen.fileno()
        popen = subprocess.Popen(
            argv, env=place.env(), cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=screen
        )
    try:
        sent, start = inject(schedule, popen, start, place)
        last_fault = max((fault.moment for fault in schedule.faults), default=0.0)
        status = popen.wait(max(last_fault, 3.0) + LIMIT + place.drain_limit - (time.monotonic() - start) + 1.0)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()
        return [f"still running after {time.monotonic() - start:.1f} s", *quoted(folder)]
    else:
        if status == -signal.SIGKILL:  # the guardian was killed, and the runner stops the ranks
            wait_for_end(LIMIT + place.drain_limit, place)
    finally:
        place.leave()
    if "hanging" in place.words:  # the disk has been unmounted now, and whatever was stuck at it can end
        wait_for_end(STUCK_LIMIT, place)
    wrong = survivors(
        place, "still running after the guardian was killed" if status == -signal.SIGKILL else "left behind"
    )
    wrong += wrong_logs(schedule, folder, place)
    may_be_killed = schedule.has_kill or schedule.has_pause or "hanging" in place.words
    if not may_be_killed and any(NO_RESPONSE in line for line in own_lines(folder)):
        wrong.append("the runner was killed by the guardian while no disk was hanging")
    if schedule.has_grace:
        asked, saved = ({path.suffix for path in folder.glob(f"{what}.*")} for what in ("asked", "saved"))
        wrong += [f"rank {suffix[1:]} was not allowed to save" for suffix in asked - saved]
    may_fail = place.words & {"little", "crowded"} or ("lost" in place.words and not any(written(folder)))
    if not schedule.has_kill and not (status == 125 and may_fail):
        wrong += wrong_status(schedule, status, sent, folder)
    return [*wrong, *quoted(folder)] if wrong else []


def quoted(folder: Path) -> list[str]:
    """Return the last lines of the runner itself for the report of a failure."""
    return [OWN_LINES + line for line in own_lines(folder)[-40:]]


def own_lines(folder: Path) -> list[str]:
    """Return the lines of the runner itself, and any traceback."""
    lines = (folder / "screen").read_text(errors="replace").splitlines()
    return [line for line in lines if not re.match(r"\[rank |  \| |\d*:?x*$", line)]


class Place:
    """The surroundings of one run.

    container   it is the first process of a PID namespace (where that is permitted)
    nohup       SIGHUP is ignored
    closed      stdin, stdout and stderr are closed
    stalled     stdout is a pipe without a reader
    long        the environment holds a string of 128 KiB
    full        no file may exceed 100 kB
    little      file descriptors are about to run out
    crowded     processes are about to run out
    clock       the wall clock jumps back and forth with every call
    table       there is a rank table, which is rewritten while the ranks run
    slow        the disk of the logs accepts few bytes per second
    hanging     the disk of the logs hangs, for a while or for good
    lost        the disk of the logs fails with ENOTCONN, for a while or for good
    """

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        words = schedule.surroundings
        self.words = set(words) - FORBIDDEN.keys()
        self.folder = folder
        self.few_files = 20 + schedule.seed % 24
        self.few_processes = 1 + schedule.seed % 16
        self.user = NOBODYS + schedule.seed % 5_000
        self.rate = RATES[schedule.seed % len(RATES)] if "slow" in self.words else 0
        self.drain_limit = schedule.size / self.rate + 2.0 if self.rate else 0.0
        self.disk = Disk(folder, self.rate) if schedule.disk in self.words else None
        self.log_dir = self.disk.path / "log" if self.disk else folder / "log"
        self.logs = self.disk.content / "log" if self.disk else folder / "log"  # where they can always be read
        if self.disk:
            self.disk.mount()
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

    def change(self, what: str, how: str) -> None:
        """Break the disk; remove the log files or rewrite the table, if all ranks have their logs already."""
        if what == "disk":
            if self.disk:
                self.disk.inject(how)
            return
        logs = sorted(self.logs.glob("chaos-proc-*"))
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
        path = self.logs / f"chaos-proc-rank-{rank_id}-device-{rank_id}.txt"
        if not path.exists() and path.name in self.removed:
            with open(self.removed.pop(path.name), "rb") as file:
                return file.read()
        backups = sorted(path.parent.glob(path.name + ".*"), key=lambda found: -int(found.suffix[1:]))
        return b"".join(found.read_bytes() for found in (*backups, path) if found.exists())

    def lost(self) -> int | None:
        """Return how many bytes the program reports as lost, or None if it was killed or could not report them."""
        with contextlib.suppress(OSError, ValueError):
            report = json.loads((self.logs / "chaos-report.json").read_bytes())
            if report["status"] is not None:  # that of a job whose end the disk has not taken says "running"
                return sum(int(rank["log_lost"]) for rank in report["ranks"])
        lines = own_lines(self.folder)
        if "closed" in self.words or any(NO_RESPONSE in line or NO_RESULT in line for line in lines):
            return None
        return sum(int(size) for line in lines for size in re.findall(r"log files are missing (\d+) bytes", line))

    def leave(self) -> None:
        """Close the pipe and unmount the disk, so that nothing hangs at it."""
        if self.disk:
            self.disk.unmount()
        for fd in self.pipe or ():
            os.close(fd)
        self.pipe = None


def inject(
    schedule: Schedule, popen: subprocess.Popen[bytes], start: float, place: Place
) -> tuple[list[tuple[str, int]], float]:
    """Inject each fault at its time; return the signals, with their nanoseconds, and what all times count from."""
    sent: list[tuple[str, int]] = []
    stopped: list[int] = []
    for fault in schedule.faults:
        try:
            popen.wait(max(0.0, start + fault.moment - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        else:
            proceed(stopped)  # a runner whose guardian was killed meanwhile
            return sent, start
        if fault.name == "AWAIT":
            start = await_output(popen, place)
            continue
        # Before it forks the runner, the guardian dies of a signal like any program.
        guardian = place.guardian(popen)
        while not (guardian and process_tree.children(guardian)) and popen.poll() is None:
            time.sleep(0.001)
            guardian = place.guardian(popen)
        if fault.target in {"logs", "table", "disk"}:
            place.change(fault.target, fault.name)
            continue
        if guardian is None:  # it has already ended; kill(0) would signal our own group
            continue
        try:
            pids = targets(fault.target, guardian)
            stopped += pids if fault.name == "STOP" else []
            for pid in pids:
                os.kill(pid, signal.Signals["SIG" + fault.name])
            sent.append((fault.name, time.monotonic_ns()))
        except (IndexError, ProcessLookupError):
            continue
    return sent, start


def await_output(popen: subprocess.Popen[bytes], place: Place) -> float:
    """Wait until a rank has begun to write, or the program has ended; return the time."""
    deadline = time.monotonic() + AWAIT_LIMIT
    while popen.poll() is None and not any(written(place.folder)) and time.monotonic() < deadline:
        time.sleep(0.002)
    return time.monotonic()


def proceed(pids: list[int]) -> None:
    """Continue processes, if they are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def targets(target: str, guardian: int) -> list[int]:
    """Return the pids of those to signal, one for each signal."""
    runner = process_tree.children(guardian)[0]
    return {
        "guardian": [guardian],
        "runner": [runner],
        "both": [guardian, runner],
        "ranks": process_tree.children(runner),
        "flood": [guardian, runner] * 500,
    }[target]


def living(place: Place) -> list[process_tree.Descendant]:
    """Return the processes that are left, but for the one that serves the disk."""
    servers = frozenset({place.disk.pid}) if place.disk else frozenset()
    sweep.reap_adopted(keep=servers)
    return [found for found in process_tree.descendants(os.getpid(), servers) if not found.is_zombie]


def wait_for_end(seconds: float, place: Place) -> None:
    """Wait until no process is left."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and living(place):
        time.sleep(0.005)


def survivors(place: Place, what: str) -> list[str]:
    """Name the processes that are left."""
    left = living(place)
    return [f"{what}: {found.pid} ({found.name}, state {found.state})" for found in left]


def written(folder: Path) -> list[int]:
    """Return how many bytes each rank has recorded to have written."""
    return [size for size, _death in chatter.ENTRY.iter_unpack((folder / "book").read_bytes())]


def wrong_logs(schedule: Schedule, folder: Path, place: Place) -> list[str]:
    """Compare each log with what its rank was to write, and with the number of bytes that it recorded."""
    wrong = []
    missing = 0
    for rank_id, size in enumerate(written(folder)):
        found = place.log(rank_id)
        if b"Traceback (" in found or (not size and not found.startswith(chatter.line(0))):
            continue  # Ctrl-C reached the rank while Python started, which wrote nothing, a traceback or a part of one
        if not is_part_of_stream(found, size + chatter.CHUNK, has_gaps=bool(place.disk)):
            ends = f"{found[:80]!r} to {found[-80:]!r}"
            wrong.append(f"the log of rank {rank_id} is not what the rank wrote: {ends}")
        has_room = "full" not in place.words or len(found) < FULL
        missing += size - len(found) if has_room else 0
        is_promised = not (schedule.has_kill or place.disk) and not any(NO_RESULT in line for line in own_lines(folder))
        if len(found) < size and is_promised and has_room:
            wrong.append(f"the log of rank {rank_id} has {len(found)} bytes, the rank wrote {size}")
        if len(found) > size + chatter.CHUNK:
            wrong.append(f"the log of rank {rank_id} has {len(found)} bytes, the rank wrote only {size}")
    if place.disk and not schedule.has_kill and "full" not in place.words:
        wrong += wrong_loss(schedule, missing, place)
    return wrong


def wrong_loss(schedule: Schedule, missing: int, place: Place) -> list[str]:
    """Compare the bytes that all logs are missing with those that the program counts as lost."""
    lost = place.lost()
    if lost is None:
        return []
    wrong = []
    if not -RANKS * chatter.CHUNK <= lost - missing <= RANKS * IN_FLIGHT:
        wrong.append(f"the logs are missing {missing} bytes, {lost} bytes are counted as lost")
    if lost and place.rate and not schedule.is_cut_short:
        wrong.append(f"{lost} bytes are lost although the disk is only slow")
    return wrong


def is_part_of_stream(found: bytes, size: int, *, has_gaps: bool) -> bool:
    """Whether a log is the beginning of what a rank writes, or with gaps some of its pieces in their order."""
    stream = bytearray()
    number = 0
    while len(stream) < max(size, len(found)):
        stream += chatter.line(number)
        number += 1
    if stream.startswith(found):
        return True
    position = start = 0
    while has_gaps and start < len(found):
        length = 1 << 20
        while length and not stream.startswith(found[start : start + length], position):
            length //= 2
        if length:
            position, start = position + len(found[start : start + length]), start + length
        else:
            position = stream.find(found[start : start + KEY], position)
            if position < 0:
                return False
    return has_gaps


def wrong_status(schedule: Schedule, status: int, sent: list[tuple[str, int]], folder: Path) -> list[str]:
    """Compare the exit status with the order of deaths and signals."""
    book = (folder / "book").read_bytes()
    if "nohup" in schedule.surroundings:
        sent = [(name, moment) for name, moment in sent if name != "HUP"]
    causes = [(moment, 128 + signal.Signals["SIG" + name]) for name, moment in sent if name in STOPPING]
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
        allowed |= {128 + signal.Signals["SIG" + name] for name, _moment in sent if name in STOPPING}
    # A runner that is stopped, or hangs at a disk, may be killed by the guardian without having seen a rank's death.
    if schedule.has_pause or any(UNKNOWN in line for line in own_lines(folder)):
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

    for word, need in FORBIDDEN.items():
        print(f"without '{word}', which needs {need}", flush=True)
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # schedules send them and expect an effect
        signal.signal(signum, signal.SIG_DFL)
    return play_all(lambda seed: play(partial(check, draw(seed))), draw, args, TIMED)


def play_all(
    play: Callable[[int], list[str]], draw: Callable[[int], object], args: argparse.Namespace, timed: tuple[str, ...]
) -> int:
    """Play the schedules of all seeds in parallel, and those alone that were late; return 1 if any of them failed."""
    seeds = range(args.seed, args.seed + args.schedules)
    failed: list[int] = []
    late: list[int] = []
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for played, (seed, wrong) in enumerate(zip(seeds, pool.map(play, seeds)), start=1):
            if wrong:
                is_late = is_only_late(wrong, timed)
                (late if is_late else failed).append(seed)
                print("LATE" if is_late else "FAILED", draw(seed), "\n  ".join(["", *wrong]), flush=True)
            if played % 100 == 0:
                print(
                    f"{played} of {args.schedules}, {len(failed)} failed, {time.monotonic() - start:.0f} s", flush=True
                )
    for seed in late:
        wrong = play_alone(partial(play, seed), timed)
        if wrong:
            failed.append(seed)
            print("FAILED alone", draw(seed), "\n  ".join(["", *wrong]), flush=True)
    print(
        f"{args.schedules - len(failed)} passed ({len(late)} of them late, played again), {len(failed)} failed {failed}"
    )
    return 1 if failed else 0


def play_alone(play: Callable[[], list[str]], timed: tuple[str, ...]) -> list[str]:
    """Play a schedule until it does not fail by lateness alone; return what was wrong."""
    wrong: list[str] = []
    for _ in range(ALONE):
        wrong = play()
        if not (wrong and is_only_late(wrong, timed)):
            break
    return wrong


def is_only_late(wrong: list[str], timed: tuple[str, ...]) -> bool:
    """Whether a schedule failed by time alone (problems with one of these words), on a machine that was too slow."""
    facts = [line for line in wrong[1:] if not line.startswith(OWN_LINES)]
    return wrong[0].startswith(MACHINE_LATE) and all(any(word in line for word in timed) for line in facts)


if __name__ == "__main__":
    sys.exit(main())
