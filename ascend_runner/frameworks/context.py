"""What the ranks of a node are launched in: the input of this room."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from ascend_runner.platforms.node import Node


@attrs.frozen(kw_only=True)
class LaunchContext:
    """What the ranks of this node are launched in.

    `rank_ids` are those of this node in local order, `rank_size` counts the ranks of the job. `table_path` is the
    rank table for the ranks; None: there is none, and the ranks meet at node 0. `cores` is the number of cores of this
    node (None: unknown). `resolve` turns a host name into an address, for frameworks that do not accept names.
    """

    framework: str
    node: Node
    rank_ids: tuple[int, ...]
    rank_size: int
    environ: Mapping[str, str]
    table_path: str | None = None
    cores: int | None = None
    isolate_devices: bool = False
    resolve: Callable[[str], str] = str

    @property
    def nproc(self) -> int:
        """The number of ranks on this node."""
        return len(self.rank_ids)
