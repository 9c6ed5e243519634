"""Where real processes stand, by py-spy and by what the kernel tells."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ascend_runner.diagnosis.stack_groups import group
from ascend_runner.linux import descendants
from ascend_runner.linux.stacks import Looker, decode_dump, find_py_spy
from tests.conftest import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

STANDS = Path(__file__).parent.parent / "workers" / "stands.py"
SLEEP = ["/bin/sleep", "600"]


@contextmanager
def standing(*ranks: int, how: str = "") -> Iterator[dict[int, int]]:
    """Start such ranks and wait until they stand; gives their pids."""
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
        for popen in running.values():
            os.killpg(popen.pid, signal.SIGKILL)
            popen.communicate()
        sessions = {popen.pid for popen in running.values()}
        # A process is a moment between its last breath and being a zombie that can be reaped.
        wait_until(
            lambda: all(found.is_zombie for found in descendants.descendants(os.getpid()) if found.session in sessions)
        )
        descendants.reap_adopted()


def wait_until_asleep(pid: int) -> None:
    """Wait until a process blocks in the kernel."""
    wait_until(lambda: getattr(descendants.look(pid), "state", "") == "S")


def frames_of(looker: Looker, pids: dict[int, int]) -> list[str]:
    """Give the functions on the main stack of the first rank, the innermost first."""
    main = looker.look(pids)[0].main
    assert main
    return [frame.partition(" ")[0] for frame in main.frames]


def script(folder: Path, text: str) -> str:
    """Put a program of ours in py-spy's place; the PATH on which it is found."""
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(stat.S_IRWXU)
    return str(folder)


def looker_with(folder: Path, text: str) -> Looker:
    """Make one that calls a program of ours."""
    looker = Looker("")
    looker.py_spy = str(Path(script(folder, text)) / "py-spy")
    return looker


def test_python_stack() -> None:
    """The stack of a Python process is that of its main thread."""
    with standing(0) as pids:
        assert ["stand", "all_reduce", "<module>"] == frames_of(Looker(""), pids)


def test_child_of_the_leader() -> None:
    """Below a leader that only waits, its child's stack is found as well."""
    with standing(0, how="fork") as pids:
        stack = Looker("").look(pids)[0]

    assert 2 == len(stack.processes)
    assert all(process.is_python for process in stack.processes)
    assert ["stand", "all_reduce", "<module>"] == [frame.partition(" ")[0] for frame in stack.processes[1].frames]


def test_odd_rank_stands_out() -> None:
    """Of ranks that hang, the one that stands elsewhere is found."""
    with standing(0, 1, 2) as pids:
        groups = group(Looker("").look(pids))

    assert [(1,), (0, 2)] == [member.rank_ids for member in groups]
    assert "load (stands.py:" in groups[0].frames[1]


def test_without_py_spy() -> None:
    """Without py-spy the kernel's view stands in, and how to get more is said."""
    with standing(0) as pids:
        looker = Looker("")
        looker.py_spy = ""
        process = looker.look(pids)[0].processes[0]

    assert "sleeping" == process.state
    assert process.frames
    assert not process.is_python


def test_missing_py_spy_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where py-spy is not found the sentence names the extra that brings it."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    assert "py-spy is not installed (pip install 'ascend-runner[debug]')" == Looker(f"{tmp_path}:/nowhere:").refusal


def test_py_spy_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """py-spy is found beside the interpreter or on the PATH, never in the working directory by an empty entry."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    monkeypatch.chdir(bin_folder)

    assert str(bin_folder / "py-spy") == find_py_spy(f"/nowhere:{script(bin_folder, ':')}")
    assert "" == find_py_spy(":/nowhere:")


def test_py_spy_that_is_refused(tmp_path: Path) -> None:
    """Where ptrace is not permitted the kernel's view stands in, and the right that is missing is named."""
    with standing(0) as pids:
        looker = looker_with(tmp_path, "echo 'Error: Permission Denied: Try running again with sudo' >&2; exit 1")
        process = looker.look(pids)[0].processes[0]

    assert process.frames
    assert "py-spy may not look at the ranks: it needs the right to ptrace (CAP_SYS_PTRACE)" == looker.refusal


def test_py_spy_that_never_answers(tmp_path: Path) -> None:
    """A py-spy that hangs with the process it looks at does not hang the caller."""
    with standing(0, 1) as pids:
        looker = looker_with(tmp_path, "exec sleep 600")
        start = time.monotonic()
        stacks = looker.look(pids, seconds=0.3)
        seconds = time.monotonic() - start

    assert seconds < 5  # a bound that must hold on the busiest machine; the measure is in the benchmark
    assert [0, 1] == [stack.rank_id for stack in stacks if stack.processes]


def test_rank_that_has_ended() -> None:
    """A rank that is gone when it is looked at has no stack."""
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()

    assert () == Looker("").look({0: ended.pid})[0].processes


def test_process_that_is_no_python() -> None:
    """A program without Python in it is seen by the kernel's eyes, and that is no failure of py-spy."""
    sleeping = subprocess.Popen(SLEEP)
    try:
        wait_until_asleep(sleeping.pid)
        looker = Looker("")
        process = looker.look({0: sleeping.pid})[0].processes[0]

        assert "sleep" == process.name
        assert not process.is_python
        assert "" == looker.refusal
    finally:
        sleeping.kill()
        sleeping.wait()


def test_wchan() -> None:
    """The kernel function in which a process sleeps is named; of one that is gone, nothing is."""
    sleeping = subprocess.Popen(SLEEP)
    try:
        wait_until_asleep(sleeping.pid)

        assert descendants.wchan(sleeping.pid).isprintable()
    finally:
        sleeping.kill()
        sleeping.wait()
    assert "" == descendants.wchan(sleeping.pid)


@pytest.mark.parametrize("data", [b"", b"nonsense", b"{}", b"[]", b"null"])
def test_dump_that_is_none(data: bytes) -> None:
    """An answer of py-spy that cannot be read holds no frames."""
    assert () == decode_dump(data)


def test_dump_of_hostile_names() -> None:
    """A function's name is whatever a program chose, and is escaped."""
    frame = {"name": "\x1b[2Jx", "filename": "/a/b\n.py", "line": 3}

    assert ("\\x1b[2Jx (b\\n.py:3)",) == decode_dump(json.dumps([{"frames": [frame]}]).encode())
