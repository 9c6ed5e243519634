"""A rank that writes a known stream of lines and keeps a book of it: what was written, and when it began to die.

usage: chatter.py BOOK RANK_PLAN...    the plan of this rank is the argument at RANK_ID, words joined by commas
plan words: write=N (bytes), flood=N, nap=MS, exit=N, die=SIGNAL, ignore=SIGNAL, linger (until a signal ends it),
            child=HOW (as actor.py), forks=N (that many sleeping children)
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
import time

import actor

ENTRY = struct.Struct("=QQ")  # bytes written, time of the own death (ns, monotonic; 0: told to die, or never)
CHUNK = 4096


def line(number: int) -> bytes:
    """Give the line of this number: text of a varying length that tells its own place."""
    return b"%d:%s\n" % (number, b"x" * (number * 7919 % 200))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no KeyboardInterrupt, no traceback: only the known stream is written
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    rank_id = int(os.environ["RANK_ID"])
    with open(sys.argv[1], "r+b") as file:
        book = mmap.mmap(file.fileno(), 0)
    writer = Writer(book, rank_id)
    for word in sys.argv[2 + rank_id].split(","):
        name, _, value = word.partition("=")
        if name in {"write", "flood"}:
            writer.write(int(value))
        elif name == "nap":
            time.sleep(int(value) / 1000)
        elif name == "exit":
            writer.note_death()
            os._exit(int(value))
        elif name == "die":
            writer.note_death()
            actor.die(value)
        elif name == "linger":
            actor.sleep("")
        elif name == "ignore":
            actor.ignore(value)
        elif name == "child":
            actor.leave_child(value)
        elif name == "forks":
            for _ in range(int(value)):
                if os.fork() == 0:
                    signal.pause()
                    os._exit(0)


class Writer:
    def __init__(self, book: mmap.mmap, rank_id: int) -> None:
        self.book = book
        self.place = ENTRY.size * rank_id
        self.written = 0
        self.number = 0

    def write(self, size: int) -> None:
        """Write about so many bytes, in writes that need not end at a line."""
        pieces = []
        while sum(map(len, pieces)) < size:
            pieces.append(line(self.number))
            self.number += 1
        data = b"".join(pieces)
        for start in range(0, len(data), CHUNK):
            rest = data[start : start + CHUNK]
            while rest:
                count = os.write(1, rest)
                self.written += count
                struct.pack_into("=Q", self.book, self.place, self.written)
                rest = rest[count:]

    def note_death(self) -> None:
        struct.pack_into("=Q", self.book, self.place + 8, time.monotonic_ns())


if __name__ == "__main__":
    main()
