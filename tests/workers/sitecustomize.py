"""Holds an interpreter at the import of the module HOLD_AT: makes the file HOLD_DIR/held, and waits for HOLD_DIR/go.

At the import of the module EXHAUSTED_AT, memory runs out.
"""

from __future__ import annotations

import os
import sys
import time


class Hold:
    """Finds no module, but sees the names being imported."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        """Wait or raise if this is the module."""
        if name == os.environ.get("EXHAUSTED_AT"):
            raise MemoryError
        if name == os.environ.get("HOLD_AT"):
            folder = os.environ["HOLD_DIR"]
            with open(f"{folder}/held", "w"):
                pass
            while not os.path.exists(f"{folder}/go"):
                time.sleep(0.002)


sys.meta_path.insert(0, Hold)
