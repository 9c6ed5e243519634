"""The rank that is named first of several failed ones, and the peer that the others suspect."""

from __future__ import annotations

import itertools
from signal import SIGABRT, SIGHUP, SIGKILL, SIGSEGV, SIGTERM

import pytest

from ascend_runner.diagnosis.catalogue import ours
from ascend_runner.diagnosis.finding import Finding, Peer
from ascend_runner.diagnosis.root_cause import Death, Place, Suspicion, by_suspicion, suspected_peer, suspicion
from ascend_runner.supervision.causes import Ending

FAILED = Ending(exit_code=1)
KILLED = Ending(signum=SIGKILL)
PLACES = {0: Place("10.0.0.4", 0), 1: Place("10.0.0.4", 1), 2: Place("10.0.0.5", 0), 3: Place("10.0.0.5", 1)}


def by_itself(rank_id: int) -> Death:
    """Make a rank whose log explains its end."""
    return Death(rank_id=rank_id, ending=FAILED, evidence=Finding(exception="ValueError: loss is nan"))


def reporting(rank_id: int, *peers: Peer, code: str = "EI0006") -> Death:
    """Make a rank whose log reports a code and names peers."""
    evidence = Finding(code=code, code_kind=ours().codes[code].kind.value, points_at=peers)
    return Death(rank_id=rank_id, ending=FAILED, evidence=evidence)


@pytest.mark.parametrize(
    ("expected", "death"),
    [
        (Suspicion.FAILED_BY_ITSELF, by_itself(0)),
        (Suspicion.FAILED_BY_ITSELF, Death(rank_id=0, ending=Ending(signum=SIGSEGV))),
        (Suspicion.FAILED_BY_ITSELF, Death(rank_id=0, ending=Ending(signum=SIGABRT))),
        (Suspicion.FAILED_BY_ITSELF, Death(rank_id=0, ending=KILLED, evidence=Finding(is_out_of_memory=True))),
        (Suspicion.FAILED_BY_ITSELF, reporting(0, code="EI0011")),
        (Suspicion.ENDED_FROM_OUTSIDE, Death(rank_id=0, ending=KILLED)),
        (Suspicion.ENDED_FROM_OUTSIDE, Death(rank_id=0, ending=Ending(signum=SIGTERM))),
        (Suspicion.ENDED_FROM_OUTSIDE, Death(rank_id=0, ending=Ending(signum=SIGHUP))),
        (Suspicion.ENDED_FROM_OUTSIDE, Death(rank_id=0, ending=Ending(exit_code=143))),
        (Suspicion.ITSELF_OR_A_PEER, reporting(0, code="EI0013")),
        (Suspicion.REPORTS_A_PEER, reporting(0)),
        (Suspicion.REPORTS_A_PEER, reporting(0, code="EI0015")),
    ],
)
def test_suspicion(expected: Suspicion, death: Death) -> None:
    """Each rank is judged by how it ended and by the code that it reported."""
    assert expected is suspicion(death)


def test_tie_in_every_order() -> None:
    """Of the ranks of one wake-up, one that failed by itself comes first, and one that reports a peer last."""
    deaths = [by_itself(3), Death(rank_id=1, ending=KILLED), reporting(2, code="EI0013"), reporting(0)]

    for order in itertools.permutations(deaths):
        assert tuple(deaths) == by_suspicion(order)


def test_order_of_the_kernel() -> None:
    """If known, it decides between all ranks that do not report a peer; those that do still give way."""
    deaths = [Death(rank_id=1, ending=KILLED), reporting(0), by_itself(3)]

    assert (deaths[0], deaths[2], deaths[1]) == by_suspicion(deaths, is_ordered=True)
    assert (deaths[2], deaths[0], deaths[1]) == by_suspicion(deaths)


def test_equal_suspicion_keeps_the_order() -> None:
    """Ranks that are equally likely keep the order in which they were observed."""
    assert (by_itself(5), by_itself(2)) == by_suspicion([by_itself(5), by_itself(2)])


def test_all_report_one_peer() -> None:
    """If all failed ranks report one peer, it is suspected, with its place from the rank table."""
    deaths = [reporting(rank_id, Peer(rank_id=2)) for rank_id in (0, 1)]

    assert Peer(rank_id=2, server_id="10.0.0.5", device_id=0, reported_by=(0, 1)) == suspected_peer(deaths, PLACES)


def test_place_gives_the_rank() -> None:
    """A message that names server and device points at the rank there, whatever subgroup rank it also names."""
    deaths = [reporting(0, Peer(rank_id=1, server_id="10.0.0.5", device_id=1))]

    assert Peer(rank_id=3, server_id="10.0.0.5", device_id=1, reported_by=(0,)) == suspected_peer(deaths, PLACES)


def test_unknown_place() -> None:
    """A place that is not in the rank table is reported as the message names it."""
    deaths = [reporting(0, Peer(server_id="10.0.0.9", device_id=7))]

    assert Peer(rank_id=None, server_id="10.0.0.9", device_id=7, reported_by=(0,)) == suspected_peer(deaths, {})


def test_chain_of_reports() -> None:
    """The peer at the end of a chain of reports is suspected: the one that reports no other."""
    deaths = [
        reporting(0, Peer(rank_id=1)),
        reporting(4, Peer(rank_id=1)),
        reporting(1, Peer(rank_id=3)),
    ]

    assert Peer(rank_id=3, server_id="10.0.0.5", device_id=1, reported_by=(1,)) == suspected_peer(deaths, PLACES)


def test_circle_of_reports() -> None:
    """If ranks report each other, the one that most report is suspected; no rank suspects itself."""
    deaths = [
        reporting(0, Peer(rank_id=1), Peer(rank_id=0)),
        reporting(1, Peer(rank_id=2)),
        reporting(2, Peer(rank_id=1)),
    ]

    assert Peer(rank_id=1, server_id="10.0.0.4", device_id=1, reported_by=(0, 2)) == suspected_peer(deaths, PLACES)


def test_one_that_failed_by_itself() -> None:
    """If a rank failed by itself, no peer is suspected."""
    deaths = [by_itself(0), reporting(1, Peer(rank_id=0))]

    assert suspected_peer(deaths, PLACES) is None


@pytest.mark.parametrize("deaths", [[], [reporting(1)], [reporting(1, Peer(rank_id=1))]])
def test_no_peer_named(deaths: list[Death]) -> None:
    """If no peer is named, or only the rank itself, no peer is suspected."""
    assert suspected_peer(deaths, PLACES) is None
