"""Access to /proc, /sys, /dev and /etc of this machine.

`Host()` is the machine itself. `Host(root)` reads the same paths below a directory, so that a test can describe a
machine as a tree of files. All paths are given as they are on a machine, with a leading slash.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import attrs

BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
READ_LIMIT: Final = 1 << 20  # bytes; mountinfo of a node with many containers has some 100 KB


def _without_trailing_slash(root: str) -> str:
    return root.rstrip("/")


@attrs.frozen
class Host:
    """A machine. A missing or unreadable file reads as empty: any file may be absent."""

    root: str = attrs.field(default="/", converter=_without_trailing_slash)

    @property
    def is_this_machine(self) -> bool:
        """Whether this is the machine that the runner runs on, not a tree of files."""
        return not self.root

    @property
    def boot_id(self) -> str:
        """The id of the current boot, which all containers of a machine share; "" if it is unknown."""
        return self.read_text(BOOT_ID).strip()

    def path(self, path: str) -> str:
        """Return the path to open for a path of the machine."""
        return self.root + path

    def exists(self, path: str) -> bool:
        """Whether there is something at this path."""
        return os.path.exists(self.path(path))

    def listdir(self, folder: str) -> list[str]:
        """List the names in a directory, sorted."""
        try:
            return sorted(os.listdir(self.path(folder)))
        except OSError:
            return []

    def read_bytes(self, path: str) -> bytes:
        """Read a file, at most READ_LIMIT bytes of it."""
        try:
            with open(self.path(path), "rb") as file:
                return file.read(READ_LIMIT)
        except OSError:
            return b""

    def read_text(self, path: str) -> str:
        """Read a file as text; bytes that are not UTF-8 are replaced."""
        return self.read_bytes(path).decode(errors="replace")

    def read_lines(self, path: str) -> list[str]:
        """Read a file's lines, without their ends."""
        return self.read_text(path).splitlines()


def open_files(host: Host) -> Iterator[tuple[int, str]]:
    """Yield each pair of another process and a file that it has open: a path, or something like "socket:[4711]".

    Processes that have ended or may not be inspected are left out.
    """
    for name in host.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        for fd in host.listdir(f"/proc/{name}/fd"):
            try:
                yield int(name), os.readlink(host.path(f"/proc/{name}/fd/{fd}"))
            except OSError:
                continue


def name_of(host: Host, pid: int) -> str:
    """Name a process for people: "4711 (python)"."""
    name = host.read_text(f"/proc/{pid}/comm").strip()
    return f"{pid} ({name})" if name else str(pid)
