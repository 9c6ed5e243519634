"""The typed readers: what each accepts, and the path in its errors."""

from __future__ import annotations

import pytest

from ascend_runner.rank_table.fields import UNREADABLE, Document, Fields, shown


def _fields(**values: object) -> Fields:
    return Fields(Document("a.json"), values)


def _told(fields: Fields) -> str:
    """Return the one problem of a document."""
    (problem,) = fields.document.problems

    return f"{problem.sentence}, in '{problem.path}' of {problem.source}"


@pytest.mark.parametrize(("value", "number"), [("7", 7), (7, 7), ("007", 7), ("0", 0)])
def test_whole_number(value: object, number: int) -> None:
    """A whole number is a number or a string of digits."""
    fields = _fields(rank_id=value)

    assert number == fields.whole_number("rank_id")
    assert [] == fields.document.problems


@pytest.mark.parametrize(
    "value", [True, None, -1, 1.0, "-1", "+1", " 1", "1_0", "", "1e3", "٣", "²", "9" * 19, 10**18, 2**63, [1], {}]
)
def test_not_a_whole_number(value: object) -> None:
    """Nothing else is a whole number; HCCL would misread some of these."""
    fields = _fields(rank_id=value)

    assert UNREADABLE == fields.whole_number("rank_id")
    assert f"rank_id is {shown(value)}, expected a whole number, in 'rank_id' of a.json" == _told(fields)


def test_text() -> None:
    """A string is read unchanged and a whole number as its digits; the path of the first number is kept."""
    fields = _fields(server_id="a", device_ip=12)

    assert "a" == fields.text("server_id")
    assert "12" == fields.text("device_ip")
    assert "device_ip" == fields.document.first_non_text


@pytest.mark.parametrize("value", ["", None, True, 1.5, [], {}])
def test_not_a_string(value: object) -> None:
    """A required string must not be empty."""
    fields = _fields(server_id=value)

    assert not fields.text("server_id")
    assert f"server_id is {shown(value)}, expected a non-empty string, in 'server_id' of a.json" == _told(fields)


def test_text_with_default() -> None:
    """If a string is optional, null counts as missing, and an empty string stays empty."""
    fields = _fields(a=None, b="")

    assert ["x", "", "x"] == [fields.text(key, default="x") for key in "abc"]
    assert [] == fields.document.problems


def test_path_of_a_nested_object() -> None:
    """A path names every array index from the top of the document to the key."""
    top = _fields(server_list=[{}, {"device": [{"rank_id": "x"}]}])
    device = top.objects("server_list")[1].objects("device")[0]
    device.whole_number("rank_id")

    assert "server_list[1].device[0].rank_id" == device.path("rank_id")
    assert "rank_id is 'x', expected a whole number, in 'server_list[1].device[0].rank_id' of a.json" == _told(top)


def test_wrong_items_are_left_out_and_not_counted() -> None:
    """An item that is not an object is reported; the resulting wrong count is not."""
    top = _fields(server_count="2", server_list=[{}, 3])

    assert [{}] == [fields.values for fields in top.objects("server_list")]
    top.check_count("server_count", 1, "server", of="server_list")
    assert "server_list[1] is 3, expected an object, in 'server_list[1]' of a.json" == _told(top)


@pytest.mark.parametrize(("count", "actual"), [("2", 2), (2, 2), (None, 5)])
def test_count(count: object, actual: int) -> None:
    """A count may be correct or missing."""
    top = _fields(server_count=count)
    top.check_count("server_count", actual, "server", of="server_list")

    assert [] == top.document.problems


def test_wrong_count() -> None:
    """A count that contradicts its list is an error."""
    top = _fields(server_count="2")
    top.check_count("server_count", 1, "server", of="server_list")

    assert "server_count is 2, but 1 server is listed, in 'server_count' of a.json" == _told(top)


def test_extra_keys() -> None:
    """Unknown keys are returned unchanged."""
    assert {"b": 2} == _fields(a=1, b=2).extra_keys({"a"})


def test_first_error_of_a_path() -> None:
    """Only the first error of a path is reported."""
    document = Document("a.json")
    for sentence, path in (("first", "x"), ("second", "x"), ("third", "y")):
        document.error(sentence, path)

    assert [("first", "x"), ("third", "y")] == [(problem.sentence, problem.path) for problem in document.errors]


@pytest.mark.parametrize(
    ("value", "said"),
    [("x", "'x'"), (3, "3"), (1.5, "1.5"), (True, "true"), (False, "false"), (None, "null"), ({}, "an object")],
)
def test_shown(value: object, said: str) -> None:
    """A value is shown in JSON's notation."""
    assert said == shown(value)


def test_long_value_is_cut() -> None:
    """A long value is truncated in sentences."""
    assert f"'{'y' * 60}'..." == shown("y" * 10_000)
    assert f"{'9' * 60}..." == shown(int("9" * 300))
