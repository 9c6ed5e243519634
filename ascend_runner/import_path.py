"""The order in which this program finds its modules: PYTHONPATH and the current directory are meant for the ranks."""

from __future__ import annotations

import os
import sys

OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def put_in_order() -> None:
    """Let the standard library come first, then this package, then installed packages, then everything else.

    A user's typing.py or signal.py would otherwise be taken for Python's own. What Python has imported before, such as
    a sitecustomize.py and what it imports, stays as it is.
    """
    standard = os.path.dirname(os.__file__)
    zipped = f"python{sys.version_info[0]}{sys.version_info[1]}.zip"
    python = [
        folder
        for folder in sys.path
        if folder in {standard, os.path.join(standard, "lib-dynload")} or os.path.basename(folder) == zipped
    ]
    first = sys.path.index(python[0]) if python else 0
    installed, others = sys.path[first:], sys.path[:first]  # the latter: PYTHONPATH and the script's directory
    sys.path[:] = dict.fromkeys([*python, OWN, *installed, *others])
