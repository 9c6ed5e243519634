"""Which findings follow from what the probes find, round by round."""

from __future__ import annotations

from ascend_runner.node.findings import Defect
from ascend_runner.node.inspection import CONFIRM_AFTER, Watchlist
from ascend_runner.supervision.causes import FindingKind, NodeFinding

LINK = Defect(subject="device 3: link", sentence="the link of device 3 was down")
PASSING = Defect(subject="device 5: 80E01801", sentence="device 5 reported 80E01801", is_error=True, may_pass=True)


def subjects_and_kinds(findings: list[NodeFinding]) -> list[tuple[str, FindingKind]]:
    """Return the subject and the kind of findings."""
    return [(finding.subject, finding.kind) for finding in findings]


def test_one_finding_per_transition() -> None:
    """A defect is reported when it appears and when it is gone, and again if it comes back."""
    watchlist = Watchlist()
    rounds = [watchlist.note("hccn_tool", found, at) for at, found in enumerate([[], [LINK], [LINK], [], [LINK]])]

    assert [
        [],
        [("device 3: link", FindingKind.UNHEALTHY)],
        [],
        [("device 3: link", FindingKind.RECOVERED)],
        [("device 3: link", FindingKind.UNHEALTHY)],
    ] == list(map(subjects_and_kinds, rounds))


def test_defect_that_becomes_an_error() -> None:
    """It is reported again, once."""
    watchlist = Watchlist()
    worse = Defect(subject=LINK.subject, sentence=LINK.sentence, is_error=True)
    rounds = [watchlist.note("hccn_tool", [found], at) for at, found in enumerate([LINK, worse, worse])]

    assert [[False], [True], []] == [[finding.is_error for finding in found] for found in rounds]


def test_defect_that_often_passes() -> None:
    """It is reported once it has lasted for about a minute, with the time at which it began."""
    watchlist = Watchlist()

    assert [] == watchlist.note("npu-smi", [PASSING], 100.0)
    assert [] == watchlist.note("npu-smi", [], 130.0)
    assert [] == watchlist.note("npu-smi", [PASSING], 160.0)
    assert [160.0] == [finding.at for finding in watchlist.note("npu-smi", [PASSING], 160.0 + CONFIRM_AFTER)]


def test_probe_that_hangs() -> None:
    """The first time is a notice; the second one in a row is an error that stays until the probe responds."""
    watchlist = Watchlist()
    watchlist.note("npu-smi", [LINK], 0.0)
    rounds = [watchlist.note_hang("npu-smi", 10.0, float(at)) for at in range(1, 4)]
    after = watchlist.note("npu-smi", [LINK], 4.0)

    assert [
        [("npu-smi", FindingKind.NOTICE)],
        [("npu-smi: hang", FindingKind.UNHEALTHY)],
        [],
    ] == list(map(subjects_and_kinds, rounds))
    assert [("npu-smi: hang", FindingKind.RECOVERED)] == subjects_and_kinds(after)
    assert rounds[1][0].is_error
    assert "npu-smi did not respond within 10 s twice in a row" == rounds[1][0].sentence


def test_probe_that_hangs_now_and_then() -> None:
    """Two hangs with an answer between them are two notices."""
    watchlist = Watchlist()
    rounds = [watchlist.note_hang("npu-smi", 10.0, 1.0), watchlist.note("npu-smi", [], 2.0)]
    rounds.append(watchlist.note_hang("npu-smi", 10.0, 3.0))

    assert [[("npu-smi", FindingKind.NOTICE)], [], [("npu-smi", FindingKind.NOTICE)]] == list(
        map(subjects_and_kinds, rounds)
    )
