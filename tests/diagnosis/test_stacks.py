"""The stacks of real processes, by py-spy and from the kernel."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ascend_runner.diagnosis.stacks import StackCollector, decode_dump, group
from ascend_runner.guardian import process_tree, sweep
from ascend_runner.node.executables import find_py_spy
from tests.helpers.waiting import LIMIT, wait_until

STANDS = Path(__file__).parent.parent / "workers" / "stands.py"
SLEEP = ["/bin/sleep", "600"]
PY_SPY = find_py_spy("")


@contextmanager
def standing(*ranks: int, how: str = "") -> Iterator[dict[int, int]]:
    """Start ranks, wait until they block, and yield their pids."""
    ready = "ready\n"
    running = {
        rank_id: subprocess.Popen(
            [sys.executable, str(STANDS), how],
            env={**os.environ, "RANK_ID": str(rank_id)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for rank_id in ranks
    }
    try:
        for popen in running.values():
            assert popen.stdout
            assert ready == popen.stdout.readline()
            wait_until_asleep(popen.pid)
        yield {rank_id: popen.pid for rank_id, popen in running.items()}
    finally:
        end(*running.values())


def end(*running: subprocess.Popen[str]) -> None:
    """Kill processes and all in their sessions."""
    for popen in running:
        os.killpg(popen.pid, signal.SIGKILL)
        popen.communicate()
    sessions = {popen.pid for popen in running}
    # A process is a moment between its last breath and being a zombie that can be reaped.
    wait_until(
        lambda: all(found.is_zombie for found in process_tree.descendants(os.getpid()) if found.session in sessions)
    )
    sweep.reap_adopted()


def wait_until_asleep(pid: int) -> None:
    """Wait until a process blocks in the kernel."""
    wait_until(lambda: getattr(process_tree.look(pid), "state", "") == "S")


def frames_of(collector: StackCollector, pids: dict[int, int]) -> list[str]:
    """Return the functions on the main stack of the first rank, innermost first."""
    main = collector.collect(pids)[0].main
    assert main
    return [frame.partition(" ")[0] for frame in main.frames]


def script(folder: Path, text: str) -> str:
    """Create a fake py-spy and return the directory to put on PATH."""
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(stat.S_IRWXU)
    return str(folder)


def collector_with(folder: Path, text: str) -> StackCollector:
    """Make a collector that runs a fake py-spy."""
    return StackCollector(str(Path(script(folder, text)) / "py-spy"))


@pytest.fixture
def _py_spy() -> None:
    """Skip where py-spy may not trace other processes."""
    with standing(0) as pids:
        command = [PY_SPY or "py-spy", "dump", "--pid", str(pids[0])]
        tried = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if "ermission denied" in tried.stderr or "not permitted" in tried.stderr.lower():
        pytest.skip(f"py-spy is not permitted to trace processes here: {tried.stderr.splitlines()[0]}")


@pytest.mark.usefixtures("_py_spy")
def test_python_stack() -> None:
    """The stack of a Python process is that of its main thread."""
    with standing(0) as pids:
        assert ["stand", "all_reduce", "<module>"] == frames_of(StackCollector(PY_SPY), pids)


@pytest.mark.usefixtures("_py_spy")
def test_child_of_the_leader() -> None:
    """If the leader only waits, the stack of its child is collected as well."""
    with standing(0, how="fork") as pids:
        stack = StackCollector(PY_SPY).collect(pids)[0]

    assert 2 == len(stack.processes)
    assert all(process.is_python for process in stack.processes)
    assert ["stand", "all_reduce", "<module>"] == [frame.partition(" ")[0] for frame in stack.processes[1].frames]


@pytest.mark.usefixtures("_py_spy")
def test_outlier_is_found() -> None:
    """Of ranks that hang, the one with another stack is found."""
    with standing(0, 1, 2) as pids:
        groups = group(StackCollector(PY_SPY).collect(pids))

    assert [(1,), (0, 2)] == [member.rank_ids for member in groups]
    assert "load (stands.py:" in groups[0].frames[1]


def test_without_py_spy() -> None:
    """Without py-spy the kernel's view is returned."""
    with standing(0) as pids:
        collector = StackCollector("")
        process = collector.collect(pids)[0].processes[0]

    assert "sleeping" == process.state
    assert process.frames
    assert not process.is_python


def test_missing_py_spy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If py-spy is not found, the refusal says how to install it for the Python that looks for it."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    assert (
        f"py-spy is not installed ({tmp_path}/python -m pip install 'ascend-runner[debug]')"
        == StackCollector(find_py_spy(f"{tmp_path}:/nowhere:")).refusal
    )


def test_py_spy_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """py-spy is found beside the interpreter or on the PATH, never in the working directory by an empty entry."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    monkeypatch.chdir(bin_folder)

    assert str(bin_folder / "py-spy") == find_py_spy(f"/nowhere:{script(bin_folder, ':')}")
    assert "" == find_py_spy(":/nowhere:")


def test_py_spy_that_is_refused(tmp_path: Path) -> None:
    """If ptrace is not permitted, the kernel's view is returned, and the missing capability is named."""
    with standing(0) as pids:
        collector = collector_with(tmp_path, "echo 'Error: Permission Denied: Try running again with sudo' >&2; exit 1")
        process = collector.collect(pids)[0].processes[0]

    assert process.frames
    assert "py-spy is not permitted to trace the ranks: it requires CAP_SYS_PTRACE" == collector.refusal


def test_py_spy_that_never_answers(tmp_path: Path) -> None:
    """A py-spy that hangs with the process that it traces does not block the caller."""
    with standing(0, 1) as pids:
        collector = collector_with(tmp_path, "exec sleep 600")
        start = time.monotonic()
        stacks = collector.collect(pids, seconds=0.3)
        seconds = time.monotonic() - start

    assert seconds < LIMIT  # long before py-spy would have ended; the measure is in the benchmark
    assert [0, 1] == [stack.rank_id for stack in stacks if stack.processes]


def test_stop_signal_ends_the_collection(tmp_path: Path) -> None:
    """Programs that read stacks are killed, so that no rank is paused while it saves, and no more are started."""
    started = tmp_path / "started"
    py_spy = script(tmp_path, f"echo >> {started}; exec sleep 600")
    with standing(0) as pids:
        collector = StackCollector(f"{py_spy}/py-spy", started.exists)
        (found,) = collector.collect(dict.fromkeys(range(64), pids[0]), 3600.0)[:1]

        assert found.main
        assert not found.main.is_python
        assert 4 >= len(started.read_text())
        stopped = StackCollector(PY_SPY, lambda: True)
        assert stopped.collect(pids)
        assert "the job is being stopped" == collector.refusal == stopped.refusal


def test_processes_that_must_not_be_paused(tmp_path: Path) -> None:
    """py-spy reads their memory while they run; they have nothing to notice."""
    with standing(0) as pids:
        main = StackCollector(PY_SPY, may_pause=False).collect(pids)[0].main
        collector = StackCollector(f"{script(tmp_path, f'echo $* > {tmp_path}/words')}/py-spy", may_pause=False)
        collector.collect(pids)

    assert main
    assert main.is_python
    assert "--nonblocking" in (tmp_path / "words").read_text().split()


def test_rank_that_has_ended() -> None:
    """A rank that has exited has no stack."""
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()

    assert () == StackCollector(PY_SPY).collect({0: ended.pid})[0].processes


def test_process_without_python() -> None:
    """A process without a Python interpreter gets its kernel stack, and that is not an error of py-spy."""
    sleeping = subprocess.Popen(SLEEP)
    try:
        wait_until_asleep(sleeping.pid)
        collector = StackCollector(PY_SPY)
        process = collector.collect({0: sleeping.pid})[0].processes[0]

        assert not process.is_python
        assert "" == collector.refusal
    finally:
        sleeping.kill()
        sleeping.wait()


def test_stuck_in_the_kernel(tmp_path: Path) -> None:
    """Of a process in state D, the kernel's functions are returned: all of them for root, else the innermost."""
    os.mkfifo(tmp_path / "fifo")
    blocked = "import os, sys; os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(0, 0, sys.argv[1], 0, 0)])"
    words = [sys.executable, "-S", "-c", blocked, str(tmp_path / "fifo")]
    stuck = subprocess.Popen(words, start_new_session=True, text=True)
    try:  # vfork(2): the parent waits in the kernel until its child, which opens a pipe without a writer, calls execve
        wait_until(lambda: (found := process_tree.look(stuck.pid)) is not None and found.state == "D")
        process = StackCollector("").collect({0: stuck.pid})[0].processes[0]
    finally:
        end(stuck)

    assert "disk sleep" == process.state
    assert len(process.frames) > (1 if os.geteuid() == 0 else 0)


def test_wchan() -> None:
    """The kernel function in which a process sleeps is returned, and "" for one that has exited."""
    sleeping = subprocess.Popen(SLEEP)
    try:
        wait_until_asleep(sleeping.pid)

        assert process_tree.wchan(sleeping.pid).isprintable()
    finally:
        sleeping.kill()
        sleeping.wait()
    assert "" == process_tree.wchan(sleeping.pid)


@pytest.mark.parametrize("data", ["", "nonsense", "{}", "[]", "null"])
def test_invalid_dump(data: str) -> None:
    """Output of py-spy that cannot be parsed yields no frames."""
    assert () == decode_dump(data)


def test_dump_of_hostile_names() -> None:
    """The name of a function may be anything, and is escaped."""
    frame = {"name": "\x1b[2Jx", "filename": "/a/b\n.py", "line": 3}

    assert ("\\x1b[2Jx (b\\n.py:3)",) == decode_dump(json.dumps([{"frames": [frame]}]))
