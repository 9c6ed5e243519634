"""Keeps processes from dying, until stdin ends: not even SIGKILL frees them, as if they hung in a driver.

usage: holder.py [--now] PID...    ptrace(2) with PTRACE_O_TRACEEXIT: whoever dies stops on its way out, and waits for
us; with --now it does nothing else from now on, either.
"""

from __future__ import annotations

import ctypes
import os
import sys

PTRACE_SEIZE = 0x4206  # linux/ptrace.h
PTRACE_INTERRUPT = 0x4207
PTRACE_O_TRACEEXIT = 1 << 6


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    nothing, option = ctypes.c_void_p(0), ctypes.c_void_p(PTRACE_O_TRACEEXIT)
    is_now = sys.argv[1] == "--now"
    for pid in map(ctypes.c_long, map(int, sys.argv[1 + is_now :])):
        failed = libc.ptrace(PTRACE_SEIZE, pid, nothing, option)
        if failed or (is_now and libc.ptrace(PTRACE_INTERRUPT, pid, nothing, nothing)):
            sys.exit(os.strerror(ctypes.get_errno()))
    print("held", flush=True)
    sys.stdin.read()


main()
