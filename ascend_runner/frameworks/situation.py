"""The records of this room: what the ranks of a node are started in, and what follows for their variables."""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Callable, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascend_runner.platforms.node import Node


def _unresolved(name: str) -> str:
    return name


class Situation(NamedTuple):
    """What the ranks of this node are started in.

    `rank_ids` are those of this node, in local order, of `rank_size` in all. `table_path` is the converted rank table
    that they are to read; None: there is none, they find each other at node 0. `cores` are this node's (None: not
    known). `resolve` makes an address of a host's name, for those frameworks that take no names.
    """

    node: Node
    rank_ids: tuple[int, ...]
    rank_size: int
    table_path: str | None
    environ: Mapping[str, str]
    cores: int | None = None
    isolate_devices: bool = False
    resolve: Callable[[str], str] = _unresolved


class Process(NamedTuple):
    """A process beside the ranks: the same command, with these variables, a log of its own and no rank."""

    name: str
    variables: Mapping[str, str]
    unset: frozenset[str] = frozenset()


class Changes(NamedTuple):
    """What is changed in the environment: `unset` first, then `job` for every rank, then each rank's own in `ranks`.

    `notes` say what was cleaned and why, `warnings` what is odd but works.
    """

    job: Mapping[str, str] = {}
    ranks: tuple[Mapping[str, str], ...] = ()
    unset: frozenset[str] = frozenset()
    processes: tuple[Process, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def environment_of(self, local_rank: int, environ: Mapping[str, str]) -> dict[str, str]:
        """Give the whole environment of a rank."""
        return {**_without(environ, self.unset), **self.job, **self.ranks[local_rank]}

    def environment_beside(self, process: Process, environ: Mapping[str, str]) -> dict[str, str]:
        """Give the whole environment of a process beside the ranks."""
        return {**_without({**_without(environ, self.unset), **self.job}, process.unset), **process.variables}


def together(parts: Sequence[Changes], nproc: int) -> Changes:
    """Put the changes of several subjects together; of two that set the same variable the later one counts."""
    return Changes(
        job={name: value for part in parts for name, value in part.job.items()},
        ranks=tuple(
            {name: value for part in parts if part.ranks for name, value in part.ranks[local_rank].items()}
            for local_rank in range(nproc)
        ),
        unset=frozenset().union(*(part.unset for part in parts)),
        processes=tuple(process for part in parts for process in part.processes),
        notes=tuple(note for part in parts for note in part.notes),
        warnings=tuple(warning for part in parts for warning in part.warnings),
    )


def _without(environ: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in names}
