"""HCCL's reports about other ranks, read from the logs of silent ranks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ascend_runner.plan.spec import TableFile
from ascend_runner.services.hccl_heartbeats import READ_LIMIT, HcclHeartbeats
from ascend_runner.supervision.events import Spawned
from ascend_runner.supervision.state import Phase, State
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.waiting import wait_until

RUNNING = State(phase=Phase.RUNNING, grace=1.0)


def line(device: int, status: str = "LOST", at: float | None = None) -> bytes:
    """Return a line as HCCL writes it, at a time in seconds since the epoch (None: now)."""
    moment = time.strftime("%Y-%m-%d-%H:%M:%S", time.localtime(at))
    return (
        f"[INFO] HCCL(7,python):{moment}.191.363 [heartbeat.cc:951] [9][TaskExecStage][HeartbeatAbnormal]local rank"
        f" [10.0.0.1/0]: crimer rank [10.0.0.2/{device}] status[{status}] by informer rank [10.0.0.1/0]\n"
    ).encode()


class Logs:
    """The run/plog folder of a rank."""

    def __init__(
        self, folder: Path, *, has_own: bool = True, timeout: float | None = 60.0, table: TableFile | None = None
    ) -> None:
        self.folder = folder / "run" / "plog"
        self.folder.mkdir(parents=True)
        self.path = self.folder / "plog-7_20261124160000000.log"
        self.active_at, self.announced_until, self.woken = 0.0, 0.0, threading.Event()
        spec = rank_spec(0, env={"ASCEND_PROCESS_LOG_PATH": str(folder)})
        self.heartbeats = HcclHeartbeats(
            job_spec([spec], rank_size=16, has_own_process_logs=has_own, hang_timeout=timeout, table=table),
            lambda: (self.active_at, self.announced_until),
            self.woken.set,
            lambda: 100.0,
            interval=0.01,
        )

    def write(self, data: bytes) -> None:
        """Append to the log of the rank."""
        with self.path.open("ab") as log:
            log.write(data)

    def devices(self, since: float = 0.0) -> list[int]:
        """Look for events since then; return the devices that they are about."""
        self.heartbeats.look(since)
        named = "".join(sentence.partition(" on ")[0] for sentence in self.heartbeats.take())
        return [int(device) for device in re.findall(r"device (\d+)", named)]


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    """A folder that only one rank writes to."""
    return Logs(tmp_path)


def test_only_the_new_part_is_read(logs: Logs) -> None:
    """Each event is reported once, also if another rank reports it again; an unfinished line is read when complete."""
    logs.write(b"[INFO] x\n" + line(2))
    first = logs.devices()
    logs.write(line(2) + line(3)[:50])
    second = logs.devices()
    logs.write(line(3)[50:])

    assert ([2], [], [3], []) == (first, second, logs.devices(), logs.devices())


def test_nodes_of_lost_ranks_are_passed_on(tmp_path: Path) -> None:
    """The other nodes learn which nodes HCCL has lost, by their numbers in the rank table."""
    servers = [
        {"server_id": f"10.0.0.{node + 1}", "device": [{"device_id": "2", "device_ip": "", "rank_id": str(node)}]}
        for node in (0, 1)
    ]
    data = json.dumps({"status": "completed", "server_count": "2", "server_list": servers}).encode()
    logs, lost = Logs(tmp_path, table=TableFile("table.json", "other.json", data)), list[int]()
    logs.heartbeats.tell_lost = lost.extend
    logs.write(line(2))
    logs.heartbeats.look(0.0)

    assert [1] == lost


def test_event_before_the_last_output_is_over(logs: Logs) -> None:
    """Ranks that wrote after an event go on in spite of it."""
    now = time.time()
    logs.write(line(2, at=now - 60) + line(3, at=now))

    assert [3] == logs.devices(since=now - 10)


@pytest.mark.parametrize(("announced_until", "expected"), [(0.0, [2, 3]), (200.0, [2])])
def test_announced_pause_is_not_stuck(logs: Logs, announced_until: float, expected: list[int]) -> None:
    """A rank that has announced a pause is expected to execute nothing."""
    logs.announced_until = announced_until
    logs.write(line(2) + line(3, "STUCK"))

    assert expected == sorted(logs.devices())


def test_huge_file_is_read_from_its_end(logs: Logs) -> None:
    """Of a file that has grown by more than can be read at once, the last part counts."""
    logs.write(line(2))
    os.truncate(logs.path, 1 << 30)
    logs.write(b"\n" + line(3))
    found = logs.devices()
    logs.write(b"x" * (READ_LIMIT + 1))
    logs.devices()
    logs.write(b"\n" + line(4))

    assert ([3], [4]) == (found, logs.devices())


def test_replaced_and_truncated_files_are_read_again(logs: Logs) -> None:
    """A new file of the same name, and one that has become shorter, begin anew."""
    logs.write(line(2) + line(2))
    found = [logs.devices()]
    os.truncate(logs.path, 0)
    logs.write(line(3))
    found.append(logs.devices())
    logs.path.rename(logs.folder / "old.log")
    logs.write(line(4))
    found.append(logs.devices())

    assert [[2], [3], [4]] == found


def test_odd_files_are_left_out(logs: Logs) -> None:
    """A FIFO would block, a link may lead anywhere, and files of an earlier run are of other ranks."""
    os.mkfifo(logs.folder / "plog-8_1.log")
    target = logs.folder / "x"
    target.write_bytes(line(2))
    (logs.folder / "plog-9_1.log").symlink_to(target)
    (logs.folder / "plog-10_1.log").write_bytes(line(3))
    os.utime(logs.folder / "plog-10_1.log", (1.0, 1.0))

    assert [] == logs.devices()


@contextmanager
def session() -> Iterator[tuple[int, int]]:
    """Start a session; return the pids of its leader and of a child."""
    script = "sleep 300 & echo $!; wait"
    with subprocess.Popen(
        ["/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as leader:
        assert leader.stdout
        child = int(leader.stdout.readline())
        try:
            yield leader.pid, child
        finally:
            os.killpg(leader.pid, signal.SIGKILL)
    os.waitpid(child, 0)  # this process has adopted it


def test_folder_of_several_jobs(tmp_path: Path) -> None:
    """In a folder that the user has chosen, only files of the ranks' own processes are read."""
    logs = Logs(tmp_path, has_own=False)
    with session() as (leader, child), session() as (stranger, its_child):
        for device, pid in enumerate((leader, child, stranger, its_child)):
            (logs.folder / f"plog-{pid}_1.log").write_bytes(line(device))
        logs.heartbeats.observe(Spawned(0, leader), 0.0)

        assert [0, 1] == logs.devices()


def test_logs_are_read_only_in_a_silence(logs: Logs) -> None:
    """Nothing is read while ranks write; then the manager is woken, and at the end the thread ends."""
    logs.write(line(2))
    logs.active_at = 100.0
    logs.heartbeats.observe(RUNNING, 0.0)
    was_woken = logs.woken.wait(0.1)
    logs.active_at = 50.0
    wait_until(logs.woken.is_set)
    logs.heartbeats.close()
    wait_until(lambda: not logs.heartbeats.is_reading)

    assert not was_woken
    assert 1 == len(logs.heartbeats.take())


def test_nothing_is_read_without_a_hang_timeout(tmp_path: Path) -> None:
    """With --hang-timeout off no silence means anything."""
    logs = Logs(tmp_path, timeout=None)
    logs.heartbeats.observe(RUNNING, 0.0)

    assert not logs.heartbeats.is_reading
