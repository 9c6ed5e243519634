"""What a job does and how it ends does not depend on those who look at it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from ascend_runner.services.run_folder import RUN_DIR_VARIABLE
from tests.helpers.program import Program, Run
from tests.helpers.surroundings import CLEAN, permitted
from tests.helpers.waiting import LIMIT, wait_until

RANKS: Final = 8
FAILED: Final = 2
SIZE: Final = 300_000  # bytes of each rank
GO: Final = "go"  # a file for which the ranks wait
RANK: Final = f"""
echo ready
until [ -e {GO} ]; do sleep 0.05; done
head -c {SIZE} /dev/zero
[ $RANK = {FAILED} ] && exit 7
exec sleep 1000
"""


def started(program: Program, in_memory: Path, under: tuple[str, ...] = ()) -> Run:
    """Start the job, and wait until all its ranks are running."""
    run = program.start(
        *("--nproc-per-node", str(RANKS), "--console", "none", "--workdir", "inherit", "sh", "-c", RANK),
        env={RUN_DIR_VARIABLE: str(in_memory)},
        under=under,
    )
    wait_until(lambda: [b"ready\n"] * RANKS == [log.read_bytes() for log in program.log_dir.glob("*-proc-rank-*")])
    return run


def check_end(program: Program, run: Run) -> None:
    """Let the ranks go on, and check that the job ends."""
    (program.folder / GO).touch()
    assert 7 == run.finish()
    report = program.report()
    ranks = report["ranks"]
    assert ("failed", FAILED) == (report["state"], report["cause"]["rank_id"])
    assert ["failed" if rank == FAILED else "stopped" for rank in range(RANKS)] == [rank["state"] for rank in ranks]
    assert b"ready\n" + bytes(SIZE) == program.log(FAILED)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("pages", [0, 1, 2])
def test_full_file_system_in_memory(program: Program, tmp_path: Path, pages: int) -> None:
    """Without room for the files of the run directory, or for some of them, a job is only not listed."""
    fill = f'head -c {4096 * (3 - pages)} /dev/zero >"$0/others"'
    script = f'mount -t tmpfs -o size=12k,mode=700 none "$0" && {fill} && exec "$@"'
    folder = tmp_path / "full"
    folder.mkdir()
    under = permitted("unshare", "--mount", "sh", "-c", script, str(folder))

    check_end(program, started(program, folder, under))


@pytest.mark.deep
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_killed_viewers(program: Program, in_memory: Path, signum: int) -> None:
    """A viewer that is killed or stopped, wherever it is, holds nothing that the runner waits for."""
    run = started(program, in_memory)
    command = [sys.executable, "-m", "ascend_runner.tools.job"]
    environ = {**CLEAN, RUN_DIR_VARIABLE: str(in_memory)}
    viewers = [
        subprocess.Popen([*command, *words], env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for words in (["events", "-f"], ["events", "-f"], ["status"])
    ]
    for viewer in viewers:
        assert viewer.stdout
        assert viewer.stdout.read(1)
        viewer.send_signal(signum)

    check_end(program, run)
    for viewer in viewers:
        viewer.kill()
        viewer.wait(LIMIT)
        assert viewer.stdout
        viewer.stdout.close()
