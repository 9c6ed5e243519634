"""Selects the rows, prints the table, and kills every process that is left when it ends."""

from __future__ import annotations

import signal
import sys

from ascend_runner.guardian import process_tree, sweep
from benchmark import (
    all_options_rows,
    checkpoint_rows,
    fault_rows,
    hang_rows,
    hold_rows,
    inspection_rows,
    launchers,
    limit_rows,
    link_rows,
    node_rows,
    performance_rows,
    table,
    top_rows,
    viewer_rows,
)
from benchmark.rows import ROWS as SPEED_ROWS

ROWS = (
    *SPEED_ROWS,
    *all_options_rows.ROWS,
    *checkpoint_rows.ROWS,
    *fault_rows.ROWS,
    *hang_rows.ROWS,
    *hold_rows.ROWS,
    *inspection_rows.ROWS,
    *limit_rows.ROWS,
    *link_rows.ROWS,
    *node_rows.ROWS,
    *performance_rows.ROWS,
    *viewer_rows.ROWS,
    *top_rows.ROWS,
)


def main() -> int:
    """Print the rows that the arguments name, or all of them."""
    names = [row.__name__ for row in ROWS]
    if {"-h", "--help"} & {*sys.argv[1:]}:
        print("usage: scripts/bench [ROW ...]\n\nrows (default: all):")
        for measure in ROWS:
            print(f"  {measure.__name__:30}{(measure.__doc__ or '').partition(chr(10))[0]}")
        return 0
    unknown = set(sys.argv[1:]) - set(names)
    if unknown:
        sys.stderr.write(f"unknown row {', '.join(sorted(unknown))}, expected one of {', '.join(names)}\n")
        return 2

    process_tree.become_subreaper()  # processes that a launcher leaves become children of this one
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
        sweep.sweep()
    return 0


if __name__ == "__main__":
    sys.exit(main())
