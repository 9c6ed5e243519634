"""All descendants of a process are found: children, new sessions and double-forked daemons, under any name."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_runner.guardian import process_tree, sweep
from tests.helpers import disk
from tests.helpers.program import ACTOR
from tests.helpers.waiting import LIMIT, wait_until


def _give_up(pid: int) -> None:
    """Kill and reap a child, unless it has been reaped."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@contextlib.contextmanager
def acting(*steps: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that does these steps (workers/actor.py), says so, and sleeps. It and its own end afterwards."""
    before = set(process_tree.children(os.getpid()))
    popen = subprocess.Popen([*ACTOR, *steps, "say=ready", "sleep"], stdout=subprocess.PIPE)
    assert popen.stdout
    try:
        assert b"ready\n" == popen.stdout.readline()
        yield popen
    finally:
        popen.kill()
        popen.wait()
        popen.stdout.close()  # its children hold the other end, so do not wait for end of file
        while left := set(process_tree.children(os.getpid())) - before:
            for pid in left:
                _give_up(pid)


@pytest.mark.parametrize("how", ["plain", "group", "session"])
def test_child_is_found_however_it_detached(how: str) -> None:
    """A group or session of its own does not hide a child."""
    with acting(f"child={how}") as parent:
        (found,) = process_tree.descendants(parent.pid)

        assert [found.pid] == process_tree.children(parent.pid)
        assert (found.pgid == found.pid) is (how != "plain")
        assert (found.session == found.pid) is (how == "session")
        assert not found.is_zombie


def test_daemon_comes_to_the_subreaper() -> None:
    """A process that forked twice into its own session becomes a child of the subreaper, and is found there."""
    before = set(process_tree.children(os.getpid()))
    with acting("child=daemon") as parent:
        # The process in between has ended and is its parent's zombie; the daemon is no longer below it.
        wait_until(lambda: ["Z"] == [found.state for found in process_tree.descendants(parent.pid)])
        (daemon,) = set(process_tree.children(os.getpid())) - before - {parent.pid}
        found = process_tree.look(daemon)

        assert found
        assert found.session not in {parent.pid, os.getsid(0)}
        assert daemon in {found.pid for found in process_tree.descendants(os.getpid())}


def test_tree_is_walked_parents_first() -> None:
    """Grandchildren are listed after their parents."""
    script = "sh -c 'sleep 1000 & sh -c \"sleep 1000 & echo ready; wait\"'"
    popen = subprocess.Popen(["/bin/sh", "-c", script + "; true"], stdout=subprocess.PIPE)
    assert popen.stdout
    popen.stdout.readline()
    walked = [found.pid for found in process_tree.descendants(popen.pid)]
    parents = {pid: parent for parent in [popen.pid, *walked] for pid in process_tree.children(parent)}
    popen.kill()
    popen.wait()
    popen.stdout.close()
    for pid in walked:
        wait_until(lambda pid=pid: pid in process_tree.children(os.getpid()))
        _give_up(pid)

    assert 4 == len(walked)
    assert all(parents[pid] in [popen.pid, *walked[:place]] for place, pid in enumerate(walked))


def test_living_processes_are_found_without_zombies() -> None:
    """Of this process, the children that have ended are left out, and the subtrees to keep."""
    ended, living, kept = (
        subprocess.Popen(["/bin/sh", "-c", script]) for script in ("exit", "exec sleep 1000", "exec sleep 1000")
    )
    try:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        walked = {found.pid for found in process_tree.living(frozenset({kept.pid}))}

        assert {living.pid} == walked & {ended.pid, living.pid, kept.pid}
    finally:
        for popen in (ended, living, kept):
            popen.kill()
            popen.wait()


def test_children_of_every_thread_are_found() -> None:
    """A child belongs to the thread that forked it; all threads count."""
    started: list[subprocess.Popen[bytes]] = []
    done = threading.Event()

    def start() -> None:
        started.append(subprocess.Popen([*ACTOR, "sleep"]))
        done.wait(LIMIT)

    thread = threading.Thread(target=start)
    thread.start()
    wait_until(lambda: started)
    found = process_tree.children(os.getpid())
    started[0].kill()
    started[0].wait()
    done.set()
    thread.join()

    assert started[0].pid in found


def test_kernel_without_children_files_gives_the_same() -> None:
    """The scan of all of /proc, for kernels without CONFIG_PROC_CHILDREN, finds the same processes as the quick way."""
    with acting("child=plain", "child=session", "child=daemon") as parent:
        quick = process_tree.children(parent.pid)
        scanned = process_tree._children_by_scan(parent.pid)  # noqa: SLF001  this kernel never asks for it

        assert 3 == len(quick)
        assert sorted(quick) == sorted(scanned)


def test_process_whose_main_thread_has_ended_is_alive() -> None:
    """Its state is Z, but another thread works; it is found with its children, and killed."""
    kept = frozenset(process_tree.children(os.getpid()))
    with acting("child=plain", "headless") as popen:
        wait_until(lambda: (found := process_tree.look(popen.pid)) and found.state == "Z")
        found = process_tree.look(popen.pid)
        assert found
        assert not found.is_zombie
        assert ", state Z" not in process_tree.describe(found)
        assert [popen.pid] == sweep.reap_adopted(kept)
        assert 1 == len(list(process_tree.descendants(popen.pid)))
        assert 2 == len(sweep.kill_all(kept))

        assert -signal.SIGKILL == popen.wait(LIMIT)


def test_process_that_is_gone_has_neither_state_nor_children() -> None:
    """A process that has exited is not described."""
    popen = subprocess.Popen(["/bin/true"])
    popen.wait()

    assert process_tree.look(popen.pid) is None
    assert [] == process_tree.children(popen.pid)
    assert [] == list(process_tree.descendants(popen.pid))


@pytest.mark.parametrize("name", ["plain", "two words", "a) Z 1 (b", "(((", ")))", "new\nline", "S 1 2 3"])
def test_name_cannot_confuse_the_reader(name: str, tmp_path: Path) -> None:
    """State, group and session are read correctly for any process name."""
    (tmp_path / name).symlink_to("/bin/sleep")
    popen = subprocess.Popen([str(tmp_path / name), "1000"], start_new_session=True)
    wait_until(lambda: (seen := process_tree.look(popen.pid)) and seen.name == name)
    found = process_tree.look(popen.pid)
    popen.kill()
    popen.wait()

    assert found
    assert (name, popen.pid, popen.pid, False) == (found.name, found.pgid, found.session, found.is_zombie)


# --- Ending them ------------------------------------------------------------------------------------------------------


def test_kill_all_ends_everybody_but_those_to_keep() -> None:
    """Descendants in other sessions or ignoring SIGTERM are killed too, and the killed ones are returned."""
    kept = frozenset(process_tree.children(os.getpid()))
    with acting("stubborn=session", "stubborn=daemon", "stubborn=plain") as parent, acting() as other:
        keep = kept | {other.pid}
        killed = {found.pid for found in sweep.kill_all(keep)}

        def is_all_reaped() -> bool:
            sweep.reap_adopted(keep)
            return set(process_tree.children(os.getpid())) <= keep

        assert 4 == len(killed)
        assert parent.pid in killed
        assert -signal.SIGKILL == parent.wait(LIMIT)
        wait_until(is_all_reaped)
        assert other.poll() is None


def test_kill_all_spares_the_children_of_those_to_keep() -> None:
    """A spared process is spared with all its descendants."""
    before = frozenset(process_tree.children(os.getpid()))
    with acting("child=session") as parent:
        assert [] == sweep.kill_all(before | {parent.pid})
        assert [False] == [found.is_zombie for found in process_tree.descendants(parent.pid)]


def test_reap_adopted_leaves_whom_it_is_told() -> None:
    """A spared zombie is not reaped, other zombies are, and living processes are not waited for."""
    before = frozenset(process_tree.children(os.getpid()))
    with acting() as living:
        kept, reaped = (os.spawnv(os.P_NOWAIT, "/bin/true", ["true"]) for _ in range(2))
        for pid in (kept, reaped):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        sweep.reap_adopted(keep=before | {kept})

        assert {kept, living.pid} == set(process_tree.children(os.getpid())) - before
        os.waitpid(kept, 0)


def test_process_that_ends_while_it_is_looked_at_is_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is alive for waitpid(2), as its last thread is just ending, and a zombie for /proc."""
    kept = frozenset(process_tree.children(os.getpid()))
    pid = os.spawnv(os.P_NOWAIT, "/bin/true", ["true"])
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    answers, waitpid = iter([(0, 0)]), os.waitpid
    monkeypatch.setattr(os, "waitpid", lambda which, options: next(answers, None) or waitpid(which, options))

    assert [] == sweep.reap_adopted(kept)
    assert kept == frozenset(process_tree.children(os.getpid()))


@pytest.mark.deep
def test_processes_that_end_while_they_are_reaped_are_not_forgotten() -> None:
    """What has ended since the last call was not reaped by it, and is by the next: the last call leaves nothing."""
    kept = frozenset(process_tree.children(os.getpid()))
    for _ in range(50):
        for pid in [os.spawnv(os.P_NOWAIT, "/bin/sleep", ["sleep", "60"]) for _ in range(4)]:
            os.kill(pid, signal.SIGKILL)
        while sweep.reap_adopted(kept):
            pass

        assert kept == frozenset(process_tree.children(os.getpid()))


def test_send_to_somebody_gone_is_no_trouble() -> None:
    """Processes that have exited are not signalled."""
    popen = subprocess.Popen(["/bin/true"])
    popen.wait()

    process_tree.send((popen.pid, 1), signal.SIGTERM)


def test_another_process_with_the_same_pid_is_not_signalled() -> None:
    """A process that was started later than the one that was seen is another one."""
    with acting("answer=TERM:asked:7") as popen:
        found = process_tree.look(popen.pid)
        assert found
        process_tree.send((found.pid, found.started - 1), signal.SIGKILL)
        process_tree.send(found.identity, signal.SIGTERM)

        assert 7 == popen.wait(LIMIT)


def test_send_without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an old kernel, or with a Python built on one, the process is signalled by its pid."""
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    with acting("answer=TERM:asked:7") as popen:
        found = process_tree.look(popen.pid)
        assert found
        process_tree.send(found.identity, signal.SIGTERM)

        assert 7 == popen.wait(LIMIT)


def test_send_continues_whoever_is_stopped() -> None:
    """A stopped process is continued, because it could not act on SIGTERM."""
    with acting("answer=TERM:asked:7") as popen:
        popen.send_signal(signal.SIGSTOP)
        wait_until(lambda: (found := process_tree.look(popen.pid)) and found.state == "T")
        found = process_tree.look(popen.pid)
        assert found
        process_tree.send(found.identity, signal.SIGTERM)

        assert 7 == popen.wait(LIMIT)


def test_signal_at_parent_death() -> None:
    """A process that has requested a parent-death signal receives it."""
    script = """
import os, signal, sys
from ascend_runner.guardian import process_tree, sweep
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    process_tree.ask_for_signal_at_parent_death(signal.SIGUSR1)
    os.write(writer, b"asked")
    while True:
        signal.pause()
os.read(reader, 5)
print(child, flush=True)
os._exit(0)
"""
    shown = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True, timeout=LIMIT).stdout
    _pid, status = os.waitpid(int(shown), 0)

    assert signal.SIGUSR1 == os.WTERMSIG(status)


@pytest.mark.skipif(not disk.is_possible(), reason="a disk that hangs needs bindfs(1), /dev/fuse and root")
def test_process_that_hangs_in_exec(tmp_path: Path) -> None:
    """A process that closes files of a hung disk in execve(2), where readers of its stat hang as well, is described."""
    with disk.child_in_exec(tmp_path) as (parent, pid):
        wait_until(lambda: process_tree.is_in_exec(pid))
        for signum in (0, signal.SIGSTOP):  # the second one wakes it for a moment
            os.kill(pid, signum)
            found = process_tree.look(pid)

            assert found
            assert (parent, os.getpgrp()) == (found.parent, found.pgid)
            assert process_tree.describe(found).endswith(", in execve)")
        assert [pid] == [below.pid for below in process_tree.descendants(parent)]
        for name in process_tree.LOCKED_IN_EXEC:
            with pytest.raises(BlockingIOError):
                process_tree.read(pid, name)
