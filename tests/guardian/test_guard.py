"""The guardian exits with the runner's status, leaves none of its processes, and neither drops nor adds signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ascend_runner.guardian import process_tree
from ascend_runner.guardian.runner import ANSWER_LIMIT
from ascend_runner.guardian.signal_sets import ONE_SIGNAL
from tests.helpers.program import WORKERS
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import LIMIT, is_gone, is_pending, wait_until

GUARDED = [sys.executable, str(WORKERS / "guarded.py")]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a guardian until it exits."""
    return subprocess.run(
        command, env=CLEAN, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False
    )


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a guardian whose runner reports that it is ready and exits on SIGQUIT."""
    popen = subprocess.Popen(command, env=CLEAN, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert popen.stdout
    try:
        assert "ready\n" == popen.stdout.readline()
        yield popen
        popen.send_signal(signal.SIGQUIT)
        popen.wait(LIMIT)
    finally:
        popen.kill()
        popen.wait()
        popen.stdout.close()


def forward(popen: subprocess.Popen[str], signum: int) -> None:
    """Send a signal, and wait until the guardian has forwarded it to its runner, where all signals are blocked."""
    (runner,) = process_tree.children(popen.pid)
    popen.send_signal(signum)
    wait_until(lambda: is_pending(runner, signum))


def read_line(popen: subprocess.Popen[str]) -> str:
    """Read the runner's next line."""
    assert popen.stdout
    return popen.stdout.readline().strip()


# --- The status -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("exit=0", 0),
        ("exit=7", 7),
        ("exit=255", 255),
        ("stop=0", 125),
        ("stop=3", 125),
        ("raise", 125),
        ("die=KILL", 137),
        ("die=SEGV", 139),
        ("die=ABRT", 134),
    ],
)
def test_status_is_the_runners(body: str, status: int) -> None:
    """The status is the runner's, 128 + S if signal S killed it, and 125 if it raised an exception."""
    assert status == run(*GUARDED, body).returncode


def test_failure_of_the_runner_is_shown() -> None:
    """An unexpected exception is printed before the process exits."""
    assert "RuntimeError: as it was told to" in run(*GUARDED, "raise").stderr


def test_status_is_right_where_sigchld_was_ignored() -> None:
    """An inherited ignored SIGCHLD, which makes the kernel discard exit statuses, does no harm."""
    handler = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        popen = subprocess.Popen([*GUARDED, "exit=7"], env=CLEAN)
    finally:
        signal.signal(signal.SIGCHLD, handler)

    assert 7 == popen.wait(LIMIT)


# --- What it leaves ---------------------------------------------------------------------------------------------------


def test_nothing_of_a_killed_runner_outlives_the_guardian() -> None:
    """Processes that the runner left behind are gone when the guardian exits."""
    ended = run(*GUARDED, "orphans")
    pids = [int(line) for line in ended.stdout.split()]

    assert 137 == ended.returncode
    assert "the runner was killed by SIGKILL; all of its processes were killed\n" == ended.stderr
    assert 3 == len(pids)
    assert all(map(is_gone, pids))


def test_what_it_did_not_start_is_spared() -> None:
    """`exec ascend-runner` in a script spares the script's children: a tee behind `> >(tee log)` reads to the end."""
    ended = run("/bin/sh", "-c", 'sleep 1000 >&- 2>&- & echo $!; exec "$@"', "sh", *GUARDED, "orphans")
    sleeper, *pids = map(int, ended.stdout.split())
    was_spared = not is_gone(sleeper)
    os.kill(sleeper, signal.SIGKILL)
    os.waitpid(sleeper, 0)

    assert was_spared
    assert 3 == len(pids)
    assert all(map(is_gone, pids))
    assert 137 == ended.returncode


def test_what_it_did_not_start_does_not_delay_the_end() -> None:
    """An exited child of the script is neither waited for nor taken for the runner."""
    ended = run("/bin/sh", "-c", 'sleep 0 & exec "$@"', "sh", *GUARDED, "exit=7")

    assert 7 == ended.returncode


def test_number_of_an_ended_stranger_is_not_spared() -> None:
    """The kernel may give it to a process of a rank."""
    script = """
import os, signal
from ascend_runner.guardian.runner import Runner
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
stranger = os.fork()
if stranger == 0:
    os._exit(0)
signal.sigwait({signal.SIGCHLD})
strangers = {stranger}
reader, _writer = os.pipe2(os.O_NONBLOCK)
Runner(os.getpid(), reader, strangers)._look()
print(strangers)
"""

    assert "set()\n" == run(sys.executable, "-c", script).stdout


def test_further_attempt_has_the_grace_of_no_earlier_one() -> None:
    """A runner that restarts its ranks within the grace of the attempt that failed is not asked when that is over."""
    script = """
import os
from ascend_runner.guardian.runner import Runner
reader, writer = os.pipe2(os.O_NONBLOCK)
runner = Runner(os.getpid(), reader, set())
os.write(writer, b"begin 15.0\\nend 7\\n")
runner._read()
print(runner._deadline > 0)
os.write(writer, b"begin 15.0\\n")
runner._read()
print(runner._deadline)
"""

    assert "True\n0.0\n" == run(sys.executable, "-c", script).stdout


def test_what_a_dying_runner_leaves_is_not_spared() -> None:
    """The kernel passes its children on when its main thread has ended, before it can be reaped."""
    script = """
import ctypes, os, signal, threading, time
from ascend_runner.guardian import process_tree, sweep
from ascend_runner.guardian.runner import Runner
rank = os.fork()
if rank == 0:
    time.sleep(1000)
dying = os.fork()
if dying == 0:
    threading.Thread(target=time.sleep, args=(1000,)).start()
    ctypes.CDLL(None).pthread_exit(None)
while process_tree.look(dying).state != "Z":
    time.sleep(0.001)
strangers = set()
reader, _writer = os.pipe2(os.O_NONBLOCK)
Runner(dying, reader, strangers)._look()
print(strangers)
for pid in (dying, rank):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""

    assert "set()\n" == run(sys.executable, "-c", script).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can begin a container")
def test_first_process_of_a_container_reaps_orphans() -> None:
    """As PID 1 it ends with the runner's status, and does not wait for orphans."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    if run(*unshare, "true").returncode:
        pytest.skip("no new process namespace here")

    assert 137 == run(*unshare, *GUARDED, "orphans").returncode


# --- Signals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_signal_reaches_the_runner_once(name: str) -> None:
    """Each signal is forwarded, and none ends the guardian."""
    with running(*GUARDED, "signals") as popen:
        popen.send_signal(signal.Signals[name])
        seen = read_line(popen)
        popen.send_signal(signal.SIGQUIT)

        assert [name, "SIGQUIT"] == [seen, read_line(popen)]
        assert 0 == popen.wait(LIMIT)


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGINT])
def test_ignored_signal_is_not_forwarded(signum: signal.Signals) -> None:
    """Under nohup(1) SIGHUP stays ignored, and SIGINT in a shell's background job."""
    handler = signal.signal(signum, signal.SIG_IGN)
    try:
        with running(*GUARDED, "signals") as popen:
            popen.send_signal(signum)
            popen.send_signal(signal.SIGQUIT)

            assert "SIGQUIT" == read_line(popen)
            assert 0 == popen.wait(LIMIT)
    finally:
        signal.signal(signum, handler)


def test_copies_of_a_signal_are_one() -> None:
    """pkill(1) and systemd signal guardian and runner, timeout(1) its child and the group: one request each."""
    with running(*GUARDED, "copies") as popen:
        (runner,) = process_tree.children(popen.pid)
        for pid in (runner, popen.pid, popen.pid):
            os.kill(pid, signal.SIGTERM)
        assert "SIGTERM" == read_line(popen)
        popen.send_signal(signal.SIGQUIT)

        assert "SIGQUIT" == read_line(popen)


def test_same_signal_later_is_another_intention() -> None:
    """A later second SIGTERM from the same sender is forwarded as well."""
    with running(*GUARDED, "signals") as popen:
        for _ in range(3):
            popen.send_signal(signal.SIGTERM)
            assert "SIGTERM" == read_line(popen)
            time.sleep(2 * ONE_SIGNAL)


def test_other_signal_of_one_sender_is_another_intention() -> None:
    """A SIGTERM directly after a SIGINT is not a duplicate."""
    with running(*GUARDED, "signals") as popen:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            popen.send_signal(signal.Signals[name])
            assert name == read_line(popen)


def test_runner_leads_a_group_of_its_own() -> None:
    """The runner receives a terminal's Ctrl-C once, through the guardian."""
    assert "True\n" == run(*GUARDED, "group").stdout


def test_runner_ends_when_the_guardian_is_killed() -> None:
    """If the guardian is killed, the runner receives SIGTERM."""
    with running(*GUARDED, "signals") as popen:
        (runner,) = process_tree.children(popen.pid)
        popen.kill()
        popen.wait()

        assert "SIGTERM" == read_line(popen)
        os.kill(runner, signal.SIGQUIT)
        os.waitpid(runner, 0)


def test_runner_without_descriptors_kills_what_is_left_when_the_guardian_was_killed() -> None:
    """Nobody else does, and an error has kept it from stopping the ranks."""
    found = run(*GUARDED, "starve")  # its output ends with the last process
    runner, rank = map(int, found.stdout.split())
    wait_until(lambda: is_gone(runner))

    assert (-signal.SIGKILL, True) == (found.returncode, is_gone(rank))
    assert "RuntimeError: as it was told to" in found.stderr


# --- A runner or guardian that does not run ---------------------------------------------------------------------------


def test_runner_that_hangs_ends_with_the_second_signal() -> None:
    """A runner that takes no note of signals, as with its main thread at a hung disk, is killed: 128 + the first."""
    with running(*GUARDED, "hang=1e9") as popen:
        forward(popen, signal.SIGTERM)
        popen.send_signal(signal.SIGINT)

        assert 143 == popen.wait(LIMIT)


@pytest.mark.deep
def test_guardian_that_is_stopped_while_it_waits_for_an_answer() -> None:
    """A wait that ended while the guardian was stopped is noticed when it is continued."""
    with running(*GUARDED, "hang=1e9") as popen:
        forward(popen, signal.SIGTERM)
        forward(popen, signal.SIGINT)
        popen.send_signal(signal.SIGSTOP)
        time.sleep(2 * ANSWER_LIMIT)  # the rule is one of time
        popen.send_signal(signal.SIGCONT)

        assert 143 == popen.wait(LIMIT)


def test_first_signal_needs_no_answer() -> None:
    """A runner that hangs is not killed by the first signal within the grace: it may be about to save something."""
    with running(*GUARDED, "hang=1e9") as popen:
        forward(popen, signal.SIGTERM)
        time.sleep(2 * ANSWER_LIMIT)  # the rule is one of time
        assert popen.poll() is None
        popen.send_signal(signal.SIGINT)

        assert 143 == popen.wait(LIMIT)


@pytest.mark.parametrize(("body", "status"), [("hang=0.1", 143), ("hang-end=0.1", 7)])
def test_runner_that_hangs_after_the_grace_is_killed(body: str, status: int) -> None:
    """One signal is enough where the runner does not respond when the grace is over; a status that is known counts."""
    with running(*GUARDED, body) as popen:
        if status == 128 + signal.SIGTERM:
            popen.send_signal(signal.SIGTERM)

        assert status == popen.wait(LIMIT)


def test_runner_that_answers_is_not_killed() -> None:
    """A runner that has taken note of the second signal has all the time that it needs, and answers questions."""
    with running(*GUARDED, "signals") as popen:
        for name in ("SIGTERM", "SIGINT"):
            popen.send_signal(signal.Signals[name])
            assert name == read_line(popen)
        time.sleep(2 * ANSWER_LIMIT)
        popen.send_signal(signal.SIGQUIT)

        assert "SIGQUIT" == read_line(popen)
        assert 0 == popen.wait(LIMIT)


@pytest.mark.deep
def test_busy_runner_is_not_killed(tmp_path: Path) -> None:
    """A runner that is running, on a slow machine, has more time for an answer than one that hangs."""
    with running(*GUARDED, f"busy={tmp_path}/go") as popen:
        forward(popen, signal.SIGTERM)
        forward(popen, signal.SIGINT)
        time.sleep(2 * ANSWER_LIMIT)  # the rule is one of time
        (tmp_path / "go").touch()

        assert 0 == popen.wait(LIMIT)


def test_stopped_runner_is_continued() -> None:
    """SIGTERM to the guardian reaches a runner that somebody has stopped."""
    with running(*GUARDED, "signals") as popen:
        (runner,) = process_tree.children(popen.pid)
        os.kill(runner, signal.SIGSTOP)
        wait_until(lambda: (found := process_tree.look(runner)) and found.state == "T")
        popen.send_signal(signal.SIGTERM)

        assert "SIGTERM" == read_line(popen)


def test_stopped_guardian_is_continued_by_the_end_of_the_runner() -> None:
    """The status of a job does not wait for somebody to continue the guardian."""
    assert 7 == run(*GUARDED, "stop-parent").returncode


def test_collector_that_detaches_is_spared(tmp_path: Path) -> None:
    """A process that a child of the script leaves behind while the runner lives is the script's."""
    go, pid_file = tmp_path / "go", tmp_path / "pid"
    os.mkfifo(go)
    collector = f"(read go <{go}; sleep 1000 >/dev/null 2>&1 & echo $! >{pid_file}) &"
    with running("/bin/sh", "-c", f'{collector} exec "$@"', "sh", *GUARDED, "signals") as popen:
        go.write_text("go\n")
        wait_until(lambda: pid_file.exists() and pid_file.read_text())
        detached = int(pid_file.read_text())
        wait_until(lambda: detached in process_tree.children(popen.pid))
        popen.send_signal(signal.SIGQUIT)
        assert 0 == popen.wait(LIMIT)

    was_spared = not is_gone(detached)
    os.kill(detached, signal.SIGKILL)
    os.waitpid(detached, 0)
    assert was_spared


# --- Standard files ---------------------------------------------------------------------------------------------------


def test_closed_standard_files_are_opened(tmp_path: Path) -> None:
    """If all three standard files are closed, the runner has /dev/null in their place."""
    ended = run("/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *GUARDED, f"files={tmp_path}/files")

    assert 0 == ended.returncode
    assert "/dev/null /dev/null /dev/null" == (tmp_path / "files").read_text()


def test_open_standard_files_are_kept(tmp_path: Path) -> None:
    """Standard files that are open are not changed."""
    run("/bin/sh", "-c", 'exec "$@" <&- 2>&-', "sh", *GUARDED, f"files={tmp_path}/files")

    stdin, stdout, stderr = (tmp_path / "files").read_text().split()
    assert ("/dev/null", "/dev/null") == (stdin, stderr)
    assert stdout.startswith("pipe:")
