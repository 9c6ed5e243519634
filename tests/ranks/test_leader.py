"""A rank's leader: starting it, seeing it exit without reaping it, and signalling its group."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from ascend_runner.guardian import process_tree
from ascend_runner.plan.spec import RankSpec
from ascend_runner.ranks.leader import Leader
from ascend_runner.supervision.causes import Ending
from tests.helpers.waiting import wait_until


def spec(*argv: str, executable: str = "", env: dict[str, str] | None = None, cwd: str = "/") -> RankSpec:
    """Return a rank that runs `argv`."""
    return RankSpec(
        rank_id=0,
        local_rank=0,
        executable=executable or argv[0],
        argv=argv,
        env={"PATH": os.defpath} if env is None else env,
        cwd=cwd,
        log_path="",
        prefix=None,
    )


@pytest.fixture(autouse=True, params=["here", "elsewhere", "old glibc"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Start leaders in the runner's own directory, in another one, and by a Python built on an old system."""

    def refuse(*_args: object, **_options: object) -> None:
        raise NotImplementedError

    monkeypatch.chdir(tmp_path if request.param == "elsewhere" else "/")
    if request.param == "old glibc":
        monkeypatch.setattr(os, "posix_spawn", refuse)


class Output:
    """A pipe for a leader to write to."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def read(self) -> bytes:
        """Read until every process has closed the other end."""
        os.close(self.writer)
        self.writer = -1
        with open(self.reader, "rb", closefd=False) as file:
            return file.read()

    def close(self) -> None:
        """Close both ends."""
        for fd in {self.reader, self.writer} - {-1}:
            os.close(fd)


@pytest.fixture
def output() -> Iterator[Output]:
    """Yield a pipe."""
    output = Output()
    yield output
    output.close()


def start(output: Output, *argv: str) -> Leader:
    """Start a leader that runs `argv`."""
    return Leader(spec(*argv), output.writer)


def sh(output: Output, script: str) -> Leader:
    """Start a shell as the leader."""
    return start(output, "/bin/sh", "-c", script)


def await_ending(leader: Leader) -> Ending:
    """Wait until it has ended, without reaping it."""
    wait_until(leader.peek)
    ending = leader.peek()
    assert ending
    return ending


def reap(leader: Leader) -> None:
    """Reap it when it has ended."""
    await_ending(leader)
    leader.reap()


@pytest.mark.deep(quick=1)
def test_peak_memory_is_that_of_the_rank(output: Output) -> None:
    """Without more memory than the runner, whose memory it has until it executes its program, it is unknown."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + (64 << 20)
    large, small = start(output, sys.executable, "-c", f"b'x' * {size}"), sh(output, "true")
    for leader in (large, small):
        await_ending(leader)

    assert size < (large.reap().max_rss or 0) < 2 * size
    assert None is small.reap().max_rss


def reap_group(leader: Leader) -> None:
    """Reap the leader and the members of its group that were reparented to this process, their subreaper."""
    reap(leader)
    try:
        while True:
            os.waitpid(-leader.pid, 0)
    except ChildProcessError:
        return


# --- Starting ---------------------------------------------------------------------------------------------------------


def test_leader_gets_the_words_and_the_folder_of_its_spec(output: Output, tmp_path: Path) -> None:
    """The executable is given separately from argv, and runs in the working directory of the spec."""
    words = ("any name", "-c", 'pwd; echo "$0" "$1"', "zero", "one two")
    leader = Leader(spec(*words, executable="/bin/sh", cwd=str(tmp_path)), output.writer)
    shown = output.read()
    reap(leader)

    assert f"{tmp_path}\nzero one two\n".encode() == shown


def test_leader_gets_the_variables_of_its_spec_and_no_other(output: Output) -> None:
    """The caller's environment is not inherited."""
    leader = Leader(spec("/usr/bin/env", env={"A": "ä", "B": ""}), output.writer)
    shown = output.read()
    reap(leader)

    assert "A=ä\nB=\n".encode() == shown


def test_both_outputs_are_one_and_stdin_is_empty(output: Output) -> None:
    """Output to stdout and stderr arrives in the order of writing."""
    leader = sh(output, "cat; echo out; echo err >&2; echo out")
    shown = output.read()
    reap(leader)

    assert b"out\nerr\nout\n" == shown


def test_leader_leads_its_own_session_and_group(output: Output) -> None:
    """The leader's process group id is its pid, and Ctrl-C at a terminal does not reach it."""
    leader = start(output, "/bin/cat", "/proc/self/stat")
    output.read()
    seen = process_tree.look(leader.pid)
    reap(leader)

    assert seen
    assert (leader.pid, leader.pid) == (seen.pgid, seen.session)


def _no_program(folder: Path) -> RankSpec:
    return spec(str(folder / "missing"))


def _no_permission(folder: Path) -> RankSpec:
    (folder / "script").touch(mode=0o644)
    return spec(str(folder / "script"))


def _no_format(folder: Path) -> RankSpec:
    (folder / "script").write_bytes(b"no program\n")
    (folder / "script").chmod(0o755)
    return spec(str(folder / "script"))


def _no_interpreter(folder: Path) -> RankSpec:
    (folder / "script").write_bytes(b"#!/missing/interpreter\n")
    (folder / "script").chmod(0o755)
    return spec(str(folder / "script"))


def _no_folder(folder: Path) -> RankSpec:
    return spec("/bin/true", cwd=str(folder / "missing"))


@pytest.mark.parametrize(
    ("make", "number", "named"),
    [
        (_no_program, errno.ENOENT, "missing"),
        (_no_permission, errno.EACCES, "script"),
        (_no_format, errno.ENOEXEC, "script"),
        (_no_interpreter, errno.ENOENT, "script"),
        (_no_folder, errno.ENOENT, "missing"),
    ],
)
def test_what_cannot_be_started_is_an_oserror(
    make: Callable[[Path], RankSpec], number: int, named: str, output: Output, tmp_path: Path
) -> None:
    """The error has the kernel's errno and names the program or the directory; no process is left."""
    before = process_tree.children(os.getpid())

    with pytest.raises(OSError) as caught:  # noqa: PT011  its number is what counts
        Leader(make(tmp_path), output.writer)

    assert (number, str(tmp_path / named)) == (caught.value.errno, caught.value.filename)
    assert before == process_tree.children(os.getpid())


# --- Seeing it end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exit_code", [0, 1, 255])
def test_exit_code_is_seen(output: Output, exit_code: int) -> None:
    """The exit code is that of the process."""
    leader = sh(output, f"exit {exit_code}")
    ending = await_ending(leader)
    reap(leader)

    assert Ending(exit_code=exit_code) == ending


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL, signal.SIGRTMIN])
def test_signal_is_seen(output: Output, signum: int) -> None:
    """The signal is the one that killed the process."""
    leader = sh(output, f"kill -{int(signum)} $$")
    ending = await_ending(leader)
    reap(leader)

    assert Ending(signum=signum) == ending


def test_living_leader_has_no_ending(output: Output) -> None:
    """A stopped process has not exited."""
    leader = sh(output, "kill -STOP $$")
    wait_until(lambda: (found := process_tree.look(leader.pid)) and found.state == "T")
    ending = leader.peek()
    os.kill(leader.pid, signal.SIGKILL)
    reap(leader)

    assert ending is None


def test_peeking_does_not_reap(output: Output) -> None:
    """Repeated checks do not free the pid; only reap() does."""
    leader = sh(output, "exit 3")
    await_ending(leader)
    again = leader.peek()
    zombie = process_tree.look(leader.pid)
    reap(leader)

    assert Ending(exit_code=3) == again
    assert zombie
    assert zombie.is_zombie
    assert leader.pid not in process_tree.children(os.getpid())


def test_reaped_leader_leaves_no_warning(output: Output, recwarn: pytest.WarningsRecorder) -> None:
    """Python's own bookkeeping records the exit, so there is no ResourceWarning about a running child."""
    leader = sh(output, "kill -TERM $$")
    reap(leader)
    del leader

    assert [] == list(recwarn)


# --- Signalling -------------------------------------------------------------------------------------------------------


def test_signal_reaches_the_whole_group(output: Output) -> None:
    """The signal reaches the leader and its children."""
    leader = sh(output, "(trap 'echo child; exit' TERM; echo ready; while :; do sleep 0.01; done) & wait")
    assert b"ready\n" == os.read(output.reader, 100)
    leader.signal_group(signal.SIGTERM)
    shown = output.read()
    ending = await_ending(leader)
    reap_group(leader)

    assert b"child" in shown.splitlines()  # the shell may report the terminated sleep
    assert Ending(signum=signal.SIGTERM) == ending


def test_group_of_a_dead_leader_is_reached(output: Output) -> None:
    """While the leader is a zombie, its group can still be signalled."""
    leader = sh(output, "sleep 1000 & exit 0")
    await_ending(leader)
    leader.signal_group(signal.SIGKILL)
    shown = output.read()  # end of file: no process of the group is left
    reap_group(leader)

    assert b"" == shown


def test_dead_group_is_signalled_without_an_error(output: Output) -> None:
    """Signalling a group of zombies is not an error, as long as the leader is not reaped."""
    leader = sh(output, "exit 0")
    await_ending(leader)
    leader.signal_group(signal.SIGTERM)
    reap(leader)


def test_leader_has_its_cores_and_the_runner_keeps_its_own(output: Output) -> None:
    """A leader starts with the CPU mask of its spec, and the starting thread keeps its own."""
    own = os.sched_getaffinity(0)
    core = min(own)
    command = attrs.evolve(spec("/bin/sh", "-c", "grep Cpus_allowed_list /proc/$$/status"), cores=frozenset({core}))
    leader = Leader(command, output.writer)

    assert f"Cpus_allowed_list:\t{core}\n".encode() == output.read()
    assert own == os.sched_getaffinity(0)
    reap(leader)


def test_cores_come_back_after_a_failed_start(output: Output) -> None:
    """The runner keeps its own cores if the program cannot be started."""
    own = os.sched_getaffinity(0)
    with pytest.raises(FileNotFoundError):
        Leader(attrs.evolve(spec("/nowhere/program"), cores=frozenset({min(own)})), output.writer)

    assert own == os.sched_getaffinity(0)
