"""Who is named of those that failed at once, and whom complaints point at."""

from __future__ import annotations

import itertools
from signal import SIGABRT, SIGHUP, SIGKILL, SIGSEGV, SIGTERM

import pytest

from ascend_runner.diagnosis.codes import CODES
from ascend_runner.diagnosis.finding import Accused, Peer
from ascend_runner.diagnosis.first_cause import Death, Place, Suspicion, accused, by_suspicion, suspicion
from ascend_runner.diagnosis.log_evidence import Evidence
from ascend_runner.supervision.events import Ending

FAILED = Ending(exit_code=1)
PLACES = {0: Place("10.0.0.4", 0), 1: Place("10.0.0.4", 1), 2: Place("10.0.0.5", 0), 3: Place("10.0.0.5", 1)}


def by_itself(rank_id: int, ending: Ending = FAILED) -> Death:
    """Make a death that the rank's log explains."""
    return Death(rank_id, ending, Evidence(exception="ValueError: loss is nan"))


def complaining(rank_id: int, *peers: Peer, code: str = "EI0006") -> Death:
    """Make a death whose log reports a code and names peers."""
    return Death(rank_id, FAILED, Evidence(code=CODES[code], peers=peers))


@pytest.mark.parametrize(
    ("expected", "death"),
    [
        (Suspicion.FAILED_BY_ITSELF, by_itself(0)),
        (Suspicion.FAILED_BY_ITSELF, Death(0, Ending(signum=SIGSEGV))),
        (Suspicion.FAILED_BY_ITSELF, Death(0, Ending(signum=SIGABRT))),
        (Suspicion.FAILED_BY_ITSELF, Death(0, Ending(signum=SIGKILL), is_out_of_memory=True)),
        (Suspicion.FAILED_BY_ITSELF, complaining(0, code="EI0011")),
        (Suspicion.ENDED_FROM_OUTSIDE, Death(0, Ending(signum=SIGKILL))),
        (Suspicion.ENDED_FROM_OUTSIDE, Death(0, Ending(signum=SIGTERM))),
        (Suspicion.ENDED_FROM_OUTSIDE, Death(0, Ending(signum=SIGHUP))),
        (Suspicion.ENDED_FROM_OUTSIDE, Death(0, Ending(exit_code=143))),
        (Suspicion.ITSELF_OR_A_PEER, complaining(0, code="EI0013")),
        (Suspicion.COMPLAINS_OF_A_PEER, complaining(0)),
        (Suspicion.COMPLAINS_OF_A_PEER, complaining(0, code="EI0015")),
    ],
)
def test_suspicion(expected: Suspicion, death: Death) -> None:
    """Each death is judged by how it ended and by the code that it reported."""
    assert expected is suspicion(death)


def test_tie_in_every_order() -> None:
    """Of deaths in one wake-up the rank that failed by itself goes first, and one that complains last."""
    deaths = [by_itself(3), Death(1, Ending(signum=SIGKILL)), complaining(2, code="EI0013"), complaining(0)]

    for order in itertools.permutations(deaths):
        assert tuple(deaths) == by_suspicion(order)


def test_order_of_the_kernel() -> None:
    """Where it is known, it decides between all who do not complain of a peer; those who do still give way."""
    deaths = [Death(1, Ending(signum=SIGKILL)), complaining(0), by_itself(3)]

    assert (deaths[0], deaths[2], deaths[1]) == by_suspicion(deaths, is_ordered=True)
    assert (deaths[2], deaths[0], deaths[1]) == by_suspicion(deaths)


def test_equal_suspicion_keeps_the_order() -> None:
    """Among those that are equally likely the order in which they were seen holds."""
    assert (by_itself(5), by_itself(2)) == by_suspicion([by_itself(5), by_itself(2)])


def test_all_complain_of_one() -> None:
    """Where all that failed complain of one rank, that is the accused, with the place that the rank table gives it."""
    deaths = [complaining(rank_id, Peer(rank_id=2)) for rank_id in (0, 1)]

    assert Accused(2, "10.0.0.5", 0, accusers=(0, 1)) == accused(deaths, PLACES)


def test_place_gives_the_rank() -> None:
    """A message that names server and device points at the rank there, whatever rank of a smaller group it names."""
    deaths = [complaining(0, Peer(rank_id=1, server_id="10.0.0.5", device_id=1))]

    assert Accused(3, "10.0.0.5", 1, accusers=(0,)) == accused(deaths, PLACES)


def test_place_that_nobody_knows() -> None:
    """Without a table that knows the place, it is told as it stands in the message."""
    deaths = [complaining(0, Peer(server_id="10.0.0.9", device_id=7))]

    assert Accused(None, "10.0.0.9", 7, accusers=(0,)) == accused(deaths, {})


def test_chain_of_complaints() -> None:
    """Of a chain of complaints the end is accused: the one who complains of nobody."""
    deaths = [
        complaining(0, Peer(rank_id=1)),
        complaining(4, Peer(rank_id=1)),
        complaining(1, Peer(rank_id=3)),
    ]

    assert Accused(3, "10.0.0.5", 1, accusers=(1,)) == accused(deaths, PLACES)


def test_circle_of_complaints() -> None:
    """Where all complain of each other the one whom most complain of is accused, and nobody of himself."""
    deaths = [
        complaining(0, Peer(rank_id=1), Peer(rank_id=0)),
        complaining(1, Peer(rank_id=2)),
        complaining(2, Peer(rank_id=1)),
    ]

    assert Accused(1, "10.0.0.4", 1, accusers=(0, 2)) == accused(deaths, PLACES)


def test_one_that_failed_by_itself() -> None:
    """Where one failed by itself nobody else is accused."""
    deaths = [by_itself(0), complaining(1, Peer(rank_id=0))]

    assert accused(deaths, PLACES) is None


@pytest.mark.parametrize("deaths", [[], [complaining(1)], [complaining(1, Peer(rank_id=1))]])
def test_nobody_named(deaths: list[Death]) -> None:
    """Where nobody, or only oneself, is named, nobody is accused."""
    assert accused(deaths, PLACES) is None
