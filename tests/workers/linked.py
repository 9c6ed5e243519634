"""A guardian whose runner is node 1 of a job, with its link process; the first argument is its settings.

The runner leaves a grandchild behind that ignores SIGTERM, prints the pids of itself, of its link process and of the
grandchild, and performs the second argument: "wait", or "exit" with status 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

from ascend_runner.guardian import guard, process_tree
from ascend_runner.link import channel
from ascend_runner.link.link import Link, Surroundings
from ascend_runner.link.messages import Local
from tests.helpers import fake_rules


def main(tell_guardian: Callable[[str], None]) -> int:
    settings = channel.decode(sys.argv[1].encode(), channel.ORDERS)
    link = Link(settings, Surroundings(environ={}, warn=print, tell_guardian=tell_guardian), run=fake_rules.RUN)
    link.open()
    link.tell(Local(state="running"))
    while not link.news():
        time.sleep(0.01)
    shell = ["/bin/sh", "-c", "trap '' TERM; echo ready; exec sleep 1000"]
    grandchild = subprocess.Popen(shell, stdout=subprocess.PIPE, start_new_session=True)
    assert grandchild.stdout
    grandchild.stdout.readline()
    print(os.getpid(), *link.pids, grandchild.pid, flush=True)
    if sys.argv[2] == "exit":
        link.close()
        return 0
    time.sleep(1000)
    return 1


if __name__ == "__main__":
    process_tree.become_subreaper()
    os._exit(guard.guard(main, lambda sentence: print(sentence, file=sys.stderr, flush=True)))
