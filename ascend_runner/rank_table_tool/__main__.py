"""`ascend-rank-table` and `python -m ascend_runner.rank_table_tool`: the command line, after a Ctrl-C-proof start."""

from __future__ import annotations

import sys

# `python -m` puts the current folder first: a user's json.py would be taken for Python's own.
if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):  # Python 3.11's -P leaves it out
    del sys.path[0]

INTERRUPTED = 130


def main() -> int:
    """Run one command; the exit status."""
    try:
        from ascend_runner.rank_table_tool.main import main as run  # it takes a moment, in which a user may give up

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
