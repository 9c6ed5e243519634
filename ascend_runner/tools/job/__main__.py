"""`ascend-job` and `python -m ascend_runner.tools.job`: the entry point, which handles an early Ctrl-C."""

from __future__ import annotations

import gc
import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):  # Python 3.11: -P
    del sys.path[0]  # the current directory

from ascend_runner.import_path import put_in_order

put_in_order()

INTERRUPTED = 130


def main() -> int:
    """Run one command and return the exit status."""
    gc.disable()  # as in the runner: modules do not become garbage
    try:
        # Imported here so that Ctrl-C during the imports does not print a traceback.
        from ascend_runner.tools.job.main import main as run  # noqa: PLC0415

        gc.freeze()
        gc.enable()
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
