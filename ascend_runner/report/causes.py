"""The member `cause` of a report: why the job failed. Pure."""

from __future__ import annotations

from typing import Final

from ascend_runner.observations import cause_text
from ascend_runner.observations.rank_record import Outcome
from ascend_runner.report import checkpoint, stacks
from ascend_runner.supervision.causes import (
    Cause,
)

NO_CAUSE: Final = {
    "kind": "",
    "sentence": "",
    "rank_id": None,
    "first_exit": None,
    "alike": (),
    "certainty": "",
    "candidates": (),
    "signal": None,
    "may_be_a_peer": False,
    "is_a_consequence": False,
    "suspected_peer": None,
}


def member(cause: Cause, outcome: Outcome) -> dict[str, object]:
    """Return the member about the cause of the failure.

    `kind` is "rank_failed", "rank_not_started", "interrupted", "hang", "slow", "unhealthy" (by --inspect stop),
    "expired" (at its time limit) or "runner_failed". `rank_id` is the rank that caused it, if any; `first_exit` is the
    one that ended first, whose exit status is the job's. `alike` are the ranks that failed for the same reason,
    `rank_id` included. `certainty` is "certain", "likely" or "open"; `candidates` are
    the ranks that may have caused it if that is open. `signal` is the one that stopped the runner, SIGKILL if it was
    killed. `may_be_a_peer` is true if another rank may have failed before, and `is_a_consequence` if the evidence says
    that one did; `suspected_peer` is set if all failed ranks only report a peer.
    """
    root, rank_id = outcome.root, cause.first_exit
    return {
        "kind": cause.report_kind,
        "sentence": sentence(outcome),
        "rank_id": rank_id if root is None else root.rank_id,
        "first_exit": rank_id,
        "alike": root.alike if root else (),
        "certainty": root.certainty if root else "",
        "candidates": root.candidates if root else (),
        "signal": cause.stop_signal,
        "may_be_a_peer": bool(root and root.may_be_a_peer),
        "is_a_consequence": bool(root and root.is_a_consequence),
        "suspected_peer": outcome.suspected_peer,
    }


def sentence(outcome: Outcome) -> str:
    """Return a sentence on why the job failed, or "" if it did not."""
    cause, root = outcome.cause, outcome.root
    if root and root.summary not in str(cause):
        if cause and cause.ending and root.rank_id != cause.rank_id:
            return f"rank {root.rank_id}{cause_text.CAUSED}{root.summary}"
        return f"{cause} ({root.summary})"
    likely = "".join(of_hang(outcome, ", likely because of ", "; the cause may be "))
    return "; ".join([f"{cause}{likely}", *checkpoint.failed(outcome.unsaved)]) if cause else ""


def sentence_with_certainty(outcome: Outcome) -> str:
    """Return the sentence on why the job failed, with a note on the certainty."""
    return cause_text.with_certainty(sentence(outcome), certainty_note(outcome))


def of_hang(outcome: Outcome, likely: str, possible: str) -> list[str]:
    """Return the ranks that the stacks of a hang single out, or nothing.

    The text begins with `likely` if they are in the same place, else with `possible`.
    """
    place = stacks.outlier(outcome.hang) if outcome.cause and outcome.cause.has_stacks else ""
    beginning = likely if len(stacks.suspects(outcome.hang)) == 1 else possible
    return [f"{beginning}{place}"] if place else []


def certainty_note(outcome: Outcome) -> str:
    """Return a note on the certainty that this rank is the cause, or "" if it is certain."""
    root = outcome.root
    is_alone = len(outcome.ranks) == 1 and not (root and root.candidates)
    return cause_text.certainty_note(root.certainty.value, is_alone=is_alone) if root else ""
