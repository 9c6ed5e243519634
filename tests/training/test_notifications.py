"""Datagrams of ranks: what sd_notify's protocol and our own names say, and nothing from what is malformed."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies

from ascend_runner.training.notifications import LONGEST, LONGEST_PAUSE, Notification, parse


@pytest.mark.parametrize(
    ("datagram", "told"),
    [
        (b"WATCHDOG=1", Notification(is_beat=True)),
        (
            b"WATCHDOG=1\nX_STEP=1200\nX_SECTION=evaluation\n",
            Notification(is_beat=True, step=1200, section="evaluation"),
        ),
        (b"X_STEP=0", Notification(is_beat=True, step=0)),
        (b"STATUS=epoch 3\nREADY=1\nMAINPID=1", Notification(status="epoch 3")),
        (b"X_CHECKPOINT=/ckpt/a=b", Notification(checkpoint="/ckpt/a=b", has_saved=True)),
        (b"X_CHECKPOINT=\nX_STEP=7", Notification(step=7, has_saved=True)),
        (b"WATCHDOG=1\nX_CHECKPOINT=a", Notification(is_beat=True, checkpoint="a", has_saved=True)),
        (b"X_SAVES=1", Notification(will_save=True)),
        (b"EXTEND_TIMEOUT_USEC=1500000", Notification(extend=1.5)),
        (b"EXTEND_TIMEOUT_USEC=999999999999999999", Notification(extend=LONGEST_PAUSE)),
        (b"WATCHDOG=trigger\nX_STEP=-1\nEXTEND_TIMEOUT_USEC=1e9", Notification()),
        (b"X_STEP=" + b"9" * 30, Notification()),
        (b"WATCHDOG=1\n" + b"x" * LONGEST, Notification()),
        (b"", Notification()),
        (b"\xff\n=\n==\nWATCHDOG", Notification()),
    ],
)
def test_datagrams(datagram: bytes, told: Notification) -> None:
    """Unknown, malformed and oversized parts say nothing."""
    assert told == parse(datagram)


@given(
    strategies.binary(max_size=200)
    | strategies.lists(
        strategies.sampled_from(
            [b"WATCHDOG=1", b"X_STEP=", b"STATUS=\xf0", b"EXTEND_TIMEOUT_USEC=", b"\n", b"=", b"7", b"\0", b"\xc2\xb2"]
        )
    ).map(b"".join)
)
def test_hostile_datagrams(datagram: bytes) -> None:
    """The record of any datagram is within its bounds."""
    told = parse(datagram)

    assert told.step is None or told.step < 10**18
    assert 0.0 <= told.extend <= LONGEST_PAUSE
    assert max(len(told.section), len(told.status), len(told.checkpoint)) <= len(datagram)
