"""Keeps processes alive until stdin ends, even after SIGKILL, as if they hung in a driver.

usage: holder.py [--now] PID...    A process that exits stops on its way out (ptrace(2), PTRACE_O_TRACEEXIT) and waits
for this one; with --now it is stopped from the start.
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
