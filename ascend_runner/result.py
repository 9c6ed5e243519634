"""What a runner that `launch()` started hands back to it, as JSON: the outcome, or why the runner itself failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ascend_runner import errors
from ascend_runner.supervision.events import Ending
from ascend_runner.supervision.outcome import Cause, Hung, Interrupted, Outcome, RankFailed, RankNotStarted, RankOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping

# Set for the runner by `launch()`: "PID:FD", who has started it and where the result is wanted. Never seen by a rank.
LAUNCH_VARIABLE: Final = "ASCEND_RUNNER_LAUNCH"

_CAUSES: Final[Mapping[str, type[Cause]]] = {
    cause.__name__: cause for cause in (RankFailed, RankNotStarted, Interrupted, Hung)
}


def encode(result: Outcome | errors.AscendRunnerError) -> bytes:
    """Write the result down."""
    import json  # not on the path of a start

    if isinstance(result, errors.AscendRunnerError):
        document: dict[str, object] = {
            "error": type(result).__name__,
            "sentence": str(result),
            "facts": {name: fact for name, fact in vars(result).items() if isinstance(fact, (str, int, float))},
        }
    else:
        document = {
            "cause": result.cause and {"kind": type(result.cause).__name__, **result.cause._asdict()},
            "ranks": [rank._asdict() for rank in result.ranks],
            "seconds": result.seconds,
            "report": dict(result.report),
        }
    return json.dumps(document).encode()


def decode(data: bytes, status: int) -> Outcome:
    """Read what `encode` wrote. Errors: the AscendRunnerError that the runner ended with.

    `status` is the runner's exit status (subprocess' convention), for a runner that was killed before it could write.
    """
    if not data:
        ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise errors.AscendRunnerError(f"the runner {ended} before it could say what became of the job")

    import json  # likewise

    document: dict[str, Any] = json.loads(data)
    if "error" in document:
        raise _error(document)
    return Outcome(
        _cause(document["cause"]), tuple(map(_rank, document["ranks"])), document["seconds"], document["report"]
    )


def _error(document: Mapping[str, Any]) -> errors.AscendRunnerError:
    """Make the error anew, of its own class, without the arguments it was once made of."""
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
        fields["ending"] = Ending(*fields["ending"])
    return _CAUSES[kind](**fields)


def _rank(fields: dict[str, Any]) -> RankOutcome:
    if fields["ending"] is not None:
        fields["ending"] = Ending(*fields["ending"])
    fields["last_lines"] = tuple(fields["last_lines"])
    return RankOutcome(**fields)
