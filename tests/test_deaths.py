"""How ranks can die, alone, together and with many children: the law of the exit status, and nobody left."""

from __future__ import annotations

import os
import shlex
import signal
from typing import TYPE_CHECKING, Final

import pytest

from ascend_runner.linux import descendants
from tests.conftest import permitted

if TYPE_CHECKING:
    from tests.conftest import Program

DEADLY: Final = sorted(
    signal.valid_signals()
    - {signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH}  # ignored by default
    - {signal.SIGCONT, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
    - set(range(signal.SIGRTMIN + 1, signal.SIGRTMAX))
)


@pytest.mark.parametrize("signum", DEADLY)
def test_each_signal(program: Program, signum: int) -> None:
    """A rank that dies of signal S ends the job with 128 + S, and S is named, where it has a name."""
    run = program.start(
        "--nproc-per-node", "2", "sh", "-c", f"ulimit -c 0; [ $RANK_ID = 0 ] && kill -{int(signum)} $$; exec sleep 1000"
    )

    assert 128 + signum == run.finish()
    name = signum.name if isinstance(signum, signal.Signals) else f"signal {signum}"
    assert f"ERROR rank 0 failed first: killed by {name}" in run.screen


@pytest.mark.parametrize("status", [0, 1, 125, 126, 127, 255])
def test_each_kind_of_status(program: Program, status: int) -> None:
    """A rank's exit status is the job's, also where the runner has a meaning of its own for it."""
    assert status == program.act(2, f"1:exit={status}").finish()


def test_all_at_once(program: Program) -> None:
    """Ranks that end in one moment: the status and the first cause are those of one and the same rank."""
    steps = [f"{rank_id}:exit={rank_id + 11}" for rank_id in range(8)]
    run = program.act(8, "say=ready", f"await={program.folder}/go", *steps)
    run.wait_for("ready", times=8)
    (program.folder / "go").touch()

    status = run.finish()
    assert status == program.report()["cause"]["rank_id"] + 11
    assert {rank["state"] for rank in program.report()["ranks"]} <= {"failed", "stopped"}


def test_all_killed_at_once(program: Program) -> None:
    """Whoever kills all ranks in one moment ends the job with 137."""
    run = program.act(8, "child=session", "say=ready", "sleep")
    run.wait_for("ready", times=8)
    for pid in descendants.children(run.runner_pid):
        os.kill(pid, signal.SIGKILL)

    assert run.finish() == 137


def test_whoever_stops_each_process_of_a_job_stops_the_job(program: Program) -> None:
    """Slurm signals runner and ranks alike: a rank that is seen to die first has not failed."""
    steps = ("1:note=TERM", "say=ready", "0:sleep", f"await={program.folder}/go")
    run = program.act(2, *steps, options=("--grace", "3600"))
    run.wait_for("ready", times=2)
    os.kill(descendants.children(run.runner_pid)[0], signal.SIGTERM)
    run.wait_for("got TERM")
    os.kill(run.runner_pid, signal.SIGTERM)
    (program.folder / "go").touch()

    assert 143 == run.finish()
    assert " ERROR stopped by SIGTERM, " in run.screen
    assert "ranks  0: killed by SIGTERM\n" in run.screen
    assert {"kind": "interrupted", "signal": 15}.items() <= program.report()["cause"].items()


def test_death_while_others_are_started(program: Program) -> None:
    """The first of many fails at once: whoever was started is stopped, the others are not begun."""
    run = program.start("--nproc-per-node", "100", "sh", "-c", "[ $RANK_ID = 0 ] && exit 7; exec sleep 1000")

    assert run.finish() == 7
    states = [rank["state"] for rank in program.report()["ranks"]]
    assert "failed" == states[0]
    assert set(states[1:]) <= {"stopped", "not_started"}


@pytest.mark.parametrize("end", ["exit=0", "exit=3", "sleep"])
def test_fork_bomb(program: Program, end: str) -> None:
    """500 children of one rank, half of them in sessions of their own, are gone with it (the fixture looks)."""
    run = program.act(2, "0:forks=500", "say=ready", end)
    if end == "sleep":
        run.wait_for("ready", times=2)
        run.send(signal.SIGTERM)

    assert {"exit=0": 0, "exit=3": 3, "sleep": 143}[end] == run.finish()


def test_fork_bomb_of_a_killed_runner(program: Program) -> None:
    """The guardian ends all of them, too."""
    run = program.act(2, "0:forks=500", "say=ready", "sleep")
    run.wait_for("ready", times=2)
    os.kill(run.runner_pid, signal.SIGKILL)

    assert run.finish() == 137


def test_grandchild_that_keeps_the_pipe(program: Program) -> None:
    """A child in a session of its own holds the rank's output open: it is ended, and the log is complete."""
    child = "setsid sh -c 'echo from the child; touch said; exec sleep 1000'"
    script = f"{child} & until [ -e said ]; do sleep 0.01; done; echo from the rank"
    run = program.start("--nproc-per-node", "1", "sh", "-c", script)

    assert run.finish() == 0
    assert program.log(0) == b"from the child\nfrom the rank\n"
    assert "WARNING ended what had left its rank's session: " in run.screen


# --- Containers -------------------------------------------------------------------------------------------------------


def test_first_process_of_a_container_reaps_all_orphans(program: Program) -> None:
    """As PID 1, with 1,000 processes that lose their parents: none stays a zombie while the job runs."""
    namespace = permitted("unshare", "--pid", "--fork", "--mount-proc")
    actor = ("orphans=1000", "say=all are reaped")
    run = program.act(1, *actor, under=namespace)

    assert run.finish() == 0
    assert program.log(0) == b"all are reaped\n"


def test_proc_of_another_namespace_is_seen(program: Program) -> None:
    """Its numbers are strangers': one warning, and the job runs and ends as ever."""
    run = program.act(2, "say=ready", "sleep", under=permitted("unshare", "--pid", "--fork", "--kill-child"))
    run.wait_for("ready", times=2)
    (first,) = descendants.children(run.popen.pid)
    os.kill(first, signal.SIGTERM)

    assert run.finish() == 143
    assert 1 == run.screen.count("WARNING /proc is another PID namespace's: ")


def test_no_proc_at_all(program: Program) -> None:
    """The job runs and ends as ever where nothing can be looked up, and who started it keeps its descriptors."""
    hidden = permitted("unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@" 7</dev/null', "sh")
    run = program.start("--nproc-per-node", "1", "sh", "-c", "( : <&7 ) || echo closed; exit 3", under=hidden)

    assert run.finish() == 3
    assert program.log(0).endswith(b"\nclosed\n")


def test_proc_of_another_namespace_is_not_believed(program: Program) -> None:
    """Our number is somebody else's there, whose children must not be taken for ours, and killed."""
    outer = permitted("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    code = "from ascend_runner.linux.descendants import children, kill_all; print(children(1), kill_all())"
    inner = shlex.join(["unshare", "--pid", "--fork", program.python, "-c", code])
    ended = program.shell(shlex.join([*outer, "sh", "-c", f"sleep 1000 & {inner}; kill $!"]))

    assert ended.stdout == b"[] []\n"
