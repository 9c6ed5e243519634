"""A rank that writes a known stream of lines and records how much it wrote and when it began to exit.

usage: chatter.py BOOK RANK_PLAN...    the plan of this rank is the argument at RANK_ID, words joined by commas
plan words: write=N (bytes), nap=MS, at=MS (sleep until so long after CHAOS_START), exit=N, die=SIGNAL, ignore=SIGNAL,
            stop (SIGSTOP to itself), linger (until a signal ends it), child=HOW (as actor.py),
            forks=N (that many sleeping children), chains=N (as actor.py),
            save=MS (on SIGTERM and SIGINT, save for so long, and exit; "asked.N" and "saved.N" beside BOOK tell)
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
import time

import actor  # beside this file

ENTRY = struct.Struct("=QQ")  # bytes written, time of the own death (ns, monotonic; 0: told to die, or never)
CHUNK = 4096


def line(number: int) -> bytes:
    """Return the line with this number, of varying length and with its own position in it."""
    return b"%d:%s\n" % (number, b"x" * (number * 7919 % 200))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no KeyboardInterrupt and no traceback: only the known stream
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    rank_id = int(os.environ["RANK_ID"])
    with open(sys.argv[1], "r+b") as file:
        writer = Writer(mmap.mmap(file.fileno(), 0), rank_id)
    for word in sys.argv[2 + rank_id].split(","):
        name, _, value = word.partition("=")
        perform(writer, name, value)


def perform(writer: Writer, name: str, value: str) -> None:
    if name in {"exit", "die"}:
        writer.note_death()
    if name == "write":
        writer.write(int(value))
    elif name == "nap":
        time.sleep(int(value) / 1000)
    elif name == "at":
        moment = int(os.environ["CHAOS_START"]) / 1e9 + int(value) / 1000
        time.sleep(max(0.0, moment - time.monotonic()))
    elif name == "stop":
        actor.die("STOP")
    elif name == "forks":
        fork(int(value))
    else:
        WORDS[name](value)


def end(status: str) -> None:
    os._exit(int(status))


def save(milliseconds: str) -> None:
    book = sys.argv[1].rpartition("/")[0]

    def end_later(_signum: int, _frame: object) -> None:
        actor.touch(f"{book}/asked.{os.environ['RANK_ID']}")
        time.sleep(int(milliseconds) / 1000)
        actor.touch(f"{book}/saved.{os.environ['RANK_ID']}")
        os._exit(0)

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, end_later)


def fork(count: int) -> None:
    for _ in range(count):
        if os.fork() == 0:
            signal.pause()
            os._exit(0)


class Writer:
    """Writes the stream and records it."""

    def __init__(self, book: mmap.mmap, rank_id: int) -> None:
        self.book = book
        self.place = ENTRY.size * rank_id
        self.written = 0
        self.number = 0

    def write(self, size: int) -> None:
        """Write about this many bytes, in writes that may end within a line."""
        data = bytearray()
        while len(data) < size:
            data += line(self.number)
            self.number += 1
        rest = memoryview(data)
        while rest:
            count = os.write(1, rest[:CHUNK])
            self.written += count
            struct.pack_into("=Q", self.book, self.place, self.written)
            rest = rest[count:]

    def note_death(self) -> None:
        """Record the time of the imminent exit."""
        struct.pack_into("=Q", self.book, self.place + 8, time.monotonic_ns())


WORDS = {
    "exit": end,
    "die": actor.die,
    "linger": actor.sleep,
    "ignore": actor.ignore,
    "child": actor.leave_child,
    "chains": actor.start_chains,
    "save": save,
}

if __name__ == "__main__":
    main()
