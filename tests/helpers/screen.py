"""Standard output and error as pipes whose readers a test starts, stalls or takes away."""

from __future__ import annotations

import os
import threading

from tests.helpers.waiting import LIMIT, wait_until


class Reader:
    """The other end of one of the outputs. Reads nothing until asked."""

    def __init__(self) -> None:
        self.fd = -1
        self.chunks: list[bytes] = []
        self.size = 0
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    @property
    def data(self) -> bytes:
        """The data read so far."""
        return b"".join(self.chunks)

    def start(self) -> None:
        """Read on, until the end."""
        if self.fd >= 0 and not self._thread.ident:
            self._thread.start()

    def read(self, size: int) -> None:
        """Read until the given number of bytes has arrived."""
        self.start()
        wait_until(lambda: self.size >= size)

    def leave(self) -> None:
        """Close the pipe, so that writers get EPIPE, even blocked ones."""
        os.close(self.fd)
        self.fd = -1

    def finish(self) -> None:
        """Read the rest; the writers must have closed the pipe, or be about to."""
        if self.fd >= 0:
            self._thread.join(LIMIT)
            assert not self._thread.is_alive(), "somebody still holds the output open"
            self.leave()

    def _run(self) -> None:
        while chunk := os.read(self.fd, 1 << 20):
            self.chunks.append(chunk)
            self.size += len(chunk)


class Screen:
    """This process' fds 1 and 2, made pipes inside `with`: `out` and `err` read them."""

    def __init__(self) -> None:
        self.out, self.err = Reader(), Reader()
        self._saved: list[int] = []
        self._threads: set[str] = set()  # those of the kernel: the runner's are unknown to `threading`

    def __enter__(self) -> Screen:
        # Not in a fixture: pytest takes both fds for itself between a test's setup and its body.
        self._threads = set(os.listdir("/proc/self/task"))
        self._saved = [os.dup(1), os.dup(2)]
        for fd, reader in ((1, self.out), (2, self.err)):
            reader.fd, writer = os.pipe()
            os.dup2(writer, fd)
            os.close(writer)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Read what was written, wait until no writer is left, and restore the outputs."""
        for reader in (self.out, self.err):
            reader.start()
        if kind is None:
            wait_until(self._is_quiet)
        for fd, saved in zip((1, 2), self._saved):
            os.dup2(saved, fd)
            os.close(saved)
        for reader in (self.out, self.err):
            reader.finish()

    def join(self) -> None:
        """Redirect stderr to stdout, as on a terminal."""
        os.dup2(1, 2)

    def _is_quiet(self) -> bool:
        readers = {str(thread.native_id) for thread in threading.enumerate() if thread.name == "reader"}
        return set(os.listdir("/proc/self/task")) <= self._threads | readers
