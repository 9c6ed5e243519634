"""`ascend-runner`, for which equal stop signals are copies of one for an hour: a busy machine delivers copies late."""

from __future__ import annotations

from ascend_runner.guardian import signal_sets

signal_sets.ONE_SIGNAL = 3600.0

if __name__ == "__main__":
    from ascend_runner.__main__ import main

    main()
