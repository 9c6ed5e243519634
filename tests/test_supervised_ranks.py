"""The whole program on real processes: exit statuses, signals, and no process left."""

from __future__ import annotations

import itertools
import os
import signal
import time

import pytest

from ascend_runner.guardian import process_tree
from tests.helpers.program import ACTOR, Program


def test_every_rank_exits_0(program: Program) -> None:
    """Status 0, each line shown with its rank and kept in the rank's log."""
    run = program.act(3, "say=hello")

    assert 0 == run.finish()
    assert {"[rank 0] hello\n", "[rank 1] hello\n", "[rank 2] hello\n"} <= set(run.lines)
    assert [b"hello\n"] * 3 == [program.log(rank_id) for rank_id in range(3)]
    assert "all 3 ranks exited with status 0 after " in run.lines[-1]


def test_first_failure_ends_the_job_with_its_status(program: Program) -> None:
    """Rank 1's exit 7 is the status, the others are stopped, and the last screen names rank 1."""
    steps = ("say=ready", f"1:await={program.folder}/go", "1:say=broken", "1:exit=7", "sleep")
    run = program.act(3, *steps, options=("--html", "failure"))
    run.wait_for("ready", times=3)
    (program.folder / "go").touch()

    assert 7 == run.finish()
    assert "ERROR rank 1 failed: exit status 7" in run.screen
    assert "  | broken\n" in run.screen
    assert f"  log    {program.log_dir}/job-proc-rank-1-device-1.txt\n" in run.screen
    *_, others, page = run.screen.splitlines()
    assert "  others stopped by the runner (SIGTERM): ranks 0, 2" == others
    assert " INFO HTML report: " in page


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_being_stopped_is_never_success(program: Program, signum: signal.Signals) -> None:
    """A stopped runner stops the ranks with the matching signal and exits with 128 + its own."""
    asked = "INT" if signum == signal.SIGINT else "TERM"
    run = program.act(2, f"answer={asked}:saved:0", "say=ready", "sleep")
    run.wait_for("ready", times=2)
    run.send(signum)

    assert run.finish() == 128 + signum
    assert run.screen.count("saved") >= 2
    assert f"ERROR stopped by {signum.name} after " in run.screen
    assert run.screen.endswith("  ranks  stopped by the runner (exit status 0): ranks 0, 1\n")


OTHERS = itertools.cycle((signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))
MOMENTS = [
    (signum, milliseconds)
    for milliseconds in (0, 5, 10, 15, 20, 30, 40, 50, 60, 80, 100, 150)
    for signum in (signal.SIGTERM, next(OTHERS))
]


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize(("signum", "milliseconds"), MOMENTS)
def test_signal_at_any_moment_ends_in_a_clean_teardown(
    program: Program, signum: signal.Signals, milliseconds: int
) -> None:
    """During start-up, between two spawns, or later: 128 + signal, and no process is left."""
    run = program.act(16, "child=session", "sleep")
    time.sleep(milliseconds / 1000)  # what is tested is that it does not matter how far the program has come
    run.send(signum)

    status = run.finish()
    if "[ascend-runner]" in run.screen:
        assert status == 128 + signum
    else:  # before our first line of code Python ends as ever (1: in the middle of its own `site`); nothing was started
        assert status in {128 + signum, -signum, *([1] if signum == signal.SIGINT else [])}
    # A rank's child may well show one: it finds its parent gone.
    assert status in {1, -signum} or not any(line.startswith("Traceback") for line in run.screen.splitlines())


def test_signals_during_the_teardown_do_no_harm(program: Program) -> None:
    """Signals during the teardown, however many, change neither the cause nor the clean end."""
    run = program.act(2, "note=TERM", "say=ready", "sleep", options=("--grace", "3600"))
    run.wait_for("ready", times=2)
    run.send(signal.SIGTERM)
    run.wait_for("got TERM", times=2)
    for signum in (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        run.send(signum)

    assert 143 == run.finish()


def test_ignored_sigterm_ends_in_sigkill_after_the_grace(program: Program) -> None:
    """A rank that ignores SIGTERM is killed at the end of the grace."""
    run = program.act(1, "ignore=TERM", "say=ready", "sleep", options=("--grace", "0.3"))
    run.wait_for("ready")
    run.send(signal.SIGTERM)

    assert run.finish() == 128 + signal.SIGTERM
    assert run.screen.endswith("  ranks  killed by the runner (SIGKILL): rank 0\n")


def test_second_sigterm_kills_at_once(program: Program) -> None:
    """A second stop signal ends the wait for the grace."""
    run = program.act(2, "note=TERM", "say=ready", "sleep", options=("--grace", "3600"))
    run.wait_for("ready", times=2)
    run.send(signal.SIGTERM)
    run.wait_for("got TERM", times=2)
    run.send(signal.SIGINT)

    assert run.finish() == 128 + signal.SIGTERM
    assert run.screen.endswith("  ranks  killed by the runner (SIGKILL): ranks 0, 1\n")


@pytest.mark.deep
def test_stopped_rank_is_stopped_for_good(program: Program) -> None:
    """A rank under SIGSTOP is continued, so that it can obey SIGTERM."""
    run = program.act(1, "answer=TERM:saved:0", "say=ready", "die=STOP", "sleep")
    run.wait_for("ready")
    run.send(signal.SIGTERM)

    assert run.finish() == 128 + signal.SIGTERM
    assert b"ready\nsaved\n" == program.log(0)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("user_signal", ["USR1", "USR2"])
def test_user_signals_reach_every_rank(program: Program, user_signal: str) -> None:
    """SIGUSR1 and SIGUSR2 are forwarded to each rank's group, and the job goes on."""
    run = program.act(2, f"note={user_signal}", "answer=TERM:saved:0", "say=ready", "sleep")
    run.wait_for("ready", times=2)
    run.send(signal.Signals["SIG" + user_signal])
    run.wait_for(f"got {user_signal}", times=2)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize("how", ["plain", "group", "session", "daemon"])
@pytest.mark.parametrize("end", ["exit=0", "exit=3", "sleep"])
@pytest.mark.parametrize("kind", ["child", "stubborn"])
def test_no_grandchild_survives(program: Program, how: str, end: str, kind: str) -> None:
    """A grandchild is killed however it detached and however the job ended."""
    run = program.act(2, f"{kind}={how}", "say=ready", end, options=("--grace", "0.3"))
    if end == "sleep":
        run.wait_for("ready", times=2)
        run.send(signal.SIGTERM)

    assert {"exit=0": 0, "exit=3": 3, "sleep": 143}[end] == run.finish()


def test_sigkill_of_the_runner_leaves_nobody(program: Program) -> None:
    """The guardian kills and reaps all ranks and grandchildren, and exits with 137."""
    run = program.act(4, "stubborn=daemon", "stubborn=plain", "ignore=TERM", "say=ready", "sleep")
    run.wait_for("ready", times=4)
    os.kill(run.runner_pid, signal.SIGKILL)

    assert 137 == run.finish()


def test_sigkill_of_the_guardian_leaves_nobody(program: Program) -> None:
    """The runner notices and stops the ranks; the test reaps it as an orphan."""
    run = program.act(4, "child=session", "child=plain", "say=ready", "sleep")
    run.wait_for("ready", times=4)
    runner = run.runner_pid
    os.kill(run.popen.pid, signal.SIGKILL)

    run.wait_for(f"INFO ascend-runner (pid {run.popen.pid}) was killed; stopping 4 ranks")
    run.wait_for(f"ERROR ascend-runner (pid {run.popen.pid}) was killed; stopped after")
    assert run.finish() == -signal.SIGKILL
    _pid, status = os.waitpid(runner, 0)
    assert 137 == os.WEXITSTATUS(status)


def test_sigkill_of_the_guardian_while_the_table_is_awaited(program: Program) -> None:
    """The runner says why it ends, also before it has started a rank."""
    run = program.start("--rank-table", str(program.folder / "missing.json"), "true")
    run.wait_for("waiting for the rank table")
    runner = run.runner_pid
    os.kill(run.popen.pid, signal.SIGKILL)

    run.wait_for(f"ascend-runner (pid {run.popen.pid}) was killed before any rank was started")
    assert run.finish() == -signal.SIGKILL
    os.waitpid(runner, 0)


def test_nohup_is_respected(program: Program) -> None:
    """SIGHUP that was ignored at the start stays ignored."""
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run = program.act(1, "answer=TERM:saved:0", "note=USR1", "say=ready", "sleep")
    finally:
        signal.signal(signal.SIGHUP, handler)
    run.wait_for("ready")
    run.send(signal.SIGHUP)
    run.send(signal.SIGUSR1)
    run.wait_for("got USR1")
    run.send(signal.SIGTERM)

    assert 143 == run.finish()


@pytest.mark.deep
def test_double_signal_of_one_sender_is_one_intention(program: Program) -> None:
    """timeout(1) signals its child and its group; the ranks still have their grace."""
    run = program.start_patient("--nproc-per-node", "1", "--grace", "3", *ACTOR, "note=TERM", "say=ready", "sleep")
    run.wait_for("ready")
    os.kill(run.popen.pid, signal.SIGTERM)
    os.kill(run.popen.pid, signal.SIGTERM)

    assert 143 == run.finish()
    assert program.log(0) == b"ready\n" + b"got TERM\n"


def test_ranks_have_sessions_of_their_own_and_no_stdin(program: Program) -> None:
    """Each rank leads its session, reads end of file, and gets signals with their default action."""
    script = "import os,sys; print(os.getsid(0) == os.getpid(), repr(sys.stdin.read()))"
    run = program.start("--nproc-per-node", "2", "python3", "-c", script)

    assert 0 == run.finish()
    assert b"True ''\n" == program.log(0) == program.log(1)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("workdir", ["inherit", "/"])
def test_ranks_inherit_no_descriptor(program: Program, workdir: str) -> None:
    """A rank has its three standard files, and no descriptor of the runner or its caller."""
    script = "import os; print([fd for fd in range(1000) if os.path.exists(f'/proc/self/fd/{fd}')])"
    holding = ("sh", "-c", 'exec "$@" 7</dev/null', "sh")
    run = program.start("--nproc-per-node", "2", "--workdir", workdir, "python3", "-c", script, under=holding)

    assert 0 == run.finish()
    assert b"[0, 1, 2]\n" == program.log(0) == program.log(1)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("workdir", ["inherit", "/"])
def test_ranks_start_with_no_signal_blocked(program: Program, workdir: str) -> None:
    """Ranks inherit no blocked or handled signals of the runner."""
    run = program.start("--nproc-per-node", "1", "--workdir", workdir, "cat", "/proc/self/status")

    assert 0 == run.finish()
    masks = dict(line.split(b":\t") for line in program.log(0).splitlines() if line.startswith(b"Sig"))
    # The 31 classic signals; above them are the C library's own, which are inherited from whoever runs the tests.
    blocked, ignored, caught = (int(masks[name], 16) & 0x7FFFFFFF for name in (b"SigBlk", b"SigIgn", b"SigCgt"))
    assert (0, 0, 0) == (blocked, ignored, caught)


def test_runner_has_one_child_the_guardian_sees(program: Program) -> None:
    """Guardian and runner are two processes, and the runner leads a process group of its own."""
    run = program.act(1, "say=ready", "sleep")
    run.wait_for("ready")
    runner = process_tree.look(run.runner_pid)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert runner
    assert runner.pgid == runner.pid
