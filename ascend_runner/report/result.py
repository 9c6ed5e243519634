"""The result that a runner started by `launch()` passes to its caller: the outcome, or the error of the runner.

Both run the same package, and the file between them has no name, so no other user can write to it.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import Final

import attrs

from ascend_runner.errors import AscendRunnerError
from ascend_runner.record.rank_record import Outcome

# Set for the runner by `launch()`: "PID:FD", the caller's pid and its file for the result. Ranks do not inherit it.
LAUNCH_VARIABLE: Final = "ASCEND_RUNNER_LAUNCH"


def write(fd: int, result: Outcome | AscendRunnerError) -> None:
    """Write the result to the caller's file, and close `fd`."""
    with open(fd, "wb") as file:
        file.write(encode(result))


def encode(result: Outcome | AscendRunnerError) -> bytes:
    """Encode the result."""
    if isinstance(result, Outcome):
        return pickle.dumps(_explained(result))
    # Unpickling an exception calls its constructor with its sentence, but some constructors take something else.
    return pickle.dumps((type(result), str(result), vars(result)))


def _explained(outcome: Outcome) -> Outcome:
    """Return an outcome with the exception of the rank in its cause: a program does not read the failure screen."""
    cause, root = outcome.cause, outcome.root
    if not (cause and root):
        return outcome
    return attrs.evolve(outcome, cause=cause.explained(root.summary_of(cause.rank_id)))


def decode(data: bytes, status: int) -> Outcome:
    """Decode what `encode` returned. `status` is the runner's exit status as `subprocess` gives it.

    Raises:
        AscendRunnerError: The error that the runner ended with, or the runner was killed and left no result.
    """
    if not data:
        ended = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
        raise AscendRunnerError(f"the runner {ended} before it could report the outcome of the job")

    result: Outcome | tuple[type[AscendRunnerError], str, dict[str, object]]
    result = _Unpickler(io.BytesIO(data)).load()
    if isinstance(result, Outcome):
        return result
    kind, sentence, facts = result
    error = kind.__new__(kind, sentence)
    vars(error).update(facts)
    raise error


class _Unpickler(pickle.Unpickler):
    """Interns the names of classes: Python's cache of attributes would keep those of each outcome."""

    def find_class(self, module_name: str, global_name: str) -> object:
        return super().find_class(module_name, sys.intern(global_name))
