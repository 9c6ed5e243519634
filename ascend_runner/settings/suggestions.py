"""What the user probably meant: the nearest option, the nearest variable, an option behind the command. Pure."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from ascend_runner.settings.option import VARIABLE_PREFIX
from ascend_runner.settings.options import OPTIONS

FLAGS: Final = frozenset(option.flag for option in OPTIONS)
VARIABLES: Final = frozenset(option.variable for option in OPTIONS if option.variable)

# Kubernetes makes these for each service, hence for one that is called ascend-runner.
_OF_A_SERVICE: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\w+)?)")


def spelled(flag: str) -> str:
    """Return a flag with dashes: torchrun accepts --nproc_per_node as well."""
    return flag.replace("_", "-")


def of_unknown_option(flag: str, following: Sequence[str]) -> str:
    """Return what may be meant instead of an unknown option, in parentheses; "" if nothing is near."""
    if flag == "-m":
        return f" (did you mean: ascend-runner python -m {following[0] if following else 'MODULE'}?)"
    return _did_you_mean(spelled(flag), {*FLAGS, "--help", "--version"})


def of_script(program: str) -> str:
    """Return what may be meant by a Python script that cannot be executed, in parentheses; "" for another program."""
    return f" (did you mean: ascend-runner python {program}?)" if program.endswith(".py") else ""


def unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable that looks like an option but is none."""
    for name in sorted(environ):
        if name.startswith(VARIABLE_PREFIX) and name not in VARIABLES and not _OF_A_SERVICE.fullmatch(name):
            yield f"{name} is not a variable of ascend-runner and is ignored{_near_variable(name)}"


def misplaced_options(command: Sequence[str]) -> str:
    """Return a sentence about the runner's options behind a command; "" if there are none.

    An engine has options of the same names, so that only Python's scripts and modules are looked at.
    """
    if not os.path.basename(command[0]).startswith("python") or "torch.distributed" in " ".join(command[1:3]):
        return ""
    flags = dict.fromkeys(spelled(word.partition("=")[0]) for word in command[1:])
    found = [flag for flag in flags if flag in FLAGS]
    if not found:
        return ""
    verb = "is" if len(found) == 1 else "are"
    return f"{', '.join(found)} {verb} passed to the command; options of ascend-runner precede the command"


def _near_variable(name: str) -> str:
    flag = "--" + spelled(name[len(VARIABLE_PREFIX) :]).lower()  # the common prefix would make all of them near
    near = _nearest(flag, (option.flag for option in OPTIONS if option.variable))
    return f" (did you mean {VARIABLE_PREFIX}{near[2:].replace('-', '_').upper()}?)" if near else ""


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    near = _nearest(word, known)
    return f" (did you mean {near}?)" if near else ""


def _nearest(word: str, known: Iterable[str]) -> str:
    flags = sorted(known)
    near = get_close_matches(word, flags, n=1, cutoff=0.75)
    return next(iter([*near, *(flag for flag in flags if flag.startswith(f"{word}-"))]), "")
