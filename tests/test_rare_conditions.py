"""A clock that jumps, a pump that dies, a table that changes, a thousand starts."""

from __future__ import annotations

import json
import shlex
import statistics
import sys

import pytest

from tests.helpers.program import WORKERS, Program
from tests.helpers.waiting import LIMIT

LIBRARY_RUN = f"{sys.executable} {WORKERS / 'library_run.py'}"


@pytest.mark.deep
def test_wall_clock_set_back_and_forth(program: Program) -> None:
    """Durations, grace and hang timeout use the monotonic clock; times in the report are consistent."""
    first, other = "until [ -e ready ]; do sleep 0.01; done; exit 3", "trap '' TERM; touch ready; sleep 1000"
    script = shlex.quote(f"if [ $RANK_ID = 0 ]; then {first}; fi; {other}")
    options = "--nproc-per-node 2 --grace 0.5 --hang-timeout 3600 --log-dir log"
    ended = program.shell(f"MA_VJ_NAME=job {LIBRARY_RUN} wild-clock - {options} sh -c {script}")

    assert 3 == ended.returncode
    report = program.report()
    assert 0.5 <= report["seconds"] < 3600
    assert all(0 <= rank["seconds"] <= report["seconds"] for rank in report["ranks"])
    assert report["started_at"][:10] == report["ended_at"][:10]
    assert report["started_at"] <= report["ranks"][1]["started_at"] <= report["ranks"][1]["ended_at"]


@pytest.mark.deep
def test_wall_clock_while_a_table_is_awaited(program: Program) -> None:
    """The limit of the wait uses the monotonic clock."""
    options = "--rank-table missing --rank-table-timeout 0.5 --log-dir log"
    ended = program.shell(f"MA_VJ_NAME=job {LIBRARY_RUN} wild-clock - {options} true")

    assert 125 == ended.returncode
    assert b"0.5 s" in ended.stdout


def test_pump_that_dies(program: Program) -> None:
    """If output cannot be read any more, the ranks are stopped: 125, with the reason."""
    ended = program.shell(f"MA_VJ_NAME=job {LIBRARY_RUN} broken-console log sh -c 'yes'")

    assert 125 == ended.returncode
    assert (
        b"ERROR stopped all ranks because their output could no longer be read: MemoryError('no room for rank "
        in ended.stdout
    )


def test_thread_without_memory(program: Program) -> None:
    """A warning names the limit in place of a traceback."""
    ended = program.shell(f"{LIBRARY_RUN} lean-thread")

    assert 0 == ended.returncode
    assert b" WARNING a thread of the runner has failed: not enough memory (RLIMIT_AS, " in ended.stdout
    assert b"Traceback" not in ended.stdout


def test_table_that_changes_after_the_start(program: Program) -> None:
    """Ranks read their own copy of the table, so later changes by the platform have no effect."""
    path = program.folder / "jobstart_hccl.json"
    device = {"device_id": "0", "device_ip": "10.0.0.1"}
    instance = {"pod_name": "pod-0", "server_id": "10.1.0.1", "devices": [device]}
    group = {"device_count": "1", "instance_count": "1", "instance_list": [instance]}
    document = {"status": "completed", "group_count": "1", "group_list": [group]}
    path.write_text(json.dumps(document))
    show, wait = "cat $RANK_TABLE_FILE", f"until [ -e {program.folder}/go ]; do sleep 0.01; done"
    script = f"{show}; echo; echo ready; {wait}; {show}"
    run = program.start("--no-table-checks", "--rank-table", str(path), "sh", "-c", script)
    run.wait_for("ready")
    for changed in ({**document, "status": "initializing"}, {**document, "group_list": []}, {}):
        path.write_text(json.dumps(changed))
    path.unlink()
    (program.folder / "go").touch()

    assert 0 == run.finish()
    before, after = program.log(0).split(b"\nready\n")
    assert b"10.1.0.1" in before
    assert before == after


# --- Many starts ------------------------------------------------------------------------------------------------------


@pytest.mark.deep
def test_many_jobs_in_one_process(program: Program) -> None:
    """No descriptor, no thread, no process and no memory is left of any of a thousand.

    Python's own caches may grow through the first 500; of the others not each leaves a block. A late import of a slow
    start is no leak.
    """
    ended = program.shell(f"MA_VJ_NAME=job {LIBRARY_RUN} many-starts log 1000", limit=4 * LIMIT)

    assert 0 == ended.returncode
    seen = [list(map(int, line.split())) for line in ended.stdout.splitlines()]
    half, last = seen[len(seen) // 2], seen[-1]
    assert half[:3] == last[:3]
    blocks = [blocks for *_, blocks in seen[len(seen) // 2 :]]  # of memory, after each fifty starts
    assert statistics.median(after - before for before, after in zip(blocks, blocks[1:])) < 40, blocks


@pytest.mark.deep
def test_starts_of_the_library_leak_nothing(program: Program) -> None:
    """`launch` leaves neither descriptors nor processes, and nothing in the directory for temporary files."""
    temporary = program.folder / "tmp"
    temporary.mkdir()
    ended = program.shell(f"TMPDIR={temporary} {LIBRARY_RUN} many-launches log 20")

    assert 0 == ended.returncode
    first, last = ([int(number) for number in line.split()[:3]] for line in ended.stdout.splitlines())
    assert first == last
    assert 0 == last[2]  # processes
    assert [] == list(temporary.iterdir())
