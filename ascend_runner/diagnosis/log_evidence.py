"""What the end of a failed rank's log says of the failure: the traceback or the last lines, the code, the complaint."""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple
from ascend_runner.text import CUT, LAST_LINES, lines_of, shown

from .codes import Code, Found, Kind, first_code, first_phrase
from .peers import peers_in
from .tracebacks import Traceback, find_last

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascend_runner.supervision.events import Ending

    from .finding import Peer

TRACEBACK_LINES: Final = 60
LONG_LINE: Final = 4096  # characters; of a longer line only both ends are looked at


class Evidence(NamedTuple):
    """What a log tells. All text is fit for a terminal and bounded.

    `exception` and `place` are the short form ("ValueError: loss is nan at step 17", "train.py:212 in train_step"),
    `origin` and `origin_place` that of the exception which the chain began with; all empty where the log ends without a
    traceback. `traceback` is the whole of it, `last_lines` are always there.
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

    @property
    def kind(self) -> Kind:
        """Where the reason lies, by the code; a rank that names none has failed by itself."""
        return self.code.kind if self.code else Kind.ROOT


def read(tail: bytes, ending: Ending | None = None, plog: Sequence[str] = ()) -> Evidence:
    """Read the last bytes of a log, which may begin anywhere and hold anything; `plog` are the ERROR lines of the plog.

    With an `ending` by a signal an exception counts only where it is among the last lines: SIGKILL does not come of an
    error that was survived long ago.
    """
    lines = [_bounded(line) for line in lines_of(tail)]
    while lines and not lines[-1].strip():
        lines.pop()

    traceback = find_last(lines)
    if traceback and ending and ending.signum and len(lines) - traceback.end > LAST_LINES:
        traceback = None
    found = _find_code(lines, traceback, plog)

    return _evidence(traceback, lines)._replace(
        code=found.code if found else None,
        code_line=shown(found.line.strip()) if found else "",
        peers=peers_in([*lines, *plog]) if found and found.code.kind is not Kind.ROOT else (),
    )


def _find_code(lines: list[str], traceback: Traceback | None, plog: Sequence[str]) -> Found | None:
    """Find the first code, else what says as much in words, close to the end.

    The plog counts where the log says nothing: a rank that raised an exception has mostly failed of that, and what HCCL
    complains of while it is torn down is a consequence.
    """
    found = first_code(lines)
    if found and not found.code.is_wrapper:
        return found

    said = first_phrase([*(traceback.lines if traceback else ()), *lines[-LAST_LINES:]]) or found
    if traceback or said is not found:
        return said
    return first_code(plog) or said


def _evidence(traceback: Traceback | None, lines: list[str]) -> Evidence:
    evidence = Evidence(last_lines=tuple(map(shown, lines[-LAST_LINES:])))
    if traceback is None:
        return evidence
    return evidence._replace(
        exception=shown(traceback.exception),
        place=shown(traceback.place),
        origin=shown(traceback.origin),
        origin_place=shown(traceback.origin_place),
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
