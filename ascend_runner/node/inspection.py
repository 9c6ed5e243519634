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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import attrs

from ascend_runner.node import bounded
from ascend_runner.node.host import Host
from ascend_runner.node.probes import Defect, Node, Place, Probe, UnusableError, Watchlist, all_probes, notice
from ascend_runner.supervision.causes import FindingKind, NodeFinding

LEEWAY: Final = 2.0  # seconds that a probe has in addition, to kill a tool that hangs
LEAST_NICE: Final = 19


@attrs.define
class _Slot:
    """A probe. If its thread hangs, it is left alone. `make` is None if the probe does not work on this node."""

    make: Callable[[], Probe] | None
    probe: Probe | None = None
    is_running: bool = False
    result: Sequence[Defect] | UnusableError | TimeoutError = ()

    def look(self) -> None:
        self.is_running = True
        try:
            if self.probe is None and self.make:
                self.probe = self.make()
            self.result = tuple(self.probe.look()) if self.probe else ()
        except (UnusableError, TimeoutError) as error:
            self.result = error
        except (OSError, ValueError, LookupError, TypeError) as error:  # caused by an unexpected file or output
            self.result = UnusableError(f"cannot be inspected: {error!r}")
        self.is_running = False


class Inspection:
    """Runs the probes of this node one after another."""

    def __init__(self, probes: Mapping[str, Callable[[], Probe]], seconds: float, *, leeway: float = LEEWAY) -> None:
        """Give each probe `seconds` in each round."""
        self._slots = {name: _Slot(make) for name, make in probes.items()}
        self._seconds, self._leeway = seconds, leeway
        self._watchlist = Watchlist()

    def look(self) -> Iterator[NodeFinding]:
        """Run a round, and yield the findings that are new."""
        for name, slot in self._slots.items():
            if slot.make:
                yield from self._look_at(name, slot)

    def _look_at(self, name: str, slot: _Slot) -> list[NodeFinding]:
        is_late = slot.is_running or not bounded.call(self._seconds + self._leeway, slot.look)
        result, now = slot.result, time.time()
        if is_late or isinstance(result, TimeoutError):
            return self._watchlist.note_hang(name, self._seconds, now)
        if isinstance(result, UnusableError):
            slot.make = None
            return [notice(name, str(result), now)] if str(result) else []
        return self._watchlist.note(name, result, now)


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
            "places": [attrs.astuple(place) for place in node.places],
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
        places=tuple(Place(name=name, path=path) for name, path in given["places"]),
        seconds=given["seconds"],
        has_peers=given["has_peers"],
    )
    inspection = Inspection(all_probes(node), node.seconds)
    gc.freeze()  # all of this stays: a garbage collection that searches it costs more than an inspection
    with suppress(BrokenPipeError):
        while True:
            for finding in inspection.look():
                sys.stdout.write(encode(finding))
                sys.stdout.flush()
            if select.select([sys.stdin], [], [], given["interval"])[0]:
                return
