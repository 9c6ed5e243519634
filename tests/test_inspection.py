"""The inspection of a node during real jobs, with a fake npu-smi."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from tests.helpers.job_files import contradictions
from tests.helpers.npu_tools import NPU_SMI, fake_npu_smi
from tests.helpers.program import Program, Run

FOUND = "device 5 reported 80E24E00"
WAIT_FOR_FILE = "while ! test -e go; do sleep 0.1; done; exit 7"


def start(program: Program, *options: str, script: str = WAIT_FOR_FILE, tool: str = NPU_SMI) -> Run:
    """Start a rank on a node where npu-smi behaves as this script."""
    env = {"PATH": f"{fake_npu_smi(program.folder, tool)}:{os.environ['PATH']}"}
    return program.start("--nproc-per-node", "1", *options, "sh", "-c", script, env=env)


def events(program: Program, kind: str) -> list[Mapping[str, object]]:
    """Return the data of all events of a kind."""
    lines = (program.log_dir / "job-events.jsonl").read_text().splitlines()
    return [data for data in (json.loads(line)["data"] for line in lines) if data["event"] == kind]


def go(program: Program) -> None:
    """Let the rank fail."""
    (program.folder / "go").touch()


def test_finding_before_a_failure(program: Program) -> None:
    """What was wrong with an NPU is told when it is found, on the failure screen, in the report and the events."""
    run = start(program, "--inspect", "warn")
    run.wait_for(FOUND)
    go(program)

    assert 7 == run.finish()
    screen = run.screen.partition("ERROR rank 0 failed")[2]
    assert [f"  node   {FOUND}"] == [line[:35] for line in screen.splitlines() if " node " in line]
    assert ["unhealthy"] == [condition["condition"] for condition in program.report()["conditions"]]
    assert [("device 5: 80E24E00", True)] == [
        (finding["subject"], finding["is_error"]) for finding in program.report()["findings"]
    ]
    assert [True] == [data["is_error"] for data in events(program, "unhealthy")]
    assert [] == contradictions(program.log_dir)
