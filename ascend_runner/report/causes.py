"""Why a job failed, in a record and in sentences. Pure."""

from __future__ import annotations

from ascend_runner.errors import AscendRunnerError, LimitReachedError, StopRequestedError
from ascend_runner.observations import job_record
from ascend_runner.observations.job_record import CauseRecord
from ascend_runner.observations.rank_record import Outcome
from ascend_runner.report import checkpoint, stacks


def record(outcome: Outcome) -> CauseRecord | None:
    """Return the record of why the job failed, None if it did not."""
    cause, root = outcome.cause, outcome.root
    if cause is None:
        return None
    return CauseRecord(
        kind=cause.report_kind,
        sentence=sentence(outcome),
        rank_id=root.rank_id if root else cause.first_exit,
        first_exit=cause.first_exit,
        alike=root.alike if root else (),
        certainty=root.certainty.value if root else "",
        candidates=root.candidates if root else (),
        signal=cause.stop_signal,
        may_be_a_peer=bool(root and root.may_be_a_peer),
        is_a_consequence=bool(root and root.is_a_consequence),
        suspected_peer=outcome.suspected_peer,
    )


def of_error(error: AscendRunnerError) -> CauseRecord:
    """Return the record of an error because of which the runner could not run the job."""
    kinds = {StopRequestedError: "interrupted", LimitReachedError: "expired"}
    signum = error.signum if isinstance(error, StopRequestedError) else None
    return CauseRecord(kind=kinds.get(type(error), "runner_failed"), sentence=str(error), signal=signum)


def sentence(outcome: Outcome) -> str:
    """Return a sentence on why the job failed, or "" if it did not."""
    cause, root = outcome.cause, outcome.root
    if root and root.summary not in str(cause):
        if cause and cause.ending and root.rank_id != cause.rank_id:
            return f"rank {root.rank_id}{job_record.CAUSED}{root.summary}"
        return f"{cause} ({root.summary})"
    likely = "".join(of_hang(outcome, ", likely because of ", "; the cause may be "))
    return "; ".join([f"{cause}{likely}", *checkpoint.failed(outcome.unsaved)]) if cause else ""


def sentence_with_certainty(outcome: Outcome) -> str:
    """Return the sentence on why the job failed, with a note on the certainty."""
    why = record(outcome)
    return why.with_certainty(len(outcome.ranks)) if why else ""


def of_hang(outcome: Outcome, likely: str, possible: str) -> list[str]:
    """Return the ranks that the stacks of a hang single out, or nothing.

    The text begins with `likely` if they are in the same place, else with `possible`.
    """
    place = stacks.outlier(outcome.hang) if outcome.cause and outcome.cause.has_stacks else ""
    beginning = likely if len(stacks.suspects(outcome.hang)) == 1 else possible
    return [f"{beginning}{place}"] if place else []


def certainty_note(outcome: Outcome) -> str:
    """Return a note on the certainty that this rank is the cause, or "" if it is certain."""
    why = record(outcome)
    return why.certainty_note(len(outcome.ranks)) if why else ""
