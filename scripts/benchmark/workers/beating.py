"""A rank that shows 10,000 times a second that it is alive, by the library or by a datagram each time.

Arguments: the file for its figures, the seconds, and `library` or `datagrams`. It writes how often it did, and the mean
and the longest time of one call in seconds.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import suppress

import ascend_runner

PATH, SECONDS, HOW = sys.argv[1], float(sys.argv[2]), sys.argv[3]
EACH_SECOND = 10_000
SOCKET = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
SOCKET.setblocking(False)


def send(step: int) -> None:
    """Send one datagram, without the library's limit of ten a second."""
    with suppress(BlockingIOError):
        SOCKET.sendto(b"WATCHDOG=1\nX_STEP=%d" % step, os.environ["NOTIFY_SOCKET"])


def main() -> None:
    call = ascend_runner.beat if HOW == "library" else send
    start = time.monotonic()
    calls, longest, total = 0, 0.0, 0.0
    while (now := time.monotonic()) < start + SECONDS:
        while calls < (now - start) * EACH_SECOND:
            before = time.monotonic()
            call(calls)
            taken = time.monotonic() - before
            calls, longest, total = calls + 1, max(longest, taken), total + taken
        time.sleep(0.001)
    with open(PATH, "w") as file:
        file.write(f"{calls} {total / calls} {longest}")


main()
