"""Writes the shell script that runs one rank again. The runner itself never executes it. Pure.

A rank of a distributed job would wait forever for the others, so its script asks how it is to be run: with them, or as
the only rank of a job.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Mapping
from typing import Final

import attrs

from ascend_runner.frameworks.env_patch import VISIBLE_DEVICES
from ascend_runner.plan.spec import JobSpec, RankSpec
from ascend_runner.secrets import Masker, is_secret
from ascend_runner.text import printable

# Variables of a terminal or a login, which the shell that runs the script has itself.
_OF_A_SESSION: Final = r"_|SHLVL|PWD|OLDPWD|TERM|COLUMNS|LINES|DISPLAY|LS_COLORS|(SSH|XDG|DBUS|GPG)_.*"
# Values for a job with a single rank; applied only to variables that the rank has.
_ALONE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("RANK_SIZE", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"), "1"),
    **dict.fromkeys(("RANK_ID", "RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "DEVICE_ID", "ASCEND_DEVICE_ID"), "0"),
    "MASTER_ADDR": "127.0.0.1",
}
_NOT_ALONE: Final = r"RANK_TABLE_FILE|TF_CONFIG|(CM|MS|OMPI|PMI|PMIX|SLURM)_.*"

_HEAD: Final = """\
#!/bin/sh
# Runs {title} of job {job} again with the command, working directory and environment that it had on {server}.
{forms}# Secrets are not in this file: before you run it, set each variable that is written as ${{NAME:?}}.
"""
_ALONE_FORM: Final = "# With --alone, it is the only rank of a job, on the same device.\n"
_TOGETHER_FORM: Final = """\
# With --together, it runs unchanged and waits for the other ranks: start the scripts of all of them.
"""
_CHOICE: Final = """
case ${{1-}} in
{alone}--together) set -- env ;;
*)
  echo {sentence} >&2
{offer}  echo "  sh $0 --together  run it unchanged; start the scripts of all other ranks as well" >&2
  exit 2 ;;
esac
"""
_OFFER: Final = """\
  echo "  sh $0 --alone     run it as a job of one rank, on the same device" >&2
"""
_NO_CHOICE: Final = "\nset --\n"


def script(spec: RankSpec, job: JobSpec, environ: Mapping[str, str]) -> bytes:
    """Return a script for sh(1) that enters the rank's working directory and runs its command with its variables.

    `environ` is the caller's environment: variables that the rank did not inherit from it are unset.
    """
    forms = {"": "", "--alone": _ALONE_FORM + _TOGETHER_FORM, "--together": _TOGETHER_FORM}[argument(spec, job)]
    names = {"title": spec.title, "job": job.job_id, "server": job.server_id}
    head = _HEAD.format(forms=forms, **{key: printable(name) for key, name in names.items()})
    removed = [f"-u {shlex.quote(name)}" for name in sorted(environ) if name not in spec.env]
    variables = [_assigned(name, value) for name, value in sorted(spec.env.items())]
    words = ["exec env", *removed, *filter(None, variables), '"$@"', " ".join(_arguments(spec))]
    command = f"\ncd {shlex.quote(spec.cwd)} || exit\n" + " \\\n  ".join(words) + "\n"
    return os.fsencode(head + _choice(spec, job) + command)


def argument(spec: RankSpec, job: JobSpec) -> str:
    """Return the argument of the script with which it needs no other rank if it can, "" if it takes none.

    A process that waits for others is a rank of several, MindSpore's scheduler, and what an engine starts on one of
    several nodes. The scheduler is no rank, and never runs alone.
    """
    if not (job.ranks and job.rank_size > 1) and job.node_number is None:
        return ""
    return "--together" if spec.name else "--alone"


def _choice(spec: RankSpec, job: JobSpec) -> str:
    """Let the user choose how to run a process that waits for others."""
    if not argument(spec, job):
        return _NO_CHOICE
    size = f"{job.rank_size} ranks" if job.rank_size > 1 else "several nodes"
    sentence = f"{printable(spec.title)} belongs to a job of {size} and would wait for the others. Usage:"
    alone = "" if spec.name else f"--alone) set -- env {' '.join(_alone(spec))} ;;\n"
    return _CHOICE.format(sentence=shlex.quote(sentence), alone=alone, offer=_OFFER if alone else "")


def _alone(spec: RankSpec) -> list[str]:
    """Return the arguments of env(1) for the only rank of a job: it sees its own device only, as device 0."""
    changed = {name: value for name, value in _ALONE.items() if name in spec.env}
    devices = list(filter(None, spec.env.get(VISIBLE_DEVICES, "").split(",")))
    if len(devices) != 1:
        changed[VISIBLE_DEVICES] = devices[spec.local_rank] if spec.local_rank < len(devices) else str(spec.local_rank)
    return [
        *(f"-u {shlex.quote(name)}" for name in sorted(spec.env) if re.fullmatch(_NOT_ALONE, name)),
        *(f"{name}={shlex.quote(value)}" for name, value in changed.items()),
    ]


def _assigned(name: str, value: str) -> str:
    """Return a variable as a word for env(1), or "" if the shell that runs the script has its own."""
    if re.fullmatch(_OF_A_SESSION, name):
        return ""
    if is_secret(name, value) or Masker().text(value) != value:
        return f'{name}="${{{name}:?}}"' if _is_name(name) else ""
    return shlex.quote(f"{name}={value}")


def _is_name(name: str) -> bool:
    """Whether a shell has variables of this name."""
    return name.isascii() and name.isidentifier()


@attrs.define(eq=False, repr=False)
class _Secrets:
    """The variables that a script takes the secrets of a command from, by name."""

    values: dict[str, str]

    def hide(self, secret: str, name: str) -> str:
        """Return the name of a variable between NULs, which no argument contains.

        It is the one that has this value, else one with the name of the option.
        """
        secret = re.sub(r"\0(\w+)\0", lambda found: self.values[found[1]], secret)
        own = re.sub(r"\W", "_", name, flags=re.ASCII).upper()
        known = [variable for variable, value in self.values.items() if value == secret]
        if known:
            own = known[0]
        elif own in self.values or not _is_name(own):
            own = next(f"SECRET_{n}" for n in itertools.count(1) if f"SECRET_{n}" not in self.values)
        self.values[own] = secret
        return f"\0{own}\0"


def _arguments(spec: RankSpec) -> list[str]:
    """Return the words of the command as a shell reads them, each secret in them as a variable."""
    secrets = _Secrets({name: value for name, value in spec.env.items() if is_secret(name, value) and _is_name(name)})
    return [_quoted(word) for word in Masker(hide=secrets.hide).arguments(spec.argv)]


def _quoted(word: str) -> str:
    """Quote a word for a shell; text between NULs is the name of a variable."""
    parts = enumerate(word.split("\0"))
    quoted = [f'"${{{part}:?}}"' if number % 2 else shlex.quote(part) for number, part in parts if part]
    return "".join(quoted) or "''"
