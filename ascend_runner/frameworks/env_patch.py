"""What changes in the environment of the ranks: the output of this room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs


@attrs.frozen(kw_only=True)
class AuxiliaryProcess:
    """A process without a rank: it runs the same command with these variables and has a log of its own."""

    name: str
    variables: Mapping[str, str]
    unset: frozenset[str] = frozenset()


@attrs.frozen(kw_only=True)
class EnvPatch:
    """Changes of an environment: `unset` first, then `job` for every rank, then each rank's own in `ranks`.

    `notes` say what was removed and why, `warnings` what is odd but may work.
    """

    job: Mapping[str, str] = {}
    ranks: tuple[Mapping[str, str], ...] = ()
    unset: frozenset[str] = frozenset()
    processes: tuple[AuxiliaryProcess, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def environment_of_rank(self, local_rank: int, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the whole environment of a rank."""
        return {**_without(environ, self.unset), **self.job, **self.ranks[local_rank]}

    def environment_of_process(self, process: AuxiliaryProcess, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the whole environment of a process without a rank."""
        return {**_without({**_without(environ, self.unset), **self.job}, process.unset), **process.variables}


def merge(patches: Sequence[EnvPatch], nproc: int) -> EnvPatch:
    """Merge patches for `nproc` ranks; if two of them set the same variable, the later one wins."""
    return EnvPatch(
        job={name: value for patch in patches for name, value in patch.job.items()},
        ranks=tuple(
            {name: value for patch in patches if patch.ranks for name, value in patch.ranks[local_rank].items()}
            for local_rank in range(nproc)
        ),
        unset=frozenset().union(*(patch.unset for patch in patches)),
        processes=tuple(process for patch in patches for process in patch.processes),
        notes=tuple(note for patch in patches for note in patch.notes),
        warnings=tuple(warning for patch in patches for warning in patch.warnings),
    )


def _without(environ: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in names}
