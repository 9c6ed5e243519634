"""Writes the shell script that runs one rank again. The runner itself never executes it. Pure.

A rank of a distributed job would wait for the others for ever, so its script asks how it is to be run: with them, or as
the only rank of a job.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Final

from ascend_runner.frameworks.hccl import VISIBLE_DEVICES
from ascend_runner.plan.job import JobSpec, RankSpec
from ascend_runner.plan.secrets import MASK, Masker, is_secret
from ascend_runner.text import printable

# Variables of a terminal or a login, which the shell that runs the script has itself.
_OF_A_SESSION: Final = r"_|SHLVL|PWD|OLDPWD|TERM|COLUMNS|LINES|DISPLAY|LS_COLORS|(SSH|XDG|DBUS|GPG)_.*"
# Of the only rank of a job, if the rank has them at all.
_ALONE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("RANK_SIZE", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"), "1"),
    **dict.fromkeys(("RANK_ID", "RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "DEVICE_ID", "ASCEND_DEVICE_ID"), "0"),
    "MASTER_ADDR": "127.0.0.1",
}
_NOT_ALONE: Final = r"RANK_TABLE_FILE|TF_CONFIG|(CM|MS|OMPI|PMI|PMIX|SLURM)_.*"

_HEAD: Final = """\
#!/bin/sh
# Runs {title} of {job} again, with the command, directory and variables that it had on {server}.
# Recognised secrets are left out: set the variables written as ${{NAME:?}} before you run it.
"""
_CHOICE: Final = """
case ${{1-}} in
{alone}--together) set -- env ;;
*)
  echo {sentence} >&2
{offer}  echo "  sh $0 --together  runs it as it was; start the scripts of all other ranks as well" >&2
  exit 2 ;;
esac
"""
_OFFER: Final = """\
  echo "  sh $0 --alone     runs it as the only rank of a job, on the same device" >&2
"""
_NO_CHOICE: Final = "\nset --\n"


def script(spec: RankSpec, job: JobSpec, environ: Mapping[str, str]) -> bytes:
    """Return a script for sh(1) that enters the rank's working directory and runs its command with its variables.

    `environ` is the caller's environment: variables that the rank did not inherit from it are unset.
    """
    head = _HEAD.format(title=printable(spec.title), job=printable(job.job_id), server=printable(job.server_id))
    removed = [f"-u {shlex.quote(name)}" for name in sorted(environ) if name not in spec.env]
    variables = [_assigned(name, value) for name, value in sorted(spec.env.items())]
    words = ["exec env", *removed, *filter(None, variables), '"$@"', " ".join(_arguments(spec))]
    command = f"\ncd {shlex.quote(spec.cwd)} || exit\n" + " \\\n  ".join(words) + "\n"
    return os.fsencode(head + _choice(spec, job) + command)


def _choice(spec: RankSpec, job: JobSpec) -> str:
    """Let the user choose how to run a process that waits for others.

    That is a rank of several, MindSpore's scheduler, and what an engine starts on one of several nodes.
    """
    if not (job.ranks and job.rank_size > 1) and job.node_number is None:
        return _NO_CHOICE
    sentence = (
        f"{printable(spec.title)} is part of a job of {job.rank_size} ranks and waits for the others. Choose one:"
    )
    alone = "" if spec.name else f"--alone) set -- env {' '.join(_alone(spec))} ;;\n"
    return _CHOICE.format(sentence=shlex.quote(sentence), alone=alone, offer=_OFFER if alone else "")


def _alone(spec: RankSpec) -> list[str]:
    """Return what env(1) changes for the only rank of a job: it sees its own device only, as device 0."""
    changed = {name: value for name, value in _ALONE.items() if name in spec.env}
    devices = list(filter(None, spec.env.get(VISIBLE_DEVICES, "").split(",")))
    if len(devices) != 1:
        changed[VISIBLE_DEVICES] = devices[spec.local_rank] if spec.local_rank < len(devices) else str(spec.local_rank)
    return [
        *(f"-u {shlex.quote(name)}" for name in sorted(spec.env) if re.fullmatch(_NOT_ALONE, name)),
        *(f"{name}={shlex.quote(value)}" for name, value in changed.items()),
    ]


def _assigned(name: str, value: str) -> str:
    """Return a variable as a word for env(1); "" if the shell that runs the script has its own."""
    if re.fullmatch(_OF_A_SESSION, name):
        return ""
    if is_secret(name, value) or Masker().text(value) != value:
        return f'{name}="${{{name}:?}}"' if name.isidentifier() else ""
    return shlex.quote(f"{name}={value}")


def _arguments(spec: RankSpec) -> list[str]:
    """Return the words of the command. A secret is taken from a variable with its value, or with its option's name."""
    variables = {value: name for name, value in spec.env.items() if value and name.isidentifier()}
    words: list[str] = []
    for index, (word, masked) in enumerate(zip(spec.argv, Masker().arguments(spec.argv))):
        option, equals, value = word.partition("=")
        if masked == word:
            words.append(shlex.quote(word))
        elif masked == option + equals + MASK:
            own = option if option.isidentifier() else _variable(option)
            name = variables.get(value) or own or f"ARGUMENT_{index}"
            words.append(f'{shlex.quote(option + equals)}"${{{name}:?}}"')
        else:
            name = _variable(spec.argv[index - 1]) if masked == MASK else ""
            words.append(f'"${{{variables.get(word) or name or f"ARGUMENT_{index}"}:?}}"')
    return words


def _variable(option: str) -> str:
    return re.sub(r"\W", "_", option.lstrip("-"), flags=re.ASCII).upper() if option.startswith("-") else ""
