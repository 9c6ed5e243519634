"""What crosses the socketpair between the runner and its link process: one record per message, as a JSON object. Pure.

{"Local": {...}}: the name of the record and its fields.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any, Final, Union, get_args

import attrs

from ascend_runner.link.messages import (
    LARGEST_MESSAGE,
    NEWS,
    Asked,
    Diagnosed,
    Failure,
    FailureClass,
    Identity,
    Local,
    News,
    Stage,
)
from ascend_runner.link.wire import fitting, limited
from ascend_runner.members import Members, field_types, plain
from ascend_runner.record.nodes import JobVerdict, NodeRecord

EVERYWHERE: Final = "*"


@attrs.frozen(kw_only=True)
class Settings:
    """What the link process must know; the first message to it. In later ones, only `hubs` may differ."""

    identity: Identity
    key: str  # 64 bytes in hexadecimal, see `meeting.derive_key`
    ports: tuple[int, ...]  # where the hub may be
    hubs: tuple[str, ...] = ()  # addresses and names of node 0, the most likely first
    interface: str = EVERYWHERE  # where the hub listens
    node_timeout: float | None = None  # seconds without contact after which a node is lost
    delay: float | None = None  # this and the next two are as in `job_machine.Policy`
    always: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    began: float = 0.0  # when the runner opened the link, on the monotonic clock
    boot: str = ""  # the machine's boot id, by which runners know that they share this clock; "": unknown
    contact: float | None = None  # as the link process before this one has answered a `Ping`


@attrs.frozen(kw_only=True)
class Ping:
    """The runner asks whether the link process still responds; the answer is the same record."""

    contact: float | None = None  # when this node has last sent what node 0 has certainly heard; None: it never has


@attrs.frozen
class Close:
    """The runner is about to exit, and has said everything. The link process ends once that has arrived, or soon."""


@attrs.frozen(kw_only=True)
class Unavailable:
    """The link process cannot work here, and another one could not either."""

    sentence: str


Order = Union[Settings, Local, Asked, Ping, Close]
Answer = Union[News, Ping, Unavailable]
ORDERS: Final = {kind.__name__: kind for kind in get_args(Order)}
ANSWERS: Final = {kind.__name__: kind for kind in (*NEWS, Ping, Unavailable)}

_CHOICES: Final[Mapping[str, type[enum.Enum]]] = {"Stage": Stage, "FailureClass": FailureClass}
_RECORDS: Final[Mapping[str, type[Any]]] = {
    "Failure | None": Failure,
    "Diagnosed | None": Diagnosed,
    "Identity": Identity,
    "JobVerdict": JobVerdict,
}
_ARRAYS: Final[Mapping[str, type[Any]]] = {"tuple[NodeRecord, ...]": NodeRecord}


def encode(record: Order | Answer) -> bytes:
    """Return a record as a message; what a runner says of its node is cut to the limits of `wire`.

    Raises:
        ValueError: It is longer than a message may be.
    """
    if isinstance(record, Local):
        record = _limited(record)
    message = _packed(record)
    if len(message) > LARGEST_MESSAGE and isinstance(record, Local):  # after a failure, long after they were told
        message = _packed(attrs.evolve(record, versions=()))
    if len(message) > LARGEST_MESSAGE:
        raise ValueError(f"a message of {len(message)} bytes, expected at most {LARGEST_MESSAGE}")
    return message


def _packed(record: Order | Answer) -> bytes:
    return json.dumps({type(record).__name__: plain(record)}, separators=(",", ":")).encode()


def _limited(local: Local) -> Local:
    changes = {name: limited(value) for name in ("failure", "diagnosed") if (value := getattr(local, name))}
    if local.diagnosed:
        lines = fitting(reversed(changes["diagnosed"].lines))[::-1]
        changes["diagnosed"] = attrs.evolve(changes["diagnosed"], lines=lines)
    found: Local = attrs.evolve(limited(local), **changes)
    return found


def decode(message: bytes, kinds: Mapping[str, type[Any]]) -> Any:
    """Return the record of a message; a field that is missing, or has another type, has its default.

    Raises:
        ValueError: It is not a record of one of these kinds.
    """
    try:
        found = json.loads(message)
    except RecursionError:
        raise ValueError("an object of too many levels") from None
    if not (isinstance(found, dict) and len(found) == 1):
        raise ValueError("not an object with one member")
    ((name, fields),) = found.items()
    if name not in kinds or not isinstance(fields, dict):
        raise ValueError(f"no record of the kind {name!r} is expected")
    return _decode(kinds[name], Members(fields))


def _decode(kind: type[Any], members: Members) -> Any:
    present = {name: text for name, text in field_types(kind).items() if name in members.members}
    found = {name: value for name, value in members.fields(kind).items() if name in present}
    for name, text in present.items():
        if text in _CHOICES and (choice := members.choice(name, _CHOICES[text])):
            found[name] = choice
        elif text in _RECORDS and members.members[name] is not None:
            found[name] = _decode(_RECORDS[text], members.child(name))
        elif text in _ARRAYS:
            found[name] = tuple(_decode(_ARRAYS[text], child) for child in members.children(name))
        elif text == "tuple[tuple[str, str], ...]":
            found[name] = tuple((pair.text("0"), pair.text("1")) for pair in members.pairs(name))
    try:
        return kind(**found)
    except TypeError as error:  # a field without a default is missing
        raise ValueError(str(error)) from error
