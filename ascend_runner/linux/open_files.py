"""Which processes have which files open, as /proc tells it: those of the own pid namespace whom one may look at."""

from __future__ import annotations

import os

from ascend_runner.annotations import TYPE_CHECKING, NamedTuple

from .cgroup import read

if TYPE_CHECKING:
    from collections.abc import Iterator


class OpenFile(NamedTuple):
    """One process and one file that it has open: a path, or such as "socket:[4711]"."""

    pid: int
    target: str


def open_files(root: str = "") -> Iterator[OpenFile]:
    """Walk all processes' fds but the own; whoever is gone, or somebody else's, is passed over."""
    for name in _names(f"{root}/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        for fd in _names(f"{root}/proc/{name}/fd"):
            try:
                yield OpenFile(int(name), os.readlink(f"{root}/proc/{name}/fd/{fd}"))
            except OSError:
                continue


def name_of(pid: int, root: str = "") -> str:
    """Name a process for people: "4711 (python)"."""
    name = read(f"{root}/proc/{pid}/comm").decode(errors="replace").strip()
    return f"{pid} ({name})" if name else str(pid)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
