"""Input and output of this package: the launch context of a node's ranks, and the changes to their environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from ascend_runner.platforms.node import Node


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LaunchContext:
    """The circumstances in which this node's ranks are launched.

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


@attrs.frozen(kw_only=True, eq=False, repr=False)
class EnvPatch:
    """Changes of an environment: `unset` first, then `job` for every process, then each rank's own in `ranks`.

    `beside` has the changes for auxiliary processes by their names: each runs the same command, without a rank.
    `notes` say what was removed and why.
    """

    job: Mapping[str, str] = {}
    ranks: tuple[Mapping[str, str], ...] = ()
    unset: frozenset[str] = frozenset()
    beside: Mapping[str, EnvPatch] = {}
    notes: tuple[str, ...] = ()

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment that all processes share."""
        return {**{name: value for name, value in environ.items() if name not in self.unset}, **self.job}

    def environments_of_ranks(self, environ: Mapping[str, str]) -> list[dict[str, str]]:
        """Return the complete environment of each rank, in local order."""
        shared = self.environment(environ)
        return [{**shared, **own} for own in self.ranks]

    def environment_of_process(self, name: str, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the complete environment of a process without a rank."""
        return self.beside[name].environment(self.environment(environ))


def merge(patches: Sequence[EnvPatch], nproc: int) -> EnvPatch:
    """Merge patches for `nproc` ranks; if two of them set the same variable, the later one wins."""
    return EnvPatch(
        job={name: value for patch in patches for name, value in patch.job.items()},
        ranks=tuple(
            {name: value for patch in patches if patch.ranks for name, value in patch.ranks[local_rank].items()}
            for local_rank in range(nproc)
        ),
        unset=frozenset().union(*(patch.unset for patch in patches)),
        beside={name: process for patch in patches for name, process in patch.beside.items()},
        notes=tuple(note for patch in patches for note in patch.notes),
    )
