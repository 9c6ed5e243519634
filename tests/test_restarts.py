"""Jobs that are restarted after a failure: when, with what, and what is written of it."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_runner.node.host import Host
from ascend_runner.node.npus import await_release
from tests.helpers.program import FAIL_BESIDE_A_DEAF_RANK, Program, Run
from tests.helpers.replay import replay

RESTARTS = ("--max-restarts", "9", "--restart-delay", "0")
# Rank 0 fails when the other one, which is started last, runs.
FAIL = (
    'echo "attempt $ASCEND_RUNNER_ATTEMPT"; up=up-$ASCEND_RUNNER_ATTEMPT;'
    ' [ "$RANK" = 0 ] || { touch $up; exec sleep 1000; }; while ! [ -e $up ]; do :; done; exit 7'
)


def start(program: Program, script: str, *options: str, ranks: int = 2, env: dict[str, str] | None = None) -> Run:
    """Start ranks that run a shell script, with restarts."""
    return program.start("--nproc-per-node", str(ranks), *RESTARTS, *options, "sh", "-c", script, env=env)


ATTEMPT = ["preparing", "starting", "running", "stopping"]


# --- How often --------------------------------------------------------------------------------------------------------


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("import a_module_that_nobody_has", 1),
        ("x = = 1", 1),
        ("import argparse; argparse.ArgumentParser().parse_args(['--unknown'])", 2),
    ],
    ids=["import", "syntax", "arguments"],
)
def test_hopeless_failure_is_not_tried_again(program: Program, code: str, status: int) -> None:
    """A wrong import, a syntax error and wrong arguments would fail again: the job is not restarted."""
    run = program.start("--nproc-per-node", "2", *RESTARTS, sys.executable, "-c", code)

    assert status == run.finish()
    assert ("failed", 0, "pointless") == (
        program.report()["state"],
        program.report()["attempt"],
        program.report()["attempts"][0]["verdict"],
    )


@pytest.mark.deep
@pytest.mark.parametrize(
    ("script", "options", "attempts"),
    [
        (FAIL, (), 4),
        (FAIL, ("--max-restarts", "1"), 2),
        (FAIL, ("--max-restarts", "2"), 3),
        (FAIL, ("--no-restart-on", "7"), 1),
        (FAIL, ("--max-restarts", "0"), 1),
        ("kill -SEGV $$", ("--no-restart-on", "SIGSEGV"), 1),
        ('echo "usage: x"; exit 2', ("--restart-on", "2", "--max-restarts", "1"), 2),
    ],
)
def test_number_of_attempts(program: Program, script: str, options: tuple[str, ...], attempts: int) -> None:
    """The limits of options hold."""
    start(program, script, *options).finish()

    assert (attempts - 1, attempts) == (program.report()["attempt"], len(program.report()["attempts"]))


def test_success_ends_the_job(program: Program) -> None:
    """After failures, too."""
    run = start(program, "[ $ASCEND_RUNNER_ATTEMPT = 2 ] || exit 5")

    assert 0 == run.finish()
    assert (2, 3) == (program.report()["attempt"], len(program.report()["attempts"]))


HANG = "[ $ASCEND_RUNNER_ATTEMPT != 0 ] || exec sleep 1000"


@pytest.mark.deep
@pytest.mark.parametrize("options", [(), ("--hang-action", "restart")])
def test_hang_is_restarted(program: Program, options: tuple[str, ...]) -> None:
    """A hang may not come again, so a job that may be restarted is, unless the user wants something else."""
    run = start(program, HANG, "--hang-timeout", "2", *options)

    assert 0 == run.finish()
    *hangs, last = [
        (attempt["status"], attempt["fingerprint"], attempt["verdict"]) for attempt in program.report()["attempts"]
    ]
    assert {(124, "hang", "restart")} == {*hangs}  # on a slow machine, more than one
    assert (0, "", None) == last
    assert f"  attempts {len(hangs) + 1}\n" in run.lines


@pytest.mark.deep
def test_hang_that_is_to_stop_the_job(program: Program) -> None:
    """With --hang-action stop it is not restarted, and the screen says by which option."""
    run = start(program, HANG, "--hang-timeout", "2", "--hang-action", "stop")

    assert 124 == run.finish()
    assert [(124, "excluded")] == [(attempt["status"], attempt["verdict"]) for attempt in program.report()["attempts"]]
    assert "  attempts 1; no restart: disabled by --hang-action stop" in run.screen


def test_exception_is_confirmed_once(program: Program) -> None:
    """An exception of the training's own is tried once more; the screen says how often it came."""
    run = program.start("--nproc-per-node", "2", *RESTARTS, sys.executable, "-c", "raise ValueError(open)")

    assert 1 == run.finish()
    assert 2 == len(program.report()["attempts"])
    assert "  attempts 2, both with the same failure; no restart: " in run.screen


def write_checkpoints(folder: Path) -> str:
    """Return a script that fails in each attempt after it has saved a checkpoint as Megatron does."""
    saved = f"{folder}/iter_000000$ASCEND_RUNNER_ATTEMPT"
    return (
        f"echo from=$ASCEND_RUNNER_CHECKPOINT; mkdir -p {saved}; echo > {saved}/x;"
        f" echo $ASCEND_RUNNER_ATTEMPT > {folder}/latest_checkpointed_iteration.txt; exit 7"
    )


def test_progress_keeps_a_job_alive(program: Program) -> None:
    """A job that saves a newer checkpoint each time goes on to its limit, each time from the newest checkpoint."""
    folder = program.folder / "checkpoints"
    options = ("--max-restarts", "5", "--checkpoint-dir", str(folder))
    run = start(program, write_checkpoints(folder), *options, ranks=1)

    assert 7 == run.finish()
    assert [True] * 6 == [attempt["progress"] for attempt in program.report()["attempts"]]
    assert ["from=", *(f"from={folder}/iter_000000{number}" for number in range(5))] == (
        program.log(0).decode().splitlines()
    )


@pytest.mark.deep
@pytest.mark.parametrize(
    "name", ["checkpoint_%04d.pth.tar", "model_%d.pt", "step-%d.pt", "epoch_%d.pt", "iter_%d.pth", "ckpt-%d.ckpt"]
)
def test_usual_name_of_a_checkpoint(program: Program, name: str) -> None:
    """A restarted job gets the newest file that was saved under a usual name, but none that is cut off."""
    folder = program.folder / "checkpoints"
    save = f"$(printf {name} $((9 + ASCEND_RUNNER_ATTEMPT)))"
    script = (
        f"echo from=$ASCEND_RUNNER_CHECKPOINT; cd {folder}; printf 'PK\\003\\004' > {name % 9999};"
        f" echo > {save}; chmod a-w {save}; exit 7"  # as MindSpore does
    )
    folder.mkdir()
    run = start(program, script, "--max-restarts", "5", "--checkpoint-dir", str(folder), ranks=1)

    assert 7 == run.finish()
    assert [True] * 6 == [attempt["progress"] for attempt in program.report()["attempts"]]
    assert ["from=", *(f"from={folder}/{name % number}" for number in range(9, 14))] == (
        program.log(0).decode().splitlines()
    )


@pytest.mark.deep
@pytest.mark.parametrize("name", ["last.pt", "checkpoint.pt", "checkpoint.pth.tar"])
@pytest.mark.parametrize("is_saved", [True, False])
def test_checkpoint_that_is_written_again(program: Program, name: str, *, is_saved: bool) -> None:
    """A file without a number is progress if an attempt has written it again; if none has, the job gives up."""
    (program.folder / "saved").mkdir()
    (program.folder / "saved" / name).write_text("saved")
    save = f"cp saved/{name} new && mv new saved/{name}" if is_saved else ":"
    options = ("--max-restarts", "5", "--checkpoint-dir", "saved")
    run = start(program, f"echo from=$ASCEND_RUNNER_CHECKPOINT; {save}; exit 7", *options, ranks=1)

    assert 7 == run.finish()
    attempts = program.report()["attempts"]
    assert [is_saved] * (6 if is_saved else 4) == [attempt["progress"] for attempt in attempts]
    assert {f"from={program.folder}/saved/{name}"} == {*program.log(0).decode().splitlines()}
    assert "progress of the training is unknown" not in run.screen


@pytest.mark.deep
@pytest.mark.parametrize(
    ("save", "why"),
    [
        ("touch $N.abc", "8.abc"),
        ("touch model_$N.pt", "model_8.pt: it is empty"),
        ("mkdir checkpoint-$N && echo > checkpoint-$N/model.bin", "checkpoint-8: trainer_state.json is missing"),
        ("echo > net-$N.ckpt", "net-8.ckpt: it is still writable"),
    ],
)
def test_unknown_checkpoints_do_not_end_a_job(program: Program, save: str, why: str) -> None:
    """Files of which none is a complete checkpoint are named before the ranks start; the job goes on to its limit.

    They are named once, although each attempt leaves another one.
    """
    (program.folder / "saved").mkdir()
    program.shell(f"cd saved; N=8; {save}")
    options = ("--max-restarts", "5", "--checkpoint-dir", "saved")
    script = f"echo started; cd saved; N=$((9 + ASCEND_RUNNER_ATTEMPT)); {save}; exit 7"
    run = start(program, script, *options, ranks=1)

    assert 7 == run.finish()
    assert [None] * 6 == [attempt["progress"] for attempt in program.report()["attempts"]]
    assert 1 == run.screen.count("until one is, the progress of the training is unknown")
    assert run.screen.index(f"({why}") < run.screen.index("] started")


# --- What the ranks find ----------------------------------------------------------------------------------------------


def test_job_without_restarts_has_no_variables_of_them(program: Program) -> None:
    """Only the number of the attempt is set for the ranks of a job that is not to be restarted."""
    run = program.start("--nproc-per-node", "1", "sh", "-c", "env", env={"MA_PROC_START_CNT": "1"})

    assert 0 == run.finish()
    assert b"MA_PROC_START_CNT=1\n" in program.log(0)
    assert b"TORCHELASTIC" not in program.log(0)
    assert b"ASCEND_RUNNER_ATTEMPT=0\n" in program.log(0)


def test_runner_inside_a_rank_knows_these_variables(program: Program) -> None:
    """To a runner inside a rank, they are not unknown options, and it leaves the number of the attempt as it is."""
    environ = {"ASCEND_RUNNER_ATTEMPT": "2", "ASCEND_RUNNER_CHECKPOINT": "x"}
    run = program.start("--nproc-per-node", "1", "sh", "-c", "echo $ASCEND_RUNNER_ATTEMPT", env=environ)

    assert 0 == run.finish()
    assert "WARNING" not in run.screen
    assert b"2\n" == program.log(0)


def table(address: str, status: str = "completed") -> str:
    """Return a rank table of one device."""
    device = {"device_id": "0", "device_ip": address, "rank_id": "0"}
    servers = [{"server_id": "10.0.0.1", "device": [device]}]
    return json.dumps({"status": status, "version": "1.0", "server_count": "1", "server_list": servers})


def test_rank_table_is_read_anew(program: Program) -> None:
    """Each attempt reads the table as it is then, and what it reads is converted and written again."""
    path = program.folder / "table.json"
    path.write_text(table("10.1.0.1"))
    change = f"grep -o '10[.]1[.]0[.].' $RANK_TABLE_FILE; echo '{table('10.1.0.2')}' > {path}; exit 7"
    options = ("--no-table-checks", "--rank-table", str(path), "--max-restarts", "1")
    run = program.start(*RESTARTS, *options, "sh", "-c", change)

    assert 7 == run.finish()
    assert b"10.1.0.1\n10.1.0.2\n" == program.log(0)


def test_rank_table_that_has_become_unusable_ends_the_job(program: Program) -> None:
    """The runner fails with the error of the table; what the attempts before were is not lost."""
    path = program.folder / "table.json"
    path.write_text(table("10.1.0.1"))
    change = f'echo \'{{"status": "completed", "server_list": 5}}\' > {path}; exit 7'
    run = program.start(*RESTARTS, "--no-table-checks", "--rank-table", str(path), "sh", "-c", change)

    assert 125 == run.finish()
    report = program.report()
    assert ("failed", 125, "runner_failed", 1) == (
        report["state"],
        report["status"],
        report["cause"]["kind"],
        report["attempt"],
    )
    assert [7] == [attempt["status"] for attempt in report["attempts"]]


# --- A job of three attempts ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three_attempts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, Run]]:
    """Run a job of two ranks that fails three times; each time rank 0 shows its variables and keeps the report."""
    program = Program(tmp_path_factory.mktemp("job"))
    show = (
        "echo $ASCEND_RUNNER_ATTEMPT $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $MA_PROC_START_CNT"
        " ${TORCHELASTIC_RUN_ID-none}; [ $RANK = 1 ] || cp log/job-report.json seen-$ASCEND_RUNNER_ATTEMPT"
    )
    options = ("--max-restarts", "2", "--bind", "cores")
    run = start(program, f"{show}; {FAIL}", *options, env={"MA_PROC_START_CNT": "4"})

    assert 7 == run.finish()
    yield program, run
    program.close()


def test_variables_of_an_attempt(three_attempts: tuple[Program, Run]) -> None:
    """Ranks learn which attempt they belong to, and nothing that makes torch look for an agent."""
    program, _run = three_attempts

    assert [b"0 0 2 4 none", b"1 1 2 5 none", b"2 2 2 6 none"] == program.log(0).splitlines()[::2]


def test_attempts_share_one_log(three_attempts: tuple[Program, Run]) -> None:
    """A rank's log has the output of all attempts, and the report where each begins and how it ended."""
    program, _run = three_attempts
    report = program.report()
    size = len(b"0 0 2 4 none\nattempt 0\n")

    assert [b"attempt 0", b"attempt 1", b"attempt 2"] == program.log(0).splitlines()[1::2]
    assert [{"0": start, "1": start} for start in (0, size, 2 * size)] == [
        attempt["log_starts"] for attempt in report["attempts"]
    ]
    assert [(0, "restart"), (1, "restart"), (2, "used_up")] == [
        (attempt["attempt"], attempt["verdict"]) for attempt in report["attempts"]
    ]
    assert (2 * size, size) == (report["ranks"][0]["log_start"], report["ranks"][0]["log_size"])
    assert {"exit status 7"} == {attempt["fingerprint"] for attempt in report["attempts"]}


def test_report_of_an_attempt_is_written_before_the_next(three_attempts: tuple[Program, Run]) -> None:
    """When ranks of an attempt run, the report has the record of the one before."""
    program, _run = three_attempts
    seen = [json.loads((program.folder / f"seen-{number}").read_bytes()) for number in range(3)]

    assert [0, 1, 2] == [len(report["attempts"]) for report in seen]


def test_events_of_restarts(three_attempts: tuple[Program, Run]) -> None:
    """There is one event for each change of the state, and replaying them gives the end of the job."""
    program, _run = three_attempts
    job = replay((program.log_dir / "job-events.jsonl").read_bytes().splitlines(keepends=True))

    assert [*ATTEMPT, "restarting", *ATTEMPT, "restarting", *ATTEMPT, "failed"] == program.states()
    assert job
    assert ("failed", 7, 2) == (job.state.value, job.status, job.attempt)


def test_facts_about_the_plan_are_told_once(three_attempts: tuple[Program, Run]) -> None:
    """A job is planned again before each attempt, which the screen does not report again."""
    _program, run = three_attempts

    assert 1 == run.screen.count("cores")
    assert 2 == run.screen.count("restarting ranks 0, 1 of 2")


# --- What is written --------------------------------------------------------------------------------------------------


@pytest.mark.deep
def test_finding_is_about_its_own_attempt(program: Program) -> None:
    """The error of an attempt before is in the same log, but does not explain a later failure."""
    script = (
        'if [ $ASCEND_RUNNER_ATTEMPT = 0 ]; then echo "ValueError: old"; kill -KILL $$; fi;'
        ' head -c 200000 /dev/zero | tr "\\0" "\\n"; exit 7'
    )
    start(program, script, "--max-restarts", "1", ranks=1).finish()

    assert "" == program.report()["ranks"][0]["finding"]["exception"]


# --- Ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_stop_signal_during_the_delay(program: Program, signum: signal.Signals) -> None:
    """The job ends at once with the status of the signal, and no attempt follows."""
    run = start(program, FAIL, "--restart-delay", "1h")
    run.wait_for("restarting in 1 h 0 min")
    run.send(signum)

    assert 128 + signum == run.finish()
    assert [*ATTEMPT, "restarting", "stopped"] == program.states()
    report = program.report()
    assert ("stopped", 128 + signum, "interrupted", 1) == (
        report["state"],
        report["status"],
        report["cause"]["kind"],
        len(report["attempts"]),
    )
    assert 7 == report["attempts"][0]["status"]
    sentence = f"{signal.Signals(signum).name}; the previous attempt failed: rank 0 failed: exit status 7"
    assert sentence in report["cause"]["sentence"]
    assert f"\n  before rank 0 failed: exit status 7 (likely the cause)\n  log    {program.log_dir}/" in run.screen
    assert "\n  rerun  sh " in run.screen


@pytest.mark.deep
def test_stop_signal_during_a_further_attempt(program: Program) -> None:
    """Screen and report keep why the attempt before has failed."""
    script = "[ $ASCEND_RUNNER_ATTEMPT$RANK = 00 ] && exit 7; echo attempt $ASCEND_RUNNER_ATTEMPT; exec sleep 1000"
    run = start(program, script)
    run.wait_for("attempt 1", times=2)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    report = program.report()
    sentence = "stopped by SIGTERM; the previous attempt failed: rank 0 failed: exit status 7 (likely the cause)"
    assert ("stopped", "interrupted", 2) == (report["state"], report["cause"]["kind"], len(report["attempts"]))
    assert sentence == report["cause"]["sentence"]
    assert f"\n  before rank 0 failed: exit status 7 (likely the cause)\n  log    {program.log_dir}/" in run.screen


@pytest.mark.deep
def test_other_signals_do_not_end_the_delay(program: Program) -> None:
    """A signal for the ranks, of which there are none, changes nothing."""
    run = start(program, FAIL, "--restart-delay", "1h")
    run.wait_for("restarting in 1 h 0 min")
    run.send(signal.SIGUSR1)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert 1 == len(program.report()["attempts"])


def test_stop_signal_during_the_teardown(program: Program) -> None:
    """A signal while the other ranks of a failed attempt are being stopped prevents the next attempt."""
    run = start(program, FAIL_BESIDE_A_DEAF_RANK, "--grace", "60")
    run.wait_for("stopping the other rank")
    run.send(signal.SIGTERM)
    run.wait_for("already stopping")
    run.send(signal.SIGINT)  # kill now

    assert 143 == run.finish()
    assert [*ATTEMPT, "stopped"] == program.states()
    assert ("stopped", "stopped") == (program.report()["state"], program.report()["attempts"][0]["verdict"])


def test_signal_to_a_running_job_stops_it(program: Program) -> None:
    """A job that is stopped is not restarted."""
    run = start(program, "echo ready; exec sleep 1000")
    run.wait_for("ready", times=2)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert [*ATTEMPT, "stopped"] == program.states()


def test_attempts_never_overlap(program: Program) -> None:
    """Whatever a rank leaves behind is gone before the next attempt: here one in a session of its own that ignores all.

    Each attempt holds a lock in a process that ignores SIGTERM; the next one finds it free.
    """
    leave = "setsid sh -c 'touch held-$ASCEND_RUNNER_ATTEMPT; exec sleep 1000'"
    held = f"(trap '' TERM; flock -n 9 || echo overlap; {leave}) 9>>lock &"
    script = f"{held} while ! [ -e held-$ASCEND_RUNNER_ATTEMPT ]; do :; done; exit 7"
    run = start(program, script, "--grace", "0.2", "--max-restarts", "3", ranks=1)

    assert 7 == run.finish()
    assert 4 == len(program.report()["attempts"])
    assert b"" == program.log(0)


# --- Refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("options", "env"),
    [
        (
            (
                "--link",
                "off",
                "--nproc-per-node",
                "2",
                "--nnodes",
                "2",
                "--node-rank",
                "0",
                "--master-addr",
                "10.0.0.1",
            ),
            {},
        ),
        ((), {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "2"}),
    ],
    ids=["nodes", "one-of-several"],
)
def test_part_of_a_job_is_not_restarted_alone(program: Program, options: tuple[str, ...], env: dict[str, str]) -> None:
    """On several nodes without a link, --max-restarts is refused before anything is started."""
    ended = program.here(*options, "--max-restarts", "1", "touch", "ran", env=env)

    assert 125 == ended.returncode
    assert "--max-restarts requires a link between the nodes" in ended.stderr
    assert "sbatch --requeue" in ended.stderr
    assert not (program.folder / "ran").exists()
    assert not program.log_dir.exists()


def test_checkpoint_directory_must_be_one(program: Program) -> None:
    """A file in its place is refused; a directory that is still missing is the training's to make, and noted once."""
    (program.folder / "file").touch()
    refused = program.start("--nproc-per-node", "1", "--checkpoint-dir", "file", "touch", "ran")
    options = ("--nproc-per-node", "1", "--checkpoint-dir", "missing", "--max-restarts", "1")
    missing = program.start(*options, "false")

    assert (125, 1) == (refused.finish(), missing.finish())
    assert not (program.folder / "ran").exists()
    assert (1, 1) == (refused.screen.count("--checkpoint-dir"), missing.screen.count("--checkpoint-dir"))


# --- Devices ----------------------------------------------------------------------------------------------------------


def machine(folder: Path) -> tuple[Host, Path]:
    """Return a machine with two NPUs, one of which is open in a process, and the link that shows this."""
    for number in (0, 1):
        (folder / "dev").mkdir(exist_ok=True)
        (folder / "dev" / f"davinci{number}").touch()
    (folder / "proc" / "4711" / "fd").mkdir(parents=True)
    link = folder / "proc" / "4711" / "fd" / "9"
    link.symlink_to(folder / "dev" / "davinci1")
    return Host(str(folder)), link


def test_attempt_waits_until_its_devices_are_free(tmp_path: Path) -> None:
    """As long as a process has an NPU of the job open, nothing is started, but for 15 s at most."""
    host, link = machine(tmp_path)
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            link.unlink()

    assert () == await_release(host, (0, 1), pause)
    assert 3 == len(waited)


def test_wait_for_devices_ends(tmp_path: Path) -> None:
    """A process that never lets go of an NPU is named after 15 s; other NPUs do not matter."""
    host, _link = machine(tmp_path)
    waited: list[float] = []

    assert (4711,) == await_release(host, (0, 1), waited.append)
    assert 15.0 == pytest.approx(sum(waited))
    assert () == await_release(host, (0,), lambda _seconds: pytest.fail("nothing to wait for"))
