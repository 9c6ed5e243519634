"""Start one training process per Ascend NPU of this node, watch them, and name the cause of a failure."""

from __future__ import annotations

__version__ = "0.1.0"
