"""Chooses the rows, prints the table, and ends whatever is left when it is interrupted."""

from __future__ import annotations

import os
import signal
import sys

from ascend_runner.linux import descendants
from benchmark import fault_rows, launchers, table
from benchmark.rows import ROWS as SPEED_ROWS

ROWS = (*SPEED_ROWS, *fault_rows.ROWS)


def main() -> int:
    """Print the rows that the words name, or all."""
    names = [row.__name__ for row in ROWS]
    unknown = set(sys.argv[1:]) - set(names)
    if unknown:
        sys.stderr.write(f"no row {', '.join(sorted(unknown))}; the rows are {', '.join(names)}\n")
        return 2

    descendants.become_subreaper()  # whatever a launcher leaves becomes ours, and is found below
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        print(launchers.machine())
        print(table.head())
        for measure in ROWS:
            if not sys.argv[1:] or measure.__name__ in sys.argv[1:]:
                for row in measure():
                    print(table.line(row), flush=True)
    except KeyboardInterrupt:
        return 130
    finally:
        while descendants.children(os.getpid()):
            descendants.kill_all()
            descendants.reap_adopted()
    return 0


if __name__ == "__main__":
    sys.exit(main())
