"""The evidence about failed ranks from log, exit status, memory counters and plog; with real failures."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from pathlib import Path

import attrs

from ascend_runner.diagnosis import failed_rank, root_cause
from ascend_runner.diagnosis.endings import Circumstances
from ascend_runner.diagnosis.failed_rank import FailedRank, read_disks
from ascend_runner.diagnosis.finding import Finding, Peer
from ascend_runner.diagnosis.root_cause import Place, by_suspicion
from ascend_runner.node.bounded import Patience
from ascend_runner.secrets import Masker
from ascend_runner.supervision.causes import Ending

FAILS = Path(__file__).parents[1] / "workers" / "fails.py"
FAILED = Ending(exit_code=1)
REPORT = (
    b"RuntimeError: HCCL error, error code is 6\n"
    b"EI0006: [PID: 7] Getting socket times out. Reason: srcRank[10.0.0.4/0] connect destRank[10.0.0.5/1] fail.\n"
)
PLACES = {3: Place("10.0.0.5", 1)}


def failed(rank_id: int, kind: str) -> FailedRank:
    """Run a rank that fails in this way."""
    ended = subprocess.run(
        [sys.executable, str(FAILS), kind], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    ending = Ending(signum=-ended.returncode) if ended.returncode < 0 else Ending(ended.returncode)
    return FailedRank(rank_id=rank_id, pid=4711, ending=ending, tail=ended.stdout)


def reporting(rank_id: int) -> FailedRank:
    """Make a rank that reports a peer."""
    return FailedRank(rank_id=rank_id, pid=4711, ending=FAILED, tail=REPORT)


def write_plog(folder: Path, text: str, pid: int = 4711) -> Path:
    """Write the plog of a process below a rank's log directory."""
    path = folder / "debug" / "plog" / f"plog-{pid}_20260318.log"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def findings_of(*ranks: FailedRank) -> tuple[list[Finding], Peer | None]:
    """Diagnose ranks on a machine without memory counters."""
    warnings: list[str] = []
    deaths = failed_rank.gather(ranks, Circumstances(), read_disks(ranks, Masker(), Patience(warn=warnings.append)))
    assert [] == warnings
    diagnosis = root_cause.diagnose(list(deaths), Circumstances(), PLACES)
    return [diagnosis.findings[rank.rank_id] for rank in ranks], diagnosis.suspected_peer


def test_exception() -> None:
    """A rank that raised is explained by its exception."""
    (finding,), suspected = findings_of(failed(0, "while_handling"))

    assert "ValueError: loss is nan at step 17" == finding.exception
    assert "Traceback (most recent call last):" == finding.traceback[0]
    assert suspected is None


def test_disk_that_does_not_respond(tmp_path: Path) -> None:
    """A disk that hangs is reported, and costs only the evidence that is not in memory."""
    responds = threading.Event()

    class HungDisk(Masker):
        """Does not return what was read from a disk until it responds."""

        def text(self, text: str) -> str:
            responds.wait()
            return text

    warnings: list[str] = []
    write_plog(tmp_path, "[ERROR] x\n")
    rank = attrs.evolve(failed(0, "while_handling"), plog_folder=str(tmp_path))
    on_disk = read_disks([rank], HungDisk(), Patience(is_hurried=lambda: True, warn=warnings.append))
    responds.set()
    (death,) = failed_rank.gather([rank], Circumstances(), on_disk)

    assert "ValueError: loss is nan at step 17" == death.evidence.exception
    assert ["the disk with the logs did not respond within 5 s; diagnosing without plogs"] == warnings


def test_exception_far_back(tmp_path: Path) -> None:
    """An exception is found however much output follows it; the last lines stay."""
    log = tmp_path / "log"
    log.write_bytes(failed(0, "while_handling").tail + b"rank 3 is waiting\n" * 10_000)
    rank = FailedRank(rank_id=0, pid=4711, ending=FAILED, tail=log.read_bytes()[-65536:])
    (near,), _suspected = findings_of(rank)
    (far,), _suspected = findings_of(attrs.evolve(rank, log_path=str(log)))
    (gone,), _suspected = findings_of(attrs.evolve(rank, log_path=str(tmp_path / "gone")))

    assert "" == near.exception
    assert "ValueError: loss is nan at step 17" == far.exception
    assert far.last_lines == near.last_lines
    assert gone == near


def test_segmentation_fault() -> None:
    """A rank that died of SIGSEGV without any output is explained by the signal."""
    (finding,), _suspected = findings_of(failed(0, "segfault"))

    assert ("", ()) == (finding.exception, finding.last_lines)
    assert finding.meaning


def test_all_report_one_peer() -> None:
    """If all ranks report one peer, it is suspected, and each finding has its place."""
    findings, suspected = findings_of(reporting(0), reporting(1))

    assert Peer(rank_id=3, server_id="10.0.0.5", device_id=1, reported_by=(0, 1)) == suspected
    assert (Peer(rank_id=3, server_id="10.0.0.5", device_id=1),) == findings[0].points_at


def test_order_of_one_wake_up() -> None:
    """Of failures in one wake-up the rank that does not report a peer comes first, whatever their order."""
    dead = [failed(2, "segfault"), reporting(0), reporting(1)]

    for order in itertools.permutations(dead):
        assert 2 == by_suspicion(failed_rank.gather(order, Circumstances()))[0].rank_id


def test_plog(tmp_path: Path) -> None:
    """The first error of the newest plog is kept, and explains a rank without an error of its own."""
    error = "[ERROR] HCCL(4711,python3): Resource_Error_Insufficient_Device_Memory(EI0011): Failed to allocate"
    path = write_plog(tmp_path, f"[INFO] x\n{error}\n")
    (finding,), _suspected = findings_of(
        FailedRank(rank_id=0, pid=4711, ending=Ending(signum=6), tail=b"step 1\n", plog_folder=str(tmp_path))
    )

    assert ("EI0011", error) == (finding.code, finding.plog_error)
    assert str(path) == finding.plog_path


def test_plog_of_another_rank(tmp_path: Path) -> None:
    """In a directory shared by all ranks, the plog of another process does not count."""
    write_plog(tmp_path, "[ERROR] x\n", pid=1)
    (finding,), _suspected = findings_of(
        FailedRank(
            rank_id=0,
            pid=4711,
            ending=Ending(signum=6),
            tail=b"",
            plog_folder=str(tmp_path),
            has_own_plog_folder=False,
        )
    )

    assert "" == finding.plog_path


def test_secrets_on_disk(tmp_path: Path) -> None:
    """Text from far back in a log and from a plog is masked, and safe for a terminal."""
    write_plog(tmp_path, "[ERROR] \x1b[2J\x07 --api-key hidden " + "x" * 10_000)
    log = tmp_path / "log"
    raised = b'Traceback (most recent call last):\n  File "a.py", line 1, in f\nOSError: no access, HF_TOKEN=hidden\n'
    log.write_bytes(raised + b"bye\n" * 1000)
    rank = FailedRank(
        rank_id=0, pid=1, ending=FAILED, tail=b"bye\n" * 500, log_path=str(log), plog_folder=str(tmp_path)
    )
    (finding,), _suspected = findings_of(rank)

    assert "OSError: no access, HF_TOKEN=***" == finding.exception
    assert finding.plog_error.startswith("[ERROR] \\x07 --api-key *** ")
    assert finding.plog_error.isprintable()
    assert len(finding.plog_error) < 1000


def test_logs_of_a_launchers_workers(tmp_path: Path) -> None:
    """Where a launcher's error points to the logs of its workers, the worker with an error of its own is the cause."""
    nan = b'Traceback (most recent call last):\n  File "train.py", line 5, in step\nValueError: loss is nan\n'
    (tmp_path / "scheduler.log").write_bytes(nan.replace(b"is nan", b"of the scheduler"))
    (tmp_path / "worker_0.log").write_bytes(REPORT)
    (tmp_path / "worker_1.log").write_bytes(nan)
    msrun = (
        b'Traceback (most recent call last):\n  File "/x/process_entity/_api.py", line 5, in run\n'
        b"RuntimeError: Distributed job exited with exception. Please check logs in directory: %s.\n"
    )
    (finding,), _ = findings_of(FailedRank(rank_id=0, pid=1, ending=FAILED, tail=msrun % str(tmp_path).encode()))
    (missing,), _ = findings_of(FailedRank(rank_id=0, pid=1, ending=FAILED, tail=msrun % b"/missing"))

    assert "ValueError: loss is nan" == finding.exception
    assert missing.exception.startswith("RuntimeError: Distributed job exited")
