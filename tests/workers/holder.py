"""Keeps processes from dying, until stdin ends: not even SIGKILL frees them, as if they hung in a driver.

usage: holder.py PID...    ptrace(2) with PTRACE_O_TRACEEXIT: whoever dies stops on its way out, and waits for us.
"""

from __future__ import annotations

import ctypes
import os
import sys

PTRACE_SEIZE = 0x4206  # linux/ptrace.h
PTRACE_O_TRACEEXIT = 1 << 6


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in map(int, sys.argv[1:]):
        if libc.ptrace(PTRACE_SEIZE, ctypes.c_long(pid), ctypes.c_void_p(0), ctypes.c_void_p(PTRACE_O_TRACEEXIT)):
            sys.exit(os.strerror(ctypes.get_errno()))
    print("held", flush=True)
    sys.stdin.read()


main()
