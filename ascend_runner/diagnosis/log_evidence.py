"""Reads the end of a failed rank's log: the traceback or the last lines, the error code, and the peers it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from ascend_runner.diagnosis import collectives
from ascend_runner.diagnosis.codes import Code, Found, Kind, first_code, first_phrase
from ascend_runner.diagnosis.finding import Peer
from ascend_runner.diagnosis.peers import peers_in
from ascend_runner.diagnosis.tracebacks import Traceback, find_last
from ascend_runner.supervision.events import Ending
from ascend_runner.text import CUT, LAST_LINES, lines_of, shown

TRACEBACK_LINES: Final = 60
LONG_LINE: Final = 4096  # characters; only both ends of a longer line are searched


@attrs.frozen(kw_only=True)
class Evidence:
    """What was found in a log. Every string is bounded and safe for a terminal.

    `exception` and `place` are the short form ("ValueError: loss is nan at step 17", "train.py:212 in train_step"),
    `origin` and `origin_place` that of the exception at the start of the chain; all are empty if there is no traceback.
    `traceback` holds its lines; `last_lines` is always filled. `plog_error` is the first ERROR line of `plog_path`.
    With `is_in_collective`, the exception was raised where ranks talk to each other.
    """

    exception: str = ""
    place: str = ""
    origin: str = ""
    origin_place: str = ""
    traceback: tuple[str, ...] = ()
    last_lines: tuple[str, ...] = ()
    code: Code | None = None
    code_line: str = ""
    peers: tuple[Peer, ...] = ()
    plog_path: str = ""
    plog_error: str = ""
    is_in_collective: bool = False

    @property
    def summary(self) -> str:
        """The cause in one line, "" if the log contains none."""
        return self.exception or self.code_line or (self.code.name if self.code else "")

    @property
    def is_sure(self) -> bool:
        """Whether the error cannot be that of a peer."""
        return self.kind is Kind.ROOT

    @property
    def kind(self) -> Kind:
        """Where the cause lies, by the code, else by where the exception was raised.

        A rank without a code that was not talking to others has failed by itself.
        """
        if self.code is None:
            return Kind.EITHER if self.is_in_collective else Kind.ROOT
        return Kind.SECONDARY if self.code.is_connection and self.is_in_collective else self.code.kind


def read(tail: bytes, ending: Ending | None = None, plog: Sequence[str] = ()) -> Evidence:
    """Read the end of a log, which may start in mid-line and contain anything; `plog` holds the plog's ERROR lines.

    After an `ending` by a signal an exception counts only if it is among the last lines: an error that the rank
    survived long ago does not explain a SIGKILL.
    """
    lines = [_bounded(line) for line in lines_of(tail)]
    while lines and not lines[-1].strip():
        lines.pop()

    traceback = find_last(lines)
    if traceback and ending and ending.signum and len(lines) - traceback.end > LAST_LINES:
        traceback = None
    found = _find_code(lines, traceback, plog)

    return attrs.evolve(
        _evidence(traceback, lines),
        code=found.code if found else None,
        code_line=shown(found.line.strip()) if found else "",
        peers=peers_in([*lines, *plog]) if found and found.code.kind is not Kind.ROOT else (),
    )


def _find_code(lines: list[str], traceback: Traceback | None, plog: Sequence[str]) -> Found | None:
    """Find the first code, else a telling phrase close to the end of the log.

    The plog counts only if the log contains neither: a rank that raised an exception has usually failed because of it,
    and HCCL's errors during its teardown are a consequence.
    """
    found = first_code(lines)
    if found and not found.code.is_wrapper:
        return found

    phrase = first_phrase([*(traceback.lines if traceback else ()), *lines[-LAST_LINES:]]) or found
    if traceback or phrase is not found:
        return phrase
    return first_code(plog) or phrase


def _evidence(traceback: Traceback | None, lines: list[str]) -> Evidence:
    evidence = Evidence(last_lines=tuple(map(shown, lines[-LAST_LINES:])))
    if traceback is None:
        return evidence
    return attrs.evolve(
        evidence,
        exception=shown(traceback.exception),
        place=shown(traceback.place),
        origin=shown(traceback.origin),
        origin_place=shown(traceback.origin_place),
        is_in_collective=collectives.is_raised_in_one(traceback.exception, traceback.lines),
        traceback=_without_middle([shown(line) for line in traceback.lines]),
    )


def _without_middle(lines: list[str]) -> tuple[str, ...]:
    if len(lines) <= TRACEBACK_LINES:
        return tuple(lines)
    head = TRACEBACK_LINES // 3
    tail = TRACEBACK_LINES - head - 1
    return (*lines[:head], f"  ... {len(lines) - head - tail} lines ...", *lines[-tail:])


def _bounded(line: str) -> str:
    if len(line) <= LONG_LINE:
        return line
    return f"{line[: LONG_LINE // 2]}{CUT}{line[-LONG_LINE // 2 :]}"
