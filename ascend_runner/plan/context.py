"""What a plan depends on besides the settings: the command, the environment, and facts of the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs


@attrs.frozen
class Command:
    """The command to run: the program that was found for it, and its words."""

    executable: str
    argv: tuple[str, ...]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PlanContext:
    """The environment, the caller's working directory and facts of the machine.

    `cores` is the number of cores that this node may use (None: unknown). Facts that take long to find, or are rarely
    needed, are functions: `is_folder` looks at a path, `own_addresses` lists the addresses of this machine, and
    `resolve` turns a host name into an address.
    """

    environ: Mapping[str, str]
    cwd: str
    host_name: str
    is_folder: Callable[[str], bool]
    own_addresses: Callable[[], Sequence[str]] = tuple
    resolve: Callable[[str], str] = str
    cores: int | None = None
