"""The messages between the link processes as JSON objects, and back from strangers' bytes. Pure.

A message carries the whole state of its sender, so that any may be lost. Every text and every array has a limit, so
that a message fits into `LARGEST_MESSAGE` whatever a node says, and a state stays small whatever a stranger sends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from ascend_runner.link.messages import (
    LARGEST_MESSAGE,
    MOST_NAMED,
    PROTOCOL,
    Asked,
    Diagnosed,
    Failure,
    FailureClass,
    Identity,
    Local,
    Stage,
    StopAll,
)
from ascend_runner.link.verdict import exit_status
from ascend_runner.members import Members, plain
from ascend_runner.record.nodes import JobVerdict

LONGEST_TEXT: Final = 800  # bytes, as JSON with escapes
LONGEST_ESCAPE: Final = 6  # bytes, of a letter
MOST_LINES: Final = 20  # of a rank's output
LARGEST_LIST: Final = 5 * 1024  # bytes of these lines, and of the versions of a node
RESERVE: Final = 1024  # bytes of a header
MOST_RESULTS: Final = 16  # different answers to a request


@attrs.frozen(kw_only=True)
class Header:
    """What both kinds of messages begin with."""

    protocol: int = PROTOCOL
    sender: str = ""  # the incarnation of the runner, or of the hub
    seq: int = 0  # grows with each message of a sender
    sent: float = 0.0  # on the sender's clock
    to: str = ""  # the incarnation that the receiver had when it was last heard
    echo: float | None = None  # `sent` of the last message from there
    held: float = 0.0  # how long ago that one arrived


@attrs.frozen(kw_only=True)
class FromSpoke:
    """A message of a node."""

    header: Header = attrs.Factory(Header)
    node: int
    local: Local
    identity: Identity | None = None  # until the hub knows it
    wall: float = 0.0  # seconds since 1970 when it was sent
    age: float = 0.0  # of the failure when it was sent
    ran: int = -1  # the last attempt in which ranks of this runner have run
    knows: int = -1  # the last attempt on which it has a verdict
    settled: int = -1  # the last attempt after which every node was known to be dead
    stop: StopAll | None = None  # the last one by a hub that it has obeyed
    is_gone: bool = False  # the runner has died
    asked: Asked | None = None


@attrs.frozen(kw_only=True)
class View:
    """What all nodes are to know."""

    attempt: int = 0  # the generation
    start: int = 0  # the last attempt that may start
    missing: tuple[int, ...] = ()  # nodes that have not joined
    stop: StopAll | None = None
    verdict: JobVerdict | None = None  # the last one
    refusal: str = ""
    wait: str = ""  # a sentence or, of `awaited` nodes, its end: "to end"
    awaited: tuple[int, ...] = ()
    rereads_table: bool = False
    warning: str = ""  # of all nodes, once
    is_bye: bool = False  # node 0 has succeeded, and leaves
    asked: Asked | None = None
    answered: str = ""  # the last request that is done
    results: tuple[tuple[str, str], ...] = ()


@attrs.frozen(kw_only=True)
class FromHub:
    """A message of the hub."""

    header: Header
    is_welcome: bool = False  # the hub knows who the node is
    view: View = attrs.Factory(View)


# --- Writing ----------------------------------------------------------------------------------------------------------


def encode_spoke(message: FromSpoke) -> dict[str, object]:
    """Return a message of a node as an object."""
    local = attrs.evolve(limited(message.local), silent_from=None)
    if local.failure:  # its time means nothing on another machine
        local = attrs.evolve(local, failure=attrs.evolve(limited(local.failure), at=0.0))
    if local.diagnosed:
        local = attrs.evolve(local, diagnosed=limited(local.diagnosed))
    identity, stop = message.identity and limited(message.identity), message.stop and limited(message.stop)
    if identity:
        versions = fitting((_cut(name), _cut(value)) for name, value in identity.versions)
        identity = attrs.evolve(identity, versions=versions)
    encoded: dict[str, Any] = plain(attrs.evolve(message, local=local, identity=identity, stop=stop))
    if _is_large(encoded) and identity:
        encoded["identity"]["versions"] = []
    if _is_large(encoded):
        encoded["local"]["survivors"] = encoded["local"]["survivors"][:1]
    if _is_large(encoded) and local.diagnosed:
        encoded["local"]["diagnosed"]["lines"] = []
    return encoded


def encode_view(view: View) -> dict[str, object]:
    """Return what all nodes are to know as an object."""
    verdict = view.verdict and limited(view.verdict)
    stop = view.stop and limited(view.stop)
    encoded: dict[str, Any] = plain(attrs.evolve(limited(view), verdict=verdict, stop=stop))
    if _is_large(encoded):
        encoded["results"] = []
    if _is_large(encoded) and verdict:
        encoded["verdict"]["lines"] = []
    return encoded


def _is_large(encoded: Mapping[str, object]) -> bool:
    """Whether a message with texts at their limits, in scripts that take 6 bytes a letter, is too long."""
    return len(json.dumps(encoded)) > LARGEST_MESSAGE - RESERVE


def encode_hub(header: Header, view: Mapping[str, object], *, is_welcome: bool = True) -> dict[str, object]:
    """Return a message of the hub as an object; `view` is encoded already, as it is the same for all."""
    return {"header": attrs.asdict(header, recurse=False), "is_welcome": is_welcome, "view": view}


def limited(record: Any) -> Any:
    """Return a record with the texts and arrays of numbers and texts that it has cut to their limits."""
    changes: dict[str, object] = {}
    for field in attrs.fields(type(record)):
        value = getattr(record, field.name)
        if isinstance(value, str) and len(value) * LONGEST_ESCAPE > LONGEST_TEXT:
            changes[field.name] = _cut(value)
        elif field.name == "lines":
            changes[field.name] = fitting(map(_cut, reversed(value[-MOST_LINES:])))[::-1]
        elif isinstance(value, tuple) and value:
            items = tuple(_cut(item) if isinstance(item, str) else item for item in value[:MOST_NAMED])
            changes[field.name] = items if isinstance(items[0], int) else fitting(items)
    return attrs.evolve(record, **changes) if changes else record


def fitting(items: Iterable[Any], most: int = LARGEST_LIST) -> tuple[Any, ...]:
    """Return the first items that fit into `most` bytes."""
    taken, left = [], most
    for item in items:
        left -= len(json.dumps(plain(item))) + 1
        if left < 0:
            break
        taken.append(item)
    return tuple(taken)


def _cut(text: str) -> str:
    if len(text) * LONGEST_ESCAPE <= LONGEST_TEXT or len(json.dumps(text)) <= LONGEST_TEXT:
        return text
    is_plain = text.isascii() and text.isprintable()
    return text[: (LONGEST_TEXT - 5) // (1 if is_plain else LONGEST_ESCAPE)] + "..."


# --- Reading ----------------------------------------------------------------------------------------------------------


def decode_spoke(message: Mapping[str, object], last: tuple[object, Local] | None = None) -> FromSpoke | None:
    """Return a message of a node, None if it is none. Most repeat what the `last` one has said, and is decoded."""
    members = Members(message)
    header = decode_header(members)
    is_same = last is not None and last[0] == message.get("local")
    node, local = members.count("node"), last[1] if last and is_same else decode_local(members.child("local"))
    if header is None or node is None or local is None:
        return None
    return FromSpoke(
        **{
            **members.fields(FromSpoke),
            "header": header,
            "node": node,
            "local": local,
            "identity": decode_identity(members.child("identity")),
            "stop": _stop(members.child("stop")),
            "asked": _asked(members.child("asked")),
        }
    )


def decode_hub(message: Mapping[str, object]) -> FromHub | None:
    """Return a message of the hub, None if it is none."""
    members = Members(message)
    header, view = decode_header(members), members.child("view")
    if header is None or view.count("attempt") is None:
        return None
    verdict = JobVerdict.decode(view.child("verdict"))
    fields = {
        **view.fields(View),
        "stop": _stop(view.child("stop")),
        "verdict": verdict and limited(verdict),
        "asked": _asked(view.child("asked")),
        "results": tuple((pair.text("0"), pair.text("1")) for pair in view.pairs("results")[:MOST_RESULTS]),
    }
    return FromHub(header=header, is_welcome=members.flag("is_welcome"), view=limited(View(**fields)))


def _stop(members: Members) -> StopAll | None:
    if members.count("attempt") is None:
        return None
    stop: StopAll = limited(StopAll(**members.fields(StopAll)))
    return attrs.evolve(stop, status=exit_status(stop.status))


def decode_header(members: Members) -> Header | None:
    """Return the header of a message, None if it has none."""
    header = limited(Header(**members.child("header").fields(Header)))
    return header if header.sender and header.seq > 0 else None


def decode_local(members: Members) -> Local | None:
    """Return what a runner says of its node, None if it is malformed."""
    stage, failure, diagnosed = members.choice("stage", Stage), members.child("failure"), members.child("diagnosed")
    if stage is None or members.count("attempt") is None:
        return None
    local = Local(
        **members.fields(Local),
        stage=stage,
        failure=_failure(failure) if failure.members else None,
        diagnosed=_diagnosed(diagnosed) if diagnosed.members else None,
    )
    return limited(local)  # type: ignore[no-any-return]  # the same record


def decode_identity(members: Members) -> Identity | None:
    """Return who a node is, None if it does not say so."""
    if members.count("node") is None or not members.count("nodes") or not members.text("incarnation"):
        return None
    versions = [(_cut(pair.text("0")), _cut(pair.text("1"))) for pair in members.pairs("versions")]
    return limited(Identity(**members.fields(Identity), versions=fitting(versions)))  # type: ignore[no-any-return]


def _failure(members: Members) -> Failure:
    kind = members.choice("kind", FailureClass) or FailureClass.UNKNOWN
    return limited(Failure(**members.fields(Failure), kind=kind))  # type: ignore[no-any-return]


def _diagnosed(members: Members) -> Diagnosed:
    kind = members.choice("kind", FailureClass) or FailureClass.UNKNOWN
    return limited(Diagnosed(**members.fields(Diagnosed), kind=kind))  # type: ignore[no-any-return]


def _asked(members: Members) -> Asked | None:
    return limited(Asked(**members.fields(Asked))) if members.text("request_id") else None
