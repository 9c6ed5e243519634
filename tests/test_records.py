"""Records that go to JSON and back."""

from __future__ import annotations

import json
from collections.abc import Mapping  # noqa: TC003  `decode` reads the annotations below
from typing import NamedTuple, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner import records
from ascend_runner.errors import AscendRunnerError


class Leaf(NamedTuple):
    """A record in a record."""

    name: str
    weight: float = 1.0


class Tree(NamedTuple):
    """A field of every kind."""

    height: int
    leaves: tuple[Leaf, ...] = ()
    first: Optional[Leaf] = None
    age: Optional[int] = None
    is_green: bool = False
    notes: Mapping[str, str] = {}
    rings: tuple[int, ...] = ()


TREE = Tree(3, (Leaf("a"), Leaf("b", 2.5)), Leaf("c"), 9, is_green=True, notes={"x": "y"}, rings=(1, 2))


@pytest.mark.parametrize("tree", [TREE, Tree(1), Tree(0, rings=(1,), notes={})])
def test_round_trip(tree: Tree) -> None:
    """What is encoded, written, read and decoded is the same record."""
    assert tree == records.decode(Tree, json.loads(json.dumps(records.encode(tree))))


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
DOCUMENTS = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(DOCUMENTS)
def test_text(document: object) -> None:
    """What is written is read by json as it was; texts stay on one line, whatever they hold."""
    written = records.text(document)

    assert document == json.loads(written.encode())
    assert written.isprintable()


def test_document() -> None:
    """Fields go by their names; tuples are arrays."""
    expected = {
        "height": 1, "leaves": [{"name": "a", "weight": 1.0}], "first": None, "age": None, "is_green": False,
        "notes": {}, "rings": [4],
    }  # fmt: skip

    assert expected == records.encode(Tree(1, (Leaf("a"),), rings=(4,)))


def test_members_of_a_later_version() -> None:
    """A member that the record does not know is ignored, one that is missing has its default."""
    assert Tree(1) == records.decode(Tree, {"height": 1, "colour": "red"})


def test_whole_number_for_a_number() -> None:
    """JSON writes 2.0 as 2."""
    assert Leaf("a", 2.0) == records.decode(Leaf, {"name": "a", "weight": 2})


@pytest.mark.parametrize(
    ("sentence", "document"),
    [
        ("the document is [], expected an object", []),
        ("the document has no height", {}),
        ("height is '3', expected a whole number", {"height": "3"}),
        ("height is True, expected a whole number", {"height": True}),
        ("height is None, expected a whole number", {"height": None}),
        ("age is 1.5, expected a whole number", {"height": 1, "age": 1.5}),
        ("is_green is 1, expected true or false", {"height": 1, "is_green": 1}),
        ("leaves is 3, expected an array", {"height": 1, "leaves": 3}),
        ("leaves[1] has no name", {"height": 1, "leaves": [{"name": "a"}, {}]}),
        ("leaves[0].weight is 'x', expected a number", {"height": 1, "leaves": [{"name": "a", "weight": "x"}]}),
        ("first is 'a', expected an object", {"height": 1, "first": "a"}),
        ("notes is [], expected an object", {"height": 1, "notes": []}),
        ("notes.x is 3, expected a text", {"height": 1, "notes": {"x": 3}}),
    ],
)
def test_misfits(sentence: str, document: object) -> None:
    """A document that does not fit is refused with the place, what was expected and what was found."""
    with pytest.raises(AscendRunnerError) as caught:
        records.decode(Tree, document)

    assert sentence == str(caught.value)
