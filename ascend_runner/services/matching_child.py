"""A program that searches lines for regular expressions, so that a search that takes too long can be given up.

Its arguments are the seconds of CPU time for one search, and the expressions. It reads requests from stdin and writes
answers to stdout; the kernel kills it if a search takes longer. `services.matching` runs its source, so it imports
nothing of the package.
"""

import json
import os
import re
import signal
import struct
import sys

REQUEST = struct.Struct("HI")  # number of the expression, and length of the lines that follow


def main() -> None:
    """Answer requests until stdin is closed."""
    seconds = float(sys.argv[1])
    expressions = [re.compile(os.fsencode(pattern)) for pattern in sys.argv[2:]]
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    while True:
        head = sys.stdin.buffer.read(REQUEST.size)
        if len(head) < REQUEST.size:
            return
        number, length = REQUEST.unpack(head)
        answers = []
        for line in sys.stdin.buffer.read(length).split(b"\n"):
            signal.setitimer(signal.ITIMER_PROF, seconds)
            match = expressions[number].search(line)
            found = match.groupdict() if match else {}
            answer = {name: value.decode("latin-1") for name, value in found.items() if value is not None}
            answers.append(answer if match else None)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        sys.stdout.write(json.dumps(answers) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
