"""The variables named like those of options: which are known, and what an unknown one may stand for. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ascend_runner.settings.option import VARIABLE_PREFIX, with_dashes
from ascend_runner.settings.options import OPTIONS
from ascend_runner.settings.parsing import nearest

VARIABLES: Final = frozenset(option.variable for option in OPTIONS if option.variable)

ATTEMPT: Final = f"{VARIABLE_PREFIX}ATTEMPT"  # the attempt that a rank belongs to, counted from 0
CHECKPOINT: Final = f"{VARIABLE_PREFIX}CHECKPOINT"  # the newest complete checkpoint, for a rank
STAGED: Final = f"{VARIABLE_PREFIX}STAGED_"  # followed by a number: the path of the copy of a dataset, for a rank
# The run directory, and what the ranks and hooks of a runner around this one have inherited.
_INHERITED: Final = "RUN_DIR CHECKPOINT_REQUESTS EVENT JOB STATE STATUS CAUSE REPORT STEP RANKS MISSING"
_KNOWN: Final = {*VARIABLES, ATTEMPT, CHECKPOINT, *(VARIABLE_PREFIX + name for name in _INHERITED.split())}

# Kubernetes makes these for each service, hence for one that is called ascend-runner.
_OF_A_SERVICE: Final = r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\w+)?)"


def unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each unknown variable whose name begins like that of an option."""
    for name in sorted(environ):
        is_known = name in _KNOWN or name.startswith(STAGED) or re.fullmatch(_OF_A_SERVICE, name)
        if name.startswith(VARIABLE_PREFIX) and not is_known:
            yield f"ignoring unknown variable {name}{_near_variable(name)}"


def _near_variable(name: str) -> str:
    flag = "--" + with_dashes(name[len(VARIABLE_PREFIX) :]).lower()  # with the common prefix, all would be near matches
    near = nearest(flag, (option.flag for option in OPTIONS if option.variable))
    return f" (did you mean {VARIABLE_PREFIX}{near[2:].replace('-', '_').upper()}?)" if near else ""
