"""Datasets on disk, and their comparison with a copy."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from ascend_runner.services import staging

Tree = dict[str, tuple[object, ...]]


def make(top: Path, *, files: int = 20, size: int = 1000) -> Path:
    """Make a dataset: files of several sizes, links, an empty directory, times of long ago."""
    for number in range(files):
        folder = top / f"class-{number % 3}" / f"part-{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"sample-{number}"
        path.write_bytes(f"{number} ".encode() * (size * number // 10))
        os.utime(path, ns=(0, 10**18 + number * 1_234_567))
    (top / "empty").mkdir()
    (top / "link").symlink_to("class-0/part-0/sample-0")
    (top / "class-0" / "locked").write_bytes(b"locked")
    (top / "class-0" / "locked").chmod(0o440)
    (top / "class-1").chmod(0o555)
    return top


def read(top: Path) -> Tree:
    """Return everything in a directory but the runner's own files: kind, permissions, time and contents by path.

    A file may be writable or not.
    """
    found: Tree = {}
    for folder, folders, names in os.walk(top):
        for name in (*folders, *names):
            path = Path(folder, name)
            status = path.lstat()
            if folder == str(top) and staging.is_own(name):
                continue
            mode = status.st_mode & ~0o222 if stat.S_ISREG(status.st_mode) else status.st_mode
            contents: object = os.readlink(path) if path.is_symlink() else None
            if stat.S_ISREG(status.st_mode):
                contents = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(top))] = (oct(mode), status.st_mtime_ns, contents)
    return found
