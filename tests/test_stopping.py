"""The end of a rank's processes when a job is stopped: each is asked once, and some are spared.

The scenes are those in which work was lost: a checkpoint that takes most of the grace, with everything that a real
training starts around it.
"""

from __future__ import annotations

import os
from signal import SIGINT, SIGTERM, SIGUSR1, SIGUSR2

import pytest

from ascend_runner.guardian import process_tree
from tests.helpers.program import PATIENT, Program, Run
from tests.helpers.waiting import wait_until

# Saves for 2.4 of the 5 seconds of grace: all steps of the back-off (0.3, 1 and 2.3 s) fall into it, and a machine
# that is slow has as much time again.
GRACE = ("--grace", "5")
SAVES = """
import os, signal, sys, time
def save(signum, frame):
    print("asked", signal.Signals(signum).name, flush=True)
    for part in range(8):
        time.sleep(0.3)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
signal.signal(signal.SIGINT, save)
"""
WAITS = """
print("ready", flush=True)
while True:
    time.sleep(100)
"""
WORKER = """
import subprocess, threading
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
threading.Thread(target=lambda: print("worker ended", worker.wait(), flush=True), daemon=True).start()
"""


def start(program: Program, *command: str, options: tuple[str, ...] = GRACE) -> Run:
    """Start one rank and wait until it is ready."""
    run = program.start("--nproc-per-node", "1", *options, *command)
    run.wait_for("ready")
    return run


def stopped(program: Program, run: Run, signum: int = SIGTERM) -> list[bytes]:
    """Stop the job and return what its rank wrote after it was ready."""
    run.send(signum)
    assert 128 + signum == run.finish()
    return program.log(0).partition(b"ready\n")[2].splitlines()


@pytest.mark.parametrize(("signum", "name"), [(SIGTERM, b"SIGTERM"), (SIGINT, b"SIGINT")])
def test_checkpoint_is_saved_without_interruption(program: Program, signum: int, name: bytes) -> None:
    """A handler that takes most of the grace is entered once and ends by itself; Ctrl-C arrives as SIGINT."""
    run = start(program, program.python, "-c", SAVES + WAITS)

    assert [b"asked " + name, b"saved"] == stopped(program, run, signum)


def test_ranks_are_asked_with_the_signal_that_the_user_has_chosen(program: Program) -> None:
    """With --stop-signal INT a SIGTERM to the runner reaches the ranks as SIGINT; the status is that of SIGTERM."""
    script = "trap 'echo asked; exit 0' INT; echo ready; while :; do sleep 0.01; done"
    run = start(program, "sh", "-c", script, options=(*GRACE, "--stop-signal", "INT"))

    assert [b"asked"] == stopped(program, run, SIGTERM)


@pytest.mark.deep
def test_workers_live_while_their_process_saves(program: Program) -> None:
    """A data-loading worker without a handler is alive until the process that started it has ended."""
    run = start(program, program.python, "-c", SAVES + WORKER + WAITS)

    assert [b"asked SIGTERM", b"saved"] == stopped(program, run)


def test_shell_without_a_trap(program: Program) -> None:
    """The command below the shell saves, and the shell's next command does not start."""
    (program.folder / "train.py").write_text(SAVES + WAITS)
    run = start(program, "bash", "-c", f"{program.python} train.py; echo next")

    assert [b"asked SIGTERM", b"saved"] == stopped(program, run)


@pytest.mark.deep
def test_shell_with_a_trap(program: Program) -> None:
    """The shell runs its trap once its command has saved."""
    (program.folder / "train.py").write_text(SAVES + WAITS)
    run = start(program, "bash", "-c", f"trap 'echo cleaned; exit 0' TERM; {program.python} train.py; echo next")

    assert [b"asked SIGTERM", b"saved", b"cleaned"] == stopped(program, run)


@pytest.mark.deep
def test_trap_that_forwards_to_a_background_job(program: Program) -> None:
    """A background job below a trapping shell gets the signal from the trap, and from no other sender."""
    (program.folder / "train.py").write_text(SAVES + WAITS)
    script = f"trap 'kill -TERM $!; wait $!; exit 0' TERM; {program.python} train.py & wait"
    run = start(program, "bash", "-c", script)

    assert [b"asked SIGTERM", b"saved"] == stopped(program, run)


def test_command_that_a_trap_goes_on_to(program: Program) -> None:
    """A process that a shell starts after it was asked is found at the next step of the back-off."""
    (program.folder / "train.py").write_text(SAVES + WAITS)
    script = "trap : TERM; sh -c 'echo ready; exec sleep 1000'; sleep 1001; echo next"
    run = start(program, "bash", "-c", script)

    assert b"next" == stopped(program, run)[-1]


def test_rank_that_is_still_importing_ends_at_once(program: Program) -> None:
    """Without a handler yet SIGTERM has its default action."""
    run = start(program, program.python, "-c", "import time; print('ready', flush=True); time.sleep(1000)")

    assert [] == stopped(program, run)


def test_daemon_of_its_own_session_has_the_grace(program: Program) -> None:
    """A daemon that has left its rank's session is asked as well, and its checkpoint is saved."""
    (program.folder / "daemon.py").write_text(SAVES.replace("sys.exit", "open('done', 'w').close(); sys.exit") + WAITS)
    script = f"setsid {program.python} daemon.py & while true; do sleep 1000; done"
    run = start(program, "bash", "-c", script)
    stopped(program, run)

    assert (program.folder / "done").exists()


def test_straggler_below_a_process_outside_its_session(program: Program) -> None:
    """It is asked although its parent has left the session, and counts as ended although that never reaps it."""
    script = "(sleep 1000 & exec setsid sleep 999) & while [ $(pgrep -cx -s 0 sleep) != 1 ]; do :; done; exit 7"
    run = program.start("--nproc-per-node", "1", "--grace", "1000", "sh", "-c", script)

    assert 7 == run.finish()
    assert "killed" not in run.screen


HEADLESS = """
import ctypes, signal, threading, time
def save():
    print("ready", flush=True)
    signal.sigwait({signal.SIGTERM})
    print("asked", flush=True)
    time.sleep(1)
    print("saved", flush=True)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
threading.Thread(target=save).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_straggler_with_a_living_thread_below_a_process_outside_its_session(program: Program) -> None:
    """A process in state Z of which a thread still saves has the grace, whoever its parent is."""
    (program.folder / "headless.py").write_text(HEADLESS)
    straggler = f"({program.python} headless.py & exec setsid sleep 999) &"
    run = start(program, "sh", "-c", f"{straggler} until [ -e go ]; do sleep 0.01; done; exit 7")
    wait_until(lambda: "Z" in [found.state for found in process_tree.descendants(run.runner_pid)])
    (program.folder / "go").touch()

    assert 7 == run.finish()
    assert b"ready\nasked\nsaved\n" == program.log(0)


def test_signal_to_guardian_and_runner_alike(program: Program) -> None:
    """pkill(1), systemd and Slurm signal all processes of ours, also those of a runner under a runner: one request."""
    options = ("--nproc-per-node", "1", "--grace", "60")
    inner = (program.python, str(PATIENT), "--nnodes", "1", "--log-dir", str(program.folder / "inner"))
    run = program.start_patient(*options, *inner, *options, program.python, "-c", SAVES + WAITS)
    run.wait_for("ready")
    ours = [run.popen.pid]
    while below := process_tree.children(ours[-1]):
        ours += below
    for pid in ours[:-1]:
        os.kill(pid, SIGTERM)

    assert 143 == run.finish()
    lines = [line.removeprefix(b"[rank 0] ") for line in program.log(0).splitlines()]  # of the inner runner
    assert [b"asked SIGTERM", b"saved"] == [line for line in lines if line.startswith((b"asked", b"saved"))]


@pytest.mark.deep
def test_nested_runners_ask_once(program: Program) -> None:
    """A runner as the command of a rank forwards the request itself: its ranks are asked once."""
    inner = (program.python, "-m", "ascend_runner", "--nproc-per-node", "1", "--nnodes", "1", *GRACE)
    logs = ("--log-dir", str(program.folder / "inner"))
    run = start(program, *inner, *logs, program.python, "-c", SAVES + WAITS, options=("--grace", "10"))
    lines = [line.removeprefix(b"[rank 0] ") for line in stopped(program, run)]  # of the inner runner

    assert [b"asked SIGTERM", b"saved"] == [line for line in lines if line.startswith((b"asked", b"saved"))]


def test_user_signal_reaches_only_a_handler(program: Program) -> None:
    """SIGUSR1 passes over a shell and a worker that it would kill."""
    note = "signal.signal(signal.SIGUSR1, lambda *_: print('noted', flush=True))\n"
    run = start(
        program,
        "bash",
        "-c",
        f'{program.python} -c "$0"; true',
        SAVES.replace("range(8)", "()") + note + WORKER + WAITS,
    )
    run.send(SIGUSR1)
    run.wait_for("noted")

    assert [b"noted", b"asked SIGTERM", b"saved"] == stopped(program, run)


def test_user_signal_without_a_handler_is_reported(program: Program) -> None:
    """The signal kills no process, and one warning says that it was not sent to the ranks."""
    run = start(program, "bash", "-c", "echo ready; sleep 1000; true")
    for _ in range(2):
        run.send(SIGUSR2)
        run.wait_for("SIGUSR2 was not sent to the ranks: no process of this job handles it")

    assert [] == stopped(program, run)
    assert 1 == run.screen.count("was not sent")


def test_failure_is_announced_at_once_and_again_at_the_end(program: Program) -> None:
    """A rank that fails is named while the others still stop, then once more with all that is known."""
    waits = "trap 'until [ -e go ]; do sleep 0.01; done; exit 0' TERM; touch ready; while :; do sleep 0.01; done"
    script = f'if [ "$RANK" = 1 ]; then {waits}; fi; until [ -e ready ]; do sleep 0.01; done; exit 7'
    run = program.start("--nproc-per-node", "2", "--grace", "60", "sh", "-c", script)
    run.wait_for("INFO rank 0 failed (exit status 7); stopping the other rank, with up to 60 s to exit")
    (program.folder / "go").touch()

    assert 7 == run.finish()
    run.wait_for("ERROR rank 0 failed: exit status 7")


@pytest.mark.deep
def test_steps_of_the_grace_are_shown_with_verbose(program: Program) -> None:
    """With --verbose, each step says which ranks are still running."""
    run = program.start(
        "--nproc-per-node", "1", "--grace", "15", "--verbose", "sh", "-c", "trap '' TERM; echo ready; sleep 1000"
    )
    run.wait_for("ready")
    run.send(SIGTERM)
    run.wait_for("DEBUG still running: rank 0")
    run.send(SIGINT)  # kill now

    assert 143 == run.finish()


def test_stop_is_announced_at_once(program: Program) -> None:
    """Before anything is waited for, one line says what is being done and how to cut it short."""
    run = start(program, program.python, "-c", SAVES + WAITS)
    run.send(SIGTERM)
    run.wait_for("INFO received SIGTERM; stopping 1 rank, with up to 5 s to exit (SIGTERM again to kill)\n")
    run.send(SIGINT)  # a second SIGTERM of one sender within milliseconds would be taken for the same one

    assert 143 == run.finish()
    assert "saved" not in run.screen
    assert 1 == run.screen.count("INFO received SIGINT; killing rank 0\n")


def test_end_of_the_grace_is_announced(program: Program) -> None:
    """Processes that are killed at the end of the grace are named, with the reason."""
    script = '[ $RANK = 0 ] || trap "" TERM; touch ready$RANK; while :; do sleep 0.01; done'
    fails = "until [ -e ready0 ] && [ -e ready1 ]; do sleep 0.01; done; exit 7"
    run = program.start(
        "--nproc-per-node", "3", "--grace", "1", "sh", "-c", f"[ $RANK = 2 ] && {{ {fails}; }}; {script}"
    )

    assert 7 == run.finish()
    assert 1 == run.screen.count("INFO grace period of 1 s is over; killing rank 1\n")


def test_reason_of_a_hang_comes_before_the_stacks(program: Program) -> None:
    """That no rank writes is told before the stacks are read, which takes a while, and then that ranks are stopped."""
    run = program.start("--nproc-per-node", "1", "--hang-timeout", "0.2", "sleep", "1000")

    assert 124 == run.finish()
    lines = [
        "no rank wrote any output for 0.2 s (--hang-timeout); collecting",
        "stacks of all ranks",
        "INFO stopping 1",
    ]
    found = [run.screen.index(line) for line in lines]
    assert sorted(found) == found


def test_lost_peer_is_announced_at_once(program: Program) -> None:
    """A rank that only lost a peer is told of before the others have their moment to report the cause."""
    lost = "echo 'RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:1'; exit 3"
    script = f"[ $RANK = 0 ] || {{ echo ready; sleep 1000; }}; until [ -e go ]; do sleep 0.01; done; {lost}"
    run = program.start("--nproc-per-node", "2", "sh", "-c", script)
    run.wait_for("ready")
    (program.folder / "go").touch()

    assert 3 == run.finish()
    lines = [
        "INFO rank 0 failed (exit status 3); waiting up to 0.5 s",
        "INFO stopping the other rank, with up to 15 s to exit",
    ]
    found = [run.screen.index(line) for line in lines]
    assert sorted(found) == found
