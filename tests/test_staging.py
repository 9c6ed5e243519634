"""Jobs that stage datasets: when, by whom, and what ends the staging early."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers import data_trees
from tests.helpers.program import Program, Run, run_to_end
from tests.helpers.waiting import wait_until

VALID = Path(__file__).parents[1] / "fixtures" / "valid"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Make a dataset."""
    return data_trees.make(tmp_path / "source")


def start(program: Program, source: Path, *args: str, log: str = "log", env: dict[str, str] | None = None) -> Run:
    """Start a job of two ranks, by default, that stages the dataset to copy/."""
    stage = f"{source}:{program.folder}/copy"
    words = args if args[0].startswith("--") else ("--nproc-per-node", "2", *args)
    return program.start("--log-dir", str(program.folder / log), "--stage", stage, *words, env=env)


@contextmanager
def hanging(path: Path) -> Iterator[None]:
    """Let every open(2) of a file hang, as on a network disk whose server is gone."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel asks for the lease
    try:
        with open(path, "rb+") as file:
            try:
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            except OSError as error:
                pytest.skip(f"this file system has no leases: {error}")
            yield
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    finally:
        signal.signal(signal.SIGIO, before)


def test_ranks_read_the_copy(program: Program, source: Path) -> None:
    """The ranks start when the copy is complete, and find it in their command and variables; the report has figures."""
    script = '[ "$0" = "$ASCEND_RUNNER_STAGED_0" ] && cat "$0/.complete.json" "$0/class-0/locked"'
    run = start(program, source, "sh", "-c", script, "{stage:0}")

    assert 0 == run.finish(), run.screen
    assert program.log(0).endswith(b"locked")
    (staged,) = program.report()["staged"]
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file() and not path.is_symlink())
    assert (str(source), f"{program.folder}/copy", 21, size, size) == tuple(
        staged[name] for name in ("source", "place", "files", "size", "copied")
    )
    assert "stag" not in run.screen  # a small copy needs no words
    assert data_trees.read(source) == data_trees.read(program.folder / "copy")


def test_variables_of_datasets_lead_to_the_copy(program: Program, source: Path) -> None:
    """The platform's variables lead the ranks to the copy, also where a path is a link to what was staged."""
    (program.folder / "link").symlink_to(source)
    env = {
        "DATASET": f"{program.folder}/link/empty",
        "CACHED_DATASET": f"{source}",
        "DATASET_MAP": json.dumps({"a": f"{source}/class-0", "b": "/elsewhere"}),
    }
    script = 'echo "$DATASET"; echo "$CACHED_DATASET"; echo "$DATASET_MAP"'
    run = start(program, source, "--nproc-per-node", "1", "sh", "-c", script, env=env)

    assert 0 == run.finish(), run.screen
    dataset, cached, listed = program.log(0).decode().splitlines()
    copy = f"{program.folder}/copy"
    assert (f"{copy}/empty", copy) == (dataset, cached)
    assert {"a": f"{copy}/class-0", "b": "/elsewhere"} == json.loads(listed)


def test_copy_is_made_while_the_table_is_awaited(program: Program, source: Path) -> None:
    """The dataset is complete before there is a rank table."""
    table = program.folder / "jobstart_hccl.json"
    run = start(program, source, "--rank-table", str(table), "--pod-name", "any", "true")
    wait_until((program.folder / "copy" / ".complete.json").exists)
    table.write_bytes((VALID / "group_list_8_devices.json").read_bytes())

    run.finish()
    assert data_trees.read(source) == data_trees.read(program.folder / "copy")


def test_failure_ends_the_wait_for_the_table(program: Program, source: Path) -> None:
    """A dataset that cannot be copied ends the job at once, with 125 and one sentence."""
    (source / "empty" / "up").symlink_to(source)
    run = start(program, source, "--rank-table", str(program.folder / "hccl.json"), "true")

    assert 125 == run.finish()
    errors = [line for line in run.lines if " ERROR " in line]
    assert 1 == len(errors)
    assert str(source / "empty" / "up") in errors[0]


@pytest.mark.deep
def test_failure_before_the_ranks_start(program: Program, source: Path) -> None:
    """Without a table to wait for it is the same; the report says so, and the next job continues."""
    (source / "empty" / "up").symlink_to(source)
    run = start(program, source, "touch", "started")

    assert 125 == run.finish()
    assert ("failed", 125, "runner_failed") == (
        program.report()["state"],
        program.report()["status"],
        program.report()["cause"]["kind"],
    )
    assert not (program.folder / "started").exists()

    (source / "empty" / "up").unlink()
    assert 0 == start(program, source, "true").finish()


def test_restart_does_not_stage_again(program: Program, source: Path) -> None:
    """The second attempt starts although the source is gone, with the same place."""
    script = f'[ $ASCEND_RUNNER_ATTEMPT = 1 ] || {{ mv {source} {source}.gone; exit 7; }}; [ -e "$0/link" ]'
    run = start(program, source, "--nproc-per-node", "1", "--max-restarts", "1", "sh", "-c", script, "{stage:0}")

    assert 0 == run.finish(), run.screen
    assert (1, 1) == (program.report()["attempt"], len(program.report()["staged"]))


@pytest.mark.deep
def test_runners_stage_once(program: Program, source: Path) -> None:
    """Of several runners that are started at once, one copies, and all ranks find the copy."""
    runs = [
        start(program, source, "test", "-e", "{stage:0}/.complete.json", log=f"log-{number}") for number in range(4)
    ]

    assert [0] * 4 == [run.finish() for run in runs]
    reports = [json.loads((program.folder / f"log-{number}" / "job-report.json").read_bytes()) for number in range(4)]
    copied = [report["staged"][0]["copied"] for report in reports]
    assert [0, 0, 0, reports[0]["staged"][0]["size"]] == sorted(copied)
    assert data_trees.read(source) == data_trees.read(program.folder / "copy")


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_stop_signal_although_a_disk_hangs(program: Program, source: Path, signum: int) -> None:
    """A stop signal ends a staging that hangs; what was copied stays, and the next job copies the rest."""
    hung = source / "class-2" / "part-1" / "sample-11"
    with hanging(hung):
        run = start(program, source, "true")
        copy = program.folder / "copy"
        wait_until(lambda: len([path for path in copy.rglob("*") if path.is_file()]) > 20)
        run.send(signum)
        assert 128 + signum == run.finish()
    assert f"stopped staging {str(source)!r} to {str(copy)!r}" in run.screen
    assert "stopped" == program.report()["state"]
    assert not (copy / ".complete.json").exists()

    assert 0 == start(program, source, "true").finish()
    (staged,) = program.report()["staged"]
    assert 0 < staged["copied"] < staged["size"]
    assert data_trees.read(source) == data_trees.read(copy)


def test_killed_runner_frees_the_lock(program: Program, source: Path) -> None:
    """While a runner copies, another one waits; when the first one is killed, the other one copies."""
    hung = source / "class-2" / "part-1" / "sample-11"
    with hanging(hung):
        first = start(program, source, "true", log="first")
        wait_until((program.folder / "copy" / "class-2").exists)
        second = start(program, source, "true")
        second.wait_for("waiting for another runner that is staging to")
        os.kill(first.runner_pid, signal.SIGKILL)
    assert 137 == first.finish()
    assert 0 == second.finish(), second.screen
    assert data_trees.read(source) == data_trees.read(program.folder / "copy")


@pytest.mark.deep
def test_stop_signal_while_another_runner_copies(program: Program, source: Path) -> None:
    """A runner that waits for another one can be stopped."""
    copy = program.folder / "copy"
    copy.mkdir()
    with open(copy / ".staging.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = start(program, source, "true")
        run.wait_for("waiting for another runner that is staging to")
        run.send(signal.SIGTERM)

        assert 143 == run.finish()


def test_dry_run_copies_nothing(tmp_path: Path, source: Path) -> None:
    """A dry run shows the copy in the plan, and makes nothing."""
    options = ("--dry-run", "--nproc-per-node", "1", "--log-dir", str(tmp_path / "log"))
    ended = run_to_end(*options, "--stage", f"{source}:{tmp_path}/copy", "ls", "{stage:0}")
    plan = json.loads(ended.stdout)

    assert [{"source": str(source), "place": f"{tmp_path}/copy"}] == plan["stages"]
    assert ["ls", f"{tmp_path}/copy"] == plan["ranks"][0]["argv"]
    assert f"{tmp_path}/copy" == plan["ranks"][0]["variables"]["ASCEND_RUNNER_STAGED_0"]
    assert ["source"] == os.listdir(tmp_path)
