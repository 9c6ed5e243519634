"""Questions about the command: its conda environment, its program, its script and its working directory."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ascend_runner.engines import conda
from ascend_runner.errors import CommandError, SettingsError
from ascend_runner.host import executables
from ascend_runner.plan import scripts
from ascend_runner.plan.context import PlanContext
from ascend_runner.plan.job import JobSpec
from ascend_runner.settings import suggestions
from ascend_runner.settings.model import Settings


def conda_variables(name: str, settings: Settings, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables of the conda environment that applies to a command.

    Raises:
        SettingsError: the environment that --conda-env or the image names does not exist.
    """
    found = conda.find(name, environ, settings.conda_env)
    if found is None:
        return {}
    if not os.path.exists(found.python):  # another Python would run the command instead
        option = "--conda-env" if settings.conda_env else conda.DEFAULT
        value = settings.conda_env or environ[conda.DEFAULT]
        raise SettingsError(f"{option} is {value!r}, but {found.python!r} does not exist")

    return found.variables


def find_program(name: str, context: PlanContext) -> str:
    """Find the program of a command that is not a relative path.

    Raises:
        CommandError: the program is not found or not executable.
    """
    return _find_executable(name, context.cwd, context.environ.get("PATH", os.defpath))


def check_workdir(workdir: str) -> None:
    """Check the working directory that all processes share.

    Raises:
        SettingsError: it does not exist.
    """
    if not os.path.isdir(workdir):
        raise SettingsError(f"--workdir is {workdir!r}, expected 'device', 'inherit' or an existing directory")


def check_script(job: JobSpec, here: str) -> None:
    """Check that a relative script which exists in the current folder exists where each process runs, too.

    Raises:
        SettingsError: it is missing in one of the working directories.
    """
    word = scripts.relative_script(job.processes[0].argv)
    if not word or not os.path.isfile(os.path.join(here, word)):
        return

    for process in job.processes:
        if not os.path.exists(os.path.join(process.cwd, word)):
            raise SettingsError(
                f"{word!r} is in {here}, but not in {process.cwd}, the working directory of {process.title}; use its"
                " full path or --workdir inherit"
            )


def check_program(job: JobSpec) -> None:
    """Check that a command which is a relative path exists in the working directory.

    Raises:
        CommandError: the program is not found or not executable.
    """
    first = job.processes[0]
    if executables.is_relative(first.executable):
        _find_executable(first.executable, first.cwd, "")


def _find_executable(name: str, cwd: str, search_path: str) -> str:
    try:
        return executables.find_executable(name, cwd=cwd, search_path=search_path)
    except CommandError as error:
        hint = suggestions.of_script(name)
        raise CommandError(f"{error}{hint}", exit_status=error.exit_status) from error
