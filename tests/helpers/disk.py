"""A disk that is slow, hangs, or fails: a directory mounted with bindfs, whose server is limited, stopped or killed.

A stopped server is a hung disk: system calls on it do not return, and some of them cannot be interrupted by SIGKILL. A
killed one is a disk that is lost: each call fails with ENOTCONN until it is mounted again.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ascend_runner.guardian import process_tree, sweep
from tests.helpers.program import ending_with_this_process
from tests.helpers.waiting import LIMIT, wait_until


class Disk:
    """One mounted directory. `path` is what the program uses, `content` the same files on the real disk."""

    def __init__(self, folder: Path, rate: int = 0) -> None:
        """Prepare a disk below `folder`; `rate` limits writes to it, in bytes per second."""
        self.path = folder / "disk"
        self.content = folder / "content"
        self.path.mkdir()
        self.content.mkdir()
        limit = [f"--write-rate={rate}"] if rate else []
        # With locks, close(2) asks the server as well, as on NFS: it hangs or fails like any other call.
        # The server ends with the thread that starts it: a killed test leaves no disk behind that hangs.
        self._command = [
            *ending_with_this_process(),
            "bindfs",
            "-f",
            "--multithreaded",
            "--enable-lock-forwarding",
            *limit,
            str(self.content),
            str(self.path),
        ]
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The pid of the server; 0 without one."""
        return self._server.pid if self._server else 0

    def mount(self) -> None:
        """Mount it, again if it was lost.

        Raises:
            OSError: It cannot be mounted here.
        """
        self.unmount()
        for entry in Path(self.path).iterdir():  # made while nothing was mounted, which bindfs(1) refuses
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self._server = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
        server = self._server
        wait_until(lambda: os.path.ismount(self.path) or server.poll() is not None)
        if not os.path.ismount(self.path):
            words = server.communicate()[1].decode(errors="replace")
            raise OSError(f"bindfs cannot mount {self.path}: status {server.returncode}, {words}")

    def inject(self, name: str) -> None:
        """Let it HANG, RESPOND again, be LOST, or MOUNT it again."""
        if name == "MOUNT":
            self.mount()
        elif self._server and self._server.poll() is None:
            self._server.send_signal({"HANG": signal.SIGSTOP, "RESPOND": signal.SIGCONT, "LOSE": signal.SIGKILL}[name])
            if name == "HANG":
                wait_until(self._is_stopped)

    def _is_stopped(self) -> bool:
        """Whether each thread of the server is stopped: until then some answer."""
        threads = [process_tree.look(int(name)) for name in os.listdir(f"/proc/{self.pid}/task")]
        return all(thread is None or thread.state == "T" for thread in threads)

    def unmount(self) -> None:
        """Kill the server, so that every call that hangs returns, and remove the mount. May be called twice."""
        if self._server:
            self._server.kill()
            self._server.wait()
            if self._server.stderr:
                self._server.stderr.close()
            self._server = None
            umount = shutil.which("umount") or "umount"
            subprocess.run([umount, "--lazy", str(self.path)], capture_output=True, check=False)


def is_possible() -> bool:
    """Whether such a disk can be mounted here: it needs bindfs, /dev/fuse and, mostly, root."""
    if not shutil.which("bindfs"):
        return False
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Path(folder))
        try:
            disk.mount()
        except OSError:
            return False
        finally:
            disk.unmount()
    return True


SPAWN = """
import os, sys
held = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
os.write(held, b"x")
print("ready", flush=True)
sys.stdin.readline()
print(os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ), flush=True)
sys.stdin.readline()
"""


@contextmanager
def child_in_exec(folder: Path) -> Iterator[tuple[int, int]]:
    """Start a process whose child hangs in execve(2), where it closes a file of a hung disk; yield the pids of both."""
    hung = Disk(folder)
    hung.mount()
    command = [sys.executable, "-c", SPAWN, str(hung.path / "log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdin
            assert parent.stdout
            assert b"ready\n" == parent.stdout.readline()
            hung.inject("HANG")
            parent.stdin.write(b"\n")
            parent.stdin.flush()
            yield parent.pid, int(parent.stdout.readline())
        finally:
            hung.unmount()
            sweep.kill_below(parent.pid, LIMIT)
            parent.kill()
