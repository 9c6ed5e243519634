"""The process that inspects: what it makes of probes that hang, fail, or tell nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import attrs

from ascend_runner.node import inspection
from ascend_runner.node.findings import Defect, Probe, UnusableError
from ascend_runner.node.inspection import Inspection
from ascend_runner.supervision.causes import FindingKind, NodeFinding
from tests.helpers.waiting import wait_until

SECONDS = 0.1
DEFECT = Defect(subject="device 5: gone", sentence="/dev/davinci5 was gone", is_error=True)


@attrs.define
class FakeProbe:
    """A probe that finds a defect, or hangs or fails before."""

    gate: threading.Event = attrs.field(factory=threading.Event)
    error: Exception | None = None
    looks: int = 0

    def look(self) -> Iterator[Defect]:
        """Yield the defect."""
        self.looks += 1
        self.gate.wait()
        if self.error:
            raise self.error
        yield DEFECT


def open_probe(error: Exception | None = None) -> FakeProbe:
    """Return a probe that does not hang."""
    probe = FakeProbe(error=error)
    probe.gate.set()
    return probe


def probe_of(source: str, fake: FakeProbe) -> Probe:
    """Return a probe that looks by a fake."""
    return Probe(source=source, look=fake.look)


def subjects_and_kinds(inspection: Inspection) -> list[tuple[str, FindingKind]]:
    """Return the subject and kind of what is new."""
    return [(finding.subject, finding.kind) for finding in inspection.look()]


def test_probe_that_hangs_does_not_hold_up_the_others() -> None:
    """It is left alone as long as it hangs, and counts again when it responds."""
    hanging = FakeProbe()
    inspection = Inspection([probe_of("disk", hanging), probe_of("/dev", open_probe())], SECONDS, leeway=0.0)

    expected = {("disk: hang", FindingKind.UNHEALTHY), ("device 5: gone", FindingKind.UNHEALTHY)}
    seen: list[tuple[str, FindingKind]] = []

    def has_found_both() -> bool:
        seen.extend(subjects_and_kinds(inspection))
        return expected <= set(seen)

    wait_until(has_found_both)
    assert ("disk", FindingKind.NOTICE) in seen
    assert 1 == hanging.looks
    hanging.gate.set()
    wait_until(lambda: ("disk: hang", FindingKind.RECOVERED) in subjects_and_kinds(inspection))


def test_probe_that_tells_nothing() -> None:
    """It says why, once, and is not asked again."""
    probe = open_probe(UnusableError("npu-smi info printed no table in a known format"))
    inspection = Inspection([probe_of("npu-smi", probe)], SECONDS, leeway=60.0)

    assert [("npu-smi", FindingKind.NOTICE)] == subjects_and_kinds(inspection)
    assert [] == subjects_and_kinds(inspection)
    assert 1 == probe.looks


def test_probe_with_a_defect_of_its_own() -> None:
    """An error that nobody has thought of ends the probe, not the inspection."""
    inspection = Inspection([probe_of("/dev", open_probe(ValueError("odd")))], SECONDS, leeway=60.0)

    assert [("/dev", FindingKind.NOTICE)] == subjects_and_kinds(inspection)
    assert [] == subjects_and_kinds(inspection)


def test_findings_as_lines() -> None:
    """A finding is the same after its way through the pipe."""
    finding = NodeFinding(subject="a\nb", sentence="c", at=1.5, kind=FindingKind.NOTICE, is_error=True)
    line = inspection.encode(finding)

    assert 1 == line.count("\n")
    assert finding == inspection.decode(line)
