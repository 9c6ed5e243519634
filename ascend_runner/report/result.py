"""The JSON that a runner started by `launch()` writes for its caller: the outcome, or the error of the runner."""

from __future__ import annotations

import enum
import json
from typing import Final

import attrs

from ascend_runner import errors
from ascend_runner.rank_record import Outcome

# Set for the runner by `launch()`: "PID:FD", the caller's pid and where it wants the result. Ranks do not inherit it.
LAUNCH_VARIABLE: Final = "ASCEND_RUNNER_LAUNCH"


def encode(result: Outcome | errors.AscendRunnerError) -> bytes:
    """Encode the result. Not by orjson, which refuses paths that are not UTF-8."""
    if isinstance(result, Outcome):
        document = attrs.asdict(result, value_serializer=_plain)
        if result.cause:
            document["cause"]["kind"] = type(result.cause).__name__
    else:
        document = {
            "error": type(result).__name__,
            "sentence": str(result),
            "facts": {name: fact for name, fact in vars(result).items() if isinstance(fact, (str, int, float))},
        }
    return json.dumps(document).encode()


def _plain(_owner: object, _field: object, value: object) -> object:
    return value.value if isinstance(value, enum.Enum) else value
