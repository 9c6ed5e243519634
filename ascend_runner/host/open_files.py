"""Lists the files that processes have open, from /proc: processes of our pid namespace that this user may inspect."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ascend_runner.host.host import Host


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
