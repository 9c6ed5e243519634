"""`ascend-runner` and `python -m ascend_runner`: the guardian first, then, in its child, the command line."""

from __future__ import annotations

import os
import sys

from .linux import guardian


def main() -> None:
    """Run the command line under a guardian and end the process with its status."""
    try:
        status = guardian.guard(_run)
    except OSError as error:
        sys.stderr.write(f"[ascend-runner] ERROR cannot start: {error}\n")
        status = 125

    # Nothing is left to be finalised here, and finalising takes as long as starting a rank.
    os._exit(status)


def _run() -> int:
    from .cli import main as run  # after the fork: the guardian stays small

    return run(sys.argv[1:], os.environ)


if __name__ == "__main__":
    main()
