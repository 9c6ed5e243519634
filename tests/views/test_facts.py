"""The facts about a job, in the words that all views share."""

from __future__ import annotations

from typing import Any, Final

import attrs
import pytest

from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.finding import CollectiveGroup, Finding, Peer, StackGroup
from ascend_runner.record.job_record import CauseRecord, CheckpointRecord, Condition, JobRecord, StepRecord
from ascend_runner.record.rank_record import RankRecord, RankState
from ascend_runner.views import facts

NOW = 1_795_000_000.0
STEP = StepRecord(step=1200, steps=5000, seconds=0.615, loss=2.3125, at=NOW - 12)


@pytest.mark.parametrize(
    ("expected", "code", "kind"),
    [
        (("code", "EI0006 (usually caused by a peer): no peer"), "EI0006", Kind.SECONDARY),
        (("code", "HCCL 9 (usually the root cause): no peer"), "HCCL 9", Kind.ROOT),
        (("code", "507015 (this rank or a peer may be at fault): no peer"), "507015", Kind.EITHER),
        (("means", "no peer (this rank or a peer may be at fault)"), "Connection closed by peer", Kind.EITHER),
        (("means", "no peer"), "No module named", Kind.ROOT),
    ],
)
def test_code_and_phrase(expected: tuple[str, str], code: str, kind: Kind) -> None:
    """A phrase has no code to show, so its line has the label and the text of a meaning."""
    assert expected == facts.explained(code, kind.value, "no peer")


@pytest.mark.parametrize(
    ("text", "last", "now"),
    [
        ("1200 of 5000, 0.615 s per step, loss 2.312, 12 s ago", STEP, NOW),
        ("1200 of 5000, 0.615 s per step, loss 2.312", STEP, None),
        ("7", StepRecord(step=7), NOW),
        ("", StepRecord(loss=2.5), NOW),
    ],
)
def test_step(text: str, last: StepRecord, now: float | None) -> None:
    """It has the figures that are known, and its age where that matters."""
    assert text == facts.step(last, now)


def test_checkpoint() -> None:
    """It is named with its step, the ranks that it lacks, and its path."""
    last = CheckpointRecord(at=NOW - 65, step=7, path="checkpoint-7", missing=(1,))

    assert "step 7, without rank 1, checkpoint-7" == facts.checkpoint(last)
    assert "step 7, 1 min 5 s ago, without rank 1, checkpoint-7" == facts.checkpoint(last, NOW)


@pytest.mark.parametrize(
    ("text", "peer"),
    [
        ("rank 3 (device 1 on server 10.0.0.5)", Peer(rank_id=3, server_id="10.0.0.5", device_id=1)),
        ("rank 3 (device address 29.1.1.1)", Peer(rank_id=3, device_ip="29.1.1.1")),
        ("server 10.0.0.5", Peer(server_id="10.0.0.5")),
        ("an unnamed peer", Peer()),
    ],
)
def test_peer(text: str, peer: Peer) -> None:
    """It is described by all that is known about it."""
    assert text == facts.peer(peer)


@pytest.mark.parametrize(
    ("why", "writers"),
    [
        ("no output expected: only rank 0 prints", (0,)),
        ("no output expected: only ranks 0, 3 print", (0, 3)),
        ("", (0, 1, 3)),  # the other one may hang
        ("", ()),
    ],
)
def test_ranks_that_never_print(why: str, writers: tuple[int, ...]) -> None:
    """If at most half of the ranks print, the others are not quiet."""
    ranks = tuple(
        RankRecord(
            rank_id=number,
            state=RankState.RUNNING,
            log_size=9 if number in writers else 0,
            last_output_after=100.0 if number in writers else None,
        )
        for number in range(4)
    )
    job = JobRecord(ranks=ranks, started_at=NOW - 200)
    silences, _succeeded = job.silences(NOW)

    assert why == facts.why_silent(job)
    assert {*(writers if why else range(4))} == {*silences}


def test_ranks_that_a_condition_singles_out() -> None:
    """A hang names the few ranks that are elsewhere, as its warning does, and a slow training its slow rank."""
    stacks = (
        StackGroup(rank_ids=(2,), state="sleeping", frames=("load_batch (data.py:3)",)),
        StackGroup(rank_ids=(0, 1, 3), state="sleeping", frames=("all_reduce (train.py:7)",)),
    )
    hanging = Condition(condition="hanging", sentence="", since=NOW, facts={"outlier": "rank 2 in load_batch"})
    slow = Condition(condition="slow", sentence="", since=NOW, facts={"rule": "straggler", "rank_id": 1})
    drop = Condition(condition="slow", sentence="", since=NOW, facts={"rule": "drop", "rank_id": 3})

    assert {2: "outlier"} == facts.singled_out(JobRecord(conditions=(hanging,), hang=stacks))
    assert {1: "slow"} == facts.singled_out(JobRecord(conditions=(slow, drop), hang=stacks))


@pytest.mark.parametrize(
    ("others", "is_told"),
    [
        ({"conditions": (Condition(condition="hanging", sentence="", since=NOW),)}, True),
        ({"cause": CauseRecord(kind="hang")}, True),
        ({}, False),  # it hangs no longer
    ],
)
def test_collectives_of_a_hang(others: dict[str, Any], *, is_told: bool) -> None:
    """What the ranks wait in is told as long as the job hangs, and when that has ended it."""
    waits = (CollectiveGroup(rank_ids=(0,), group="0", number=7, is_waiting=True),)
    found = facts.facts(JobRecord(collectives=waits, **others))

    assert is_told is bool([*facts.chosen(found, facts.COLLECTIVE)])


def test_quiet_rank() -> None:
    """A rank whose output is observed is named if it writes nothing for much longer than the others."""
    ranks = [
        RankRecord(rank_id=one, state=RankState.RUNNING, log_size=1, last_output_after=90.0 - 60 * (one == 2))
        for one in range(3)
    ]
    job = JobRecord(started_at=NOW, ranks=tuple(ranks))
    sentence = "rank 2 has been quiet for 1 min 10 s, the others for at most 10 s"

    assert [("quiet", sentence)] == [*facts.chosen(facts.facts(job, NOW + 100), "quiet")]
    assert [] == [*facts.chosen(facts.facts(job), "quiet")]


@pytest.mark.parametrize(
    ("expected", "certainty", "candidates"),
    [
        (("also", "rank 1 may be the cause"), "likely", (1,)),
        (("candidates", "may be rank 1 or rank 2"), "open", (1, 2)),
        (("candidates", "may be rank 2, or a rank that was stopped"), "open", (2,)),
    ],
)
def test_doubts(expected: tuple[str, str], certainty: str, candidates: tuple[int, ...]) -> None:
    """Other ranks that may be the cause are named as such."""
    ranks = (RankRecord(rank_id=0, state=RankState.STOPPED), RankRecord(rank_id=2, state=RankState.FAILED))
    cause = CauseRecord(rank_id=2, certainty=certainty, candidates=candidates)

    assert [expected] == [*facts.doubts(JobRecord(cause=cause, ranks=ranks))]


FULL: Final = Finding(code="disk", code_meaning="a disk is full", next="delete some files")
NO_PEER: Final = Finding(code="EI0006", code_kind="usually caused by a peer", code_meaning="no peer", next="wait")
OOM: Final = ("means", "killed by the OOM killer")


@pytest.mark.parametrize(
    ("expected", "finding"),
    [
        ([("means", "a disk is full"), ("next", "delete some files")], FULL),
        ([OOM], Finding(meaning=OOM[1])),
        ([OOM], attrs.evolve(FULL, meaning=OOM[1])),
        (
            [OOM, ("code", "EI0006 (usually caused by a peer): no peer"), ("next", "wait")],
            attrs.evolve(NO_PEER, meaning=OOM[1]),
        ),
    ],
)
def test_meaning(expected: list[tuple[str, str]], finding: Finding) -> None:
    """One line says what the end of a rank means, another one what its error code does, and one what to do about it."""
    assert expected == [*facts.chosen([*facts.of_finding(finding)], "means", "code", "next")]
