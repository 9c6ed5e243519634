"""What a finding says beside the evidence."""

from __future__ import annotations

from ascend_runner.diagnosis import log_evidence
from ascend_runner.diagnosis.diagnose import diagnose
from ascend_runner.diagnosis.endings import Circumstances
from ascend_runner.diagnosis.first_cause import Death
from ascend_runner.supervision.events import Ending


def test_full_disk_is_named() -> None:
    """Beside an error about a full disk, the disks that are full are named."""
    log = b'Traceback (most recent call last):\n  File "x.py", line 5, in save\nOSError: No space left on device\n'
    death = Death(rank_id=0, ending=Ending(exit_code=1), evidence=log_evidence.read(log))
    finding = diagnose([death], Circumstances(full_disks=("/dev/shm",)), {}).findings[0]

    assert finding.code_meaning.endswith("full now: /dev/shm")
