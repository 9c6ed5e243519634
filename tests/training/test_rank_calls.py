"""Functions for ranks: the same step in all ranks, one save for a request, and no call that waits for the runner."""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

import ascend_runner
from ascend_runner.training import rank_calls
from ascend_runner.training.agreement import COPIES
from ascend_runner.training.rank_calls import CheckpointRequests
from tests.helpers.pythons import python_of
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import wait_until

RANKS: Final = 8
SAVES: Final = 15
ROOT: Final = Path(ascend_runner.__file__).parents[1]
WORKER: Final = Path(__file__).parents[1] / "workers" / "asked.py"


class World:
    """Ranks that train in uneven steps, at most `furthest` apart, on a clock of its own.

    `epoch` is the number of steps after which the ranks count from 1 again.
    """

    def __init__(self, path: Path, seed: int, every: int = 1, furthest: int = 3, epoch: int = 10**9) -> None:
        self.now = 1000.0
        self.random = random.Random(seed)  # noqa: S311  not for cryptography
        self.ranks = [
            CheckpointRequests(str(path / "requests"), every=every, clock=lambda: self.now) for _ in range(RANKS)
        ]
        self.steps = [-1] * RANKS
        self.saved: list[list[int]] = [[] for _ in range(RANKS)]
        self.busy_until = [0.0] * RANKS
        self._furthest, self._epoch = furthest, epoch

    def ask(self, rank: int) -> None:
        """Signal one rank."""
        self.ranks[rank].note(signal.SIGUSR1, None)

    def go_on(self, seconds: float) -> None:
        """Let some rank make a step."""
        self.now += seconds
        able = [
            rank
            for rank in range(RANKS)
            if self.steps[rank] - min(self.steps) < self._furthest and self.busy_until[rank] <= self.now
        ]
        if not able:
            return
        rank = self.random.choice(able)
        self.steps[rank] += 1
        if self.ranks[rank].at(self.steps[rank] % self._epoch):
            self.saved[rank].append(self.steps[rank])
            self.busy_until[rank] = self.now + self.random.choice([0.0, 0.1, 3.0])

    def go_on_until_all_have_saved(self, count: int) -> None:
        """Let the ranks go on until each has saved so often, and has begun another step."""
        self.go_on_until(
            lambda: all(len(saved) >= count and step > saved[-1] for saved, step in zip(self.saved, self.steps))
        )

    def go_on_until(self, is_reached: Callable[[], bool]) -> None:
        """Let the ranks go on until something is true."""
        for _ in range(10_000):
            if is_reached():
                return
            self.go_on(0.01)
        pytest.fail(f"the ranks are at {self.steps} and saved {self.saved}")


@pytest.mark.deep
@pytest.mark.parametrize(("count", "every"), [(1000, 1), (200, 5)])
def test_same_step_in_uneven_ranks(tmp_path: Path, count: int, every: int) -> None:
    """Many requests, each seen by every rank at its own moment and by some twice: one save each, at one step."""
    world = World(tmp_path, seed=1, every=every)
    for number in range(1, count + 1):
        for rank in [*world.random.sample(range(RANKS), RANKS), world.random.randrange(RANKS)]:
            world.ask(rank)
            for _ in range(world.random.randrange(4)):
                world.go_on(0.01)
        world.go_on_until_all_have_saved(number)
        world.now += COPIES

    assert count == len(world.saved[0])
    assert [world.saved[0]] * RANKS == world.saved
    assert {0} == {step % every for step in world.saved[0]}


def test_request_during_a_save_is_the_same_request(tmp_path: Path) -> None:
    """While any rank still saves, another request asks for nothing more, however long the save takes."""
    world = World(tmp_path, seed=1)
    world.ask(0)
    world.go_on_until(lambda: all(world.saved))
    world.busy_until[3] = world.now + 300
    world.now += 200
    world.ask(5)
    world.go_on_until(lambda: min(world.steps) == world.steps[3] and max(world.steps) > world.steps[3])
    world.now += 200
    for _ in range(200):
        world.go_on(0.01)

    assert [world.saved[0]] * RANKS == world.saved
    assert 1 == len(world.saved[0])


def test_rank_that_comes_late_saves_with_the_others(tmp_path: Path) -> None:
    """A rank that still imported when the others were asked answers the same request, and no second one."""
    world = World(tmp_path, seed=4, furthest=5)
    late = 7
    for rank in range(RANKS):
        world.busy_until[rank] = world.now + 60 if rank == late else 0.0
    world.ask(0)
    world.go_on_until(lambda: bool(world.saved[0]) or max(world.steps) == 4)
    world.now += 60
    world.ask(late)
    for _ in range(200):
        world.go_on(0.01)

    assert [world.saved[0]] * RANKS == world.saved
    assert 1 == len(world.saved[0])


def test_steps_begin_again_in_each_epoch(tmp_path: Path) -> None:
    """A request in a later epoch is answered in it, at one step."""
    world = World(tmp_path, seed=6, every=2, epoch=20)
    for number in range(1, 21):
        world.go_on_until(lambda least=30 * number: min(world.steps) > least)  # type: ignore[misc]
        world.ask(world.random.randrange(RANKS))
        world.go_on_until_all_have_saved(number)
        world.now += COPIES

    assert [world.saved[0]] * RANKS == world.saved
    assert all(saved < 30 * (number + 2) for number, saved in enumerate(world.saved[0], 1))


def test_ranks_that_end_or_never_ask_stop_nobody(tmp_path: Path) -> None:
    """The step is agreed among the ranks that come to it."""
    world = World(tmp_path, seed=5, furthest=10**6)
    world.busy_until[0] = world.busy_until[1] = float("inf")
    world.ask(2)
    world.go_on_until(lambda: all(world.saved[2:]))

    assert 1 == len({tuple(steps) for steps in world.saved[2:]})


def test_several_nodes_agree_by_a_collective(tmp_path: Path) -> None:
    """With `agree`, which every rank calls after every n-th step, one request on any node is seen by all."""
    now, asked = 1000.0, [0]
    first, second = (
        CheckpointRequests(str(tmp_path / name), lambda mine: max(mine, *asked), 10, lambda: now) for name in "ab"
    )
    second.note(signal.SIGUSR1, None)
    before = [rank.at(9) for rank in (first, second)]
    asked.append(1)
    due = [rank.at(10) for rank in (first, second)]
    asked.pop()
    after = [rank.at(20) for rank in (first, second)]

    assert ([False] * 2, [True] * 2, [False] * 2) == (before, due, after)


def test_without_a_runner_each_process_answers_its_signal() -> None:
    """A second signal during the save is the same request; a later one is another."""
    now = 1000.0
    asked = CheckpointRequests("", clock=lambda: now)
    seen = [asked.at(0)]
    asked.note(signal.SIGUSR1, None)
    seen.append(asked.at(1))
    now += 100
    asked.note(signal.SIGUSR1, None)
    asked.saved("checkpoint")
    seen += [asked.at(2), asked.at(3)]
    now += 1
    asked.note(signal.SIGUSR1, None)
    seen += [asked.at(4), asked.at(5)]

    assert [False, True, False, False, True, False] == seen


def test_damaged_file_is_begun_anew(tmp_path: Path) -> None:
    """A request is answered, whatever the file of requests contains."""
    for content in (b"", b"\0" * 100, b"{}", b"[1, 2]", b"5"):
        (tmp_path / "requests").write_bytes(content)
        asked = CheckpointRequests(str(tmp_path / "requests"))
        asked.note(signal.SIGUSR1, None)

        assert asked.at(3), content


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Return eight processes that train in uneven steps."""
    (tmp_path / "steps").write_bytes(bytes(8 * RANKS + 1))
    commands = [[sys.executable, str(WORKER), str(tmp_path), str(rank)] for rank in range(RANKS)]
    env = {**CLEAN, "PYTHONPATH": str(ROOT)}
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for command in commands]
    yield ranks
    with open(tmp_path / "steps", "r+b") as file, mmap.mmap(file.fileno(), 0) as steps:
        steps[8 * RANKS] = 1
    for rank in ranks:
        rank.communicate(timeout=60)


@pytest.mark.deep
def test_same_step_in_processes(ranks: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    """Eight processes that are signalled one by one save at the same steps."""
    lines = [read_line(rank) for rank in ranks]
    saved = []
    for _ in range(SAVES):
        for rank in ranks:
            rank.send_signal(signal.SIGUSR1)
        saved.append({read_line(rank) for rank in ranks})
        wait_until(lambda: not savers(tmp_path / "requests"))
        wait_until_no_copy()

    assert ["ready"] * RANKS == lines
    assert [1] * SAVES == [len(steps) for steps in saved]


def read_line(rank: subprocess.Popen[str]) -> str:
    """Return the next line of a rank."""
    assert rank.stdout is not None
    return rank.stdout.readline().strip()


def savers(agreement: Path) -> list[int]:
    """Return the processes that are saving: a request meanwhile is the same one. One that cannot be read is written."""
    try:
        return list(json.loads(agreement.read_bytes())[3])
    except ValueError:
        return [0]


def wait_until_no_copy() -> None:
    """Wait until another request is no copy of the last one, on the fast clock of the workers."""
    deadline = time.monotonic() + 2 * COPIES / 1000 + 0.05
    while time.monotonic() < deadline:
        signal.sigtimedwait([], max(0.0, deadline - time.monotonic()))


USES: Final = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import ascend_runner
asked = ascend_runner.on_checkpoint()
before = asked.at(0)
os.kill(os.getpid(), signal.SIGUSR1)
print(before, asked.at(1), asked.at(2))
asked.saved("checkpoint-1")
ascend_runner.beat(7, section="evaluation", extend=60)
ascend_runner.beat()
"""


@pytest.mark.parametrize("version", ["3.7", "3.8", "3.9"])
@pytest.mark.parametrize("is_copy", [False, True])
def test_public_functions_without_a_runner(tmp_path: Path, version: str, *, is_copy: bool) -> None:
    """SIGUSR1 is answered, and telling a runner that is not there does nothing, in every Python of a training.

    The package serves there, and so does the one file that it prints to be copied beside a script.
    """
    python = python_of(version)
    if not python:
        pytest.skip(f"there is no Python {version}")
    if is_copy:
        with open(tmp_path / "ascend_runner.py", "wb") as copy:
            subprocess.run([sys.executable, "-m", "ascend_runner.training"], stdout=copy, cwd=ROOT, check=True)
    script = f"{USES}assert ascend_runner.latest_checkpoint(sys.argv[1]) is None\n"
    command = [python, "-I", "-W", "error", "-c", script, str(tmp_path if is_copy else ROOT)]
    shown = subprocess.run(command, env=CLEAN, capture_output=True, text=True, check=False, timeout=60)

    assert ("False True False\n", "", 0) == (shown.stdout, shown.stderr, shown.returncode)


def test_runner_is_told(tmp_path: Path) -> None:
    """Beats and checkpoints reach the socket in NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(60)
        env = {**CLEAN, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        subprocess.run([sys.executable, "-c", USES, str(ROOT)], env=env, check=True, timeout=60)
        told = [receiver.recv(4096) for _ in range(5)]

    assert [
        b"X_SAVES=1",
        b"X_CHECKPOINT=\nX_STEP=1",  # it is over at the next step
        b"X_CHECKPOINT=checkpoint-1\nX_STEP=2",
        b"WATCHDOG=1\nX_STEP=7\nX_SECTION=evaluation\nEXTEND_TIMEOUT_USEC=60000000",
        b"WATCHDOG=1",
    ] == told


def test_rank_that_leaves_the_save_to_another_one_reports_its_part(tmp_path: Path) -> None:
    """The next step after the save shows that this rank has done whatever was its part of it."""
    script = """
import os, signal, ascend_runner
asked = ascend_runner.on_checkpoint()
os.kill(os.getpid(), signal.SIGUSR1)
print(asked.at(1), asked.at(2), asked.at(3))
"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(60)
        env = {**CLEAN, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        subprocess.run([sys.executable, "-c", script], env=env, cwd=ROOT, check=True, timeout=60)

        assert [b"X_SAVES=1", b"X_CHECKPOINT=\nX_STEP=1"] == [receiver.recv(4096) for _ in range(2)]


def test_checkpoint_that_another_function_has_reported_counts(tmp_path: Path) -> None:
    """`ascend_runner.saved()` says it as well as the method of the request does."""
    script = """
import os, signal, ascend_runner
asked = ascend_runner.on_checkpoint()
for step in range(1, 5):
    if step in (1, 3):
        os.kill(os.getpid(), signal.SIGUSR1)
    if asked.at(step):
        ascend_runner.saved("mine", step)
"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(60)
        env = {**CLEAN, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        subprocess.run([sys.executable, "-c", script], env=env, cwd=ROOT, check=True, timeout=60)

        assert [b"X_SAVES=1", *[b"X_CHECKPOINT=mine\nX_STEP=1"] * 3] == [receiver.recv(4096) for _ in range(4)]


COPY: Final = """
import os, signal, sys, ascend_runner
asked = ascend_runner.on_checkpoint(*([lambda mine: mine] if "agree" in sys.argv else []))
for step in range(5):
    if step in (1, 2, 4):
        os.kill(os.getpid(), signal.SIGUSR1)
    if asked.at(step):
        asked.saved("checkpoint")
"""


@pytest.mark.parametrize("way", ["file", "agree", "alone"])
def test_copy_is_answered_with_the_checkpoint_of_its_original(tmp_path: Path, way: str) -> None:
    """The runner waits for an answer to each request, and a rank that has just saved need not save again."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(60)
        path = "" if way == "alone" else str(tmp_path / "requests")
        variables = {"NOTIFY_SOCKET": str(tmp_path / "notify"), rank_calls.CHECKPOINT_REQUESTS_VARIABLE: f"USR1:{path}"}
        env = {**CLEAN, **variables}
        subprocess.run([sys.executable, "-c", COPY, way], env=env, cwd=ROOT, check=True, timeout=60)
        told = [receiver.recv(4096) for _ in range(4)]
        receiver.setblocking(False)

        assert [b"X_SAVES=1", *[b"X_CHECKPOINT=checkpoint\nX_STEP=1"] * 3] == told
        assert receive(receiver) is None


def test_request_in_another_thread_is_refused() -> None:
    """Only the main thread can handle signals."""
    script = "import threading, ascend_runner; threading.Thread(target=ascend_runner.on_checkpoint).start()"
    command = [sys.executable, "-c", script]
    shown = subprocess.run(command, env=CLEAN, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)

    assert "ValueError: on_checkpoint() must be called in the main thread" in shown.stderr


def test_signal_and_file_are_named_by_the_runner(tmp_path: Path) -> None:
    """Another signal can ask, a handler that was there before is called as well, and "none" installs nothing."""
    script = """
import os, signal, sys, ascend_runner
signal.signal(signal.SIGUSR2, lambda *_: print("before"))
asked = ascend_runner.on_checkpoint()
os.kill(os.getpid(), signal.SIGUSR2)
print(asked.at(1))
"""
    shown = []
    for name in ("USR2", "none"):
        env = {**CLEAN, "ASCEND_RUNNER_CHECKPOINT_REQUESTS": f"{name}:{tmp_path / name}"}
        command = [sys.executable, "-c", script]
        shown.append(subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=True).stdout)

    assert ["before\nTrue\n", "before\nFalse\n"] == shown


def test_signal_after_the_end_of_the_training_kills_nobody() -> None:
    """A rank may learn from the others that it is asked, save and end before its own signal comes."""
    script = """
import os, signal, ascend_runner
asked = ascend_runner.on_checkpoint()
class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), signum=signal.SIGUSR1):
        kill(pid, signum)  # when Python has restored the actions of signals
late = Late()
"""
    ended = subprocess.run([sys.executable, "-c", script], env=CLEAN, cwd=ROOT, check=False, timeout=60)

    assert 0 == ended.returncode


@pytest.mark.parametrize("every", [0, -1])
def test_every_is_positive(every: int) -> None:
    """A wrong number is refused at once."""
    with pytest.raises(ValueError, match="at least 1"):
        rank_calls.on_checkpoint(every=every)


def test_beats_never_block_and_are_few(tmp_path: Path) -> None:
    """10,000 beats at a socket without a reader: at most ten a second are sent, and none waits."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.setblocking(False)
        script = """
import time, ascend_runner
begin = time.monotonic()
for step in range(10_000):
    ascend_runner.beat(step)
print(time.monotonic() - begin)
"""
        env = {**CLEAN, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        command = [sys.executable, "-c", script]
        shown = subprocess.run(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
        received = 0
        while receive(receiver) is not None:
            received += 1

    assert 1 <= received <= 10 + 10 * float(shown.stdout)


def receive(receiver: socket.socket) -> bytes | None:
    """Return a datagram, or None if there is none."""
    try:
        return receiver.recv(4096)
    except BlockingIOError:
        return None


def test_runner_that_is_gone_is_no_error(tmp_path: Path) -> None:
    """A socket or directory that has vanished changes nothing for the training."""
    env = {**CLEAN, "NOTIFY_SOCKET": str(tmp_path / "x"), "ASCEND_RUNNER_CHECKPOINT_REQUESTS": "USR1:/gone/requests"}
    command = [sys.executable, "-c", USES, str(ROOT)]
    shown = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout

    assert "False True False\n" == shown
    assert [] == os.listdir(tmp_path)
