"""Start one training process per Ascend NPU of this node, watch them, and name the cause of a failure.

The public names are imported when they are first used (PEP 562): the guardian, which starts here too, must stay small.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing is not imported yet: a directory in PYTHONPATH may hold another (see import_path.py)

if TYPE_CHECKING:
    from ascend_runner import errors, rank_table
    from ascend_runner.errors import AscendRunnerError, JobFailedError
    from ascend_runner.library import check, launch, plan
    from ascend_runner.rank_library import CurrentRank, Platform, current_rank, platform, prepare
    from ascend_runner.record.rank_record import Outcome, RankRecord
    from ascend_runner.supervision.causes import (
        Ending,
        Exited,
        HangDetected,
        LimitReached,
        NodeFinding,
        PeerFailed,
        SignalReceived,
        Slowdown,
        SpawnFailed,
    )
    from ascend_runner.training.checkpoints import latest_checkpoint
    from ascend_runner.training.rank_calls import beat, on_checkpoint, saved

__all__ = [
    "AscendRunnerError",
    "CurrentRank",
    "Ending",
    "Exited",
    "HangDetected",
    "JobFailedError",
    "LimitReached",
    "NodeFinding",
    "Outcome",
    "PeerFailed",
    "Platform",
    "RankRecord",
    "SignalReceived",
    "Slowdown",
    "SpawnFailed",
    "beat",
    "check",
    "current_rank",
    "errors",
    "latest_checkpoint",
    "launch",
    "on_checkpoint",
    "plan",
    "platform",
    "prepare",
    "rank_table",
    "saved",
]
__version__ = "0.2.0"


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


_HOMES = {
    "ascend_runner.errors": {"AscendRunnerError", "JobFailedError"},
    "ascend_runner.library": {"check", "launch", "plan"},
    "ascend_runner.rank_library": {"CurrentRank", "Platform", "current_rank", "platform", "prepare"},
    "ascend_runner.record.rank_record": {"Outcome", "RankRecord"},
    "ascend_runner.supervision.causes": {
        "Ending",
        "Exited",
        "HangDetected",
        "LimitReached",
        "NodeFinding",
        "PeerFailed",
        "SignalReceived",
        "Slowdown",
        "SpawnFailed",
    },
    "ascend_runner.training.checkpoints": {"latest_checkpoint"},
    "ascend_runner.training.rank_calls": {"beat", "on_checkpoint", "saved"},
}  # the others are modules

if not TYPE_CHECKING:  # a type checker takes the names from above and reports all others

    def __getattr__(name: str) -> object:
        from importlib import import_module  # noqa: PLC0415  the guardian does without

        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = next((home for home, names in _HOMES.items() if name in names), None)
        if home is None:
            return import_module(f"ascend_runner.{name}")
        found = getattr(import_module(home), name)
        if home.endswith("library"):
            # The first import of the package `plan` makes it an attribute; the function replaces it.
            import_module("ascend_runner.plan")
            globals().update(plan=import_module("ascend_runner.library").plan)
        return found
