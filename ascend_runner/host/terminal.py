"""The terminal that this process may have."""

from __future__ import annotations

import os


def is_in_background(group: int) -> bool:
    """Whether standard input is the terminal of this session and another process group is in its foreground."""
    try:
        return os.tcgetpgrp(0) != group
    except OSError:  # no terminal, or that of another session
        return False
