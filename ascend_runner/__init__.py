"""Start one training process per Ascend NPU of this node, watch them, and name the cause of a failure.

The public names are imported when they are first used (PEP 562): the guardian, which starts here too, must stay small.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing is not imported yet: a directory in PYTHONPATH may hold another (see import_path.py)

if TYPE_CHECKING:
    from ascend_runner import errors, rank_table
    from ascend_runner.library import CurrentRank, Platform, current_rank, launch, platform, prepare
    from ascend_runner.rank_record import Outcome

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


if not TYPE_CHECKING:  # a type checker takes the names from above and reports all others

    def __getattr__(name: str) -> object:
        from importlib import import_module  # noqa: PLC0415  the guardian does without

        if name in {"errors", "rank_table"}:
            return import_module(f"ascend_runner.{name}")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = "ascend_runner.rank_record" if name == "Outcome" else "ascend_runner.library"
        return getattr(import_module(module), name)
