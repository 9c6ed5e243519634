"""The error of a command that requires a missing package of the extra `view`."""

from __future__ import annotations

from ascend_runner.errors import SettingsError


class MissingExtraError(SettingsError):
    """A command requires a package that is not installed."""

    def __init__(self, command: str, error: ModuleNotFoundError) -> None:
        package = str(error.name).partition(".")[0]
        super().__init__(f"{command} requires the package {package}: pip install 'ascend-runner[view]'")
