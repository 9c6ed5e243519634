"""The named tuple that stands in for typing's does what that does."""

from __future__ import annotations

import copy
import pickle
import typing

import pytest

import ascend_runner.annotations

if typing.TYPE_CHECKING:
    # To a type checker they are one and the same.
    from typing import NamedTuple as OurNamedTuple
else:
    OurNamedTuple = ascend_runner.annotations.NamedTuple


class Theirs(typing.NamedTuple):
    """What is to be imitated."""

    one: int
    two: str = "b"
    three: typing.Mapping[str, int] = {}


class Ours(OurNamedTuple):
    """The imitation."""

    one: int
    two: str = "b"
    three: typing.Mapping[str, int] = {}


BOTH = pytest.mark.parametrize("kind", [Ours, Theirs])


@BOTH
def test_values_are_given_by_place_by_name_and_by_default(kind: type[Theirs]) -> None:
    """All ways of making one give the same tuple."""
    assert (1, "b", {}) == kind(1) == kind(one=1) == kind(1, two="b") == kind(1, "b", {}) == kind(three={}, one=1)
    assert (("one", "two", "three"), {"two": "b", "three": {}}) == (kind._fields, dict(kind._field_defaults))


@BOTH
@pytest.mark.parametrize(
    ("values", "named"), [((), {}), ((), {"two": "b"}), ((1,), {"one": 1}), ((1,), {"four": 4}), ((1, "b", {}, 4), {})]
)
def test_wrong_values_are_refused(kind: type[Theirs], values: tuple[object, ...], named: dict[str, object]) -> None:
    """A missing, a double, an unknown and a superfluous value."""
    with pytest.raises(TypeError):
        kind(*values, **named)  # type: ignore[arg-type]  # that is the point


@BOTH
def test_items_have_names_and_cannot_be_changed(kind: type[Theirs]) -> None:
    """An item is read by name or place; a changed copy leaves the original alone."""
    found = kind(1, three={"x": 2})

    assert (1, "b", {"x": 2}) == (found.one, found.two, found.three) == tuple(found)
    assert (kind(1, "c", {"x": 2}), kind(1, three={"x": 2})) == (found._replace(two="c"), found)
    assert {"one": 1, "two": "b", "three": {"x": 2}} == found._asdict()
    with pytest.raises(AttributeError):
        found.one = 2  # type: ignore[misc]  # that is the point
    with pytest.raises((TypeError, ValueError)):
        found._replace(four=4)  # type: ignore[call-arg]  # likewise


@BOTH
def test_copies_and_words(kind: type[Theirs]) -> None:
    """It goes through pickle and copy, and says what it holds."""
    found = kind(1, three={"x": 2})

    assert (found, kind) == (pickle.loads(pickle.dumps(found)), type(copy.deepcopy(found)))  # noqa: S301  our own
    assert f"{kind.__name__}(one=1, two='b', three={{'x': 2}})" == repr(found)
