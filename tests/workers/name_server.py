"""A name server on 127.0.0.1 that answers SECONDS late: each name has the address 127.0.0.1, and no other."""

from __future__ import annotations

import socket
import sys
import threading

FLAGS = b"\x81\x80"  # a response, without an error
FOUND = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4\x7f\0\0\1"  # the name of the question, A, IN, for 1 s
HEADER, IPV4 = 12, b"\0\1"


def main() -> None:
    """Answer each query after as many seconds as the argument says; 0 for never."""
    server = socket.socket(type=socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    print("up", flush=True)
    while True:
        query, client = server.recvfrom(512)
        end = query.index(b"\0", HEADER) + 5
        is_found = query[end - 4 : end - 2] == IPV4
        head = query[:2] + FLAGS + b"\0\1" + (b"\0\1" if is_found else b"\0\0") + bytes(4)
        answer = head + query[HEADER:end] + (FOUND if is_found else b"")
        if seconds := float(sys.argv[1]):
            threading.Timer(seconds, server.sendto, (answer, client)).start()


if __name__ == "__main__":
    main()
