"""The process that inspects this node. It writes each finding as a line of JSON, and ends when its input is closed.

It is a process of its own, so that neither its cost nor a hang affects the runner.
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import attrs

from ascend_runner.node.findings import PROBE_LEEWAY, Defect, Node, Place, Probe, UnusableError
from ascend_runner.node.host import Host
from ascend_runner.node.probes import all_probes
from ascend_runner.supervision.causes import FindingKind, NodeFinding

LEAST_NICE: Final = 19
# Seconds for which a defect that often disappears by itself has to last. It is less than the minute
# between two inspections, so that the second one reports it.
CONFIRM_AFTER: Final = 55.0


@attrs.define
class _Seen:
    defect: Defect
    since: float
    is_reported: bool = False


@attrs.define
class Watchlist:
    """The present defects by probe. `at` is in seconds since the epoch."""

    _seen: dict[str, dict[str, _Seen]] = attrs.field(init=False, factory=dict)
    _hangs: dict[str, int] = attrs.field(init=False, factory=dict)  # hangs in a row, by probe

    def note(self, probe: str, defects: Sequence[Defect], at: float) -> list[NodeFinding]:
        """Record the defects that a probe has found in this round; return findings on new and on resolved ones."""
        self._hangs[probe] = 0
        before, now = self._seen.get(probe, {}), {}
        findings = []
        for defect in defects:
            seen = before.get(defect.subject) or _Seen(defect, at)
            now[defect.subject] = seen
            is_due = not defect.may_pass or at - seen.since >= CONFIRM_AFTER
            is_worse = defect.is_error and not seen.defect.is_error
            if is_due and (is_worse or not seen.is_reported):
                seen.defect, seen.is_reported = defect, True
                findings.append(
                    NodeFinding(
                        subject=defect.subject, sentence=defect.sentence, at=seen.since, is_error=defect.is_error
                    )
                )
        self._seen[probe] = now
        gone = [seen for subject, seen in before.items() if seen.is_reported and subject not in now]
        return findings + [_recovered(seen.defect, at) for seen in gone]

    def note_hang(self, probe: str, seconds: float, at: float) -> list[NodeFinding]:
        """Record that a probe has not returned in time: a notice the first time, a defect the second time in a row."""
        hangs = self._hangs.get(probe, 0) + 1
        sentence = f"{probe} did not respond within {seconds:g} s"
        if hangs == 1:
            findings = [notice(probe, sentence, at)]
        else:
            before = tuple(seen.defect for seen in self._seen.get(probe, {}).values())
            hung = Defect(subject=f"{probe}: hang", sentence=f"{sentence} twice in a row", is_error=True)
            findings = self.note(probe, (*before, hung), at)
        self._hangs[probe] = hangs
        return findings


def notice(subject: str, sentence: str, at: float) -> NodeFinding:
    """Return a finding about the inspection itself."""
    return NodeFinding(subject=subject, sentence=sentence, at=at, kind=FindingKind.NOTICE)


def _recovered(defect: Defect, at: float) -> NodeFinding:
    sentence = f"resolved: {defect.sentence}"
    return NodeFinding(subject=defect.subject, sentence=sentence, at=at, kind=FindingKind.RECOVERED)


class Inspection:
    """Runs the probes of this node one after another, and turns what they find into findings that are new."""

    def __init__(self, probes: Iterable[Probe], seconds: float, *, leeway: float = PROBE_LEEWAY) -> None:
        """Give each probe `seconds` in each round."""
        self._probes = list(probes)
        self._seconds, self._leeway = seconds, leeway
        self._watchlist = Watchlist()

    def look(self) -> Iterator[NodeFinding]:
        """Run a round, and yield the findings that are new."""
        for probe in tuple(self._probes):
            yield from self._look_at(probe)

    def _look_at(self, probe: Probe) -> list[NodeFinding]:
        try:
            found = probe.ask(self._seconds + self._leeway)
        except TimeoutError:
            return self._watchlist.note_hang(probe.source, self._seconds, time.time())
        except UnusableError as error:
            self._probes.remove(probe)
            sentence = f"{error} (no longer inspected)"
            return [notice(probe.source, sentence, time.time())] if str(error) else []
        defects = [one for one in found if isinstance(one, Defect)]
        return self._watchlist.note(probe.source, defects, time.time())


def encode(finding: NodeFinding) -> str:
    """Encode a finding as a line."""
    return json.dumps({**attrs.asdict(finding), "kind": finding.kind.value}) + "\n"


def decode(line: str) -> NodeFinding:
    """Decode a line that `encode` returned."""
    values = json.loads(line)
    return NodeFinding(**{**values, "kind": FindingKind(values["kind"])})


def arguments(node: Node, interval: float) -> str:
    """Encode the node to inspect and the interval as an argument of the process."""
    return json.dumps(
        {
            "root": node.host.root,
            "device_ids": node.device_ids,
            "places": [attrs.asdict(place) for place in node.places],
            "seconds": node.seconds,
            "has_peers": node.has_peers,
            "interval": interval,
        }
    )


def main(text: str, environ: Mapping[str, str]) -> None:
    """Inspect this node until the input is closed."""
    os.nice(LEAST_NICE)
    given = json.loads(text)
    node = Node(
        host=Host(given["root"]),
        environ=environ,
        device_ids=tuple(given["device_ids"]),
        places=tuple(Place(**place) for place in given["places"]),
        seconds=given["seconds"],
        has_peers=given["has_peers"],
        is_running=True,
    )
    inspection = Inspection((probe for probe in all_probes(node) if probe.is_watched), node.seconds)
    gc.freeze()  # all of this stays: a garbage collection that searches it costs more than an inspection
    with suppress(BrokenPipeError):
        while True:
            for finding in inspection.look():
                sys.stdout.write(encode(finding))
                sys.stdout.flush()
            if select.select([sys.stdin], [], [], given["interval"])[0]:
                return
