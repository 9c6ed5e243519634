"""The records of a job and its ranks: what is written is what is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import attrs
import pytest
from fastjsonschema import JsonSchemaValueException
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.diagnosis.finding import CollectiveGroup, Finding, Peer, StackGroup
from ascend_runner.members import Members, iso, plain
from ascend_runner.record.job_record import (
    SCHEMA_VERSION,
    AttemptRecord,
    CauseRecord,
    CheckpointRecord,
    Condition,
    JobRecord,
    Staged,
    StepRecord,
)
from ascend_runner.record.nodes import JobVerdict, NodeRecord
from ascend_runner.record.rank_record import RankRecord, RankState
from ascend_runner.supervision.causes import Ending, FindingKind, NodeFinding, Restart
from ascend_runner.supervision.job_machine import OF_AN_ATTEMPT, JobState, Verdict
from ascend_runner.supervision.state import Phase
from tests.helpers.reports import validate

WHOLES: Final = st.integers(-(1 << 30), 1 << 30)
COUNTS: Final = st.integers(0, 1 << 50)
SECONDS: Final = st.integers(0, 10**9).map(lambda number: number / 1000)  # a report has milliseconds
MOMENTS: Final = st.integers(10**12, 2 * 10**12).map(lambda number: number / 1000)
TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
FIELDS: Final[dict[str, st.SearchStrategy[object]]] = {
    "str": TEXTS,
    "bool": st.booleans(),
    "int": WHOLES,
    "Count": COUNTS,
    "float": SECONDS,
    "tuple[str, ...]": st.lists(TEXTS, max_size=2).map(tuple),
    "tuple[int, ...]": st.lists(WHOLES, max_size=2).map(tuple),
}


def records(record: Callable[..., Any], /, **others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for records; `others` are fields whose type does not say what they may be."""
    fields = {
        name: FIELDS[plain] if plain == type_ else st.none() | FIELDS[plain]
        for name, type_ in record.__annotations__.items()
        if (plain := type_.replace(" | None", "")) in FIELDS
    }
    return st.builds(record, **{**fields, **others})


def some(records: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for a few of them."""
    return st.lists(records, max_size=2).map(tuple)


PEERS: Final = records(Peer)
CAUSES: Final = st.none() | records(CauseRecord, suspected_peer=st.none() | PEERS)
ENDINGS: Final = st.builds(Ending, st.integers(0, 255)) | st.builds(
    Ending, st.just(0), st.integers(1, 64), st.booleans()
)
RANKS: Final = records(
    RankRecord,
    ending=st.none() | ENDINGS,
    state=st.sampled_from(RankState),
    first_output_after=st.none() | SECONDS,
    last_output_after=st.none() | SECONDS,
    signals=some(st.tuples(st.integers(1, 64), SECONDS)),
    variables=st.dictionaries(TEXTS, TEXTS, max_size=2),
    finding=st.none() | records(Finding, points_at=some(PEERS)),
    last_lines=st.just(()),
).map(lambda rank: rank if rank.is_started else attrs.evolve(rank, started_after=0.0))
JOBS: Final = records(
    JobRecord,
    state=st.none() | st.sampled_from([*JobState, *(state for state in Phase if state in OF_AN_ATTEMPT)]),
    held_until=st.none() | MOMENTS,
    started_at=MOMENTS,
    cause=CAUSES,
    ranks=st.lists(RANKS, max_size=2, unique_by=lambda rank: rank.rank_id).map(tuple),
    hang=some(records(StackGroup)),
    collectives=some(records(CollectiveGroup)),
    attempts=some(
        records(
            AttemptRecord,
            started_at=MOMENTS,
            cause=CAUSES,
            restart=st.none() | st.sampled_from(Restart),
            verdict=st.none() | st.sampled_from(Verdict),
            log_starts=st.dictionaries(WHOLES, COUNTS, max_size=2),
        )
    ),
    staged=some(records(Staged)),
    conditions=some(
        records(Condition, since=MOMENTS, facts=st.dictionaries(st.sampled_from(["rule", "own"]), WHOLES, max_size=2))
    ),
    last_step=st.none() | records(StepRecord, at=MOMENTS),
    last_checkpoint=st.none() | records(CheckpointRecord, at=MOMENTS),
    findings=some(records(NodeFinding, at=MOMENTS, kind=st.sampled_from(FindingKind))),
    verdict=st.none() | records(JobVerdict),
    nodes=some(records(NodeRecord)),
    schema_version=st.just(SCHEMA_VERSION),
)
NAMES: Final = st.sampled_from([name for kind in (JobRecord, RankRecord, Finding) for name in kind.__annotations__])
ANYTHING: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | MOMENTS.map(iso),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
)


@given(RANKS, MOMENTS)
def test_rank_is_read_as_it_was_written(rank: RankRecord, began: float) -> None:
    """No fact about a rank is lost in a report, nor in the answer of a running job."""
    written = json.loads(json.dumps(plain(rank.encode(began))))

    assert rank == RankRecord.decode(Members(written), began)


@given(JOBS)
def test_job_is_read_as_it_was_written(job: JobRecord) -> None:
    """No fact about a job is lost in its report."""
    assert job == JobRecord.decode(Members(json.loads(json.dumps(job.encode()))))


@given(JOBS)
def test_job_is_written_as_the_schema_says(job: JobRecord) -> None:
    """Every report has all members that the schema in the package describes, with their types, and no others."""
    validate(json.loads(json.dumps(job.encode())))


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("new", 1),
        ("state", "parked"),
        ("status", -1),
        ("started_at", "today"),
        ("ranks", [{}]),
        ("ranks", [{**RankRecord(rank_id=3, state=RankState.UNKNOWN).encode(0.0), "signals": [[15]]}]),
        ("schema_version", 1),
    ],
)
def test_report_that_is_none(member: str, value: object) -> None:
    """The tests notice a member that the schema does not have, or that is another than it says."""
    with pytest.raises(JsonSchemaValueException):
        validate({**JobRecord().encode(), member: value})


@given(st.dictionaries(NAMES, ANYTHING))
def test_anything_is_read(report: dict[str, object]) -> None:
    """A report may have been written by anybody: members of other types are as if they were missing."""
    job = JobRecord.decode(Members(report))

    assert job == JobRecord.decode(Members(job.encode()))


def test_older_report_is_read() -> None:
    """What it lacks is unknown; the unknown state of a later one, too."""
    job = JobRecord.decode(Members({"state": "parked", "ranks": [{"rank_id": 3, "state": "parked"}, {"pid": 7}]}))

    assert JobRecord(ranks=(RankRecord(rank_id=3, state=RankState.UNKNOWN),), schema_version=0) == job


@pytest.mark.parametrize("ending", [None, Ending(7), Ending(signum=11, core_dumped=True)])
def test_state_follows_from_the_ending(ending: Ending | None) -> None:
    """Unless the runner has stopped the rank, or it was not started."""
    expected = RankState.FAILED if ending else RankState.NOT_KILLED

    assert expected is RankRecord(rank_id=0, ending=ending).state
    assert RankState.STOPPED is RankRecord(rank_id=0, ending=ending, state=RankState.STOPPED).state


@pytest.mark.parametrize(
    ("expected", "ranks", "cause"),
    [
        ("rank 2 failed (likely the cause)", 8, {"certainty": "likely"}),
        ("rank 2 failed", 8, {"certainty": "certain"}),
        ("rank 2 failed", 1, {"certainty": "open"}),
        ("rank 2 failed (cause unclear)", 1, {"certainty": "open", "candidates": [2, 9]}),
        ("rank 2 failed (likely the cause)", 1, {"certainty": "likely", "is_agreed": True}),
        ("", 8, {"certainty": "open", "sentence": ""}),
    ],
)
def test_cause_of_an_attempt(expected: str, ranks: int, cause: dict[str, object]) -> None:
    """It is as uncertain as it was on the screen; a rank that is alone on its node needs a rival elsewhere."""
    starts = {str(number): 0 for number in range(ranks)}
    record = Members({"cause": {"sentence": "rank 2 failed", **cause}, "log_starts": starts})

    assert expected == AttemptRecord.decode(record).sentence


def test_sentence_with_certainty() -> None:
    """A sentence that names the cause says how certain that is where it does so."""
    sentences = ("rank 5 caused the failure: x", "rank 5 failed: x")
    victim, culprit = (CauseRecord(sentence=sentence, certainty="likely") for sentence in sentences)

    assert "rank 5 caused the failure (likely): x" == victim.with_certainty(8)
    assert "rank 5 failed: x (likely the cause)" == culprit.with_certainty(8)
