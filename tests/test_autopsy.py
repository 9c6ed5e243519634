"""What is found out of ranks that ended, from log, ending, memory and plog together; with real failures."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ascend_runner import autopsy
from ascend_runner.autopsy import Remains
from ascend_runner.diagnosis.endings import Circumstances
from ascend_runner.diagnosis.finding import Accused, Finding, lines
from ascend_runner.diagnosis.first_cause import Place
from ascend_runner.job.plan import JobSpec, RankSpec, TableFile
from ascend_runner.linux import plog
from ascend_runner.supervision.events import Ending

if TYPE_CHECKING:
    import pytest

FAILS = Path(__file__).parent / "workers" / "fails.py"
COMPLAINT = (
    b"RuntimeError: HCCL error, error code is 6\n"
    b"EI0006: [PID: 7] Getting socket times out. Reason: srcRank[10.0.0.4/0] connect destRank[10.0.0.5/1] fail.\n"
)
PLACES = {3: Place("10.0.0.5", 1)}


def remains_of(rank_id: int, kind: str) -> Remains:
    """Let a rank fail in this way."""
    ended = subprocess.run(
        [sys.executable, str(FAILS), kind], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    ending = Ending(signum=-ended.returncode) if ended.returncode < 0 else Ending(ended.returncode)
    return Remains(rank_id, 4711, ending, ended.stdout)


def complaining(rank_id: int) -> Remains:
    """Make a rank that complains of a peer."""
    return Remains(rank_id, 4711, Ending(exit_code=1), COMPLAINT)


def examine(*remains: Remains) -> tuple[list[Finding], Accused | None]:
    """Examine ranks on a machine of which nothing is known."""
    warnings: list[str] = []
    findings, accused = autopsy.examine(remains, Circumstances(), PLACES, warnings.append)
    assert [] == warnings
    return [findings[rank.rank_id] for rank in remains], accused


def test_exception() -> None:
    """A rank that raised is explained by its exception."""
    (finding,), accused = examine(remains_of(0, "while_handling"))

    assert "ValueError: loss is nan at step 17" == finding.exception
    assert "| Traceback (most recent call last):" == lines(finding)[0]
    assert accused is None


def test_disk_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in memory tells the cause all the same, in time, and the user is told what is missing."""
    answers = threading.Event()
    monkeypatch.setattr(autopsy, "DISK_LIMIT", 0.01)
    monkeypatch.setattr(plog, "newest", lambda *_args: answers.wait() and None)
    remains = remains_of(0, "while_handling")._replace(plog_folder="/mnt")
    warnings: list[str] = []
    findings, _accused = autopsy.examine([remains], Circumstances(), PLACES, warnings.append)
    answers.set()

    assert "ValueError: loss is nan at step 17" == findings[0].exception
    assert ["the disk of the logs has not answered for 0.01 s: the cause is told without plogs"] == warnings


def test_exception_far_back(tmp_path: Path) -> None:
    """What others wrote after the exception, or how long its message is, does not hide it; the last lines stay."""
    log = tmp_path / "log"
    log.write_bytes(remains_of(0, "while_handling").tail + b"rank 3 is waiting\n" * 10_000)
    remains = Remains(0, 4711, Ending(exit_code=1), log.read_bytes()[-65536:])
    (near,), _accused = examine(remains)
    (far,), _accused = examine(remains._replace(log_path=str(log)))
    (gone,), _accused = examine(remains._replace(log_path=str(tmp_path / "gone")))

    assert "" == near.exception
    assert "ValueError: loss is nan at step 17" == far.exception
    assert far.last_lines == near.last_lines
    assert gone == near


def test_segmentation_fault() -> None:
    """A rank that died of SIGSEGV without a word is explained by what that usually means."""
    (finding,), _accused = examine(remains_of(0, "segfault"))

    assert ("", ()) == (finding.exception, finding.last_lines)
    assert finding.meaning.startswith("native code touched memory that is not its own")


def test_all_complain() -> None:
    """Where all complain of one rank, that and its place are told."""
    findings, accused = examine(complaining(0), complaining(1))

    assert Accused(3, "10.0.0.5", 1, accusers=(0, 1)) == accused
    assert "blames rank 3 (device 1 on server 10.0.0.5)" in lines(findings[0])


def test_order_of_one_wake_up() -> None:
    """Of failures seen at once the one that is no complaint counts first, in whatever order they come."""
    dead = [remains_of(2, "segfault"), complaining(0), complaining(1)]

    for order in itertools.permutations(dead):
        assert 2 == autopsy.order(order, Circumstances())[0]


def test_plog(tmp_path: Path) -> None:
    """The newest plog's first error is told, and explains a rank that says nothing itself."""
    folder = tmp_path / "debug" / "plog"
    folder.mkdir(parents=True)
    error = "[ERROR] HCCL(4711,python3): Resource_Error_Insufficient_Device_Memory(EI0011): Failed to allocate"
    (folder / "plog-4711_20260318.log").write_text(f"[INFO] x\n{error}\n")
    (finding,), _accused = examine(Remains(0, 4711, Ending(signum=6), b"step 1\n", str(tmp_path)))

    assert ("EI0011", error) == (finding.code, finding.plog_error)
    assert str(folder / "plog-4711_20260318.log") == finding.plog_path


def test_plog_of_another_rank(tmp_path: Path) -> None:
    """In a folder of all ranks the plog of another process is not this rank's."""
    folder = tmp_path / "debug" / "plog"
    folder.mkdir(parents=True)
    (folder / "plog-1_20260318.log").write_text("[ERROR] x\n")
    (finding,), _accused = examine(Remains(0, 4711, Ending(signum=6), b"", str(tmp_path), is_own_folder=False))

    assert "" == finding.plog_path


TABLE = """{"status": "completed", "version": "1.0", "server_count": "2", "server_list": [
  {"server_id": "10.0.0.4", "device": [{"device_id": "4", "device_ip": "29.0.0.4", "rank_id": "0"}]},
  {"server_id": "10.0.0.5", "device": [{"device_id": "5", "device_ip": "29.0.0.5", "rank_id": "1"}]}]}"""


def test_places() -> None:
    """The rank table tells where the ranks of all nodes run; without one this node's ranks are known."""
    spec = RankSpec(0, 0, "/bin/true", ("true",), {}, "/", "/log", prefix=None)
    job = JobSpec(
        "job", (spec,), 2, "10.0.0.4", "", 15.0, None, (0, 0), "/log", True, (), TableFile("/t", "/f", TABLE.encode())
    )

    assert {0: Place("10.0.0.4", 4), 1: Place("10.0.0.5", 5)} == autopsy.places_of(job)
    assert {0: Place("10.0.0.4", 0)} == autopsy.places_of(job._replace(table=None))
