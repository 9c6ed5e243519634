"""Runner and link process understand each other: every record that they exchange survives."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.link import channel
from ascend_runner.link.messages import (
    NEWS,
    Asked,
    Diagnosed,
    Failure,
    FailureClass,
    Identity,
    Local,
    NodesKnown,
    Stage,
    VerdictReached,
)
from ascend_runner.members import field_types
from ascend_runner.record.nodes import JobVerdict, NodeRecord

VALUES: dict[str, Any] = {
    "str": "text",
    "int": 3,
    "Count": 3,
    "float": 1.5,
    "bool": True,
    "tuple[str, ...]": ("a", "b"),
    "tuple[int, ...]": (1, 2),
    "tuple[tuple[str, str], ...]": (("a", "b"), ("c", "")),
    "Stage": Stage.RUNNING,
    "FailureClass": FailureClass.PEER,
}


def filled(kind: type[Any]) -> Any:
    """Return a record of which no field has its default."""
    records = {"Failure": Failure, "Diagnosed": Diagnosed, "Identity": Identity, "JobVerdict": JobVerdict}
    fields: dict[str, Any] = {}
    for name, text in field_types(kind).items():
        plain = text.replace(" | None", "")
        if text == "tuple[NodeRecord, ...]":
            fields[name] = (filled(NodeRecord), filled(NodeRecord))
        else:
            fields[name] = filled(records[plain]) if plain in records else VALUES[plain]
    return kind(**fields)


@pytest.mark.parametrize("kind", [*NEWS, channel.Ping, channel.Unavailable])
def test_answers_survive(kind: type[Any]) -> None:
    """Every field of what the link process says arrives."""
    assert filled(kind) == channel.decode(channel.encode(filled(kind)), channel.ANSWERS)


@pytest.mark.parametrize("kind", [channel.Settings, Local, Asked, channel.Ping, channel.Close])
def test_orders_survive(kind: type[Any]) -> None:
    """Every field of what the runner says arrives."""
    assert filled(kind) == channel.decode(channel.encode(filled(kind)), channel.ORDERS)


@pytest.mark.parametrize("kind", [Local, NodesKnown, VerdictReached])
def test_defaults_survive(kind: type[Any]) -> None:
    """What is unknown stays so."""
    record = kind(JobVerdict()) if kind is VerdictReached else kind()

    assert record == channel.decode(channel.encode(record), channel.ORDERS if kind is Local else channel.ANSWERS)


@given(st.lists(st.text(max_size=3000), max_size=40).map(tuple), st.text(max_size=3000))
def test_long_texts_are_cut(lines: tuple[str, ...], text: str) -> None:
    """Whatever a node's diagnosis says, it fits into a message."""
    diagnosed = Diagnosed(sentence=text, lines=lines, log=text)
    local = Local(state=text, survivors=lines, failure=Failure(ending=text), diagnosed=diagnosed)
    versions = tuple((line, text) for line in lines)

    assert isinstance(channel.decode(channel.encode(attrs.evolve(local, versions=versions)), channel.ORDERS), Local)


@pytest.mark.parametrize(
    "message", [b"", b"{", b"[]", b"{}", b'{"Local": 1}', b'{"Settings": {}}', b"\xff", b"[" * 5000], ids=range(8)
)
def test_malformed_messages_are_refused(message: bytes) -> None:
    """A message that is no record is an error of one kind."""
    with pytest.raises(ValueError):  # noqa: PT011  of any text
        channel.decode(message, channel.ORDERS)
