"""Traces processes until stdin ends, and keeps them alive even after SIGKILL, as if they hung in a driver.

usage: holder.py HOW PID...

--exit   a process that exits stops on its way out (ptrace(2), PTRACE_O_TRACEEXIT) and waits for this one
--now    it is stopped from the start
--watch  it runs and exits, but its parent is not told before this one has looked, which it never does
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

PTRACE_SEIZE = 0x4206  # linux/ptrace.h
PTRACE_INTERRUPT = 0x4207
PTRACE_O_TRACEEXIT = 1 << 6


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    how = sys.argv[1]
    nothing, option = ctypes.c_void_p(0), ctypes.c_void_p(0 if how == "--watch" else PTRACE_O_TRACEEXIT)
    for pid in map(ctypes.c_long, map(int, sys.argv[2:])):
        failed = libc.ptrace(PTRACE_SEIZE, pid, nothing, option)
        if failed and ctypes.get_errno() == errno.ESRCH:  # it has ended meanwhile, so that nothing is left to hold
            continue
        if failed or (how == "--now" and libc.ptrace(PTRACE_INTERRUPT, pid, nothing, nothing)):
            sys.exit(os.strerror(ctypes.get_errno()))
    print("held", flush=True)
    sys.stdin.read()


main()
