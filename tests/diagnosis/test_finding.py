"""How a finding reads on the failure screen."""

from __future__ import annotations

import pytest

from ascend_runner.diagnosis.finding import Accused, Finding, Peer, accused_words, lines, peer_words


def test_exception() -> None:
    """The traceback stands for the log, and then what a chain of exceptions began with."""
    finding = Finding(
        traceback=("Traceback (most recent call last):", "ValueError: loss is nan at step 17"),
        origin="KeyError: 'x'",
        origin_place="data.py:5 in load",
        last_lines=("not shown",),
    )

    assert [
        "| Traceback (most recent call last):",
        "| ValueError: loss is nan at step 17",
        "began  KeyError: 'x' (data.py:5 in load)",
    ] == lines(finding)


def test_everything_else() -> None:
    """Without an exception the last lines stand there; then what it means, the code, whom it blames, and the plog."""
    finding = Finding(
        meaning="killed for lack of memory: limit 64.0 GiB, peak 64.0 GiB",
        last_lines=("step 16", "step 17"),
        code="EI0006",
        code_kind="usually points at a peer",
        code_meaning="no connection to a peer",
        points_at=(Peer(rank_id=3, server_id="10.0.0.5", device_id=1),),
        plog_path="/log/plog-1_2.log",
        plog_error="[ERROR] HCCL(1,python): x",
    )

    assert [
        "| step 16",
        "| step 17",
        "means  killed for lack of memory: limit 64.0 GiB, peak 64.0 GiB",
        "code   EI0006, usually points at a peer: no connection to a peer",
        "blames rank 3 (device 1 on server 10.0.0.5)",
        "plog   /log/plog-1_2.log",
        "       [ERROR] HCCL(1,python): x",
    ] == lines(finding)


@pytest.mark.parametrize(
    ("words", "accused"),
    [
        ("rank 0 only complains of rank 3: look there first", Accused(3, accusers=(0,))),
        (
            "ranks 0-2 only complain of rank 3 (device 1 on server 10.0.0.5): look there first",
            Accused(3, "10.0.0.5", 1, (0, 1, 2)),
        ),
    ],
)
def test_accused_words(words: str, accused: Accused) -> None:
    """Who complains, of whom, and where to look is one sentence."""
    assert words == accused_words(accused)


def test_nothing_found() -> None:
    """Where nothing was found nothing is said."""
    assert [] == lines(Finding())


@pytest.mark.parametrize(
    ("words", "peer"),
    [
        ("rank 3", Peer(rank_id=3)),
        ("rank 3 (device address 29.1.1.1)", Peer(rank_id=3, device_ip="29.1.1.1")),
        ("device 1 on server 10.0.0.5", Peer(server_id="10.0.0.5", device_id=1)),
        ("server 10.0.0.5", Peer(server_id="10.0.0.5")),
        ("an unnamed peer", Peer()),
    ],
)
def test_peer_words(words: str, peer: Peer) -> None:
    """A peer is named by all that is known of it."""
    assert words == peer_words(peer)
