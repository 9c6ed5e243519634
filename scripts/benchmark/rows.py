"""The rows about speed: each function in ROWS measures one part of the table, and gives its rows with their limits."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

from ascend_runner.diagnosis import catalogue
from benchmark import measure
from benchmark.launchers import MPIRUN_WITH_LOGS, OURS, OURS_WITH_TABLE, TABLE, Launcher, peers
from benchmark.lines import Lines
from benchmark.measure import folder
from benchmark.table import Row, count, megabytes, seconds

RANKS: Final = 8
MANY_RANKS: Final = 256
LINES_EACH: Final = 200_000  # of 100 bytes: 20 MB
TIMES: Final = 5  # each rank prints them in `output`, so that the start, which has a row of its own, counts little
BAR_STATES: Final = 50_000
IDLE_SECONDS: Final = 10.0
SOME_ENTRIES: Final = 600
LOOK_EVERY: Final = 0.2  # seconds after which the program reads its rank table again

HERE: Final = os.path.dirname(os.path.abspath(__file__))


def start_to_exit() -> Iterator[Row]:
    """Time ranks that do nothing, with and without a completed rank table.

    Each rank has a log of its own and a prefix on the console, as mpirun does it, too.
    """

    def run(launcher: Launcher) -> float:
        with folder() as path:
            script = os.path.join(path, "empty.py")
            measure.write(script, b"")
            nothing = script if launcher.starts_scripts_only else "true"
            return measure.seconds_of(launcher.command(path, nothing, ranks=RANKS))

    installed = {peer.name: MPIRUN_WITH_LOGS if peer.name == MPIRUN_WITH_LOGS.name else peer for peer in peers()}
    launchers = [OURS, OURS_WITH_TABLE, *installed.values()]
    medians = measure.alternate(
        {one.name: (3 if one.is_slow else 21, functools.partial(run, one)) for one in launchers}
    )
    ours = medians[OURS_WITH_TABLE.name]
    what = f"{RANKS} ranks that do nothing, with a table, start to exit"
    yield Row(what, ours, seconds, "mpirun, tagged and logged", medians.get("mpirun"), reach=1.5, is_ratio=True)
    yield Row("", ours, seconds, "torchrun", medians.get("torchrun"), reach=0.1, is_ratio=True)
    yield Row("", ours, seconds, "msrun", medians.get("msrun"), reach=0.1, is_ratio=True)
    what = "  without a table"
    yield Row(what, medians[OURS.name], seconds, "mpirun, tagged and logged", medians.get("mpirun"))


def teardown() -> Iterator[Row]:
    """Time the teardown when one rank exits with 7, soon or later, and the others obey SIGTERM."""
    yield from _teardown(0.1, "at once")
    yield from _teardown(1.5, "after 1.5 s")


def _teardown(after: float, words: str) -> Iterator[Row]:
    found: dict[str, list[tuple[float, float]]] = {}

    def run(launcher: Launcher) -> float:
        with folder() as path:
            worker = (sys.executable, "-S", f"{HERE}/workers/death.py", path, str(after), str(RANKS), "0")
            measure.seconds_of(launcher.command(path, *worker, ranks=RANKS))
            gone = time.monotonic_ns()
            names = [name for name in os.listdir(path) if name.startswith(("died-", "told-", "ended-"))]
            stamps = {name: int(measure.read(f"{path}/{name}") or 0) for name in names}
        told = max(stamp for name, stamp in stamps.items() if name.startswith("told-"))
        ended = max(stamp for name, stamp in stamps.items() if name.startswith("ended-"))
        found.setdefault(launcher.name, []).append(((told - stamps["died-0"]) / 1e9, (gone - ended) / 1e9))
        return 0.0

    launchers = [OURS, *(peer for peer in peers() if not peer.starts_scripts_only)]
    measure.alternate({one.name: (20 if one is OURS else 3, functools.partial(run, one)) for one in launchers})
    to_told = {name: statistics.median(told for told, _gone in pairs) for name, pairs in found.items()}
    to_gone = {name: statistics.median(gone for _told, gone in pairs) for name, pairs in found.items()}
    what = f"1 of {RANKS} exits 7 {words}: to the last SIGTERM received"
    yield Row(what, to_told[OURS.name], seconds, "mpirun", to_told.get("mpirun"), 0.005)
    yield Row("", to_told[OURS.name], seconds, "torchrun", to_told.get("torchrun"))
    what = "  then from the last rank's end to the launcher gone"
    yield Row(what, to_gone[OURS.name], seconds, "mpirun", to_gone.get("mpirun"), 0.05)
    yield Row("", to_gone[OURS.name], seconds, "torchrun", to_gone.get("torchrun"))


def output() -> Iterator[Row]:
    """Time much output to files and one console: a pipe that `cat` copies to /dev/null, for both contestants.

    The ranks are `cat`, too, and print prepared lines, so that writing costs little. All files are in memory.
    What the output itself costs is the difference to the same run without any, for both contestants.
    """
    warnings = 0
    with folder(in_memory=True) as path:
        lines = Lines(path, RANKS, LINES_EACH)
        once = OURS.command(f"{path}/log", "sh", "-c", f"exec cat {lines.path}-$RANK", ranks=RANKS)
        ours = OURS.command(f"{path}/log", "sh", "-c", "exec cat" + f" {lines.path}-$RANK" * TIMES, ranks=RANKS)
        tee = _for_each_rank("cat" + f" {lines.path}-$rank" * TIMES + f" | tee {path}/log/$rank")
        alone = _for_each_rank("cat" + f" {lines.path}-$rank" * TIMES + " | cat >/dev/null")
        nothing = OURS.command(f"{path}/log", "true", ranks=RANKS)
        tee_nothing = _for_each_rank(f"true | tee {path}/log/$rank")

        def run(command: list[str], console: str = os.devnull) -> float:
            nonlocal warnings
            shutil.rmtree(f"{path}/log", ignore_errors=True)
            os.mkdir(f"{path}/log")
            taken, screen = measure.seconds_with_console(command, console)
            warnings += screen.count(b" WARNING ")
            return taken

        medians = measure.alternate(
            {
                "ours": (9, functools.partial(run, ours)),
                "tee": (9, functools.partial(run, tee)),
                "alone": (9, functools.partial(run, alone)),
                "nothing": (9, functools.partial(run, nothing)),
                "tee_nothing": (9, functools.partial(run, tee_nothing)),
            }
        )
        shown = f"{path}/console"
        run(once, shown)
        wrong = lines.count_wrong_in_logs(f"{path}/log") + lines.count_wrong_on_console(shown)

    what = f"{RANKS} ranks write {20 * TIMES} MB each, to files and a console"
    yield Row(what, medians["ours"], seconds, f"{RANKS} x tee, unprefixed", medians["tee"], 1.4, is_ratio=True)
    yield Row("  start to exit of ranks that write nothing", medians["nothing"], seconds, "tee", medians["tee_nothing"])
    own, peers_own = medians["ours"] - medians["nothing"], medians["tee"] - medians["tee_nothing"]
    yield Row("  the difference: what the output costs", own, seconds, "tee", peers_own, 1.4, is_ratio=True)
    yield Row("  the writers alone, to /dev/null", medians["alone"], seconds)
    yield Row("  lines cut, merged, missing in files and console", wrong, count, reach=0)
    yield Row("  warnings (lines skipped on the console), in all runs", warnings, count, reach=0)


def progress_bars() -> Iterator[Row]:
    """Compare the CPU time of folded progress bars with that of bars whose states are all passed on.

    That of the ranks, which are `cat`, is in both.
    """
    with folder(in_memory=True) as path:
        bar = b"".join(b"\r%3d%%|####      | %d/1563 [00:12<00:55, 3.20it/s]" % (n % 100, n) for n in range(BAR_STATES))
        measure.write(f"{path}/bar", bar)

        def run(option: str) -> float:
            command = [*OURS.words(RANKS, f"{path}/log"), "--progress-bars", option, "cat", f"{path}/bar"]
            before = measure.children_seconds()
            measure.seconds_with_console(command)
            return measure.children_seconds() - before

        medians = measure.alternate({option: (9, functools.partial(run, option)) for option in ("fold", "pass")})
    what = f"CPU for {RANKS} bars of {BAR_STATES:,} states each, folded"
    yield Row(what, medians["fold"], seconds, "passed", medians["pass"], 1.0, is_ratio=True)


def idle() -> Iterator[Row]:
    """Measure launchers whose ranks sleep: memory, context switches, and system calls under strace."""
    with contextlib.ExitStack() as stack:
        launchers = [OURS, *(peer for peer in peers() if not peer.starts_scripts_only)]
        pids: dict[str, list[int]] = {}
        sizes: dict[str, int] = {}
        for launcher in launchers:
            own = pids[launcher.name] = stack.enter_context(measure.sleeping(launcher, RANKS))
            sizes[launcher.name] = sum(map(measure.pss, own))  # ours first: it shares no page with others then
        traced = stack.enter_context(measure.sleeping(OURS, RANKS))
        time.sleep(3)  # until all are idle: the runner has prepared for a failure
        before = {name: sum(map(measure.context_switches, own)) for name, own in pids.items()}
        calls = measure.system_calls(traced, IDLE_SECONDS)
        switches = {name: sum(map(measure.context_switches, own)) - before[name] for name, own in pids.items()}

    yield Row(f"{RANKS} sleeping ranks for {IDLE_SECONDS:g} s: system calls (strace)", calls, count, reach=0)
    what = "  times that a thread was woken (context switches)"
    yield Row(what, switches[OURS.name], count, "mpirun", switches.get("mpirun"), 0)
    yield Row("", switches[OURS.name], count, "torchrun", switches.get("torchrun"))
    what = "  memory of the launcher's processes (PSS)"
    yield Row(what, sizes[OURS.name], megabytes, "mpirun", sizes.get("mpirun"), 30e6)
    yield Row("", sizes[OURS.name], megabytes, "torchrun", sizes.get("torchrun"))


def table_to_first_rank() -> Iterator[Row]:
    """Time from the rename that completes the rank table to the first line of a rank."""
    runs = 10
    table = measure.read(TABLE)
    samples = []
    for number in range(runs):
        with folder() as path:
            place = f"{path}/jobstart_hccl.json"
            measure.write(place, table.replace(b"completed", b"initializing"))
            command = [OURS.words(RANKS, path)[0], "--rank-table", place, "--log-dir", path, "date", "+%s%N"]
            with measure.started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as popen:
                assert popen.stderr  # noqa: S101  mypy must know
                popen.stderr.readline()  # that it waits
                time.sleep(1 + LOOK_EVERY * number / runs)  # spread evenly between two reads of the table
                measure.write(place + ".new", table)
                completed = time.time_ns()
                os.rename(place + ".new", place)
                screen, _ = popen.communicate()
        samples.append((min(int(line.split()[-1]) for line in screen.splitlines()) - completed) / 1e9)

    yield Row("table turns completed, to the first rank running", statistics.median(samples), seconds, reach=0.3)
    yield Row(f"  the slowest of {runs}", max(samples), seconds)


def many_ranks() -> Iterator[Row]:
    """Time many ranks that do nothing, and the overhead over bare processes."""
    program = shutil.which("true") or "true"

    def bare() -> float:
        start = time.monotonic()
        popens = [subprocess.Popen([program], stdin=subprocess.DEVNULL, env=measure.CLEAN) for _ in range(MANY_RANKS)]
        for popen in popens:
            popen.wait()
        return time.monotonic() - start

    def run() -> float:
        with folder() as path:
            return measure.seconds_of(OURS.command(path, program, ranks=MANY_RANKS))

    medians = measure.alternate({"ours": (9, run), "bare": (9, bare)})
    what = f"{MANY_RANKS} ranks that do nothing, start to exit"
    yield Row(what, medians["ours"], seconds, "bare processes", medians["bare"])
    yield Row("  above bare, for each rank", (medians["ours"] - medians["bare"]) / MANY_RANKS, seconds, reach=0.002)


def load_catalogue() -> Iterator[Row]:
    """Measure the CPU time of loading the catalogue of known errors, beside importing packages that every job needs."""
    entries = len(set(map(id, catalogue.ours().names.values())))
    known = "from ascend_runner.diagnosis import catalogue"

    def run(code: str) -> float:
        before = measure.children_seconds()
        measure.seconds_of([sys.executable, "-c", code])
        return measure.children_seconds() - before

    codes = {"imported": known, "loaded": f"{known}; catalogue.ours()", "peer": "import attrs, orjson"}
    medians = measure.alternate({name: (21, functools.partial(run, code)) for name, code in codes.items()})
    load = (medians["loaded"] - medians["imported"]) * SOME_ENTRIES / entries
    what = f"CPU for loading {SOME_ENTRIES} of {entries} known errors"
    yield Row(what, load, seconds, "import attrs, orjson", medians["peer"], reach=0.06)


def _for_each_rank(pipeline: str) -> list[str]:
    ranks = " ".join(map(str, range(RANKS)))
    return ["sh", "-c", f"for rank in {ranks}; do {pipeline} & done; wait"]


ROWS: Final = (start_to_exit, teardown, output, progress_bars, idle, table_to_first_rank, many_ranks, load_catalogue)
