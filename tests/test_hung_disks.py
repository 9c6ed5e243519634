"""Disks that hang or are lost: no job waits for them without an end, and none fails because of its logs."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ascend_runner import files
from ascend_runner.guardian import process_tree
from ascend_runner.node.bounded import Patience
from ascend_runner.report.writing import WriteQueue
from tests.helpers import disk
from tests.helpers.program import Program, Run, sentence
from tests.helpers.waiting import LIMIT, is_gone, is_pending, wait_until

TABLE = Path(__file__).parents[1] / "fixtures" / "valid" / "group_list_8_devices.json"
MODULE = (sys.executable, "-I", "-m", "ascend_runner")  # -I: Python itself would look into the working directory


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[disk.Disk]:
    """Mount a disk that can hang."""
    if not disk.is_possible():
        pytest.skip("a disk that hangs needs bindfs(1), /dev/fuse and root")
    (tmp_path / "disk").mkdir()
    mounted = disk.Disk(tmp_path / "disk")
    mounted.mount()
    yield mounted
    mounted.unmount()


def with_table(program: Program, path: Path) -> Run:
    """Start a job whose rank table is on the disk."""
    return program.start("--rank-table", str(path / "jobstart_hccl.json"), "--no-table-checks", "true")


def with_program(program: Program, path: Path) -> Run:
    """Start a job whose program is on the disk."""
    return program.start("--nproc-per-node", "1", str(path / "program"))


def with_logs(program: Program, path: Path) -> Run:
    """Start a job whose log directory is on the disk."""
    return program.start("--log-dir", str(path / "log"), "--nproc-per-node", "1", "true")


def with_directory(program: Program, path: Path) -> Run:
    """Start a job whose working directory is on the disk."""
    enter = f'cd {path} && echo ready && until [ -e {program.folder}/hung ]; do sleep 0.01; done; exec "$@"'
    options = ("--log-dir", str(program.log_dir), "--nproc-per-node", "1", "true")
    return program.run(["sh", "-c", enter, "sh", *MODULE, *options], {})


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize("start", [with_table, with_program, with_logs, with_directory])
def test_second_signal_ends_a_start_that_hangs(
    program: Program, hung: disk.Disk, start: Callable[[Program, Path], Run]
) -> None:
    """The runner hangs in a system call and cannot act on a signal; after the second one, the guardian kills it."""
    (hung.content / "jobstart_hccl.json").write_bytes(TABLE.read_bytes())
    (hung.content / "program").write_text("#!/bin/sh\n")
    (hung.content / "program").chmod(0o755)
    if start is with_directory:
        run = start(program, hung.path)
        run.wait_for("ready")
        hung.inject("HANG")
        (program.folder / "hung").touch()
    else:
        hung.inject("HANG")
        run = start(program, hung.path)
    wait_until(lambda: is_hanging(run))
    run.send(signal.SIGTERM)
    wait_until(lambda: not is_pending(run.popen.pid, signal.SIGTERM))
    run.send(signal.SIGINT)  # not SIGTERM, which would be a copy of the first one so soon

    assert 143 == status(run, hung)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_runner_that_hangs_at_its_end_is_left_behind(program: Program, hung: disk.Disk, *, is_stopped: bool) -> None:
    """After one SIGTERM, or a failure, the program ends with its status, although the runner hangs on the last disk."""
    script = f"echo ready; until [ -e {program.folder}/go ]; do sleep 0.05; done; exit 7"
    options = ("--grace", "0.1", "--nproc-per-node", "1", "sh", "-c", script)
    with tempfile.TemporaryDirectory() as short:  # of a longer path no socket could be in it
        (Path(short) / "disk").symlink_to(hung.path)
        run = program.start(*options, env={"ASCEND_RUNNER_RUN_DIR": f"{short}/disk/run"})
        run.wait_for("ready")
        runner = run.runner_pid
        hung.inject("HANG")
        if is_stopped:
            run.send(signal.SIGTERM)
        else:
            (program.folder / "go").touch()

        assert (143 if is_stopped else 7) == status(run, hung)
        assert f"the runner did not respond and was killed: {runner} (" in run.screen


def test_straggler_of_a_runner_that_hangs_while_it_dies(program: Program, hung: disk.Disk) -> None:
    """A process that a rank leaves behind after SIGKILL to the runner, which cannot close its files, is killed."""
    script = f"setsid sleep 300 & echo pid $! ready; until [ -e {program.folder}/go ]; do sleep 0.05; done"
    run = program.start("--log-dir", str(hung.path / "log"), "--nproc-per-node", "1", "sh", "-c", script)
    run.wait_for("ready")
    straggler = int(run.screen.partition(" pid ")[2].split()[0])
    rank, runner = process_tree.look(straggler), run.runner_pid
    assert rank
    hung.inject("HANG")
    os.kill(runner, signal.SIGKILL)
    wait_until(lambda: is_hanging(run))
    (program.folder / "go").touch()
    wait_until(lambda: not process_tree.is_alive(rank.parent))
    run.send(signal.SIGTERM)
    wait_until(lambda: not is_pending(run.popen.pid, signal.SIGTERM))
    run.send(signal.SIGINT)

    assert 143 == status(run, hung)
    wait_until(lambda: is_gone(straggler))


def test_one_signal_ends_a_start_that_hangs(program: Program, hung: disk.Disk) -> None:
    """While no rank is running, there is no grace to wait for."""
    hung.inject("HANG")
    run = with_logs(program, hung.path)
    wait_until(lambda: is_hanging(run))
    run.send(signal.SIGTERM)

    assert 143 == status(run, hung)
    assert "the runner did not respond and was killed" in run.screen


def test_logs_on_a_disk_that_hangs_delay_no_stop(program: Program, hung: disk.Disk) -> None:
    """After one SIGTERM the program ends with 143, although the runner cannot close the logs, and names the runner."""
    script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    options = ("--log-dir", str(hung.path / "log"), "--nproc-per-node", "2", "--grace", "1")
    run = program.start(*options, "sh", "-c", script)
    run.wait_for("ready", times=2)
    runner = run.runner_pid
    hung.inject("HANG")
    run.send(signal.SIGTERM)

    assert 143 == status(run, hung)
    assert f"still alive after SIGKILL: {runner} (" in run.screen


def test_disk_that_hangs_stops_no_job(program: Program, hung: disk.Disk) -> None:
    """A job with its logs on a disk that hangs ends with the status of its ranks, and says how many events are lost."""
    script = f"echo ready; until [ -e {program.folder}/go ]; do sleep 0.05; done; exit 7"
    options = ("--log-dir", str(hung.path / "log"), "--nproc-per-node", "2")
    run = program.start(*options, "sh", "-c", script)
    run.wait_for("ready", times=2)
    hung.inject("HANG")
    (program.folder / "go").touch()

    assert 7 == status(run, hung)
    assert "ERROR rank " in run.screen
    assert re.search(r"WARNING events missing from '.*/log/job-events.jsonl': \d+ of \d+\n", run.screen)


@pytest.mark.deep
def test_checkpoints_on_a_disk_that_hangs_prevent_no_restart(program: Program, hung: disk.Disk) -> None:
    """The ranks are restarted although nothing is known of their checkpoints, which is a warning."""
    saved = hung.path / "saved"
    saved.mkdir()
    until_hung = f"echo ready; until [ -e {program.folder}/go ]; do sleep 0.05; done"
    script = f"{until_hung}; exit $((7 - 7 * ASCEND_RUNNER_ATTEMPT))"
    options = ("--nproc-per-node", "1", "--max-restarts", "1", "--restart-on", "7", "--grace", "1")
    run = program.start(*options, "--checkpoint-dir", str(saved), "sh", "-c", script)
    run.wait_for("ready")
    hung.inject("HANG")
    (program.folder / "go").touch()

    assert 0 == status(run, hung)
    assert f"WARNING no response from the disk of --checkpoint-dir '{saved}' within 12 s: " in run.screen


@pytest.mark.parametrize("ranks", [("--nproc-per-node", "2"), ("--rank-table", str(TABLE), "--no-table-checks")])
def test_lost_disk_fails_no_job(program: Program, hung: disk.Disk, ranks: tuple[str, ...]) -> None:
    """A job that succeeds after the disk of its logs is lost, whose files cannot even be closed, has one warning."""
    script = f"echo ready; until [ -e {program.folder}/go ]; do sleep 0.05; done"
    run = program.start("--log-dir", str(hung.path / "log"), "--precheck", "off", *ranks, "sh", "-c", script)
    count = 2 if ranks[0] == "--nproc-per-node" else 8
    wait_until(lambda: 6 * count == sum(path.stat().st_size for path in hung.content.glob("log/*-rank-*")))
    hung.inject("LOSE")
    (program.folder / "go").touch()

    assert 0 == run.finish()
    assert [f"WARNING the disk with '{hung.path}/log' is gone; output, events and report are incomplete there"] == [
        sentence(line.rstrip()) for line in run.lines if " WARNING " in line
    ]


def test_disk_that_is_lost_during_a_write(tmp_path: Path) -> None:
    """If neither the write nor the close of a file returns from a disk that is lost, that is one warning as well."""
    if not disk.is_possible():
        pytest.skip("a disk that is lost needs bindfs(1), /dev/fuse and root")
    slow = disk.Disk(tmp_path, rate=1)
    slow.mount()
    path = f"{slow.path}/events"
    warnings: list[str] = []
    writes = WriteQueue(Patience(warn=warnings.append))
    try:
        writes.put(path, partial(files.append, path, bytes(4096)))
        wait_until(lambda: (slow.content / "events").exists() and is_any_waiting(os.getpid()))
        slow.inject("LOSE")

        assert writes.flush(LIMIT)
    finally:
        slow.unmount()
        writes.close()
    assert [f"the disk with '{slow.path}' is gone; output, events and report are incomplete there"] == warnings


def status(run: Run, hung: disk.Disk) -> int:
    """Return the status of the guardian, once the runner has ended too: only the disk's end ends each call on it."""
    pids = [found.pid for found in process_tree.descendants(run.popen.pid)]
    found = run.popen.wait(LIMIT)
    hung.unmount()
    wait_until(lambda: all(map(is_gone, pids)))
    run.finish()
    return found


def is_hanging(run: Run) -> bool:
    """Whether any thread of the runner waits for the server of a disk."""
    return any(map(is_any_waiting, [run.popen.pid, *(found.pid for found in process_tree.descendants(run.popen.pid))]))


def is_any_waiting(pid: int) -> bool:
    """Whether any thread of a process waits for the server of a disk."""
    functions = [process_tree.wchan(int(task.name)) for task in Path(f"/proc/{pid}/task").glob("*")]
    return any("fuse" in function or "request_wait" in function for function in functions)


def test_home_that_hangs(program: Program, hung: disk.Disk) -> None:
    """The history of jobs is in the home directory: a job neither waits for it nor warns about it."""
    hung.inject("HANG")
    run = program.start("--nproc-per-node", "1", "true", env={"XDG_STATE_HOME": str(hung.path)})

    assert 0 == run.finish()
    assert " WARNING " not in run.screen
