"""The facts that are shown while a job runs."""

from __future__ import annotations

import attrs
import pytest

from ascend_runner.diagnosis.finding import CollectiveGroup
from ascend_runner.record.facts import (
    CheckpointAsked,
    CheckpointEnded,
    CheckpointRefused,
    Escaped,
    Fact,
    HangSeen,
    RankOutput,
    RankReaped,
    Swept,
)
from ascend_runner.supervision.causes import Ending, Exited, HangDetected, LimitReached, SignalReceived
from ascend_runner.supervision.events import DeadlineReached, Emptied, Spawned
from ascend_runner.supervision.state import CheckpointRequest, Phase, State
from ascend_runner.views.progress import Progress
from tests.helpers.messages import KeptMessages
from tests.helpers.plans import job_spec, rank_spec

STARTING = State(grace=15.0)
STOPPING = attrs.evolve(
    STARTING, phase=Phase.TERMINATING, cause=SignalReceived(15), leaders=frozenset({0}), stopped=frozenset({0})
)
BOTH = attrs.evolve(STOPPING, leaders=frozenset({1, 2}))
HANG = HangDetected(60.0)
FAILURE = Exited(3, Ending(exit_code=7))
LEFT = attrs.evolve(STOPPING, cause=None, leaders=frozenset(), stragglers=frozenset({0}))
ENDED = State(grace=15.0, phase=Phase.DONE)
COMPLETE = RankOutput(rank_id=0)
LOST = RankOutput(rank_id=0, size=100, lost=10, lost_from=5)
JOB = job_spec([rank_spec(log_path="/log/0")], has_own_process_logs=True)


@pytest.mark.parametrize(
    ("levels", "seen"),
    [
        (["info"], [STARTING]),
        (["info"], [STOPPING]),
        ([], [attrs.evolve(STOPPING, cause=None)]),
        (["debug"], [Spawned(0, 4711)]),
        (["debug"], [Exited(0, Ending())]),
        ([], [RankReaped(rank_id=0, max_rss=1, user_seconds=0.0, system_seconds=0.0)]),
        (["info"], [HANG]),
        (["error"], [HangSeen((), "py-spy is not installed")]),
        (["error", "error"], [HangSeen((), collectives=(CollectiveGroup(number=7, is_waiting=True),))]),
        (["debug", "error"], [HangSeen((), no_collectives="no rank waits in a collective")]),
        (["info"], [Escaped(14.0)]),
        (["warning"], [Swept(killed={5: "sleep"}, survivors=())]),
        (["warning"], [Swept(killed={}, survivors=("rank 0: 5 (x)", "6 (y)"))]),
        ([], [COMPLETE, ENDED]),
        (["warning"], [LOST, ENDED]),
    ],
)
def test_levels(levels: list[str], seen: list[Fact]) -> None:
    """Each fact has its level; facts of every job are shown by --verbose only."""
    messages = KeptMessages()
    progress = Progress(JOB, messages)
    for fact in seen:
        progress.observe(fact, 1.0)

    assert levels == [level for level, _sentence in messages.lines]


@pytest.mark.parametrize(
    ("lines", "seen"),
    [
        (
            [
                "rank 3 failed (exit status 7); waiting up to 0.5 s for other ranks to report the cause",
                "stopping the other 2 ranks, with up to 15 s to exit (Ctrl-C to kill)",
            ],
            [(attrs.evolve(BOTH, phase=phase, cause=FAILURE), 1.0) for phase in (Phase.HOLDING, Phase.TERMINATING)],
        ),
        (
            ["rank 3 failed (exit status 7); stopping the other 2 ranks without a grace period"],
            [(attrs.evolve(BOTH, phase=Phase.TERMINATING, cause=FAILURE, grace=0.0), 1.0)],
        ),
        (
            [
                "no rank wrote any output for 60 s (--hang-timeout); collecting the stacks of all ranks",
                "stopping 2 ranks, with up to 15 s to exit (Ctrl-C to kill)",
            ],
            [(HANG, 1.0), (attrs.evolve(BOTH, cause=HANG), 1.0)],
        ),
        (
            [
                "received SIGTERM; stopping 2 ranks, with up to 15 s to exit (SIGTERM again to kill)",
                "received SIGHUP; already stopping ranks 1, 2 (SIGTERM to kill)",
                "received SIGINT; killing ranks 1, 2",
            ],
            [
                (BOTH, 1.0),
                (SignalReceived(1), 1.0),
                (attrs.evolve(BOTH, phase=Phase.KILLING, killed_by=2), 2.0),
            ],
        ),
        (
            [
                "received SIGTERM; stopping 2 ranks, with up to 15 s to exit (SIGTERM again to kill)",
                "received SIGHUP; all ranks have ended",
            ],
            [(BOTH, 1.0), (Exited(1, Ending()), 2.0), (Exited(2, Ending()), 2.0), (SignalReceived(1), 2.0)],
        ),
        (
            [
                "received SIGTERM; stopping 2 ranks, with up to 15 s to exit (SIGTERM again to kill)",
                "grace period of 15 s is over; killing ranks 1, 2",
            ],
            [(BOTH, 1.0), (attrs.evolve(BOTH, phase=Phase.KILLING), 16.0)],
        ),
        (
            ["received SIGINT; stopping 2 ranks, with up to 15 s to exit (Ctrl-C again to kill)"],
            [(attrs.evolve(BOTH, cause=SignalReceived(2)), 1.0)],
        ),
        (
            ["received SIGTERM; stopping 2 ranks, with up to 15 s to exit (SIGTERM again to kill)"],
            [(BOTH, 1.0), (attrs.evolve(BOTH, phase=Phase.KILLING), 1.0)],
        ),
        (
            [
                (
                    "all ranks have ended; stopping processes that ranks 1, 2 left behind,"
                    " with up to 15 s to exit (Ctrl-C to kill)"
                )
            ],
            [(LEFT, 1.0), (DeadlineReached(), 2.0), (DeadlineReached(), 4.0)],
        ),
        (
            [
                (
                    "rank 1 failed (exit status 7); stopping processes that it left behind,"
                    " with up to 15 s to exit (Ctrl-C to kill)"
                ),
                "grace period of 15 s is over; killing the remaining processes of rank 1",
            ],
            [
                (Exited(1, FAILURE.ending, has_stragglers=True), 1.0),
                (Exited(2, Ending()), 1.0),
                (attrs.evolve(LEFT, cause=Exited(1, FAILURE.ending), stragglers=frozenset({1})), 1.0),
                (attrs.evolve(LEFT, phase=Phase.KILLING, stragglers=frozenset({1})), 16.0),
            ],
        ),
    ],
    ids=[
        "consequence",
        "no grace",
        "hang",
        "signals",
        "signal after the end",
        "end of the grace",
        "Ctrl-C",
        "ranks of another user",
        "stragglers",
        "of a failure",
    ],
)
def test_stopping_is_never_silent(lines: list[str], seen: list[tuple[Fact, float]]) -> None:
    """Each event that begins or shortens the end of a job is reported once, when it happens, with the next step."""
    messages = KeptMessages()
    progress = Progress(job_spec([rank_spec(rank_id) for rank_id in (1, 2, 3)]), messages)
    for rank_id in (1, 2):
        progress.observe(Spawned(rank_id, 4711), 0.0)
    for fact, at in seen:
        progress.observe(fact, at)

    assert lines == messages.of("info")


ASKING = State(grace=15.0, phase=Phase.CHECKPOINTING, leaders=frozenset({0, 1}))
NEAR = attrs.evolve(ASKING, checkpoint=CheckpointRequest(before_limit=LimitReached(600.0)))
SAVE_AND_STOP = attrs.evolve(ASKING, cause=SignalReceived(15))


def asked(*reached: int) -> CheckpointAsked:
    """Return what came of a request to two ranks."""
    return CheckpointAsked(
        signum=10, reached=frozenset(reached), unreached=frozenset({0, 1} - set(reached)), seconds=60.0
    )


def test_refused_requests_are_shown_once_for_each_reason() -> None:
    """A user may send hundreds of requests to ranks that are being stopped."""
    messages = KeptMessages()
    progress = Progress(JOB, messages)
    refused = [CheckpointRefused(10)] * 2
    seen: list[Fact] = [Spawned(0, 4711), *refused, Exited(0, Ending()), *refused]
    for fact in seen:
        progress.observe(fact, 1.0)

    assert [
        "SIGUSR1 has no effect because the ranks are being stopped",
        "SIGUSR1 has no effect because no rank is running",
    ] == messages.of("info")


@pytest.mark.parametrize(
    ("lines", "seen"),
    [
        ([("info", "asked ranks 0, 1 for a checkpoint")], [ASKING, asked(0, 1), asked(0, 1)]),
        (
            [
                (
                    "warning",
                    (
                        "no rank handles SIGUSR1, so none was asked for a checkpoint;"
                        " ranks that begin to handle it within 60 s will be asked"
                    ),
                ),
                ("info", "asked rank 1 for a checkpoint, but not rank 0, which does not handle SIGUSR1"),
            ],
            [ASKING, asked(), asked(), asked(1), CheckpointEnded(asked_at=1.0, seconds=60.0)],
        ),
        (
            [
                (
                    "warning",
                    (
                        "the time limit of 10 min 0 s is near; no rank handles SIGUSR1, so none was asked for a"
                        " checkpoint; ranks that begin to handle it within 60 s will be asked"
                    ),
                )
            ],
            [NEAR, asked(), CheckpointEnded(asked_at=1.0, seconds=60.0, unasked=(0, 1))],
        ),
        (
            [
                (
                    "info",
                    (
                        "received SIGTERM; asked ranks 0, 1 for a checkpoint;"
                        " stopping them within 60 s (SIGTERM again to stop them now)"
                    ),
                )
            ],
            [SAVE_AND_STOP, asked(0, 1)],
        ),
        (
            [
                ("warning", "received SIGTERM; no rank handles SIGUSR1, so none was asked for a checkpoint"),
                ("info", "stopping 2 ranks, with up to 15 s to exit (SIGTERM again to kill)"),
            ],
            [
                SAVE_AND_STOP,
                asked(),
                CheckpointEnded(asked_at=1.0, seconds=0.0, unasked=(0, 1)),
                attrs.evolve(SAVE_AND_STOP, phase=Phase.TERMINATING),
            ],
        ),
        (
            [
                ("info", "asked ranks 0, 1 for a checkpoint"),
                (
                    "info",
                    (
                        "received SIGTERM; asked rank 1 for a checkpoint, but not rank 0, which does not handle"
                        " SIGUSR1; stopping them within 60 s (SIGTERM again to stop them now)"
                    ),
                ),
            ],
            [ASKING, asked(0, 1), SAVE_AND_STOP, asked(1)],
        ),
    ],
    ids=["again", "later", "limit", "stop", "stop without a handler", "stop while saving"],
)
def test_only_ranks_that_were_asked_are_named(lines: list[tuple[str, str]], seen: list[Fact]) -> None:
    """A line says who was asked for a checkpoint once that is known, and once for each rank."""
    messages = KeptMessages()
    progress = Progress(job_spec([rank_spec(0), rank_spec(1)]), messages)
    for fact in seen:
        progress.observe(fact, 1.0)

    assert lines == messages.lines


def test_death_of_the_guardian_is_shown() -> None:
    """The SIGTERM that the kernel sends at the death of the parent process is not one of a user."""
    messages = KeptMessages()
    killed = SignalReceived(15, guardian=4711, runner=4712)
    progress = Progress(JOB, messages)
    progress.observe(attrs.evolve(STOPPING, cause=killed), 1.0)
    progress.observe(Spawned(0, 4713), 1.0)
    progress.observe(killed, 1.0)

    hint = "send SIGTERM to pid 4712 to kill"
    assert [
        ("info", f"ascend-runner (pid 4711) was killed; stopping 1 rank, with up to 15 s to exit ({hint})"),
        ("info", f"ascend-runner (pid 4711) was killed; already stopping rank 0 ({hint})"),
    ] == [line for line in messages.lines if line[0] == "info"]


def test_ranks_that_are_still_stopping() -> None:
    """Each step of the back-off names the ranks of which any process is left, also those that were just started."""
    messages = KeptMessages()
    progress = Progress(job_spec([rank_spec(rank_id) for rank_id in range(3)]), messages)
    seen: list[Fact] = [
        *(Spawned(rank_id, 4711) for rank_id in range(3)),
        Exited(0, Ending(exit_code=7)),
        attrs.evolve(STOPPING, cause=Exited(0, Ending(exit_code=7)), leaders=frozenset({1})),
        Exited(1, Ending(), has_stragglers=True),
        DeadlineReached(),
        Exited(2, Ending()),
        DeadlineReached(),
        Emptied(1),
    ]
    for fact in seen:
        progress.observe(fact, 1.0)

    assert [
        "rank 0 failed (exit status 7); stopping the other 2 ranks, with up to 15 s to exit (Ctrl-C to kill)"
    ] == messages.of("info")
    assert ["still running: ranks 1, 2", "still running: rank 1"] == [
        sentence for _level, sentence in messages.lines if sentence.startswith("still")
    ]
