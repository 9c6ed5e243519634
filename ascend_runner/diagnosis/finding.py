"""What was found out about one rank, in plain texts and numbers: for the screen, the report and the library alike."""

from __future__ import annotations

from ascend_runner.annotations import NamedTuple, Optional
from ascend_runner.text import rank_list


class Peer(NamedTuple):
    """Who is complained of: what the message does not say is None or "". `device_id` counts as HCCL does, on a server.

    A rank id is that of the communicator. It equals RANK_ID in the world group; in a group of a part of the ranks it
    may not, so where a message names server and device, too, those are the ones to trust.
    """

    rank_id: Optional[int] = None
    server_id: str = ""
    device_id: Optional[int] = None
    device_ip: str = ""


class Accused(NamedTuple):
    """Whom the failed ranks point at, where all of them only complain. `rank_id` is None where it cannot be known."""

    rank_id: Optional[int] = None
    server_id: str = ""
    device_id: Optional[int] = None
    accusers: tuple[int, ...] = ()


class Finding(NamedTuple):
    """All that is known of why a rank ended. Every text is fit for a terminal, bounded, and "" where there is nothing.

    `meaning` says what such an ending usually means; `exception` and `place` are the last Python exception and where it
    was raised, `origin` and `origin_place` those that its chain began with; `code` is the first CANN or HCCL code (or
    telling phrase), `code_kind` whether it usually is the root or points at a peer, `points_at` at whom; `plog_error`
    is the first ERROR line of the newest plog, `plog_path`.
    """

    meaning: str = ""
    exception: str = ""
    place: str = ""
    origin: str = ""
    origin_place: str = ""
    traceback: tuple[str, ...] = ()
    last_lines: tuple[str, ...] = ()
    code: str = ""
    code_meaning: str = ""
    code_kind: str = ""
    code_line: str = ""
    points_at: tuple[Peer, ...] = ()
    plog_path: str = ""
    plog_error: str = ""


def lines(finding: Finding) -> list[str]:
    """Say why a rank ended, as the failure screen does: its traceback, else its last lines, then what that means."""
    text = [f"| {line}" for line in finding.traceback or finding.last_lines]
    if finding.origin:
        text.append(f"began  {finding.origin}" + (f" ({finding.origin_place})" if finding.origin_place else ""))
    if finding.meaning:
        text.append(f"means  {finding.meaning}")
    if finding.code:
        text.append(f"code   {finding.code}, {finding.code_kind}: {finding.code_meaning}")
    if finding.points_at:
        text.append(f"blames {', '.join(map(peer_words, finding.points_at))}")
    if finding.plog_path:
        text.append(f"plog   {finding.plog_path}")
        text += [f"       {finding.plog_error}"] if finding.plog_error else []
    return text


def accused_words(accused: Accused) -> str:
    """Say whom all point at: "ranks 0, 1 only complain of rank 3 (device 1 on server 10.0.0.5): look there first"."""
    place = peer_words(Peer(accused.rank_id, accused.server_id, accused.device_id))
    verb = "only complains" if len(accused.accusers) == 1 else "only complain"
    return f"{rank_list(list(accused.accusers))} {verb} of {place}: look there first"


def peer_words(peer: Peer) -> str:
    """Name a peer: "rank 3 (device 3 on server 10.0.0.5)", or what of it is known."""
    device = "" if peer.device_id is None else f"device {peer.device_id}"
    server = f"server {peer.server_id}" if peer.server_id else ""
    address = f"device address {peer.device_ip}" if peer.device_ip and not server else ""
    place = " on ".join(part for part in (device or address, server) if part)
    if peer.rank_id is None:
        return place or "an unnamed peer"

    return f"rank {peer.rank_id} ({place})" if place else f"rank {peer.rank_id}"
