"""The runner's side of an inspection: a real process that inspects, with a fake npu-smi."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from ascend_runner.services.inspector import Inspector
from ascend_runner.supervision.causes import FindingKind, NodeFinding
from ascend_runner.supervision.state import Phase, State
from tests.helpers.npu_tools import NPU_SMI, fake_npu_smi
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.waiting import wait_until


def test_warning_is_told_again_only_after_a_recovery(tmp_path: Path) -> None:
    """A finding is passed on when it appears and when it is gone, however many inspections see it."""
    found: list[NodeFinding] = []
    environ = {"PATH": f"{fake_npu_smi(tmp_path, NPU_SMI)}:{os.environ['PATH']}"}
    with closing(Inspector(job_spec([rank_spec(0)]), (5,), environ, found.append, interval=0.1)) as inspector:
        inspector.observe(State(phase=Phase.RUNNING, grace=1.0), 0.0)
        wait_until(lambda: any("80E24E00" in one.subject for one in found))
        fake_npu_smi(tmp_path, NPU_SMI.replace("Alarm", "OK"))
        wait_until(lambda: any(one.kind is FindingKind.RECOVERED for one in found))

    about = [one.kind for one in found if "80E24E00" in one.subject]
    assert [FindingKind.UNHEALTHY, FindingKind.RECOVERED] == about
