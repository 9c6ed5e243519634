"""Decodes what a runner started by `launch()` has written for its caller, see `report.result`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ascend_runner import errors
from ascend_runner.diagnosis.finding import Finding, Peer, RootCause, StackGroup
from ascend_runner.rank_record import Outcome, RankRecord
from ascend_runner.supervision.events import Cause, Ending, Exited, HangDetected, SignalReceived, SpawnFailed

_CAUSES: Final[Mapping[str, type[Cause]]] = {
    cause.__name__: cause for cause in (Exited, SpawnFailed, SignalReceived, HangDetected)
}


def decode(data: bytes, status: int) -> Outcome:
    """Decode what `result.encode` returned. `status` is the runner's exit status as `subprocess` gives it.

    Raises:
        AscendRunnerError: the error that the runner ended with, or no result because the runner was killed.
    """
    if not data:
        ended = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
        raise errors.AscendRunnerError(f"the runner {ended} before it could report the outcome of the job")

    document: dict[str, Any] = json.loads(data)
    if "error" in document:
        raise _error(document)
    return Outcome(
        **{
            **document,
            "cause": _cause(document["cause"]),
            "ranks": tuple(map(_rank, document["ranks"])),
            "suspected_peer": _record(Peer, document["suspected_peer"]),
            "root": _record(RootCause, document["root"]),
            "hang": tuple(_record(StackGroup, group) for group in document["hang"]),
            "warnings": tuple(document["warnings"]),
        }
    )


def _error(document: Mapping[str, Any]) -> errors.AscendRunnerError:
    """Rebuild an error of its own class, without calling its constructor."""
    kind = getattr(errors, document["error"], errors.AscendRunnerError)
    error: errors.AscendRunnerError = kind.__new__(kind)
    Exception.__init__(error, document["sentence"])
    for name, fact in document["facts"].items():
        setattr(error, name, fact)
    return error


def _cause(fields: dict[str, Any] | None) -> Cause | None:
    if fields is None:
        return None
    kind = fields.pop("kind")
    if "ending" in fields:
        fields["ending"] = Ending(**fields["ending"])
    return _CAUSES[kind](**fields)


def _rank(fields: dict[str, Any]) -> RankRecord:
    fields["ending"] = _record(Ending, fields["ending"])
    fields["last_lines"] = tuple(fields["last_lines"])
    if fields["finding"] is not None:
        fields["finding"]["points_at"] = [_record(Peer, peer) for peer in fields["finding"]["points_at"]]
        fields["finding"] = _record(Finding, fields["finding"])
    return RankRecord(**fields)


def _record(kind: Any, fields: dict[str, Any] | None) -> Any:  # Any: any record class, and what JSON contains
    """Rebuild a flat record, whose arrays are tuples."""
    if fields is None:
        return None
    return kind(**{name: tuple(item) if isinstance(item, list) else item for name, item in fields.items()})
