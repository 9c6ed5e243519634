"""The tool without its console script: python -m ascend_runner.rank_table_tool COMMAND."""

from __future__ import annotations

import sys

from ascend_runner.rank_table_tool.main import main

if __name__ == "__main__":
    sys.exit(main())
