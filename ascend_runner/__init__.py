"""Start one training process per Ascend NPU of this node, watch them, and name the cause of a failure.

The public names. They are brought in when they are first asked for (PEP 562): the runner's first process, which also
begins here, must not pay for them.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING

if TYPE_CHECKING:
    from ascend_runner import errors, rank_table
    from ascend_runner.library import CurrentRank, Platform, current_rank, launch, platform, prepare
    from ascend_runner.supervision.outcome import Outcome

__all__ = [
    "CurrentRank",
    "Outcome",
    "Platform",
    "current_rank",
    "errors",
    "launch",
    "platform",
    "prepare",
    "rank_table",
]
__version__ = "0.1.0"


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if not TYPE_CHECKING:  # type checkers know the names from above, and shall tell of any other

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # only here

        if name in {"errors", "rank_table"}:
            return import_module(f"ascend_runner.{name}")

        home = "ascend_runner.supervision.outcome" if name == "Outcome" else "ascend_runner.library"
        return getattr(import_module(home), name)
